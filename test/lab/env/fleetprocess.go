/*
Copyright 2026 The capi-fleet Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package env

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// startFleet starts Fleet's controllers, or the stand-in. Fleet Clusters and the rest
// may come later.
func (l *Lab) startFleet() error {
	switch {
	case l.opts.NoFleetController:
		return nil
	case l.opts.FleetController != "":
		return l.startFleetController()
	default:
		config, err := l.configAs("fleet-controller", "system:masters")
		if err != nil {
			return err
		}
		return l.startStandIn(config)
	}
}

func (l *Lab) startStandIn(config *rest.Config) error {
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return err
	}
	standIn := &fleetStandIn{client: c, report: func(err error) { l.opts.Log("Fleet's stand-in: %v", err) }}
	l.group.Go(func() { standIn.run(l.ctx) })
	return nil
}

// startFleetController runs Fleet's controller and, as a second process of the same
// binary, its agent management: the two parts of a stock installation that see our
// Fleet Clusters.
func (l *Lab) startFleetController() error {
	for name, args := range map[string][]string{
		"fleet-controller":      nil,
		"fleet-agentmanagement": {"agentmanagement"},
	} {
		kubeconfig, err := l.management.Kubeconfig(name, "system:masters")
		if err != nil {
			return err
		}
		env := electionEnv("CATTLE_ELECTION")
		maps.Copy(env, electionEnv("FLEET_AGENT_ELECTION"))
		env["NAMESPACE"] = fleetNamespace
		env["FLEET_AGENT_REPLICA_COUNT"] = "1"
		process, err := l.startFleetBinary(fleetBinary{
			name: name, path: l.opts.FleetController, args: args, kubeconfig: kubeconfig, env: env,
			ports: []string{"FLEET_METRICS_BIND_ADDRESS", "FLEET_HEALTHPROBE_BIND_ADDRESS"},
		})
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.processes = append(l.processes, process)
		l.mu.Unlock()
	}
	return nil
}

// electionEnv holds the variables without which Fleet's programs do not start.
func electionEnv(prefix string) map[string]string {
	return map[string]string{
		prefix + "_LEASE_DURATION": "30s",
		prefix + "_RETRY_PERIOD":   "10s",
		prefix + "_RENEW_DEADLINE": "25s",
	}
}

// runFleetAgent is an AgentFunc that runs Options.FleetAgent.
func (l *Lab) runFleetAgent(ctx context.Context, spec AgentSpec) error {
	env := electionEnv("CATTLE_ELECTION")
	maps.Copy(env, spec.Env)
	env["NAMESPACE"] = spec.Namespace
	process, err := l.startFleetBinary(fleetBinary{
		name: "fleet-agent-" + strings.ReplaceAll(spec.Name, "/", "_"), path: l.opts.FleetAgent, kubeconfig: spec.Kubeconfig, env: env,
		ports: []string{"FLEET_AGENT_METRICS_BIND_ADDRESS", "FLEET_AGENT_PROBE_BIND_ADDRESS"},
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return process.Stop()
	case <-process.Exited():
		return fmt.Errorf("it exited, see %s", process.LogPath())
	}
}

// fleetBinary is one process of a program of Fleet.
type fleetBinary struct {
	name       string
	path       string
	args       []string
	kubeconfig []byte
	env        map[string]string
	ports      []string // variables that take an address to listen on
}

func (l *Lab) startFleetBinary(spec fleetBinary) (*kube.Process, error) {
	dir := filepath.Join(l.Dir, "fleet", spec.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, spec.kubeconfig, 0o600); err != nil {
		return nil, err
	}
	spec.env["KUBECONFIG"] = kubeconfig
	for _, variable := range spec.ports {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		spec.env[variable] = address
	}
	// Nothing on Fleet's command line names the lab's folder, so the path of the
	// binary has to: it is how a process is known as one of the lab's.
	target, err := filepath.Abs(spec.path)
	if err != nil {
		return nil, err
	}
	link := filepath.Join(dir, spec.name)
	if err := os.Symlink(target, link); err != nil && !os.IsExist(err) {
		return nil, err
	}
	process, err := kube.StartProcess(kube.ProcessSpec{
		Name: "fleet", Dir: dir, Path: link, Args: spec.args, Env: processEnv(spec.env),
	})
	if err != nil {
		return nil, err
	}
	l.opts.Log("%s: started, log in %s", spec.name, process.LogPath())
	return process, nil
}
