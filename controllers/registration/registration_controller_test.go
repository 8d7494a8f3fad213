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
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
}

func newManagement(t *testing.T, objects ...client.Object) (*management, *Reconciler) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, clusterv1.AddToScheme, fleet.AddToScheme, fleetv1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	m := &management{clock: testclock.NewFakePassiveClock(epoch), events: events.NewFakeRecorder(100)}
	m.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&fleetv1.FleetRegistration{}, &fleet.Cluster{}, &clusterv1.Cluster{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				m.writes = append(m.writes, fmt.Sprintf("create %T", obj))
				if obj.GetUID() == "" {
					obj.SetUID(types.UID("uid-of-" + obj.GetName()))
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
				request.Status = authenticationv1.TokenRequestStatus{
					Token: fmt.Sprintf("token-%d", m.tokens), ExpirationTimestamp: metav1.NewTime(m.clock.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second)),
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
		Upstream: &upstream.Writer{Client: m, Reader: m, ManagerNamespace: managerNamespace},
		Tokens:   &token.Issuer{Client: m, Clock: m.clock, Namespace: managerNamespace},
		Dialer:   &remote.Dialer{},
	}
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
		want     time.Duration
	}{
		{"answered just now", time.Second, settleRetryCap},
		{"answered a minute ago", time.Minute, eagerRetryCap},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScope()
			s.cluster = livingCluster()
			s.workloadReachable = &finding{reason: fleetv1.WaitingForControlPlaneReason}
			s.attempt.answered = epoch.Add(-tt.answered)
			r := &Reconciler{Clock: testclock.NewFakePassiveClock(epoch)}
			NewWithT(t).Expect(r.retryCap(s)).To(Equal(tt.want))
		})
	}
}

func TestAShutdownDuringAVisitIsNoFindingAboutTheCluster(t *testing.T) {
	g := NewWithT(t)
	cluster := livingCluster()
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 1}
	reg := owned(held)
	reg.Spec.Agent.Image = "agent"
	reg.Spec.Agent.ManagementCluster.Server = "https://management.example"
	m, r := newManagement(t, cluster, reg, fleetClusterOf(reg))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err := r.Reconcile(ctx, edge)

	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(hasReason(m.registration(t), fleetv1.WorkloadReachableCondition, fleetv1.WaitingForControlPlaneReason)).To(BeTrue())
}
