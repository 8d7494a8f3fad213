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
	"sync"

	"github.com/capi-fleet/capi-fleet/test/agentsim"
)

// agentReports keeps the newest report of each run of agentsim, by workload cluster.
type agentReports struct {
	mu   sync.Mutex
	runs map[string][]*agentsim.Report
}

// add returns what a new run reports to.
func (r *agentReports) add(cluster string) func(agentsim.Report) {
	run := &agentsim.Report{}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = map[string][]*agentsim.Report{}
	}
	r.runs[cluster] = append(r.runs[cluster], run)
	return func(report agentsim.Report) {
		r.mu.Lock()
		defer r.mu.Unlock()
		*run = report
	}
}

func (r *agentReports) of(cluster string) []agentsim.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	var reports []agentsim.Report
	for _, run := range r.runs[cluster] {
		reports = append(reports, *run)
	}
	return reports
}
