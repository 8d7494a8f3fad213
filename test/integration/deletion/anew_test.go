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

package deletion

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestDeletedRegistrationOfALivingClusterIsMadeAnew(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	w := add(t, "anew", "edge")
	old := suite.EventuallyReady(t, lab, w)
	before := standing(g, ctx, w, old)
	objects := suite.Inventory(g, ctx, lab)

	g.Expect(lab.Client.Delete(ctx, old.DeepCopy())).To(Succeed())
	g.Eventually(func(g Gomega) {
		reg := &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(ctx, w.Key(), reg)).To(Succeed())
		g.Expect(reg.UID).NotTo(Equal(old.UID))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	reg := suite.EventuallyReady(t, lab, w)
	g.Expect(reg.Spec.RegistrationID).To(Equal(old.Spec.RegistrationID))
	g.Expect(reg.Status.Namespace).To(Equal(old.Status.Namespace))
	g.Expect(standing(g, ctx, w, reg)).To(Equal(before))
	g.Expect(suite.Inventory(g, ctx, lab)).To(ConsistOf(objects))
	g.Expect(w.AgentStarts()).To(HaveLen(1))
}

// standing describes what must outlive the registration's object.
func standing(g *WithT, ctx context.Context, w *env.Workload, reg *fleetv1.FleetRegistration) map[string]any {
	cluster, namespace, account, deployment := &fleet.Cluster{}, &corev1.Namespace{}, &corev1.ServiceAccount{}, &appsv1.Deployment{}
	g.Expect(lab.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
	g.Expect(lab.Client.Get(ctx, types.NamespacedName{Name: reg.Status.Namespace}, namespace)).To(Succeed())
	g.Expect(lab.Client.Get(ctx, types.NamespacedName{Namespace: env.ManagerNamespace, Name: reg.Status.Namespace}, account)).To(Succeed())
	g.Expect(w.Client.Get(ctx, suite.AgentKey, deployment)).To(Succeed())
	return map[string]any{
		"Fleet Cluster":        cluster.UID,
		"spec of that":         cluster.Spec,
		"labels of that":       cluster.Labels,
		"annotations of that":  cluster.Annotations,
		"cluster namespace":    cluster.Status.Namespace,
		"namespace":            namespace.UID,
		"service account":      account.UID,
		"Deployment":           deployment.UID,
		"Deployment's version": deployment.ResourceVersion,
		"agent's Secret":       suite.AgentSecret(g, ctx, w).UID,
	}
}

func TestClusterMadeAnewUnderItsNameWaitsForTheOldFleetCluster(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	w := add(t, "again", "edge")
	old := suite.EventuallyReady(t, lab, w)
	before := standing(g, ctx, w, old)
	objects := suite.Inventory(g, ctx, lab)
	oldCluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(ctx, w.Key(), oldCluster)).To(Succeed())
	held := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	hold := func(finalizers string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers)
		g.Expect(lab.Client.Patch(ctx, held, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	}
	hold(`["example.com/held"]`)

	suite.DeleteCluster(t, lab, w)
	anew := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: oldCluster.Labels},
		Spec:       oldCluster.Spec,
	}
	g.Expect(lab.Client.Create(ctx, anew)).To(Succeed())
	waiting := suite.EventuallyCondition(t, lab, w, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.FleetClusterTerminatingReason)
	g.Expect(waiting.OwnerReferences).To(ConsistOf(HaveField("UID", anew.UID)))
	g.Expect(waiting.Status.Namespace).To(BeEmpty())
	g.Expect(lab.Client.Get(ctx, w.Key(), held)).To(Succeed())
	g.Expect(held.Annotations).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, old.Spec.RegistrationID), "it is left alone")

	hold("null")
	reg := suite.EventuallyReady(t, lab, w)
	g.Expect(reg.UID).To(Equal(waiting.UID))
	g.Expect(reg.Spec.RegistrationID).NotTo(Equal(old.Spec.RegistrationID))
	after := standing(g, ctx, w, reg)
	for _, what := range []string{"Fleet Cluster", "spec of that", "annotations of that", "namespace", "service account", "agent's Secret"} {
		g.Expect(after[what]).NotTo(Equal(before[what]), "%s is a new one", what)
	}
	g.Expect(suite.AgentSecret(g, ctx, w).Annotations).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, reg.Spec.RegistrationID))
	g.Expect(suite.Inventory(g, ctx, lab)).To(ConsistOf(objects))
}
