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
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestClustersOfAnyNameJoinWithoutTouchingEachOther(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	long := func(end string) string {
		return fmt.Sprintf("%s-%s", "a-name-of-exactly-sixty-three-characters-which-is-the-most-there-is"[:62-len(end)], end)
	}
	const (
		colliding       = "edge-retail-production-eu"
		store395        = "store-emea-germany-berlin-00395"
		store459        = "store-emea-germany-berlin-00459"
		squatted        = "names-squatted"
		longestForLabel = 63
	)
	g.Expect(fleet.ClusterNamespace(colliding, store395)).To(Equal(fleet.ClusterNamespace(colliding, store459)), "they do collide")
	foreign := namespace(fleet.ClusterNamespace(squatted, "edge"), map[string]string{fleet.ManagedLabel: "true"})
	foreign.Annotations = map[string]string{fleet.ClusterNamespaceAnnotation: squatted, fleet.ClusterAnnotation: "other"}
	create(t, foreign)
	occupied := versionOf(t, foreign)

	workloads := add(t,
		plan(long("ns"), long("one"), labelled),
		plan(long("ns"), long("two"), labelled),
		plan("names-dotted", "edge.one.example", labelled),
		plan("names-dotted", "edge-one-example", labelled),
		plan("names-one", "twin", labelled),
		plan("names-two", "twin", labelled),
		plan("a", "b-c", labelled),
		plan("a-b", "c", labelled),
		plan(colliding, store395, labelled),
		plan(colliding, store459, labelled),
		plan(squatted, "edge", labelled),
	)
	holders, systems := map[string]string{}, map[types.UID]string{}
	for _, w := range workloads {
		g.Expect(len(w.Name)).To(BeNumerically("<=", longestForLabel))
		registration := suite.EventuallyReady(t, lab, w)
		status, key := registration.Status, w.Key().String()
		g.Expect(holders).NotTo(HaveKey(status.Namespace), key)
		g.Expect(systems).NotTo(HaveKey(status.Workload.SystemNamespaceUID), key)
		holders[status.Namespace], systems[status.Workload.SystemNamespaceUID] = key, key
		expectOwnObjects(t, w, registration)
	}
	g.Expect(holders).To(And(
		HaveKey(fleet.ClusterNamespace(colliding, store395)),
		Or(HaveKey(fleet.FallbackClusterNamespace(colliding, store395)), HaveKey(fleet.FallbackClusterNamespace(colliding, store459))),
		HaveKeyWithValue(fleet.FallbackClusterNamespace(squatted, "edge"), squatted+"/edge"),
		HaveKeyWithValue(fleet.ClusterNamespace("a", "b-c"), "a/b-c"),
		HaveKeyWithValue(fleet.ClusterNamespace("a-b", "c"), "a-b/c"),
	))
	g.Expect(versionOf(t, foreign)).To(Equal(occupied))

	// One that goes takes nothing of the others with it.
	for _, i := range []int{8, 10} {
		g.Expect(lab.RemoveCluster(t.Context(), workloads[i])).To(Succeed())
	}
	g.Expect(versionOf(t, foreign)).To(Equal(occupied))
	expectOwnObjects(t, workloads[9], registrationOf(t, workloads[9]))
}

// expectOwnObjects expects all objects of a registration to be there, and to be its
// own.
func expectOwnObjects(t *testing.T, w *env.Workload, registration *fleetv1.FleetRegistration) {
	t.Helper()
	g := NewWithT(t)
	name, fleetKey := registration.Status.Namespace, client.ObjectKey(registration.Spec.FleetCluster)
	get := func(key client.ObjectKey, obj client.Object) {
		g.Expect(lab.Client.Get(t.Context(), key, obj)).To(Succeed(), "%T of %s", obj, w.Key())
		g.Expect(obj.GetAnnotations()).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, registration.Spec.RegistrationID), "%T of %s", obj, w.Key())
		g.Expect(obj.GetDeletionTimestamp()).To(BeNil(), "%T of %s", obj, w.Key())
	}
	cluster, own := &fleet.Cluster{}, &corev1.Namespace{}
	get(fleetKey, cluster)
	g.Expect(cluster.Status.Namespace).To(Equal(name))
	get(client.ObjectKey{Name: name}, own)
	g.Expect(own.Annotations).To(And(
		HaveKeyWithValue(fleet.ClusterNamespaceAnnotation, fleetKey.Namespace),
		HaveKeyWithValue(fleet.ClusterAnnotation, fleetKey.Name),
	))
	get(client.ObjectKey{Namespace: env.ManagerNamespace, Name: name}, &corev1.ServiceAccount{})
	get(client.ObjectKey{Namespace: fleetKey.Namespace, Name: name}, &rbacv1.Role{})
	for _, key := range []client.ObjectKey{{Namespace: fleetKey.Namespace, Name: name}, {Namespace: name, Name: "capi-fleet-agent"}} {
		binding := &rbacv1.RoleBinding{}
		get(key, binding)
		g.Expect(binding.Subjects).To(ConsistOf(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: env.ManagerNamespace, Name: name}))
	}

	secret := suite.AgentSecret(g, t.Context(), w)
	for key, want := range map[string]string{"deploymentNamespace": name, "clusterNamespace": fleetKey.Namespace, "clusterName": fleetKey.Name} {
		g.Expect(string(secret.Data[key])).To(Equal(want), "%s of %s", key, w.Key())
	}
}

// versionOf returns UID and resource version of an object of the management cluster.
func versionOf(t *testing.T, obj client.Object) string {
	t.Helper()
	live := &metav1.PartialObjectMetadata{}
	gvk, err := lab.Client.GroupVersionKindFor(obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	live.SetGroupVersionKind(gvk)
	NewWithT(t).Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), live)).To(Succeed())
	return string(live.UID) + " " + live.ResourceVersion
}
