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

package selection

import (
	"testing"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// movingAnnotation is what clusterctl sets on what it is about to delete.
const movingAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

func paused(o *env.ClusterOptions) {
	o.Modify = func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) }
}

func annotated(annotation string) func(*env.ClusterOptions) {
	return func(o *env.ClusterOptions) {
		o.Modify = func(c *clusterv1.Cluster) { c.Annotations = map[string]string{annotation: ""} }
	}
}

func TestNothingHappensForAClusterThatDoesNotJoin(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	optIn := map[string]string{fleetv1.RegisterLabel: "true"}
	cases := []struct {
		namespace string
		labels    map[string]string // of the namespace
		plan      []func(*env.ClusterOptions)
		joins     func(*clusterv1.Cluster) // the change that makes it join
	}{
		{namespace: "out-unlabelled", joins: func(c *clusterv1.Cluster) { c.Labels = optIn }},
		{namespace: "out-false", labels: optIn, plan: []func(*env.ClusterOptions){label("false")}, joins: func(c *clusterv1.Cluster) { c.Labels = nil }},
		{namespace: "out-false-policy", plan: []func(*env.ClusterOptions){label("false")}, joins: func(c *clusterv1.Cluster) { c.Labels = nil }},
		{namespace: "out-mistyped", labels: optIn, plan: []func(*env.ClusterOptions){label("True")}, joins: func(c *clusterv1.Cluster) { c.Labels = optIn }},
		{namespace: "out-paused", plan: []func(*env.ClusterOptions){labelled, paused}, joins: func(c *clusterv1.Cluster) { c.Spec.Paused = nil }},
		{namespace: "out-annotated", plan: []func(*env.ClusterOptions){labelled, annotated(clusterv1.PausedAnnotation)}, joins: func(c *clusterv1.Cluster) { c.Annotations = nil }},
		{namespace: "out-moving", plan: []func(*env.ClusterOptions){labelled, annotated(movingAnnotation)}, joins: func(c *clusterv1.Cluster) { c.Annotations = nil }},
	}
	before := suite.Mark(t, lab)
	var plans []planned
	for _, c := range cases {
		create(t, namespace(c.namespace, c.labels))
		plans = append(plans, plan(c.namespace, "edge", append(c.plan, noKubelet)...))
	}
	everything := policy("out-everything", "out-false-policy", func(spec *fleetv1.FleetRegistrationPolicySpec) {
		spec.ClusterSelector = &metav1.LabelSelector{}
	})
	create(t, everything)
	workloads := add(t, plans...)
	connections := make([]int, len(cases))
	for i, w := range workloads {
		connections[i], _ = w.Light().Connections()
		setAnnotation(t, clusterOf(w), "example.com/touched", ptr.To("once more"))
	}
	fence(t, "out")

	for i, c := range cases {
		g.Expect(managerWrites(t, before, c.namespace)).To(BeEmpty(), c.namespace)
		accepted, _ := workloads[i].Light().Connections()
		g.Expect(accepted).To(Equal(connections[i]), "%s: nobody connects to it", c.namespace)
		g.Expect(visits(workloads[i])).To(BeEmpty(), c.namespace)
		g.Expect(lab.Client.Get(t.Context(), workloads[i].Key(), &fleetv1.FleetRegistration{})).To(Satisfy(apierrors.IsNotFound), c.namespace)

		events := &eventsv1.EventList{}
		g.Expect(lab.Client.List(t.Context(), events, client.InNamespace(c.namespace))).To(Succeed())
		if c.namespace != "out-mistyped" {
			g.Expect(events.Items).To(BeEmpty(), c.namespace)
			continue
		}
		g.Expect(events.Items).To(HaveLen(1))
		g.Expect(events.Items[0].Series).To(BeNil(), "it came once")
		g.Expect(events.Items[0].Reason).To(Equal(fleetv1.LabelInvalidReason))
		g.Expect(events.Items[0].Regarding.Kind).To(Equal("Cluster"))
		g.Expect(events.Items[0].Note).To(ContainSubstring(fleetv1.RegisterLabel))
	}

	// None of them was left out for another reason.
	for i, c := range cases {
		change(t, workloads[i].Key(), &clusterv1.Cluster{}, c.joins)
	}
	for _, w := range workloads {
		suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	}
}

func TestTheLabelOfTheNamespaceCountsWhereTheClusterHasNone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	create(t, namespace("in-namespace", map[string]string{fleetv1.RegisterLabel: "true"}))
	create(t, namespace("in-cluster", map[string]string{fleetv1.RegisterLabel: "false"}))
	workloads := add(t, plan("in-namespace", "edge"), plan("in-cluster", "edge", labelled))

	registration := suite.EventuallyReady(t, lab, workloads[0])
	g.Expect(registration.Spec.SelectedBy).To(Equal(fleetv1.SelectedBy{Label: fleetv1.LabelOnNamespace}))
	registration = suite.EventuallyReady(t, lab, workloads[1])
	g.Expect(registration.Spec.SelectedBy).To(Equal(fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster}))
}
