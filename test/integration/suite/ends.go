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

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// Inventory names every object on the management cluster of the kinds that registrations
// are made of, or that one of them has made for all. What comes and goes with a Cluster or a namespace by itself
// is left out.
func Inventory(g Gomega, ctx context.Context, lab *env.Lab) []string {
	var objects []string
	for _, list := range []client.ObjectList{
		&fleetv1.FleetRegistrationList{}, &fleet.ClusterList{}, &fleet.BundleDeploymentList{},
		&corev1.NamespaceList{}, &corev1.ServiceAccountList{}, &corev1.SecretList{},
		&rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
		&appsv1.DeploymentList{}, &networkingv1.NetworkPolicyList{},
		&fleet.ClusterGroupList{}, &fleet.BundleNamespaceMappingList{},
	} {
		g.Expect(lab.Client.List(ctx, list)).To(Succeed())
		items, err := meta.ExtractList(list)
		g.Expect(err).NotTo(HaveOccurred())
		for _, item := range items {
			obj := item.(client.Object)
			if strings.HasSuffix(obj.GetName(), "-kubeconfig") || obj.GetName() == "default" {
				continue
			}
			objects = append(objects, fmt.Sprintf("%T %s", obj, client.ObjectKeyFromObject(obj)))
		}
	}
	return objects
}

// DeleteCluster deletes the Cluster as a user does. Its workload cluster stays.
func DeleteCluster(t *testing.T, lab *env.Lab, workload *env.Workload) {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: workload.Namespace, Name: workload.Name}}
	if err := lab.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatalf("deleting Cluster %s: %v", workload.Key(), err)
	}
}

// EventuallyGone waits until the cluster has no registration.
func EventuallyGone(t *testing.T, lab *env.Lab, workload *env.Workload) {
	t.Helper()
	NewWithT(t).Eventually(func() error {
		return lab.Client.Get(t.Context(), workload.Key(), &fleetv1.FleetRegistration{})
	}).WithTimeout(Patience).WithPolling(Poll).Should(Satisfy(apierrors.IsNotFound), "FleetRegistration %s", workload.Key())
}
