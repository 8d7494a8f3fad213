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
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/token"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// livingCluster is the Cluster of newScope's registration.
func livingCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "edge-1", UID: "uid-of-cluster", CreationTimestamp: ago(time.Hour),
	}}
}

// owned is a registration as the selection controller makes it, without the address
// of the management cluster: nothing is dialled.
func owned(change ...func(*scope)) *fleetv1.FleetRegistration {
	reg := newScope(change...).registration
	reg.Finalizers = []string{fleetv1.FleetRegistrationFinalizer}
	reg.OwnerReferences = []metav1.OwnerReference{decide.OwnerReference(livingCluster())}
	reg.Spec.FleetCluster = fleetv1.FleetClusterReference{Namespace: "team-a", Name: "edge-1"}
	return reg
}

const managerNamespace = "capi-fleet-system"

// management is a management cluster in memory that keeps what was written to it.
type management struct {
	client.WithWatch
	clock  *testclock.FakePassiveClock
	events *events.FakeRecorder
	writes []string
	tokens int
	// trials counts the tokens that were tried; refuse is what comes of that, if not nil.
	trials int
	refuse error
}

func newManagement(t *testing.T, objects ...client.Object) (*management, *Reconciler) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme, discoveryv1.AddToScheme, rbacv1.AddToScheme, clusterv1.AddToScheme, fleet.AddToScheme, fleetv1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	m := &management{clock: testclock.NewFakePassiveClock(epoch), events: events.NewFakeRecorder(100)}
	m.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&fleetv1.FleetRegistration{}, &fleet.Cluster{}, &clusterv1.Cluster{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				m.writes = append(m.writes, fmt.Sprintf("create %T", obj))
				if obj.GetUID() == "" {
					obj.SetUID(types.UID(fmt.Sprintf("uid-%d-of-%s", len(m.writes), obj.GetName())))
				}
				return c.Create(ctx, obj, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				m.writes = append(m.writes, fmt.Sprintf("delete %T", obj))
				return c.Delete(ctx, obj, opts...)
			},
			SubResourceCreate: func(ctx context.Context, c client.Client, subResource string, obj, body client.Object, _ ...client.SubResourceCreateOption) error {
				if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
					return err
				}
				m.tokens++
				request := body.(*authenticationv1.TokenRequest)
				expires := m.clock.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second)
				request.Status = authenticationv1.TokenRequestStatus{
					Token: jwt(fmt.Sprintf("token-%d", m.tokens), obj, m.clock.Now(), expires), ExpirationTimestamp: metav1.NewTime(expires),
				}
				return nil
			},
		}).
		WithIndex(&fleetv1.FleetRegistration{}, systemNamespaceIndex, func(obj client.Object) []string {
			return []string{string(obj.(*fleetv1.FleetRegistration).Status.Workload.SystemNamespaceUID)}
		}).
		WithIndex(&fleetv1.FleetRegistration{}, clusterNamespaceIndex, func(obj client.Object) []string {
			return []string{obj.(*fleetv1.FleetRegistration).Status.Namespace}
		}).
		Build()
	return m, &Reconciler{
		Client: m, APIReader: m, Clock: m.clock, Recorder: m.events,
		Upstream: &upstream.Writer{Client: m, Reader: m, Cache: m, ManagerNamespace: managerNamespace},
		Tokens:   &token.Issuer{Client: m, Clock: m.clock, Namespace: managerNamespace},
		TryToken: m.try,
		Dialer:   &remote.Dialer{},
	}
}

// jwt returns a token of a service account as the API server would, but for the name in
// place of a signature.
func jwt(name string, account client.Object, issued, expires time.Time) string {
	claims := fmt.Sprintf(`{"sub":"system:serviceaccount:%s:%s","iat":%d,"exp":%d,"kubernetes.io":{"serviceaccount":{"uid":%q}}}`,
		account.GetNamespace(), account.GetName(), issued.Unix(), expires.Unix(), account.GetUID())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + name
}

// try accepts a token for as long as its service account lives and it has not expired.
func (m *management) try(ctx context.Context, value, _ string) error {
	m.trials++
	if m.refuse != nil {
		return m.refuse
	}
	claims, ok := token.Read(value)
	accounts := &corev1.ServiceAccountList{}
	if err := m.List(ctx, accounts, client.InNamespace(managerNamespace)); err != nil {
		return err
	}
	lives := slices.ContainsFunc(accounts.Items, func(account corev1.ServiceAccount) bool { return account.UID == claims.AccountUID })
	if !ok || !lives || m.clock.Now().After(claims.Expires) {
		return apierrors.NewUnauthorized("no")
	}
	return nil
}

func (m *management) registration(t *testing.T) *fleetv1.FleetRegistration {
	t.Helper()
	reg := &fleetv1.FleetRegistration{}
	NewWithT(t).Expect(m.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "edge-1"}, reg)).To(Succeed())
	return reg
}

var edge = ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team-a", Name: "edge-1"}}

// held gives the registration a Fleet Cluster, and the status of one that has it.
func held(s *scope) {
	placed(s)
	s.registration.Status.Namespace, s.registration.Status.NamespaceUID = "cluster-a", "uid"
}

func fleetClusterOf(reg *fleetv1.FleetRegistration) *fleet.Cluster {
	return &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: reg.Spec.FleetCluster.Namespace, Name: reg.Spec.FleetCluster.Name}}
}

// Whoever may edit the namespace may edit these, and a registration without them
// must neither be taken for one whose Cluster is gone nor be left to outlive it.
func TestWhatWasTakenOffARegistrationIsPutBack(t *testing.T) {
	for name, damage := range map[string]func(*fleetv1.FleetRegistration){
		"owner reference": func(reg *fleetv1.FleetRegistration) { reg.OwnerReferences = nil },
		"finalizer":       func(reg *fleetv1.FleetRegistration) { reg.Finalizers = nil },
		"both":            func(reg *fleetv1.FleetRegistration) { reg.OwnerReferences, reg.Finalizers = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reg := owned(held)
			damage(reg)
			m, r := newManagement(t, livingCluster(), reg, fleetClusterOf(reg))

			_, err := r.Reconcile(t.Context(), edge)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(m.writes).To(BeEmpty())
			got := m.registration(t)
			g.Expect(got.Finalizers).To(Equal(owned().Finalizers))
			g.Expect(got.OwnerReferences).To(Equal(owned().OwnerReferences))
			g.Expect(meta.FindStatusCondition(got.Status.Conditions, fleetv1.ReadyCondition)).NotTo(BeNil(), "it is reported on")
		})
	}
}

func TestARegistrationOfALivingClusterLosesNothingWithoutItsOwnerReference(t *testing.T) {
	g := NewWithT(t)
	reg := owned(held)
	reg.OwnerReferences = nil
	deleted := metav1.NewTime(epoch)
	reg.DeletionTimestamp = &deleted
	m, r := newManagement(t, livingCluster(), reg, fleetClusterOf(reg))

	_, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.writes).To(BeEmpty())
	g.Expect(apierrors.IsNotFound(m.Get(t.Context(), edge.NamespacedName, &fleetv1.FleetRegistration{}))).To(BeTrue())
}

// A namespace that is deleted loses what is in it in any order. A registration that goes
// before its Cluster goes for good all the same.
func TestARegistrationThatGoesWithItsNamespaceLeavesNothingBehind(t *testing.T) {
	g := NewWithT(t)
	deleted := metav1.NewTime(epoch)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", DeletionTimestamp: &deleted, Finalizers: []string{"kubernetes"}}}
	reg := owned(held)
	reg.DeletionTimestamp = &deleted
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: managerNamespace, Name: "cluster-a", Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: reg.Spec.RegistrationID},
	}}
	m, r := newManagement(t, namespace, livingCluster(), reg, account)

	_, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.writes).To(Equal([]string{"delete *v1.ServiceAccount"}))
	g.Expect(apierrors.IsNotFound(m.Get(t.Context(), edge.NamespacedName, &fleetv1.FleetRegistration{}))).To(BeTrue())
}

func TestAnAPIThatIsNotServedDoesNotMeanThatTheClusterIsGone(t *testing.T) {
	g := NewWithT(t)
	m, r := newManagement(t, owned(held))
	r.APIReader = interceptor.NewClient(m, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			resource := clusterv1.GroupVersion.WithResource("clusters").GroupResource()
			return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "edge-1", "404 page not found", 0, true)
		},
	})

	_, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).To(HaveOccurred())
	g.Expect(m.writes).To(BeEmpty())
}

func TestALostFleetClusterIsWrittenDownBeforeItIsMadeAnew(t *testing.T) {
	g := NewWithT(t)
	m, r := newManagement(t, livingCluster(), owned(held))

	result, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	g.Expect(m.writes).To(BeEmpty())
	g.Expect(hasReason(m.registration(t), fleetv1.FleetClusterReadyCondition, fleetv1.WaitingForFleetClusterReason)).To(BeTrue())

	_, err = r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.writes).To(ContainElement("create *fleet.Cluster"))
}

func TestAnEndpointThatAnsweredOnceIsNotTriedAllTheTime(t *testing.T) {
	for _, tt := range []struct {
		name     string
		answered time.Duration
		took     time.Duration
		want     time.Duration
	}{
		{"answered just now", time.Second, 0, settleRetryCap},
		{"answered a minute ago", time.Minute, 0, eagerRetryFloor},
		{"refuses slowly", time.Minute, 900 * time.Millisecond, 900 * time.Millisecond},
		{"does not say at once", time.Minute, time.Second, oldRetryCap},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScope()
			s.cluster = livingCluster()
			s.workloadReachable = &finding{reason: fleetv1.WaitingForControlPlaneReason}
			s.attempt.answered = epoch.Add(-tt.answered)
			r := &Reconciler{}
			NewWithT(t).Expect(r.retryCap(s, epoch.Add(tt.took))).To(Equal(tt.want))
		})
	}
}

func TestAShutdownDuringAVisitIsNoFindingAboutTheCluster(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err := l.reconciler.Reconcile(ctx, edge)

	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(hasReason(l.registration(t), fleetv1.WorkloadReachableCondition, fleetv1.WaitingForControlPlaneReason)).To(BeTrue())
}

// A restore of the management cluster's database takes back what was written last.
func TestARegistrationWhoseVersionWentBackIsLookedAtAfterAWhile(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	lost := m.registration(t)
	lost.ResourceVersion = "999999"
	r.written.Note(lost, m.clock.Now())
	g.Expect(m.WithWatch.Delete(t.Context(), accountOf(t, m))).To(Succeed())
	m.writes = nil

	result, err := r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(time.Minute), "no event may ever come")
	g.Expect(m.writes).To(BeEmpty())

	m.clock.SetTime(m.clock.Now().Add(result.RequeueAfter))
	_, err = r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.writes).To(ContainElement("create *v1.ServiceAccount"))
}
