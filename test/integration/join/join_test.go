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

package join

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestLabelledClusterJoinsAndItsAgentDeploysABundle(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	w, err := lab.AddCluster(ctx, "edge-1", env.ClusterOptions{Namespace: "joins", Register: true, StartLater: true})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = lab.RemoveCluster(t.Context(), w) })

	reg := &fleetv1.FleetRegistration{}
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(ctx, w.Key(), reg)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(reg.Status.Conditions, fleetv1.FleetClusterReadyCondition)).To(BeTrue())
	}).WithTimeout(30 * time.Second).Should(Succeed())

	g.Expect(w.StartAPI(ctx)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(ctx, w.Key(), reg)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(reg.Status.Conditions, fleetv1.ReadyCondition)).To(BeTrue(), "%+v", reg.Status.Conditions)
	}).WithTimeout(60 * time.Second).Should(Succeed())

	bundle := &fleet.Bundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: "joins", Name: "hello"},
		Spec: fleet.BundleSpec{
			Resources: []fleet.BundleResource{{Name: "a.yaml", Content: "kind: Nothing"}},
			Targets:   []fleet.BundleTarget{{ClusterName: "edge-1"}},
		},
	}
	g.Expect(lab.Client.Create(ctx, bundle)).To(Succeed())
	g.Eventually(func(g Gomega) {
		deployments := &fleet.BundleDeploymentList{}
		g.Expect(lab.Client.List(ctx, deployments, client.InNamespace(reg.Status.Namespace))).To(Succeed())
		g.Expect(deployments.Items).To(HaveLen(1))
		g.Expect(deployments.Items[0].Status.Ready).To(BeTrue())
	}).WithTimeout(30 * time.Second).Should(Succeed())
	for _, report := range w.AgentReports() {
		t.Logf("%+v", report)
	}
	statuses, err := lab.Status(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	for _, s := range statuses {
		t.Logf("%+v", s)
	}
}
