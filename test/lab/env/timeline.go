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
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// Step is something that happens once on a cluster's way into Fleet.
type Step string

// The steps, in the order that they mostly have.
const (
	// Selected is when the FleetRegistration was made.
	Selected Step = "selected"
	// APIAnswers is when the API server of the workload cluster first answered its
	// admin.
	APIAnswers Step = "API server answers"
	// CredentialInPlace is when the agent's Secret and Deployment were both there.
	CredentialInPlace Step = "credential and manifests in place"
	// AgentStarted is when the agent ran for the first time.
	AgentStarted Step = "agent started"
	// AgentConnected is when the first heartbeat was on the Fleet Cluster.
	AgentConnected Step = "agent connected"
	// Registered is when the FleetRegistration was Ready.
	Registered Step = "registered"
	// BundleDeployed is when the first BundleDeployment was ready.
	BundleDeployed Step = "bundle deployed"
)

// Event is a Step of one cluster.
type Event struct {
	Time    time.Time
	Cluster client.ObjectKey
	Step    Step
}

// timeline records when each cluster took which step: those on the management cluster
// it watches itself, the others it is told.
type timeline struct {
	notify func(Event) // or nil

	mu    sync.Mutex
	times map[client.ObjectKey]map[Step]time.Time

	// What was seen of Fleet's objects, since they may be seen before the
	// registration that says whose they are.
	registrations map[client.ObjectKey]registrationNames
	connected     map[client.ObjectKey]bool // by Fleet Cluster
	deployed      map[string]bool           // by cluster namespace

	// Whose they are.
	byFleetCluster map[client.ObjectKey]client.ObjectKey
	byNamespace    map[string]client.ObjectKey
}

// registrationNames are the names that a registration gave to what it made.
type registrationNames struct {
	fleetCluster client.ObjectKey
	namespace    string
}

func newTimeline(notify func(Event)) *timeline {
	return &timeline{
		notify:         notify,
		times:          map[client.ObjectKey]map[Step]time.Time{},
		registrations:  map[client.ObjectKey]registrationNames{},
		connected:      map[client.ObjectKey]bool{},
		deployed:       map[string]bool{},
		byFleetCluster: map[client.ObjectKey]client.ObjectKey{},
		byNamespace:    map[string]client.ObjectKey{},
	}
}

// run watches the management cluster until ctx ends.
func (t *timeline) run(ctx context.Context, c client.WithWatch) {
	var group sync.WaitGroup
	group.Go(func() { follow(ctx, c, &fleetv1.FleetRegistrationList{}, t.seeRegistration) })
	group.Go(func() { follow(ctx, c, &fleet.ClusterList{}, t.seeFleetCluster) })
	group.Go(func() { follow(ctx, c, &fleet.BundleDeploymentList{}, t.seeBundleDeployment) })
	group.Wait()
}

func (t *timeline) seeRegistration(event watch.Event) {
	registration, ok := event.Object.(*fleetv1.FleetRegistration)
	if !ok || event.Type == watch.Deleted {
		return
	}
	key := client.ObjectKeyFromObject(registration)
	t.mu.Lock()
	defer t.mu.Unlock()
	names := registrationNames{
		fleetCluster: client.ObjectKey{Namespace: registration.Spec.FleetCluster.Namespace, Name: registration.Spec.FleetCluster.Name},
		namespace:    registration.Status.Namespace,
	}
	t.registrations[key] = names
	t.byFleetCluster[names.fleetCluster], t.byNamespace[names.namespace] = key, key
	t.set(key, Selected)
	conditions := registration.Status.Conditions
	if meta.IsStatusConditionTrue(conditions, fleetv1.AgentDeployedCondition) {
		// Seen earlier by the kubelet loop, where there is one.
		t.set(key, CredentialInPlace)
	}
	t.setFleetSteps(key)
	if meta.IsStatusConditionTrue(conditions, fleetv1.ReadyCondition) {
		t.set(key, Registered)
	}
}

func (t *timeline) seeFleetCluster(event watch.Event) {
	cluster, ok := event.Object.(*fleet.Cluster)
	if !ok || cluster.Status.Agent.LastSeen.IsZero() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := client.ObjectKeyFromObject(cluster)
	t.connected[key] = true
	t.setFleetSteps(t.byFleetCluster[key])
}

func (t *timeline) seeBundleDeployment(event watch.Event) {
	deployment, ok := event.Object.(*fleet.BundleDeployment)
	if !ok || !deployment.Status.Ready {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deployed[deployment.Namespace] = true
	t.setFleetSteps(t.byNamespace[deployment.Namespace])
}

func (t *timeline) setFleetSteps(key client.ObjectKey) {
	names, known := t.registrations[key]
	if !known {
		return
	}
	if t.connected[names.fleetCluster] {
		t.set(key, AgentConnected)
	}
	if names.namespace != "" && t.deployed[names.namespace] {
		t.set(key, BundleDeployed)
	}
}

// record notes that cluster takes step now, unless it has before.
func (t *timeline) record(cluster client.ObjectKey, step Step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(cluster, step)
}

func (t *timeline) set(cluster client.ObjectKey, step Step) {
	steps := t.times[cluster]
	if steps == nil {
		steps = map[Step]time.Time{}
		t.times[cluster] = steps
	}
	if _, taken := steps[step]; taken {
		return
	}
	now := time.Now()
	steps[step] = now
	if t.notify != nil {
		t.notify(Event{Time: now, Cluster: cluster, Step: step})
	}
}

// of returns the steps of cluster so far.
func (t *timeline) of(cluster client.ObjectKey) map[Step]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.times[cluster])
}

// forget makes cluster one that was never seen.
func (t *timeline) forget(cluster client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := t.registrations[cluster]
	delete(t.connected, names.fleetCluster)
	delete(t.deployed, names.namespace)
	delete(t.byFleetCluster, names.fleetCluster)
	delete(t.byNamespace, names.namespace)
	delete(t.registrations, cluster)
	delete(t.times, cluster)
}
