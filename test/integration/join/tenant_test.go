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
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// tenantOf returns a client for a user who may do everything in one namespace, in
// our API group too, and nothing elsewhere.
func tenantOf(t *testing.T, namespace string) client.Client {
	t.Helper()
	g := NewWithT(t)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "tenant"}
	g.Expect(lab.Client.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}})).To(Succeed())
	g.Expect(lab.Client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant-of-" + namespace}},
	})).To(Succeed())
	c, err := lab.As("tenant-of-" + namespace)
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func TestTenantCannotChangeSpecOrStatusOfARegistration(t *testing.T) {
	const namespace = "tenant-own"
	w := suite.AddCluster(t, lab, "own", env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}})
	registration := suite.EventuallyReady(t, lab, w)
	tenant := tenantOf(t, namespace)
	merge := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

	for name, try := range map[string]func(context.Context) error{
		"its agent's server": func(ctx context.Context) error {
			return tenant.Patch(ctx, registration.DeepCopy(), merge(`{"spec":{"agent":{"managementCluster":{"server":"https://evil.example"}}}}`))
		},
		"its agent's image": func(ctx context.Context) error {
			return tenant.Patch(ctx, registration.DeepCopy(), merge(`{"spec":{"agent":{"image":"evil"}}}`))
		},
		"what selected it": func(ctx context.Context) error {
			return tenant.Patch(ctx, registration.DeepCopy(), merge(`{"spec":{"selectedBy":{"policy":"x"}}}`))
		},
		"its status.namespace": func(ctx context.Context) error {
			return tenant.Status().Patch(ctx, registration.DeepCopy(), merge(`{"status":{"namespace":"kube-system"}}`))
		},
		"its status, by an update": func(ctx context.Context) error {
			changed := registration.DeepCopy()
			changed.Status = fleetv1.FleetRegistrationStatus{}
			return tenant.Status().Update(ctx, changed)
		},
		"a registration of their own making": func(ctx context.Context) error {
			forged := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "forged"}, Spec: registration.Spec}
			return tenant.Create(ctx, forged)
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := try(t.Context())
			NewWithT(t).Expect(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)).To(BeTrue(), "got: %v", err)
		})
	}
	NewWithT(t).Expect(tenant.Patch(t.Context(), registration.DeepCopy(), merge(`{"metadata":{"annotations":{"a":"b"}}}`))).
		To(Succeed(), "metadata stays theirs, so that they can pause")
}

func TestTenantsMarksAndAnnotationsReachNoFleetCluster(t *testing.T) {
	g := NewWithT(t)
	hostile := map[string]string{
		"fleet.cattle.io/cluster-management": "theirs", "management.cattle.io/cluster-name": "x",
		"env": "production", "app.kubernetes.io/managed-by": "Helm",
		fleetv1.RegistrationIDAnnotation: "x", fleetv1.ClusterUIDAnnotation: "x",
	}
	w := suite.AddCluster(t, lab, "labels", env.ClusterOptions{
		Namespace: "tenant-labels", Register: true, Labels: hostile, Light: &lightapi.Options{},
		Modify: func(cluster *clusterv1.Cluster) { cluster.Annotations = hostile },
	})
	registration := suite.EventuallyReady(t, lab, w)

	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
	g.Expect(cluster.Labels).To(Equal(map[string]string{fleet.ClusterManagementLabel: "capi-fleet", "env": "production"}))
	g.Expect(cluster.Annotations).To(Equal(map[string]string{
		fleetv1.RegistrationIDAnnotation: registration.Spec.RegistrationID,
		fleetv1.ClusterUIDAnnotation:     string(registration.OwnerReferences[0].UID),
		fleetv1.PropagatedAnnotation:     `{"labels":["env"]}`,
	}))
}

func TestTenantsKubeconfigOfAnothersClusterReachesNothing(t *testing.T) {
	g := NewWithT(t)
	victim := suite.AddCluster(t, lab, "victim", env.ClusterOptions{Namespace: "tenant-victim", Register: true, Light: &lightapi.Options{}})
	registered := suite.EventuallyReady(t, lab, victim)
	before := suite.AgentSecret(g, t.Context(), victim)

	thief := suite.AddCluster(t, lab, "thief", env.ClusterOptions{
		Namespace: "tenant-thief", Register: true, NoKubeconfig: true, NoKubelet: true, Light: &lightapi.Options{},
	})
	g.Expect(thief.WriteKubeconfig(t.Context(), victim.Kubeconfig())).To(Succeed())
	refused := suite.EventuallyCondition(t, lab, thief, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AlreadyRegisteredReason)
	g.Expect(refused.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring(client.ObjectKeyFromObject(registered).String()))), "the holder is named")
	g.Expect(suite.AgentSecret(g, t.Context(), victim).Data).To(Equal(before.Data))
}

func TestTenantsKubeconfigOfTheManagementClusterIsRefused(t *testing.T) {
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "self", env.ClusterOptions{
		Namespace: "tenant-self", Register: true, NoKubeconfig: true, NoKubelet: true, Light: &lightapi.Options{},
	})
	g.Expect(w.WriteKubeconfig(t.Context(), lab.Management().AdminKubeconfig())).To(Succeed())
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.SelfManagedReason)
	secret := &corev1.Secret{}
	g.Expect(lab.Client.Get(t.Context(), suite.AgentKey, secret)).
		To(Satisfy(apierrors.IsNotFound))
}
