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
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// made makes the objects of a registration that the manager knows nothing of.
func made(t *testing.T, name string) (*upstream.Writer, upstream.Registration, *fleet.Cluster) {
	t.Helper()
	g := NewWithT(t)
	makeNamespace(t)
	writer := &upstream.Writer{Client: lab.Client, Reader: lab.Client, Cache: lab.Client, ManagerNamespace: env.ManagerNamespace, Clock: clock.RealClock{}}
	r := upstream.Registration{ID: upstream.NewID(), FleetCluster: types.NamespacedName{Namespace: namespace, Name: name}}
	placed, err := writer.Ensure(t.Context(), r, func(string) bool { return false })
	g.Expect(err).NotTo(HaveOccurred())
	r.Namespace, r.NamespaceUID = placed.Namespace, placed.NamespaceUID
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), r.FleetCluster, cluster)).To(Succeed())
	return writer, r, cluster
}

// left tells which of the agent's account and rights are there.
func left(g Gomega, t *testing.T, r upstream.Registration) []string {
	t.Helper()
	there := []string{}
	for _, obj := range r.Objects(env.ManagerNamespace, "x")[2:] {
		err := lab.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
		g.Expect(client.IgnoreNotFound(err)).To(Succeed())
		if err == nil {
			there = append(there, obj.GetName())
		}
	}
	return there
}

// Fleet deletes the namespace, and something in it may keep that from ending.
func TestADeletionThatGivesUpWaitingForFleetLeavesNoAccount(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	writer, r, cluster := made(t, "abandoned")
	stuck := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: "stuck", Finalizers: []string{"test.cluster.x-k8s.io/stuck"}}}
	g.Expect(lab.Client.Create(ctx, stuck)).To(Succeed())

	// The orphan controller may write to the Fleet Cluster meanwhile.
	g.Eventually(func() (string, error) { return writer.Delete(ctx, r, upstream.DeleteOptions{}) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Equal(r.Namespace), "it waits for the namespace")
	g.Eventually(func() error { return lab.Client.Get(ctx, r.FleetCluster, cluster) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
	g.Expect(left(g, t, r)).To(ContainElement(r.Namespace), "the account stays while the agent may have something to uninstall")

	namespace, err := writer.Delete(ctx, r, upstream.DeleteOptions{Abandon: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(namespace).To(Equal(r.Namespace), "what stays is told of")
	g.Expect(left(g, t, r)).To(BeEmpty())

	g.Expect(lab.Client.Patch(ctx, stuck, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	g.Eventually(func() error { return lab.Client.Get(ctx, client.ObjectKey{Name: r.Namespace}, &corev1.Namespace{}) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
}

func TestADeletionAfterAHandOverTakesOnlyTheAgentsAccountAndRights(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	writer, r, cluster := made(t, "handed-over")
	handOver := `{"metadata":{"labels":{"` + fleet.ClusterManagementLabel + `":null}}}`
	g.Expect(lab.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(handOver)))).To(Succeed())

	_, err := writer.Delete(ctx, r, upstream.DeleteOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(left(g, t, r)).To(BeEmpty())
	after, home := &fleet.Cluster{}, &corev1.Namespace{}
	g.Expect(lab.Client.Get(ctx, r.FleetCluster, after)).To(Succeed())
	g.Expect(after.UID).To(Equal(cluster.UID))
	g.Expect(after.DeletionTimestamp.IsZero()).To(BeTrue())
	g.Expect(after.Annotations).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, r.ID))
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Name: r.Namespace}, home)).To(Succeed())
	g.Expect(home.UID).To(Equal(r.NamespaceUID))
	g.Expect(home.DeletionTimestamp.IsZero()).To(BeTrue())

	g.Expect(lab.Client.Delete(ctx, after)).To(Succeed())
	g.Eventually(func() error { return lab.Client.Get(ctx, client.ObjectKey{Name: r.Namespace}, home) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
}
