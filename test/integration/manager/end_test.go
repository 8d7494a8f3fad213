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

package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// inventory returns every object on the management cluster of the kinds that a
// registration is made of.
func inventory(g Gomega, ctx context.Context) []string {
	var objects []string
	for _, list := range []client.ObjectList{
		&fleetv1.FleetRegistrationList{}, &fleet.ClusterList{}, &fleet.BundleDeploymentList{},
		&corev1.NamespaceList{}, &corev1.ServiceAccountList{}, &corev1.SecretList{},
		&rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{},
	} {
		g.Expect(lab.Client.List(ctx, list)).To(Succeed())
		items, err := apimeta.ExtractList(list)
		g.Expect(err).NotTo(HaveOccurred())
		for _, item := range items {
			obj := item.(client.Object)
			if strings.HasSuffix(obj.GetName(), "-kubeconfig") || obj.GetName() == "default" {
				continue // They come and go with the Cluster, or a namespace.
			}
			objects = append(objects, fmt.Sprintf("%T %s", obj, client.ObjectKeyFromObject(obj)))
		}
	}
	return objects
}

// expectAgentRemoved fails where anything of the agent is left.
func expectAgentRemoved(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	for _, obj := range agent.Leftovers() {
		g.Expect(w.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)).To(Satisfy(apierrors.IsNotFound), "%T of %s", obj, w.Name)
	}
}

func TestDeletedClusterLeavesNothingBehind(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "deletion"
	startManager(t)
	suite.EventuallyReady(t, lab, addLight(t, namespace, "stays", nil))
	before := inventory(g, ctx)

	reachable := addLight(t, namespace, "reachable", nil)
	unreachable := addLight(t, namespace, "unreachable", nil)
	paused := addLight(t, namespace, "paused", func(c *clusterv1.Cluster) { c.Finalizers = []string{"test.cluster.x-k8s.io/infrastructure"} })
	t.Cleanup(func() { patchCluster(t, paused, `{"metadata":{"finalizers":null},"spec":{"paused":false}}`) })
	for _, w := range []*env.Workload{reachable, unreachable, paused} {
		suite.EventuallyReady(t, lab, w)
	}
	g.Expect(inventory(g, ctx)).To(HaveLen(len(before) + 3*7))

	patchCluster(t, paused, `{"spec":{"paused":true}}`)
	suite.EventuallyCondition(t, lab, paused, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
	start := suite.Mark(t, lab)
	deleteCluster(t, paused)
	deleteCluster(t, reachable)
	g.Expect(unreachable.StopAPI()).To(Succeed())
	deleteCluster(t, unreachable)
	eventuallyGone(t, reachable)
	eventuallyGone(t, unreachable)
	expectAgentRemoved(t, reachable)

	held := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(ctx, paused.Key(), held)).To(Succeed())
	g.Expect(held.DeletionTimestamp.IsZero()).To(BeTrue())
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, start)) {
		g.Expect(e.Name).NotTo(Or(Equal(paused.Name), Equal(held.Status.Namespace)), "written while paused: %s %s", e.Verb, e.RequestURI)
	}
	suite.AgentSecret(g, ctx, paused)

	patchCluster(t, paused, `{"spec":{"paused":false}}`)
	eventuallyGone(t, paused)
	expectAgentRemoved(t, paused)
	g.Eventually(inventory).WithContext(ctx).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(before))
}

func TestDeletedRegistrationOfALivingClusterIsMadeAnew(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	startManager(t)
	w := addLight(t, "anew", "edge", nil)
	old := suite.EventuallyReady(t, lab, w)
	before := standing(g, ctx, w, old)
	objects := inventory(g, ctx)

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
	g.Expect(inventory(g, ctx)).To(ConsistOf(objects))
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

func TestClusterMadeAnewUnderItsNameGetsANewRegistration(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	startManager(t)
	w := addLight(t, "again", "edge", nil)
	old := suite.EventuallyReady(t, lab, w)
	before := standing(g, ctx, w, old)
	objects := inventory(g, ctx)
	oldCluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(ctx, w.Key(), oldCluster)).To(Succeed())

	deleteCluster(t, w)
	anew := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: oldCluster.Labels},
		Spec:       oldCluster.Spec,
	}
	g.Expect(lab.Client.Create(ctx, anew)).To(Succeed())
	g.Eventually(func(g Gomega) {
		reg := &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(ctx, w.Key(), reg)).To(Succeed())
		g.Expect(reg.OwnerReferences).To(ConsistOf(HaveField("UID", anew.UID)))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	reg := suite.EventuallyReady(t, lab, w)

	g.Expect(reg.Spec.RegistrationID).NotTo(Equal(old.Spec.RegistrationID))
	after := standing(g, ctx, w, reg)
	for _, what := range []string{"Fleet Cluster", "spec of that", "annotations of that", "namespace", "service account", "agent's Secret"} {
		g.Expect(after[what]).NotTo(Equal(before[what]), "%s is a new one", what)
	}
	g.Expect(suite.AgentSecret(g, ctx, w).Annotations).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, reg.Spec.RegistrationID))
	g.Expect(inventory(g, ctx)).To(ConsistOf(objects))
}
