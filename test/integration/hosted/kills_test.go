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

package hosted

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// The manager is killed while clusters join and their agents are moved back and forth.
func TestKillsWhileAgentsMoveLeaveOneAgentEachAndNothingElse(t *testing.T) {
	const (
		namespace = "kills"
		kills     = 10
		// longestRun is how long the manager is let run at most: about as long as it
		// takes to carry what there is to do through.
		longestRun = 1500 * time.Millisecond
		// moveEvery is the mean number of kills between two moves.
		moveEvery = 2
	)
	g := NewWithT(t)
	ctx := t.Context()
	random := suite.Random(t)
	manager := lab.Manager()
	policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	policy.Spec.Priority = 1
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	policy.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromString("100%"))
	policy.Spec.Agent.Placement = fleetv1.PlacementManagement
	g.Expect(lab.Client.Create(ctx, policy)).To(Succeed())
	t.Cleanup(func() { g.Expect(lab.Client.Delete(context.WithoutCancel(ctx), policy)).To(Succeed()) })
	place := func(placement fleetv1.AgentPlacement) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"agent":{"placement":%q}}}`, placement)
		g.Expect(lab.Client.Patch(ctx, policy, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	}
	stays, object := join(t, env.ClusterOptions{Namespace: namespace, Light: &lightapi.Options{}})
	eventuallyPlaced(t, stays, fleetv1.PlacementManagement)
	before := suite.Inventory(g, ctx, lab)

	all := []*env.Workload{stays}
	placements := []fleetv1.AgentPlacement{fleetv1.PlacementWorkload, fleetv1.PlacementManagement}
	for n := range kills {
		killTime := time.After(time.Duration(random.Int64N(int64(longestRun))))
		if n%2 == 0 {
			all = append(all, suite.AddCluster(t, lab, fmt.Sprintf("edge-%d", len(all)), env.ClusterOptions{
				Namespace: namespace, Register: true, Light: &lightapi.Options{},
			}))
		}
		if random.IntN(moveEvery) == 0 {
			place(placements[random.IntN(len(placements))])
		}
		<-killTime
		g.Expect(manager.Kill()).To(Succeed())
		for _, w := range all {
			expectOneAgent(t, w)
		}
		g.Expect(manager.Start(ctx)).To(Succeed())
	}

	place(fleetv1.PlacementWorkload)
	for _, w := range all {
		eventuallyPlaced(t, w, "")
		g.Expect(inManagerNamespace(g, t, registrationOf(g, t, w).Status.Namespace)).To(ConsistOf("ServiceAccount"), "%s", w.Key())
	}
	place(fleetv1.PlacementManagement)
	for _, w := range all {
		eventuallyPlaced(t, w, fleetv1.PlacementManagement)
		g.Expect(inManagerNamespace(g, t, registrationOf(g, t, w).Status.Namespace)).
			To(ConsistOf("Deployment", "NetworkPolicy", "Secret", "ServiceAccount", "Pod"), "%s", w.Key())
		expectNothingRuns(t, w)
		suite.ExpectKept(t, w, bundle, suite.EventuallyDeployed(t, w, bundle))
	}
	suite.ExpectKept(t, stays, bundle, object)
	for _, w := range all[1:] {
		suite.DeleteCluster(t, lab, w)
	}
	for _, w := range all[1:] {
		suite.EventuallyGone(t, lab, w)
	}
	g.Eventually(suite.Inventory).WithContext(ctx).WithArguments(lab).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(before))
}

// expectOneAgent fails where a cluster is to have two agents. No manager runs that could
// change it meanwhile.
func expectOneAgent(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	wanted := replicas(t, w.Client, suite.AgentKey)
	registration := &fleetv1.FleetRegistration{}
	g.Expect(client.IgnoreNotFound(lab.Client.Get(t.Context(), w.Key(), registration))).To(Succeed())
	if name := registration.Status.Namespace; name != "" {
		wanted += replicas(t, lab.Client, client.ObjectKey{Namespace: env.ManagerNamespace, Name: name})
	}
	g.Expect(wanted).To(BeNumerically("<=", 1), "%s", w.Key())
}

// replicas is how many pods a Deployment asks for, 0 where there is none.
func replicas(t *testing.T, c client.Client, key client.ObjectKey) int32 {
	t.Helper()
	deployment := &appsv1.Deployment{}
	err := c.Get(t.Context(), key, deployment)
	NewWithT(t).Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return 0
	}
	return ptr.Deref(deployment.Spec.Replicas, 1)
}
