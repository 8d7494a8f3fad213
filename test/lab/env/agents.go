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
	"time"

	"github.com/capi-fleet/capi-fleet/test/agentsim"
)

// firstHeartbeat is when an agent of the lab sends its first heartbeat, unless the
// options say. The real agent takes 15 seconds.
const firstHeartbeat = time.Second

// defaultAgent runs the agents where Options.Agent does not.
func (l *Lab) defaultAgent() AgentFunc {
	if l.opts.FleetAgent != "" {
		return l.runFleetAgent
	}
	return l.runAgentsim
}

// runAgentsim is an AgentFunc that runs agentsim in this process.
func (l *Lab) runAgentsim(ctx context.Context, spec AgentSpec) error {
	workload, err := restConfig(spec.Kubeconfig)
	if err != nil {
		return err
	}
	options := agentsim.Options{
		Workload:         workload,
		Namespace:        spec.Namespace,
		InitialHeartbeat: l.opts.FirstHeartbeat,
		OnReport:         l.reports.add(spec.Name),
	}
	if interval := spec.Env["CHECKIN_INTERVAL"]; interval != "" {
		if options.CheckinInterval, err = time.ParseDuration(interval); err != nil {
			return fmt.Errorf("reading CHECKIN_INTERVAL: %w", err)
		}
	}
	return agentsim.Run(ctx, options)
}

// AgentReports returns what the runs of agentsim in the workload cluster reported, the
// oldest run first. It is empty where another agent runs, or none.
func (w *Workload) AgentReports() []agentsim.Report { return w.lab.reports.of(w.Key().String()) }
