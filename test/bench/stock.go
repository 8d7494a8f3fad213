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

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// programs are the paths of Fleet's own programs and of the file with its CRDs.
type programs struct{ controller, agent, crds string }

// check finds what is wrong before anything is measured. None at all is right: then figure 7
// is left out.
func (p *programs) check() error {
	if p.controller == "" && p.agent == "" {
		return nil
	}
	for flag, path := range map[string]string{"--fleet-controller": p.controller, "--fleet-agent": p.agent} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return fmt.Errorf("%s: %q is not a program; it and the other one of Fleet are needed together", flag, path)
		}
	}
	if _, err := os.Stat(p.crds); err != nil {
		return fmt.Errorf("--fleet-crds: Fleet's controller needs Fleet's own CRDs: %w", err)
	}
	return nil
}

// way is a way into Fleet.
type way struct {
	name string
	// stock leaves our manager out.
	stock bool
	// ask asks for the registration of a cluster whose API server answers and whose
	// kubeconfig Secret is there.
	ask func(ctx context.Context, lab *env.Lab, w *env.Workload) error
}

var ways = [2]way{
	{name: "capi-fleet", ask: putLabel},
	{name: "Fleet's own import", stock: true, ask: makeFleetCluster},
}

func putLabel(ctx context.Context, lab *env.Lab, w *env.Workload) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, fleetv1.RegisterLabel)
	return lab.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, patch))
}

func makeFleetCluster(ctx context.Context, lab *env.Lab, w *env.Workload) error {
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(fleet.GroupVersion.WithKind("Cluster"))
	cluster.SetNamespace(w.Namespace)
	cluster.SetName(w.Name)
	cluster.Object["spec"] = map[string]any{"kubeConfigSecret": secret.Name(w.Name, secret.Kubeconfig)}
	return lab.Client.Create(ctx, cluster)
}

// side is what all registrations of one way took and left behind.
type side struct {
	count int
	// credential, heartbeat and last are the times from asking for each registration until the
	// agent had its credential, was first heard, and nobody wrote any more.
	credential, heartbeat, last []time.Duration
	management, workload        account
}

// account is what was done in clusters, whoever did it but the lab.
type account struct {
	writes []kube.Event
	// objects has the resource of each object that is there and was not before.
	objects []string
}

const (
	// calmBefore is how long nobody may have written before a registration is asked for.
	calmBefore = 10 * time.Second
	// calmAfter is the same for its end. The first heartbeat comes 15 seconds after the
	// start of an agent, and Fleet restarts its own.
	calmAfter = 30 * time.Second
)

// besideStock compares our registration with Fleet's own, one cluster after the other.
func (b *bench) besideStock(ctx context.Context) error {
	if !b.wants(7) {
		return nil
	}
	b.figure(7) // the load before
	if b.programs.controller == "" {
		b.figure(7).NotMeasured = "give Fleet's own programs with `--fleet-controller` and `--fleet-agent`"
		return nil
	}
	var sides [2]*side
	for i := range ways {
		var err error
		if sides[i], err = b.goBy(ctx, &ways[i]); err != nil {
			return fmt.Errorf("%s: %w", ways[i].name, err)
		}
	}
	version, err := exec.CommandContext(ctx, b.programs.controller, "--version").Output()
	if err != nil {
		return fmt.Errorf("asking Fleet's controller for its version: %w", err)
	}
	f := b.figure(7)
	f.Harness += "; " + strings.TrimSpace(string(version))
	for i := range ways {
		f.addSide(ways[i].name, sides[i])
	}
	f.addRatios(fmt.Sprintf("%s, as a multiple of %s", ways[1].name, ways[0].name), sides[1], sides[0])
	return nil
}

// goBy registers clusters one after the other, each alone.
func (b *bench) goBy(ctx context.Context, by *way) (s *side, err error) {
	steps := &recorder{}
	lab, err := env.Start(ctx, env.Options{
		Log: b.log, OnEvent: steps.record, NoManager: by.stock, CheckinInterval: checkin,
		FleetController: b.programs.controller, FleetAgent: b.programs.agent, FleetCRDs: b.programs.crds,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	s = &side{}
	for i := range b.size.stock {
		b.log("%s, %d of %d", by.name, i+1, b.size.stock)
		w, err := lab.AddCluster(ctx, fmt.Sprintf("side-%d", i), env.ClusterOptions{})
		if err != nil {
			return nil, err
		}
		if err := s.register(ctx, by, lab, steps, w); err != nil {
			return nil, err
		}
		// An API server at rest is work too.
		if err := lab.RemoveCluster(ctx, w); err != nil {
			return nil, err
		}
		if err := lab.Client.Delete(ctx, fleetCluster(w)); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return s, nil
}

// fleetCluster has the key of the Cluster in both ways.
func fleetCluster(w *env.Workload) *fleet.Cluster {
	return &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
}

// register has one cluster registered and adds what that took.
func (s *side) register(ctx context.Context, by *way, lab *env.Lab, steps *recorder, w *env.Workload) error {
	clusters := []*ledger{{plane: lab.Management(), config: lab.Config()}, {plane: w.ControlPlane(), config: w.Config()}}
	if err := open(ctx, clusters); err != nil {
		return err
	}
	if _, err := waitForCalm(ctx, time.Now(), calmBefore, clusters); err != nil {
		return err
	}
	if err := open(ctx, clusters); err != nil {
		return err
	}

	asked := time.Now()
	if err := by.ask(ctx, lab, w); err != nil {
		return err
	}
	err := poll(ctx, func() (bool, error) {
		cluster := fleetCluster(w)
		err := lab.Client.Get(ctx, w.Key(), cluster)
		return !cluster.Status.Agent.LastSeen.IsZero(), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("waiting for the agent of %s: %w", w.Key(), err)
	}
	heard := time.Since(asked)
	placed, seen := steps.at(w.Key(), env.CredentialInPlace)
	if !seen {
		return fmt.Errorf("nobody saw when %s had its credential", w.Key())
	}
	last, err := waitForCalm(ctx, asked, calmAfter, clusters)
	if err != nil {
		return err
	}
	s.count++
	s.credential = append(s.credential, placed.Sub(asked))
	s.heartbeat = append(s.heartbeat, heard)
	s.last = append(s.last, last.Sub(asked))
	return errors.Join(s.management.add(ctx, clusters[0]), s.workload.add(ctx, clusters[1]))
}

func (a *account) add(ctx context.Context, l *ledger) error {
	writes, err := l.writes(ctx)
	if err != nil {
		return err
	}
	objects, err := l.made(ctx)
	a.writes, a.objects = append(a.writes, writes...), append(a.objects, objects...)
	return err
}

// ledger knows what was there in a cluster when it was opened, and so what is new.
type ledger struct {
	plane  *kube.ControlPlane
	config *rest.Config
	since  kube.Mark
	before map[types.UID]string
}

func open(ctx context.Context, ledgers []*ledger) error {
	for _, l := range ledgers {
		var err error
		if l.before, err = l.objects(ctx); err != nil {
			return err
		}
		if l.since, err = l.plane.AuditLog().Mark(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitForCalm waits until nobody has written for so long, and returns when somebody last did,
// which is not before began.
func waitForCalm(ctx context.Context, began time.Time, long time.Duration, ledgers []*ledger) (time.Time, error) {
	last := began
	err := poll(ctx, func() (bool, error) {
		// A longer pause: each look at a log is a request, and reads all that is new.
		pause(ctx, 500*time.Millisecond)
		for _, l := range ledgers {
			writes, err := l.writes(ctx)
			if err != nil {
				return false, err
			}
			for _, e := range writes {
				if e.Time.After(last) {
					last = e.Time
				}
			}
		}
		return time.Since(last) >= long, nil
	})
	return last, err
}

// writes returns those of all but the lab.
func (l *ledger) writes(ctx context.Context) ([]kube.Event, error) {
	events, err := l.plane.AuditLog().Since(ctx, l.since)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(kube.Writes(events), func(e kube.Event) bool { return writer(e) == "" }), nil
}

// writer names the program that sent a request, by its user agent. It is empty for the lab and
// for what the API server writes to itself.
func writer(e kube.Event) string {
	if byManager(e.UserAgent) {
		return "capi-fleet"
	}
	program, _, _ := strings.Cut(e.UserAgent, "/")
	switch {
	case program == env.UserAgent || e.User == "system:apiserver":
		return ""
	case program == "fleet-agentmanagement":
		return "Fleet's agent management"
	case program == "fleet-controller":
		return "Fleet's controller"
	case strings.HasPrefix(program, "fleet-agent-"):
		return "Fleet's agent"
	case program == "kube-controller-manager":
		return "Kubernetes' controllers"
	}
	return program
}

// made returns the resource of each object that is there and was not before.
func (l *ledger) made(ctx context.Context) ([]string, error) {
	now, err := l.objects(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(now, func(id types.UID, _ string) bool { return l.before[id] != "" })
	return slices.Collect(maps.Values(now)), nil
}

// objects returns the resource of each object in a cluster. What comes and goes by itself is
// left out, and pods, which the lab makes.
func (l *ledger) objects(ctx context.Context) (map[types.UID]string, error) {
	config := rest.CopyConfig(l.config)
	config.WarningHandler = rest.NoWarnings{} // of kinds that are deprecated
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := discoverer.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	found := map[types.UID]string{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if !slices.Contains(resource.Verbs, "list") || slices.Contains([]string{"Event", "Lease", "Pod", "ComponentStatus"}, resource.Kind) {
				continue
			}
			gvr := version.WithResource(resource.Name)
			items, err := objects.Resource(gvr).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
			}
			for j := range items.Items {
				found[items.Items[j].UID] = gvr.GroupResource().String()
			}
		}
	}
	return found, nil
}

// addSide adds what registrations of one way took. Counts are those of each, on average.
func (f *Figure) addSide(name string, s *side) {
	with := fmt.Sprintf("%s, each of %d", name, s.count)
	f.addSpread(with, credentialRow, s.credential, "")
	f.addSpread(with, heartbeatRow, s.heartbeat, "")
	f.addSpread(with, lastRow, s.last, "")
	f.addAccount(with+", on the management cluster", &s.management, s.count)
	f.addAccount(with+", in the workload cluster", &s.workload, s.count)
}

const (
	credentialRow = "asked for ► the agent has its credential"
	heartbeatRow  = "asked for ► first heartbeat, which an agent sends 15 s after its start"
	lastRow       = "asked for ► last write"
)

func (f *Figure) addAccount(with string, a *account, registrations int) {
	each := func(what string, n int) { f.add(with, what, float64(n)/float64(registrations), "", "") }
	each("writes", len(a.writes))
	writers := make([]string, 0, len(a.writes))
	for _, e := range a.writes {
		writers = append(writers, writer(e))
	}
	for _, k := range tally(writers) {
		each("writes of "+k.name, k.count)
	}
	for _, k := range kinds(a.writes) {
		each("writes: "+k.name, k.count)
	}
	each("objects left", len(a.objects))
	for _, k := range tally(a.objects) {
		each("objects: "+k.name, k.count)
	}
}

// addRatios adds how many times as much it is the one way as the other.
func (f *Figure) addRatios(with string, one, other *side) {
	ratio := func(what string, a, b float64) { f.add(with, what, a/b, "×", "") }
	median := func(values []time.Duration) float64 { return spreadOf(values).P50 }
	ratio(credentialRow+", p50", median(one.credential), median(other.credential))
	ratio(heartbeatRow+", p50", median(one.heartbeat), median(other.heartbeat))
	ratio(lastRow+", p50", median(one.last), median(other.last))
	each := func(what string, count func(*side) int) {
		ratio(what, float64(count(one))/float64(one.count), float64(count(other))/float64(other.count))
	}
	each("writes on the management cluster", func(s *side) int { return len(s.management.writes) })
	each("writes in the workload cluster", func(s *side) int { return len(s.workload.writes) })
	each("objects left on the management cluster", func(s *side) int { return len(s.management.objects) })
	each("objects left in the workload cluster", func(s *side) int { return len(s.workload.objects) })
}
