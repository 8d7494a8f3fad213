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

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

func TestLabelledClusterJoinsAndItsAgentDeploysABundle(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "joins"
	start := suite.Mark(t, lab)
	w := suite.AddCluster(t, lab, "edge-1", env.ClusterOptions{Namespace: namespace, Register: true, StartLater: true})

	// Its place on the management cluster is ready before its API server answers.
	suite.EventuallyCondition(t, lab, w, fleetv1.FleetClusterReadyCondition, metav1.ConditionTrue, fleetv1.FleetClusterCreatedReason)
	suite.EventuallyCondition(t, lab, w, fleetv1.ReadyCondition, metav1.ConditionFalse, fleetv1.WaitingForControlPlaneReason)
	g.Expect(w.StartAPI(ctx)).To(Succeed())
	registration := suite.EventuallyReady(t, lab, w)

	g.Expect(lab.Client.Create(ctx, &fleet.Bundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hello"},
		Spec: fleet.BundleSpec{
			Resources: []fleet.BundleResource{{Name: "hello.yaml", Content: "a: b"}},
			Targets:   []fleet.BundleTarget{{ClusterName: w.Name}},
		},
	})).To(Succeed())
	g.Eventually(func(g Gomega) {
		deployments := &fleet.BundleDeploymentList{}
		g.Expect(lab.Client.List(ctx, deployments, client.InNamespace(registration.Status.Namespace))).To(Succeed())
		g.Expect(deployments.Items).To(HaveLen(1))
		g.Expect(deployments.Items[0].Status.Ready).To(BeTrue())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())

	g.Eventually(w.AgentReports).WithTimeout(suite.Patience).Should(ConsistOf(SatisfyAll(
		HaveField("Heartbeats", BeNumerically(">", 0)),
		HaveField("Deployed", ConsistOf("hello")),
		HaveField("Refused", BeEmpty()),
	)), "the agent started once, and everything that it does is allowed")

	status := suite.Status(t, lab, w)
	inPlace, _ := status.Between(env.APIAnswers, env.CredentialInPlace)
	registered, _ := status.Between(env.APIAnswers, env.Registered)
	t.Logf("API answers ► in place %s, ► Ready %s; %d writes, %d objects", inPlace, registered, status.Writes, status.Objects)
	g.Expect(status.Writes).To(BeNumerically("<=", 14))
	g.Expect(status.Objects).To(BeNumerically("<=", 7))

	for _, write := range kube.Writes(suite.ManagerEvents(t, lab, start)) {
		g.Expect(write.Resource).NotTo(Equal("secrets"))
	}
}
