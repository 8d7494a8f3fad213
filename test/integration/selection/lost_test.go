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
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestLosingSelectionChangesNothingElse(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	selector := func(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: fleetv1.RegisterLabel, Operator: operator, Values: []string{"true"}},
		}}
	}
	// setSelectors changes the policy of the namespace's name.
	setSelectors := func(clusters *metav1.LabelSelector, namespaceLabel string) func(*env.Workload) {
		return func(w *env.Workload) {
			change(t, client.ObjectKey{Name: w.Namespace}, &fleetv1.FleetRegistrationPolicy{}, func(p *fleetv1.FleetRegistrationPolicy) {
				p.Spec.ClusterSelector = clusters
				p.Spec.NamespaceSelector.MatchLabels = map[string]string{namespaceLabel: w.Namespace}
			})
		}
	}
	setClusterLabel := func(key, value string) func(*env.Workload) {
		return func(w *env.Workload) { setLabel(t, clusterOf(w), key, value) }
	}
	setNamespaceLabel := func(value string) func(*env.Workload) {
		return func(w *env.Workload) { setLabel(t, namespace(w.Namespace, nil), fleetv1.RegisterLabel, value) }
	}
	createPolicy := func(w *env.Workload) { create(t, policy(w.Namespace, w.Namespace)) }
	deletePolicy := func(w *env.Workload) {
		g.Expect(lab.Client.Delete(t.Context(), policy(w.Namespace, w.Namespace))).To(Succeed())
	}
	const byNamespace, byCluster = true, false
	cases := []struct {
		namespace    string
		byNamespace  bool // which of the two has the opt-in label
		policy       bool // a policy of the namespace's name selects, else the built-in one
		lose, regain func(*env.Workload)
		reason       string
	}{
		{"lost-policy", byCluster, true, deletePolicy, createPolicy, fleetv1.PolicyDeletedReason},
		{"lost-policy-namespace", byNamespace, true, deletePolicy, createPolicy, fleetv1.PolicyDeletedReason},
		{"lost-mismatch", byCluster, true, setSelectors(selector(metav1.LabelSelectorOpNotIn), corev1.LabelMetadataName),
			setSelectors(nil, corev1.LabelMetadataName), fleetv1.PolicyMismatchReason},
		{"lost-mistyped", byCluster, true, setSelectors(nil, corev1.LabelMetadataName+"s"),
			setSelectors(nil, corev1.LabelMetadataName), fleetv1.PolicyMismatchReason},
		{"lost-operator", byCluster, true, setSelectors(selector("Inn"), corev1.LabelMetadataName),
			setSelectors(nil, corev1.LabelMetadataName), fleetv1.PolicyInvalidReason},
		{"lost-policy-label", byNamespace, true, setNamespaceLabel(""), setNamespaceLabel("true"), fleetv1.LabelRemovedReason},
		{"lost-label", byNamespace, false, setNamespaceLabel(""), setNamespaceLabel("true"), fleetv1.LabelRemovedReason},
		{"lost-false", byNamespace, false, setNamespaceLabel("false"), setNamespaceLabel("true"), fleetv1.OptedOutReason},
		{"lost-value", byNamespace, false, setNamespaceLabel("True"), setNamespaceLabel("true"), fleetv1.LabelInvalidReason},
		{"lost-cluster-value", byCluster, false, setClusterLabel(fleetv1.RegisterLabel, "yes"),
			setClusterLabel(fleetv1.RegisterLabel, "true"), fleetv1.LabelInvalidReason},
	}
	var plans []planned
	for _, c := range cases {
		if c.byNamespace {
			create(t, namespace(c.namespace, map[string]string{fleetv1.RegisterLabel: "true"}))
			plans = append(plans, plan(c.namespace, "edge"))
		} else {
			plans = append(plans, plan(c.namespace, "edge", labelled))
		}
		if c.policy {
			create(t, policy(c.namespace, c.namespace))
		}
	}
	workloads := add(t, plans...)
	for _, w := range workloads {
		suite.EventuallyReady(t, lab, w)
	}
	before := make([]state, len(cases))
	for i, c := range cases {
		before[i] = stateOf(t, workloads[i])
		selector := ""
		if c.policy {
			selector = c.namespace
		}
		g.Expect(before[i].Registration.Spec.SelectedBy.Policy).To(Equal(selector), c.namespace)
	}

	joined := suite.Mark(t, lab)
	for i, c := range cases {
		c.lose(workloads[i])
	}
	for i, c := range cases {
		suite.EventuallyCondition(t, lab, workloads[i], fleetv1.SelectedCondition, metav1.ConditionFalse, c.reason)
	}
	fence(t, "lost")
	for i, c := range cases {
		g.Expect(managerWrites(t, joined, c.namespace)).To(Equal([]string{"patch fleetregistrations/status"}), c.namespace)
		g.Expect(stateOf(t, workloads[i])).To(BeComparableTo(before[i]), c.namespace)
	}

	for i, c := range cases {
		c.regain(workloads[i])
	}
	for i, c := range cases {
		suite.EventuallyCondition(t, lab, workloads[i], fleetv1.SelectedCondition, metav1.ConditionTrue, fleetv1.SelectedReason)
		g.Expect(managerWrites(t, joined, c.namespace)).To(HaveEach("patch fleetregistrations/status"), c.namespace)
		g.Expect(stateOf(t, workloads[i])).To(BeComparableTo(before[i]), c.namespace)
	}
}

func TestANamedPolicyTakesOverARegistrationOfTheBuiltInOne(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "takeover"
	w := add(t, plan(namespace, "edge", labelled))[0]
	suite.EventuallyReady(t, lab, w)
	before, joined := stateOf(t, w), suite.Mark(t, lab)
	g.Expect(before.Registration.Spec.SelectedBy).To(Equal(fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster}))

	named := policy(namespace, namespace, func(spec *fleetv1.FleetRegistrationPolicySpec) {
		spec.ManagementCluster.Server = "https://elsewhere.example"
		spec.Rollout.Paused = true
	})
	create(t, named)
	g.Eventually(func() string { return registrationOf(t, w).Spec.SelectedBy.Policy }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Equal(namespace))
	fence(t, namespace)

	g.Expect(managerWrites(t, joined, namespace)).To(Equal([]string{"patch fleetregistrations"}))
	want := before
	want.Registration = before.Registration.DeepCopy()
	want.Registration.Spec.SelectedBy.Policy = namespace
	want.Registration.Spec.SelectedBy.NamespaceSelector = named.Spec.NamespaceSelector
	g.Expect(stateOf(t, w)).To(BeComparableTo(want), "the rollout is paused, so an agent that is connected keeps what it has")
}

func TestThePolicyOfTheHighestPriorityWinsAndThenTheOlder(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "precedence"
	withPriority := func(name string, priority int32) *fleetv1.FleetRegistrationPolicy {
		return policy(namespace+name, namespace, func(spec *fleetv1.FleetRegistrationPolicySpec) { spec.Priority = priority })
	}
	older, high := withPriority("-z-older", 5), withPriority("-m-high", 6)
	create(t, withPriority("-a-low", -1), older, high)
	selectedBy := func(w *env.Workload) func() string {
		return func() string {
			registration := &fleetv1.FleetRegistration{}
			if lab.Client.Get(t.Context(), w.Key(), registration) != nil {
				return "not registered"
			}
			return registration.Spec.SelectedBy.Policy
		}
	}
	eventually := func(w *env.Workload) AsyncAssertion {
		return g.Eventually(selectedBy(w)).WithTimeout(suite.Patience).WithPolling(suite.Poll)
	}
	first := add(t, plan(namespace, "first", labelled, noKubelet))[0]
	eventually(first).Should(Equal(high.Name))

	g.Expect(lab.Client.Delete(t.Context(), high)).To(Succeed())
	eventually(first).Should(Equal(older.Name))

	// Kubernetes tells ages apart by the second.
	var younger *fleetv1.FleetRegistrationPolicy
	g.Eventually(func(g Gomega) {
		younger = withPriority("-b-younger", 5)
		g.Expect(lab.Client.Create(t.Context(), younger)).To(Succeed())
		if !older.CreationTimestamp.Before(&younger.CreationTimestamp) {
			g.Expect(lab.Client.Delete(t.Context(), younger)).To(Succeed())
		}
		g.Expect(older.CreationTimestamp.Before(&younger.CreationTimestamp)).To(BeTrue())
	}).WithTimeout(suite.Patience).WithPolling(200 * time.Millisecond).Should(Succeed())
	second := add(t, plan(namespace, "second", labelled, noKubelet))[0]
	eventually(second).Should(Equal(older.Name))
	g.Expect(selectedBy(first)()).To(Equal(older.Name))

	g.Expect(lab.Client.Delete(t.Context(), older)).To(Succeed())
	eventually(first).Should(Equal(younger.Name))
	eventually(second).Should(Equal(younger.Name))
}
