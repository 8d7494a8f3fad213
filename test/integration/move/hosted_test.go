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

package move

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// The agent on the source runs on until its registration is gone there. That it holds the
// lease in the workload cluster is all that the target knows of it.
func TestAHostedAgentMovesOnceItsBundlesAreThereAndTheOldOneIsGone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	const namespace, label = "moves-hosted", "moves-hosted"
	policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	policy.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
	policy.Spec.Agent.Placement = fleetv1.PlacementManagement
	g.Expect(source.Client.Create(ctx, policy)).To(Succeed())
	w := join(t, namespace, env.ClusterOptions{Labels: map[string]string{label: "true"}, NoKubelet: true}, "web")
	old := registrationOf(g, ctx, source, w)
	clusterNamespace := old.Status.Namespace
	before := deployed(g, ctx, w.Client, "web")
	left := standing(g, t, source, w, clusterNamespace)
	g.Expect(hostedPods(g, ctx, source, clusterNamespace)).To(Equal(1))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("source"), LeaseDurationSeconds: ptr.To[int32](3600)},
	}
	g.Expect(w.Client.Create(ctx, lease)).To(Succeed())
	mark := suite.Mark(t, source)

	clusterctlMove(t, source, target, namespace)

	g.Eventually(hostedPods).WithContext(ctx).WithArguments(source, clusterNamespace).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeZero())
	key := types.NamespacedName{Namespace: env.ManagerNamespace, Name: clusterNamespace}
	parked := &appsv1.Deployment{}
	g.Expect(source.Client.Get(ctx, key, parked)).To(Succeed())
	g.Expect(parked.Spec.Replicas).To(HaveValue(BeZero()))
	g.Expect(managerWrites(t, source, mark, namespace)).To(HaveEach(BeElementOf("patch fleetregistrations/status", "patch deployments")))

	suite.EventuallyCondition(t, target, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForBundlesReason)
	g.Expect(target.Client.Get(ctx, key, &appsv1.Deployment{})).To(Satisfy(apierrors.IsNotFound))

	makeBundles(t, target, namespace, "web")
	suite.EventuallyCondition(t, target, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForLeaseReason)
	g.Expect(target.Client.Get(ctx, key, &appsv1.Deployment{})).To(Satisfy(apierrors.IsNotFound), "the lease is held")

	free := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`))
	g.Expect(w.Client.Patch(ctx, lease, free)).To(Succeed())
	// The lab has no node for it at target, since all agents there are to be the source's.
	g.Eventually(func(g Gomega) {
		g.Expect(hostedPods(g, ctx, target, clusterNamespace)).To(Equal(1))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(registrationOf(g, ctx, target, w).Spec.RegistrationID).To(Equal(old.Spec.RegistrationID))
	g.Expect(hostedPods(g, ctx, source, clusterNamespace)).To(BeZero(), "two agents")
	g.Expect(w.AgentStarts()).To(BeEmpty(), "an agent ran in the workload cluster")
	g.Expect(standing(g, t, source, w, clusterNamespace)).To(Equal(left))
	g.Expect(deployed(g, ctx, w.Client, "web")).To(Equal(before))
	expectNothingUninstalled(t, w)
}

// hostedPods counts the pods of a cluster's agent on a management cluster.
func hostedPods(g Gomega, ctx context.Context, lab *env.Lab, clusterNamespace string) int {
	pods := &corev1.PodList{}
	g.Expect(lab.Client.List(ctx, pods, client.InNamespace(env.ManagerNamespace), client.MatchingLabels(agent.HostedPodLabels(clusterNamespace)))).To(Succeed())
	return len(pods.Items)
}
