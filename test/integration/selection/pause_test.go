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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestNothingIsWrittenForAPausedRegistrationUntilItGoesOn(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	registrationMeta := func(w *env.Workload) *fleetv1.FleetRegistration {
		return &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	}
	cases := []struct {
		namespace     string
		pause, resume func(*env.Workload)
		reason        string
	}{{
		namespace: "paused-spec",
		pause: func(w *env.Workload) {
			change(t, w.Key(), &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		},
		resume: func(w *env.Workload) {
			change(t, w.Key(), &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
		},
		reason: fleetv1.PausedReason,
	}, {
		namespace: "paused-cluster",
		pause:     func(w *env.Workload) { setAnnotation(t, clusterOf(w), clusterv1.PausedAnnotation, ptr.To("")) },
		resume:    func(w *env.Workload) { setAnnotation(t, clusterOf(w), clusterv1.PausedAnnotation, nil) },
		reason:    fleetv1.PausedReason,
	}, {
		namespace: "paused-registration",
		pause:     func(w *env.Workload) { setAnnotation(t, registrationMeta(w), clusterv1.PausedAnnotation, ptr.To("")) },
		resume:    func(w *env.Workload) { setAnnotation(t, registrationMeta(w), clusterv1.PausedAnnotation, nil) },
		reason:    fleetv1.PausedReason,
	}, {
		namespace: "paused-moving",
		pause:     func(w *env.Workload) { setAnnotation(t, clusterOf(w), movingAnnotation, ptr.To("")) },
		resume:    func(w *env.Workload) { setAnnotation(t, clusterOf(w), movingAnnotation, nil) },
		reason:    fleetv1.MovingReason,
	}}
	var plans []planned
	for _, c := range cases {
		plans = append(plans, plan(c.namespace, "edge", labelled))
	}
	workloads := add(t, plans...)
	for _, w := range workloads {
		suite.EventuallyReady(t, lab, w)
	}

	joined := suite.Mark(t, lab)
	seen := make([]int, len(cases))
	for i, c := range cases {
		seen[i] = len(visits(workloads[i]))
		c.pause(workloads[i])
	}
	for i, c := range cases {
		suite.EventuallyCondition(t, lab, workloads[i], fleetv1.PausedCondition, metav1.ConditionTrue, c.reason)
	}
	for i, c := range cases {
		w := workloads[i]
		setLabel(t, clusterOf(w), fleetv1.RegisterLabel, "")
		setLabel(t, &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}, "example.com/site", "berlin")
		g.Expect(w.WriteKubeconfig(t.Context(), []byte("something else"))).To(Succeed())
		create(t, policy(c.namespace, c.namespace, func(spec *fleetv1.FleetRegistrationPolicySpec) {
			spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "edge"}}
			spec.ManagementCluster.Server = "https://elsewhere.example"
			// Agents could not come back from there.
			spec.Rollout.Paused = true
		}))
		setLabel(t, clusterOf(w), "tier", "edge")
	}
	fence(t, "paused")
	for i, c := range cases {
		g.Expect(managerWrites(t, joined, c.namespace)).To(Equal([]string{"patch fleetregistrations/status"}), c.namespace)
		g.Expect(visits(workloads[i])).To(HaveLen(seen[i]), c.namespace)
	}

	for i, c := range cases {
		g.Expect(workloads[i].WriteKubeconfig(t.Context(), workloads[i].Kubeconfig())).To(Succeed())
		c.resume(workloads[i])
	}
	for i, c := range cases {
		registration := suite.EventuallyCondition(t, lab, workloads[i], fleetv1.PausedCondition, metav1.ConditionFalse, fleetv1.NotPausedReason)
		g.Eventually(func() fleetv1.SelectedBy { return registrationOf(t, workloads[i]).Spec.SelectedBy }).
			WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(And(HaveField("Policy", c.namespace), HaveField("Label", BeEmpty())), "what changed meanwhile is seen now")
		g.Expect(registrationOf(t, workloads[i]).Spec.Agent).To(Equal(registration.Spec.Agent))
		suite.EventuallyReady(t, lab, workloads[i])
	}
}
