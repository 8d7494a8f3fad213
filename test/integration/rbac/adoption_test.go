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

package rbac

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// adoption makes the manager take over a Fleet Cluster that Fleet registered by itself.
func adoption(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	const namespace, name = "adoption", "edge"
	bundle := &fleet.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fleet-agent-" + name}}
	workspace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	policy := &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: fleetv1.FleetRegistrationPolicySpec{
			ClusterSelector:   &metav1.LabelSelector{},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Adoption:          fleetv1.AdoptionAdopt,
		},
	}
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Light: &lightapi.Options{}})
	suite.RegisterWithFleet(t, lab, w, nil)
	for _, obj := range []client.Object{bundle, policy} {
		g.Expect(lab.Client.Create(ctx, obj)).To(Succeed())
	}
	t.Cleanup(func() { _ = lab.Client.Delete(context.Background(), policy) })
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(workspace), workspace)).To(Succeed())
		g.Expect(workspace.Annotations).To(HaveKey(fleetv1.AdoptingAnnotation))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(lab.Client.Delete(ctx, bundle)).To(Succeed())
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)

	// When it opts out, what its policy says then counts.
	setLabel(g, ctx, w, "false")
	suite.EventuallyGone(t, lab, w)
}
