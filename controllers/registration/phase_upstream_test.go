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

package registration

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// newPlaced returns a registration whose objects on the management cluster were made
// a minute ago.
func newPlaced(t *testing.T) (*management, *Reconciler) {
	t.Helper()
	m, r := newManagement(t, livingCluster(), owned())
	_, err := r.Reconcile(t.Context(), edge)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(m.registration(t).Status.Namespace).NotTo(BeEmpty())
	m.writes = nil
	m.clock.SetTime(m.clock.Now().Add(time.Minute))
	return m, r
}

// offline lets every request of the phase fail but those to the cache.
func offline(m *management, r *Reconciler) {
	refused := errors.New("a request")
	none := interceptor.NewClient(m, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return refused
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refused
		},
	})
	r.Upstream = &upstream.Writer{Client: none, Reader: none, Cache: r.Upstream.Cache, ManagerNamespace: managerNamespace}
}

func upstreamPhase(t *testing.T, r *Reconciler) (*scope, ctrl.Result, error) {
	t.Helper()
	s, err := r.gather(t.Context(), edge.NamespacedName)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	result, err := r.reconcileUpstream(t.Context(), s)
	return s, result, err
}

func accountOf(t *testing.T, m *management) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: m.registration(t).Status.Namespace}}
	NewWithT(t).Expect(m.Get(t.Context(), client.ObjectKeyFromObject(account), account)).To(Succeed())
	return account
}

func TestAPlacedRegistrationIsLookedAtWithoutARequest(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	offline(m, r)

	s, result, err := upstreamPhase(t, r)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{}), "the agent's turn")
	g.Expect(s.accountUID).To(Equal(accountOf(t, m).UID))
	g.Expect(s.fleetClusterReady).To(BeNil())
}

func TestAServiceAccountThatWasMadeAnewIsKnownByItsUID(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	before := accountOf(t, m)
	g.Expect(m.WithWatch.Delete(t.Context(), before)).To(Succeed())
	m.writes = nil

	s, result, err := upstreamPhase(t, r)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{}), "the agent's turn, in the same reconcile")
	g.Expect(m.writes).To(Equal([]string{"create *v1.ServiceAccount"}))
	g.Expect(s.accountUID).To(And(Equal(accountOf(t, m).UID), Not(Equal(before.UID))))
}

func TestACacheThatIsBehindLeadsToNoRequestAtFirstAndToNoWriteEver(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	m.clock.SetTime(m.clock.Now().Add(-time.Minute))
	behind, _ := newManagement(t)
	live := r.Upstream
	r.Upstream = &upstream.Writer{Cache: behind}
	offline(m, r)

	_, result, err := upstreamPhase(t, r)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically(">", 0))

	m.clock.SetTime(m.clock.Now().Add(cacheLag))
	r.Upstream = &upstream.Writer{Client: live.Client, Reader: live.Reader, Cache: behind, ManagerNamespace: managerNamespace}
	s, result, err := upstreamPhase(t, r)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{}))
	g.Expect(s.fleetClusterReady.ok).To(BeTrue())
	g.Expect(m.writes).To(BeEmpty())
}

func TestAClusterNamespaceThatWasDeletedIsWaitedForAndMadeAnew(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	before := m.registration(t).Status
	namespace := &corev1.Namespace{}
	g.Expect(m.Get(t.Context(), client.ObjectKey{Name: before.Namespace}, namespace)).To(Succeed())
	namespace.Finalizers = []string{"kubernetes.example/test"}
	g.Expect(m.Update(t.Context(), namespace)).To(Succeed())
	g.Expect(m.WithWatch.Delete(t.Context(), namespace)).To(Succeed())
	m.writes = nil

	result, err := r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	g.Expect(hasReason(m.registration(t), fleetv1.FleetClusterReadyCondition, fleetv1.NamespaceTerminatingReason)).To(BeTrue())
	g.Expect(m.writes).To(BeEmpty())

	g.Expect(m.Get(t.Context(), client.ObjectKey{Name: before.Namespace}, namespace)).To(Succeed())
	namespace.Finalizers = nil
	g.Expect(m.Update(t.Context(), namespace)).To(Succeed())
	_, err = r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	after := m.registration(t).Status
	g.Expect(after.Namespace).To(Equal(before.Namespace))
	g.Expect(after.NamespaceUID).NotTo(Or(BeEmpty(), Equal(before.NamespaceUID)))
	g.Expect(m.writes).To(Equal([]string{"create *v1.Namespace", "delete *v1.ServiceAccount"}))
	g.Expect(hasReason(m.registration(t), fleetv1.FleetClusterReadyCondition, fleetv1.WaitingForFleetClusterReason)).To(BeTrue())

	m.writes = nil
	_, err = r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.writes).To(ContainElement("create *v1.ServiceAccount"))
	g.Expect(isTrue(m.registration(t), fleetv1.FleetClusterReadyCondition)).To(BeTrue())
}

func TestTheNewNamespaceIsNotRecordedBeforeTheOldAccountIsGone(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	before := m.registration(t).Status
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: before.Namespace}}
	g.Expect(m.WithWatch.Delete(t.Context(), namespace)).To(Succeed())
	m.writes = nil
	stays := interceptor.NewClient(m, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return errors.New("no")
		},
	})
	r.Upstream = &upstream.Writer{Client: stays, Reader: m, Cache: m, ManagerNamespace: managerNamespace}

	_, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).To(HaveOccurred())
	g.Expect(m.writes).To(Equal([]string{"create *v1.Namespace"}))
	g.Expect(m.registration(t).Status.NamespaceUID).To(Equal(before.NamespaceUID))
}

func TestAPlacedRegistrationNoticesThatItsFleetClusterIsAnothers(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	cluster := fleetClusterOf(m.registration(t))
	g.Expect(m.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	cluster.Annotations[fleetv1.RegistrationIDAnnotation] = "of-another"
	g.Expect(m.Update(t.Context(), cluster)).To(Succeed())

	_, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hasReason(m.registration(t), fleetv1.FleetClusterReadyCondition, fleetv1.FleetClusterForeignReason)).To(BeTrue())
	g.Expect(m.writes).To(BeEmpty())
}

func TestTheObjectsOfARegistrationLeadToIt(t *testing.T) {
	m, r := newPlaced(t)
	name := m.registration(t).Status.Namespace
	at := func(obj client.Object, namespace, name string) client.Object {
		obj.SetNamespace(namespace)
		obj.SetName(name)
		return obj
	}
	for _, tt := range []struct {
		name string
		obj  client.Object
		want int
	}{
		{"namespace", at(&metav1.PartialObjectMetadata{}, "", name), 1},
		{"service account", at(&metav1.PartialObjectMetadata{}, managerNamespace, name), 1},
		{"Role", at(&rbacv1.Role{}, "team-a", name), 1},
		{"RoleBinding in the cluster namespace", at(&rbacv1.RoleBinding{}, name, "capi-fleet-agent"), 1},
		{"namespace of the Cluster", at(&metav1.PartialObjectMetadata{}, "", "team-a"), 0},
		{"another's Role", at(&rbacv1.Role{}, "team-a", "cluster-of-another"), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(r.placedToRegistrations(t.Context(), tt.obj)).To(HaveLen(tt.want))
		})
	}
}
