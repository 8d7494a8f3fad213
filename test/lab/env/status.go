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
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// ClusterStatus says how far a cluster is on its way into Fleet.
type ClusterStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Label is the value of the opt-in label on the Cluster, empty for none.
	Label string `json:"label"`

	// Registered says whether there is a FleetRegistration. The rest is empty
	// without.
	Registered bool `json:"registered"`
	// Ready, Reason and Message are those of its condition Ready.
	Ready   metav1.ConditionStatus `json:"ready,omitempty"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
	// FleetCluster is namespace and name of the Fleet Cluster.
	FleetCluster string `json:"fleetCluster,omitempty"`
	// ClusterNamespace holds the BundleDeployments.
	ClusterNamespace string `json:"clusterNamespace,omitempty"`
	// AgentLastSeen is the newest heartbeat, nil before the first.
	AgentLastSeen *time.Time `json:"agentLastSeen,omitempty"`
	// AgentStarts counts the starts of the agent.
	AgentStarts int `json:"agentStarts"`
	// Bundles is the number of BundleDeployments, BundlesReady that of the ready ones.
	Bundles      int `json:"bundles"`
	BundlesReady int `json:"bundlesReady"`

	// Times says when which step was taken.
	Times map[Step]time.Time `json:"times"`
	Usage
}

// Usage is what the manager did for one cluster on the management cluster since the
// lab began.
type Usage struct {
	// Writes counts requests that ask for a change, as kube.Writes does.
	Writes int `json:"writes"`
	// Objects counts the objects that the manager created, less those it deleted.
	Objects int `json:"objects"`
}

// Between returns the time from one step to another, false where one was not taken.
func (s *ClusterStatus) Between(from, to Step) (time.Duration, bool) {
	start, started := s.Times[from]
	end, ended := s.Times[to]
	return end.Sub(start), started && ended
}

// Status describes every cluster of the lab, ordered by namespace and name.
func (l *Lab) Status(ctx context.Context) ([]ClusterStatus, error) {
	events, err := l.management.AuditLog().Since(ctx, kube.Mark{})
	if err != nil {
		return nil, err
	}
	events = kube.By(ManagerUser, events)
	statuses := []ClusterStatus{}
	for _, w := range l.Workloads() {
		status, err := l.statusOf(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("reading the state of cluster %s: %w", w.Key(), err)
		}
		status.Usage = usage(events, namesOf(status))
		statuses = append(statuses, *status)
	}
	slices.SortFunc(statuses, func(a, b ClusterStatus) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return statuses, nil
}

func (l *Lab) statusOf(ctx context.Context, w *Workload) (*ClusterStatus, error) {
	status := &ClusterStatus{
		Namespace: w.Namespace, Name: w.Name, AgentStarts: len(w.AgentStarts()), Times: l.timeline.of(w.Key()),
	}
	cluster := &clusterv1.Cluster{}
	if err := l.Client.Get(ctx, w.Key(), cluster); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	status.Label = cluster.Labels[fleetv1.RegisterLabel]

	registration := &fleetv1.FleetRegistration{}
	if err := l.Client.Get(ctx, w.Key(), registration); err != nil {
		return status, client.IgnoreNotFound(err)
	}
	status.Registered = true
	if ready := meta.FindStatusCondition(registration.Status.Conditions, fleetv1.ReadyCondition); ready != nil {
		status.Ready, status.Reason, status.Message = ready.Status, ready.Reason, ready.Message
	}
	status.ClusterNamespace = registration.Status.Namespace
	key := client.ObjectKey{Namespace: registration.Spec.FleetCluster.Namespace, Name: registration.Spec.FleetCluster.Name}
	status.FleetCluster = key.String()

	fleetCluster := &fleet.Cluster{}
	if err := l.Client.Get(ctx, key, fleetCluster); err != nil {
		return status, client.IgnoreNotFound(err)
	}
	if seen := fleetCluster.Status.Agent.LastSeen; !seen.IsZero() {
		status.AgentLastSeen = &seen.Time
	}
	if status.ClusterNamespace == "" {
		return status, nil
	}
	var deployments fleet.BundleDeploymentList
	if err := l.Client.List(ctx, &deployments, client.InNamespace(status.ClusterNamespace)); err != nil {
		return nil, err
	}
	status.Bundles = len(deployments.Items)
	for i := range deployments.Items {
		if deployments.Items[i].Status.Ready {
			status.BundlesReady++
		}
	}
	return status, nil
}

// clusterNames are the names by which a request is known as one for a cluster.
type clusterNames struct {
	cluster          string // namespace/name of the Cluster and its registration
	fleetCluster     string // namespace/name
	clusterNamespace string // also the name of what else is made
}

func namesOf(status *ClusterStatus) clusterNames {
	return clusterNames{
		cluster:          status.Namespace + "/" + status.Name,
		fleetCluster:     status.FleetCluster,
		clusterNamespace: status.ClusterNamespace,
	}
}

// has says whether event is about the cluster.
func (n clusterNames) has(event kube.Event) bool {
	key := event.Namespace + "/" + event.Name
	switch event.Group {
	case fleetv1.GroupVersion.Group, clusterv1.GroupVersion.Group:
		return key == n.cluster
	case fleet.GroupVersion.Group:
		if event.Resource == "clusters" {
			return key == n.fleetCluster
		}
	}
	return n.clusterNamespace != "" && (event.Namespace == n.clusterNamespace || event.Name == n.clusterNamespace)
}

// usage counts what the manager's events did for a cluster.
func usage(events []kube.Event, names clusterNames) Usage {
	type identity struct{ group, resource, namespace, name string }
	objects := map[identity]bool{}
	var writes int
	for _, event := range kube.Writes(events) {
		if !names.has(event) {
			continue
		}
		writes++
		id := identity{event.Group, event.Resource, event.Namespace, event.Name}
		switch {
		case event.Subresource != "" || event.Code >= http.StatusMultipleChoices:
		case event.Code == http.StatusCreated: // by a create, or by an apply
			objects[id] = true
		case event.Verb == "delete":
			delete(objects, id)
		}
	}
	return Usage{Writes: writes, Objects: len(objects)}
}
