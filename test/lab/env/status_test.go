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
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

func TestUsageCountsOneClusterOnly(t *testing.T) {
	const namespace = "cluster-workspace-edge"
	names := clusterNames{cluster: "default/edge", fleetCluster: "workspace/edge", clusterNamespace: namespace}
	created := func(group, resource, ns, name string) kube.Event {
		return kube.Event{Verb: "create", Group: group, Resource: resource, Namespace: ns, Name: name, Code: http.StatusCreated}
	}
	for name, tc := range map[string]struct {
		events []kube.Event
		want   Usage
	}{
		"what belongs to the cluster": {
			events: []kube.Event{
				created(fleetv1.GroupVersion.Group, "fleetregistrations", "default", "edge"),
				created(fleet.GroupVersion.Group, "clusters", "workspace", "edge"),
				created("", "namespaces", namespace, namespace),
				created("", "serviceaccounts", ManagerNamespace, namespace),
				created("rbac.authorization.k8s.io", "roles", "workspace", namespace),
				created("rbac.authorization.k8s.io", "rolebindings", namespace, "capi-fleet-agent"),
			},
			want: Usage{Writes: 6, Objects: 6},
		},
		"what belongs to others": {
			events: []kube.Event{
				created(fleetv1.GroupVersion.Group, "fleetregistrations", "other", "edge"),
				created(fleet.GroupVersion.Group, "clusters", "workspace", "other"),
				created("", "serviceaccounts", ManagerNamespace, "cluster-workspace-other"),
			},
		},
		"an apply that creates": {
			events: []kube.Event{{
				Verb: "patch", Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: "workspace", Name: namespace, Code: http.StatusCreated,
			}},
			want: Usage{Writes: 1, Objects: 1},
		},
		"writes that leave no object": {
			events: []kube.Event{
				{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: ManagerNamespace, Name: namespace, Code: http.StatusCreated},
				{Verb: "create", Resource: "namespaces", Name: namespace, Code: http.StatusConflict},
				{Verb: "patch", Group: fleet.GroupVersion.Group, Resource: "clusters", Subresource: "status", Namespace: "workspace", Name: "edge", Code: http.StatusOK},
			},
			want: Usage{Writes: 3},
		},
		"an object that is gone again": {
			events: []kube.Event{
				created("", "serviceaccounts", ManagerNamespace, namespace),
				{Verb: "delete", Resource: "serviceaccounts", Namespace: ManagerNamespace, Name: namespace, Code: http.StatusOK},
			},
			want: Usage{Writes: 2},
		},
		"reads": {
			events: []kube.Event{{Verb: "get", Resource: "namespaces", Name: namespace, Code: http.StatusOK}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(usage(tc.events, names)).To(Equal(tc.want))
		})
	}
}

func TestBundleTargets(t *testing.T) {
	edge := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: map[string]string{"tier": "edge"}}}
	for name, tc := range map[string]struct {
		target fleet.BundleTarget
		want   bool
	}{
		"by name":               {fleet.BundleTarget{ClusterName: "edge"}, true},
		"by another name":       {fleet.BundleTarget{ClusterName: "other"}, false},
		"by label":              {fleet.BundleTarget{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "edge"}}}, true},
		"by another label":      {fleet.BundleTarget{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "core"}}}, false},
		"by the empty selector": {fleet.BundleTarget{ClusterSelector: &metav1.LabelSelector{}}, true},
		"by nothing":            {fleet.BundleTarget{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := targets(&fleet.Bundle{Spec: fleet.BundleSpec{Targets: []fleet.BundleTarget{tc.target}}}, edge)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestTimelineKnowsTheClusterOfFleetsObjectsInAnyOrder(t *testing.T) {
	heartbeat := watch.Event{Type: watch.Modified, Object: &fleet.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "workspace", Name: "edge"},
		Status:     fleet.ClusterStatus{Agent: fleet.AgentStatus{LastSeen: metav1.Now()}},
	}}
	deployed := watch.Event{Type: watch.Modified, Object: &fleet.BundleDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-edge", Name: "app"},
		Status:     fleet.BundleDeploymentStatus{Ready: true},
	}}
	registered := watch.Event{Type: watch.Modified, Object: &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edge"},
		Spec:       fleetv1.FleetRegistrationSpec{FleetCluster: fleetv1.FleetClusterReference{Namespace: "workspace", Name: "edge"}},
		Status: fleetv1.FleetRegistrationStatus{
			Namespace:  "cluster-edge",
			Conditions: []metav1.Condition{{Type: fleetv1.ReadyCondition, Status: metav1.ConditionTrue}},
		},
	}}
	key := client.ObjectKey{Namespace: "default", Name: "edge"}
	for name, feed := range map[string]func(*timeline){
		"registration first": func(t *timeline) {
			t.seeRegistration(registered)
			t.seeFleetCluster(heartbeat)
			t.seeBundleDeployment(deployed)
		},
		"registration last": func(t *timeline) {
			t.seeBundleDeployment(deployed)
			t.seeFleetCluster(heartbeat)
			t.seeRegistration(registered)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var events []Event
			line := newTimeline(func(e Event) { events = append(events, e) })
			feed(line)
			feed(line)
			times := line.of(key)
			g.Expect(times).To(HaveLen(4))
			for _, step := range []Step{Selected, AgentConnected, BundleDeployed, Registered} {
				g.Expect(times).To(HaveKey(step))
			}
			g.Expect(events).To(HaveLen(4), "each step is told once")

			line.forget(key)
			g.Expect(line.of(key)).To(BeEmpty())
		})
	}
}

func TestBetweenNeedsBothSteps(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	status := ClusterStatus{Times: map[Step]time.Time{Selected: now, Registered: now.Add(time.Second)}}
	d, ok := status.Between(Selected, Registered)
	g.Expect(ok).To(BeTrue())
	g.Expect(d).To(Equal(time.Second))
	_, ok = status.Between(APIAnswers, Registered)
	g.Expect(ok).To(BeFalse())
}
