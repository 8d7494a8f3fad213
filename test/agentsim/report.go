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

package agentsim

import (
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// State is what an agent is at.
type State string

const (
	// Connecting means that no credential has worked yet: the Secret is read again
	// and again.
	Connecting State = "Connecting"

	// Idle means that the agent could not start and does nothing from now on.
	Idle State = "Idle"

	// Running means that the agent watches BundleDeployments and sends heartbeats,
	// or tries to.
	Running State = "Running"
)

// Report is what an agent has done since it started.
type Report struct {
	State State `json:"state"`

	// Message says why the agent is Idle, or what failed last while Connecting.
	Message string `json:"message,omitempty"`

	// ClusterNamespace is the namespace with the BundleDeployments. This and
	// Cluster are empty until a credential worked.
	ClusterNamespace string `json:"clusterNamespace,omitempty"`

	// Cluster is namespace/name of the Fleet Cluster.
	Cluster string `json:"cluster,omitempty"`

	// Restarts is how often a credential failed and the Secret was read again.
	Restarts int `json:"restarts"`

	// Heartbeats is how many arrived.
	Heartbeats int `json:"heartbeats"`

	// LastHeartbeat is zero before the first.
	LastHeartbeat metav1.Time `json:"lastHeartbeat,omitzero"`

	// Deployed are the names of the BundleDeployments that are deployed, sorted.
	Deployed []string `json:"deployed,omitempty"`

	// Uninstalled are the names of the releases that were uninstalled, in order.
	Uninstalled []string `json:"uninstalled,omitempty"`

	// Refused are the requests that were answered by 401 or 403, each kind once.
	Refused []Refusal `json:"refused,omitempty"`
}

// Refusal is a request that the agent was not let do.
type Refusal struct {
	// API is "management" or "workload".
	API string `json:"api"`

	Verb      string `json:"verb"`
	Resource  string `json:"resource"` // with its subresource: clusters/status
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`

	// Code is the status of the answer.
	Code int `json:"code"`
}

// reporter keeps the Report of an agent.
type reporter struct {
	onReport func(Report) // may be nil

	mu     sync.Mutex
	report Report
}

func newReporter(onReport func(Report)) *reporter {
	return &reporter{onReport: onReport, report: Report{State: Connecting}}
}

func (r *reporter) snapshot() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copy()
}

func (r *reporter) copy() Report {
	out := r.report
	out.Deployed = slices.Clone(out.Deployed)
	out.Uninstalled = slices.Clone(out.Uninstalled)
	out.Refused = slices.Clone(out.Refused)
	return out
}

// change lets edit change the report, and tells of it.
func (r *reporter) change(edit func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	edit(&r.report)
	if r.onReport != nil {
		r.onReport(r.copy())
	}
}

func (r *reporter) setState(state State, message string) {
	r.change(func(report *Report) { report.State, report.Message = state, message })
}

func (r *reporter) credentialFailed(err error) {
	r.change(func(report *Report) {
		report.Restarts++
		report.Message = err.Error()
	})
}

func (r *reporter) connected(m *management) {
	r.change(func(report *Report) {
		report.ClusterNamespace = m.namespace
		report.Cluster = m.clusterNamespace + "/" + m.clusterName
	})
}

func (r *reporter) heartbeat(now metav1.Time) {
	r.change(func(report *Report) {
		report.Heartbeats++
		report.LastHeartbeat = now
	})
}

func (r *reporter) deployed(name string) {
	r.change(func(report *Report) {
		if at, found := slices.BinarySearch(report.Deployed, name); !found {
			report.Deployed = slices.Insert(report.Deployed, at, name)
		}
	})
}

func (r *reporter) uninstalled(name string) {
	r.change(func(report *Report) {
		report.Uninstalled = append(report.Uninstalled, name)
		if at, found := slices.BinarySearch(report.Deployed, name); found {
			report.Deployed = slices.Delete(report.Deployed, at, at+1)
		}
	})
}

func (r *reporter) refused(refusal Refusal) {
	r.change(func(report *Report) {
		if !slices.Contains(report.Refused, refusal) {
			report.Refused = append(report.Refused, refusal)
		}
	})
}

// refusalRecorder reports the requests that are answered by 401 or 403.
type refusalRecorder struct {
	next     http.RoundTripper
	api      string
	reporter *reporter
}

var requestInfos = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// RoundTrip implements http.RoundTripper.
func (r *refusalRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(req)
	if err != nil || answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden {
		return answer, err
	}
	refusal := Refusal{API: r.api, Verb: req.Method, Resource: req.URL.Path, Code: answer.StatusCode}
	if info, err := requestInfos.NewRequestInfo(req); err == nil && info.IsResourceRequest {
		refusal.Verb, refusal.Resource = info.Verb, info.Resource
		refusal.Namespace, refusal.Name = info.Namespace, info.Name
		if info.Subresource != "" {
			refusal.Resource += "/" + info.Subresource
		}
	}
	r.reporter.refused(refusal)
	return answer, nil
}
