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

package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

const managerNamespace = "capi-fleet-system"

var registration = Registration{
	ID:           "id-of-this-registration",
	ClusterUID:   "uid-of-the-cluster",
	FleetCluster: types.NamespacedName{Namespace: "team-a", Name: "edge-1"},
}

func names() (first, fallback string) {
	return fleet.ClusterNamespace("team-a", "edge-1"), fleet.FallbackClusterNamespace("team-a", "edge-1")
}

func free(string) bool { return false }

// api is a management cluster in memory that keeps the requests that it was sent.
type api struct {
	client.WithWatch
	requests []string
}

func newAPI(t *testing.T, objects ...client.Object) *api {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, rbacv1.AddToScheme, clusterv1.AddToScheme, fleet.AddToScheme,
	} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	a := &api{}
	note := func(verb string, obj client.Object) {
		a.requests = append(a.requests, fmt.Sprintf("%s %s %s", verb, kind(obj), client.ObjectKeyFromObject(obj)))
	}
	a.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&fleet.Cluster{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				note("create", obj)
				if obj.GetUID() == "" {
					obj.SetUID(types.UID("uid-" + obj.GetName()))
				}
				return c.Create(ctx, obj, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				a.requests = append(a.requests, fmt.Sprintf("get %s %s", kind(obj), key))
				return c.Get(ctx, key, obj, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				note("delete", obj)
				return c.Delete(ctx, obj, opts...)
			},
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
				return errors.New("update")
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				note("patch", obj)
				return c.Patch(ctx, obj, patch, opts...)
			},
			Apply: func(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				obj := config.(interface {
					GetKind() string
					GetNamespace() string
					GetName() string
				})
				a.requests = append(a.requests, fmt.Sprintf("apply %s %s/%s", obj.GetKind(), obj.GetNamespace(), obj.GetName()))
				return c.Apply(ctx, config, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				note("patch "+subResource+" of", obj)
				return c.SubResource(subResource).Patch(ctx, obj, patch, opts...)
			},
		}).Build()
	return a
}

func (a *api) writer() *Writer {
	return &Writer{Client: a, Reader: a, Cache: a.WithWatch, ManagerNamespace: managerNamespace}
}

// snapshot returns an object as it is now.
func (a *api) snapshot(t *testing.T, obj client.Object) client.Object {
	t.Helper()
	before := len(a.requests)
	live := obj.DeepCopyObject().(client.Object)
	NewWithT(t).Expect(a.Get(t.Context(), client.ObjectKeyFromObject(obj), live)).To(Succeed())
	a.requests = a.requests[:before]
	return live
}

func (a *api) has(t *testing.T, obj client.Object) bool {
	t.Helper()
	before := len(a.requests)
	err := a.Get(t.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopyObject().(client.Object))
	a.requests = a.requests[:before]
	NewWithT(t).Expect(client.IgnoreNotFound(err)).To(Succeed())
	return err == nil
}

func placedAt(namespace string) Registration {
	r := registration
	r.Namespace, r.NamespaceUID = namespace, types.UID("uid-"+namespace)
	return r
}

// everything returns the objects of the registration, as they are once it is done.
func everything() []client.Object {
	first, _ := names()
	r := placedAt(first)
	cluster := r.fleetCluster("secret")
	cluster.Status.Namespace = first
	all := []client.Object{cluster, r.namespace(first), r.serviceAccount(managerNamespace), r.statusRole(), r.statusRoleBinding(managerNamespace), r.bundlesRoleBinding(managerNamespace)}
	for _, obj := range all {
		obj.SetUID(types.UID("uid-" + obj.GetName()))
	}
	return all
}

func requestsFor(namespace string) []string {
	return []string{
		"create Fleet Cluster team-a/edge-1",
		"create namespace /" + namespace,
		"create service account capi-fleet-system/" + namespace,
		"create Role team-a/" + namespace,
		"create RoleBinding team-a/" + namespace,
		"create RoleBinding " + namespace + "/capi-fleet-agent",
		"patch status of Fleet Cluster team-a/edge-1",
	}
}

func TestFirstWritesAreCreatesInOrderAndNothingIsReadBefore(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t)
	first, _ := names()

	placed, err := a.writer().Ensure(t.Context(), registration, free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed).To(Equal(Placed{Namespace: first, NamespaceUID: types.UID("uid-" + first), AccountUID: types.UID("uid-" + first)}))
	g.Expect(a.requests).To(Equal(requestsFor(first)))
}

func TestWhatIsMade(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t)
	first, _ := names()
	_, err := a.writer().Ensure(t.Context(), registration, free)
	g.Expect(err).NotTo(HaveOccurred())

	cluster := a.snapshot(t, registration.fleetCluster("")).(*fleet.Cluster)
	g.Expect(cluster.Labels).To(Equal(map[string]string{"fleet.cattle.io/cluster-management": "capi-fleet"}))
	g.Expect(cluster.Annotations).To(Equal(map[string]string{
		fleetv1.RegistrationIDAnnotation: registration.ID,
		fleetv1.ClusterUIDAnnotation:     "uid-of-the-cluster",
	}))
	g.Expect(cluster.OwnerReferences).To(BeEmpty(), "a move deletes the Cluster and must not take this along")
	g.Expect(cluster.Finalizers).To(BeEmpty())
	g.Expect(cluster.Spec.AgentNamespace).To(Equal("cattle-fleet-system"))
	g.Expect(cluster.Status.Namespace).To(Equal(first))

	r := placedAt(first)
	namespace := a.snapshot(t, r.namespace(first)).(*corev1.Namespace)
	g.Expect(namespace.Labels).To(HaveKeyWithValue("fleet.cattle.io/managed", "true"))
	g.Expect(namespace.Annotations).To(And(
		HaveKeyWithValue("fleet.cattle.io/cluster-namespace", "team-a"),
		HaveKeyWithValue("fleet.cattle.io/cluster", "edge-1"),
		HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, registration.ID)))

	account := a.snapshot(t, r.serviceAccount(managerNamespace)).(*corev1.ServiceAccount)
	g.Expect(account.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
	g.Expect(account.Secrets).To(BeEmpty())

	role := a.snapshot(t, r.statusRole()).(*rbacv1.Role)
	g.Expect(role.Rules).To(Equal([]rbacv1.PolicyRule{{
		APIGroups: []string{"fleet.cattle.io"}, Resources: []string{"clusters/status"}, ResourceNames: []string{"edge-1"}, Verbs: []string{"patch"},
	}}))

	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: managerNamespace, Name: first}}
	heartbeat := a.snapshot(t, r.statusRoleBinding(managerNamespace)).(*rbacv1.RoleBinding)
	g.Expect(heartbeat.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: first}))
	g.Expect(heartbeat.Subjects).To(Equal(subjects))
	bundles := a.snapshot(t, r.bundlesRoleBinding(managerNamespace)).(*rbacv1.RoleBinding)
	g.Expect(bundles.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "capi-fleet-system-agent"}))
	g.Expect(bundles.Subjects).To(Equal(subjects))
}

func TestTheClientIDIsRandomAndLong(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]bool{}
	for range 3 {
		a := newAPI(t)
		_, err := a.writer().Ensure(t.Context(), registration, free)
		g.Expect(err).NotTo(HaveOccurred())
		id := a.snapshot(t, registration.fleetCluster("")).(*fleet.Cluster).Spec.ClientID
		// A base32 digit holds 5 bits.
		g.Expect(len(id) * 5).To(BeNumerically(">=", 128))
		seen[id] = true
	}
	g.Expect(seen).To(HaveLen(3))
}

func TestWhatIsOursIsLeftAsItIs(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t, everything()...)
	first, _ := names()
	var before []client.Object
	for _, obj := range everything() {
		before = append(before, a.snapshot(t, obj))
	}

	placed, err := a.writer().Ensure(t.Context(), registration, free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed).To(Equal(Placed{Namespace: first, NamespaceUID: types.UID("uid-" + first), AccountUID: types.UID("uid-" + first)}))
	for i, obj := range everything() {
		g.Expect(a.snapshot(t, obj)).To(Equal(before[i]))
	}
	g.Expect(a.requests).NotTo(ContainElement(HavePrefix("patch")))
}

func TestAnInterruptedRegistrationIsResumed(t *testing.T) {
	first, _ := names()
	for failing, request := range requestsFor(first) {
		t.Run(request, func(t *testing.T) {
			g := NewWithT(t)
			// The first objects are there, the rest is not.
			there := everything()[:min(failing, 6)]
			for _, obj := range there {
				if cluster, ok := obj.(*fleet.Cluster); ok {
					cluster.Status.Namespace = ""
				}
			}
			a := newAPI(t, there...)

			_, err := a.writer().Ensure(t.Context(), registration, free)

			g.Expect(err).NotTo(HaveOccurred())
			for _, obj := range everything() {
				g.Expect(a.has(t, obj)).To(BeTrue(), kind(obj))
			}
			g.Expect(a.snapshot(t, registration.fleetCluster("")).(*fleet.Cluster).Status.Namespace).To(Equal(first))
		})
	}
}

func TestAServerErrorIsWrappedAndStopsTheRest(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t)
	broken := interceptor.NewClient(a, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, ok := obj.(*corev1.ServiceAccount); ok {
				return apierrors.NewTooManyRequests("busy", 1)
			}
			return c.Create(ctx, obj, opts...)
		},
	})
	w := &Writer{Client: broken, Reader: a, ManagerNamespace: managerNamespace}

	_, err := w.Ensure(t.Context(), registration, free)

	g.Expect(apierrors.IsTooManyRequests(err)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("creating service account capi-fleet-system/cluster-team-a-edge-1")))
	var refusal *Refusal
	g.Expect(errors.As(err, &refusal)).To(BeFalse())
	first, _ := names()
	g.Expect(a.requests).To(Equal(requestsFor(first)[:2]))
}

// foreign makes an object someone else's.
func foreign(obj client.Object) client.Object {
	obj.SetAnnotations(map[string]string{fleetv1.RegistrationIDAnnotation: "of someone else"})
	obj.SetLabels(nil)
	return obj
}

func TestWhatIsNotOursIsLeftAloneAndNamed(t *testing.T) {
	first, fallback := names()
	r := placedAt(first)
	for _, tt := range []struct {
		name     string
		there    []client.Object
		reason   string
		mentions []string
	}{
		{"Fleet Cluster", []client.Object{foreign(r.fleetCluster("x"))}, fleetv1.FleetClusterForeignReason, []string{"team-a/edge-1"}},
		{"both namespaces", []client.Object{foreign(r.namespace(first)), foreign(r.namespace(fallback))}, fleetv1.NamespaceForeignReason, []string{first, fallback}},
		{"service account", []client.Object{foreign(r.serviceAccount(managerNamespace))}, fleetv1.ServiceAccountForeignReason, []string{managerNamespace + "/" + first}},
		{"Role", []client.Object{foreign(r.statusRole())}, fleetv1.RBACForeignReason, []string{"Role team-a/" + first}},
		{"RoleBinding", []client.Object{foreign(r.statusRoleBinding(managerNamespace))}, fleetv1.RBACForeignReason, []string{"RoleBinding team-a/" + first}},
		{"RoleBinding in the cluster namespace", []client.Object{foreign(r.bundlesRoleBinding(managerNamespace))}, fleetv1.RBACForeignReason, []string{first + "/capi-fleet-agent"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			a := newAPI(t, tt.there...)
			var before []client.Object
			for _, obj := range tt.there {
				before = append(before, a.snapshot(t, obj))
			}

			_, err := a.writer().Ensure(t.Context(), registration, free)

			var refusal *Refusal
			g.Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
			g.Expect(refusal.Reason).To(Equal(tt.reason))
			for _, name := range tt.mentions {
				g.Expect(refusal.Message).To(ContainSubstring(name))
			}
			for i, obj := range tt.there {
				g.Expect(a.snapshot(t, obj)).To(Equal(before[i]))
			}
			g.Expect(a.requests).NotTo(ContainElement(HavePrefix("patch")), "status.namespace is named only when all is ours")
		})
	}
}

func TestWhatStandsInTheWayIsNotRunIntoAgain(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t, foreign(registration.fleetCluster("x")))
	again := registration
	again.LookFirst = true

	_, err := a.writer().Ensure(t.Context(), again, free)

	var refusal *Refusal
	g.Expect(errors.As(err, &refusal)).To(BeTrue())
	g.Expect(refusal.Reason).To(Equal(fleetv1.FleetClusterForeignReason))
	g.Expect(a.requests).NotTo(ContainElement(HavePrefix("create")))

	a = newAPI(t)
	_, err = a.writer().Ensure(t.Context(), again, free)
	g.Expect(err).NotTo(HaveOccurred(), "what is missing is made")
	for _, obj := range everything() {
		g.Expect(a.has(t, obj)).To(BeTrue())
	}
}

func TestNothingIsOursForARegistrationWithoutAnID(t *testing.T) {
	g := NewWithT(t)
	unmarked := registration.fleetCluster("x")
	unmarked.Annotations = nil
	a := newAPI(t, unmarked)
	r := registration
	r.ID = ""

	_, err := a.writer().Ensure(t.Context(), r, free)
	g.Expect(err).To(MatchError(HavePrefix(fleetv1.FleetClusterForeignReason)))
	_, err = a.writer().Delete(t.Context(), r, DeleteOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.has(t, unmarked)).To(BeTrue())
}

func TestAForeignNamespaceUnderTheFirstNameLeadsToTheSecond(t *testing.T) {
	g := NewWithT(t)
	first, fallback := names()
	a := newAPI(t, foreign(registration.namespace(first)))

	placed, err := a.writer().Ensure(t.Context(), registration, free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed.Namespace).To(Equal(fallback))
	g.Expect(a.has(t, placedAt(fallback).serviceAccount(managerNamespace))).To(BeTrue())
	g.Expect(a.has(t, placedAt(first).serviceAccount(managerNamespace))).To(BeFalse())
	g.Expect(a.snapshot(t, registration.fleetCluster("")).(*fleet.Cluster).Status.Namespace).To(Equal(fallback))
}

func TestANameThatAnotherRegistrationHoldsIsNotEvenTried(t *testing.T) {
	g := NewWithT(t)
	first, fallback := names()
	a := newAPI(t)

	placed, err := a.writer().Ensure(t.Context(), registration, func(name string) bool { return name == first })

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed.Namespace).To(Equal(fallback))
	g.Expect(a.requests).To(Equal(requestsFor(fallback)))
}

func TestARegistrationKeepsTheNamespaceThatItHas(t *testing.T) {
	g := NewWithT(t)
	_, fallback := names()
	a := newAPI(t)

	placed, err := a.writer().Ensure(t.Context(), placedAt(fallback), func(string) bool {
		t.Error("nobody else can hold it")
		return true
	})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed.Namespace).To(Equal(fallback))
}

// A registration that is made anew knows nothing of its namespace. If its first
// choice has become free since, the Fleet Cluster must not be pointed there: its
// BundleDeployments would go, and with them the workloads.
func TestARegistrationMadeAnewFindsTheNamespaceOfItsFleetCluster(t *testing.T) {
	g := NewWithT(t)
	_, fallback := names()
	r := placedAt(fallback)
	cluster := r.fleetCluster("secret")
	cluster.Status.Namespace = fallback
	namespace := r.namespace(fallback)
	namespace.UID = "uid-of-old"
	a := newAPI(t, cluster, namespace)

	placed, err := a.writer().Ensure(t.Context(), registration, free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed).To(Equal(Placed{Namespace: fallback, NamespaceUID: "uid-of-old", AccountUID: types.UID("uid-" + fallback)}))
	g.Expect(a.requests).NotTo(ContainElement(HavePrefix("patch")))
}

func TestAStrangeNamespaceInTheFleetClustersStatusIsNotTakenOver(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	cluster := registration.fleetCluster("secret")
	cluster.Status.Namespace = "kube-system"
	a := newAPI(t, cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})

	placed, err := a.writer().Ensure(t.Context(), registration, free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed.Namespace).To(Equal(first))
	g.Expect(a.snapshot(t, cluster).(*fleet.Cluster).Status.Namespace).To(Equal(first))
}

// terminating marks an object as being deleted.
func terminating(obj client.Object) client.Object {
	obj.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
	obj.SetFinalizers([]string{"someone.example/waits"})
	return obj
}

func TestWhatIsBeingDeletedIsWaitedFor(t *testing.T) {
	first, _ := names()
	for _, tt := range []struct {
		name   string
		there  client.Object
		reason string
	}{
		{"our Fleet Cluster", terminating(registration.fleetCluster("x")), fleetv1.FleetClusterTerminatingReason},
		{"a foreign Fleet Cluster", terminating(foreign(registration.fleetCluster("x"))), fleetv1.FleetClusterTerminatingReason},
		{"our namespace", terminating(registration.namespace(first)), fleetv1.NamespaceTerminatingReason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t, tt.there)
			_, err := a.writer().Ensure(t.Context(), registration, free)
			NewWithT(t).Expect(err).To(MatchError(HavePrefix(tt.reason + ": ")))
		})
	}
}

func TestACreateInANamespaceThatIsBeingDeletedIsARefusal(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t)
	broken := interceptor.NewClient(a, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			err := apierrors.NewForbidden(fleet.GroupVersion.WithResource("clusters").GroupResource(), obj.GetName(), errors.New("no"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		},
	})
	_, err := (&Writer{Client: broken, Reader: a, ManagerNamespace: managerNamespace}).Ensure(t.Context(), registration, free)
	g.Expect(err).To(MatchError(And(HavePrefix(fleetv1.NamespaceTerminatingReason), ContainSubstring("team-a"))))
}

func TestAFleetClusterThatWasHandedOverIsLeftAlone(t *testing.T) {
	for _, labels := range []map[string]string{nil, {fleet.ClusterManagementLabel: ""}, {fleet.ClusterManagementLabel: "another"}} {
		g := NewWithT(t)
		cluster := registration.fleetCluster("x")
		cluster.Labels = labels
		a := newAPI(t, cluster)

		_, err := a.writer().Ensure(t.Context(), registration, free)
		g.Expect(err).To(MatchError(HavePrefix(fleetv1.ManagementLabelRemovedReason)))
		there, err := a.writer().Exists(t.Context(), registration)
		g.Expect(there).To(BeTrue())
		g.Expect(err).To(MatchError(HavePrefix(fleetv1.ManagementLabelRemovedReason)))
		g.Expect(a.requests).To(Equal([]string{"create Fleet Cluster team-a/edge-1", "get Fleet Cluster team-a/edge-1", "get Fleet Cluster team-a/edge-1"}))
	}
}

func TestExists(t *testing.T) {
	for _, tt := range []struct {
		name  string
		there []client.Object
		want  bool
	}{
		{"not there", nil, false},
		{"ours", []client.Object{registration.fleetCluster("x")}, true},
		{"foreign", []client.Object{foreign(registration.fleetCluster("x"))}, false},
		{"being deleted", []client.Object{terminating(registration.fleetCluster("x"))}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			a := newAPI(t, tt.there...)
			there, err := a.writer().Exists(t.Context(), registration)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(there).To(Equal(tt.want))
		})
	}
}

// An agent may still work for it, so it is not as good as gone.
func TestAFleetClusterThatLostItsIDIsThereAndLeftAlone(t *testing.T) {
	g := NewWithT(t)
	cluster := registration.fleetCluster("x")
	delete(cluster.Annotations, fleetv1.RegistrationIDAnnotation)
	a := newAPI(t, cluster)

	there, err := a.writer().Exists(t.Context(), registration)
	g.Expect(there).To(BeTrue())
	g.Expect(err).To(MatchError(And(HavePrefix(fleetv1.FleetClusterForeignReason), ContainSubstring(fleetv1.RegistrationIDAnnotation))))
	_, err = a.writer().Ensure(t.Context(), registration, free)
	g.Expect(err).To(MatchError(And(HavePrefix(fleetv1.FleetClusterForeignReason), ContainSubstring(fleetv1.RegistrationIDAnnotation))))
	g.Expect(a.requests).To(Equal([]string{"get Fleet Cluster team-a/edge-1", "create Fleet Cluster team-a/edge-1", "get Fleet Cluster team-a/edge-1"}))

	another := registration
	another.ClusterUID = "uid-of-another-cluster"
	there, err = a.writer().Exists(t.Context(), another)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(there).To(BeFalse(), "it was never its own")
}

// deletes returns the deletions among the requests.
func (a *api) deletes() []string {
	var deletes []string
	for _, request := range a.requests {
		if verb := "delete "; len(request) > len(verb) && request[:len(verb)] == verb {
			deletes = append(deletes, request[len(verb):])
		}
	}
	return deletes
}

func TestDeletionTakesTheFleetClusterFirstAndTheAccountLast(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	a := newAPI(t, everything()...)
	r := placedAt(first)

	waitingFor, err := a.writer().Delete(t.Context(), r, DeleteOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(Equal(first))
	g.Expect(a.deletes()).To(Equal([]string{"Fleet Cluster team-a/edge-1", "RoleBinding team-a/" + first, "Role team-a/" + first}))

	// Fleet deletes the namespace.
	g.Expect(a.WithWatch.Delete(t.Context(), r.namespace(first))).To(Succeed())
	a.requests = nil
	waitingFor, err = a.writer().Delete(t.Context(), r, DeleteOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(BeEmpty())
	g.Expect(a.deletes()).To(Equal([]string{"service account capi-fleet-system/" + first}))

	a.requests = nil
	waitingFor, err = a.writer().Delete(t.Context(), r, DeleteOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(BeEmpty())
	g.Expect(a.deletes()).To(BeEmpty())
}

func TestDeletionNeverDeletesTheNamespaceItself(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	a := newAPI(t, everything()...)

	waitingFor, err := a.writer().Delete(t.Context(), placedAt(first), DeleteOptions{Abandon: true})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(Equal(first), "it is given up on, and that is told")
	g.Expect(a.has(t, registration.namespace(first))).To(BeTrue())
	g.Expect(a.deletes()).To(HaveLen(5))
	g.Expect(a.deletes()).To(ContainElement("RoleBinding "+first+"/capi-fleet-agent"), "it would be in the way of the next registration")
	g.Expect(a.deletes()[4]).To(Equal("service account capi-fleet-system/" + first))
}

func TestDeletionLeavesWhatIsNotOurs(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	all := everything()
	for _, obj := range all {
		foreign(obj)
	}
	a := newAPI(t, all...)

	waitingFor, err := a.writer().Delete(t.Context(), placedAt(first), DeleteOptions{})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(BeEmpty())
	g.Expect(a.deletes()).To(BeEmpty())
}

// A Fleet Cluster that someone else made keeps its namespace for ever; waiting for
// that would hold up the deletion of the Cluster.
func TestDeletionDoesNotWaitForTheNamespaceOfAForeignFleetCluster(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	namespace := registration.namespace(first)
	delete(namespace.Annotations, fleetv1.RegistrationIDAnnotation)
	a := newAPI(t, foreign(registration.fleetCluster("x")), namespace)

	waitingFor, err := a.writer().Delete(t.Context(), registration, DeleteOptions{})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(BeEmpty())
	g.Expect(a.deletes()).To(BeEmpty())
}

func TestDeletionAfterAHandOverTakesOnlyTheAgentsAccountAndRights(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	all := everything()
	all[0].SetLabels(nil)
	a := newAPI(t, all...)

	waitingFor, err := a.writer().Delete(t.Context(), placedAt(first), DeleteOptions{})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(BeEmpty())
	g.Expect(a.deletes()).To(Equal([]string{
		"RoleBinding team-a/" + first, "Role team-a/" + first, "RoleBinding " + first + "/capi-fleet-agent",
		"service account capi-fleet-system/" + first,
	}))
	g.Expect(a.has(t, all[0])).To(BeTrue())
	g.Expect(a.has(t, all[1])).To(BeTrue())
}

func TestDeletionOfARegistrationThatNeverGotFar(t *testing.T) {
	g := NewWithT(t)
	first, fallback := names()
	// The status was lost; what was made went under the second name.
	r := placedAt(fallback)
	a := newAPI(t, foreign(registration.namespace(first)), r.fleetCluster("x"), r.serviceAccount(managerNamespace), r.statusRole())

	waitingFor, err := a.writer().Delete(t.Context(), registration, DeleteOptions{})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(BeEmpty())
	g.Expect(a.deletes()).To(Equal([]string{"Fleet Cluster team-a/edge-1", "Role team-a/" + fallback, "service account capi-fleet-system/" + fallback}))
}

func TestAFleetClusterIsKeptOnPurposeAsAnOrphan(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	all := everything()
	a := newAPI(t, all...)

	g.Expect(a.writer().Orphan(t.Context(), placedAt(first))).To(Succeed())

	g.Expect(a.deletes()).To(Equal([]string{
		"RoleBinding team-a/" + first, "Role team-a/" + first, "RoleBinding " + first + "/capi-fleet-agent",
		"service account capi-fleet-system/" + first,
	}), "the account last")
	for _, obj := range all[:2] {
		g.Expect(a.snapshot(t, obj).GetLabels()).To(HaveKeyWithValue(fleetv1.OrphanLabel, "true"))
	}

	a.requests = nil
	g.Expect(a.writer().Orphan(t.Context(), placedAt(first))).To(Succeed())
	g.Expect(a.requests).NotTo(ContainElement(Or(HavePrefix("patch"), HavePrefix("delete"))), "once")
}

func TestWhatIsNotOursIsNoOrphan(t *testing.T) {
	first, _ := names()
	for _, tt := range []struct {
		name   string
		change func(client.Object)
	}{
		{"another's Fleet Cluster", func(cluster client.Object) { foreign(cluster) }},
		{"one that was handed over", func(cluster client.Object) { cluster.SetLabels(nil) }},
		{"one that is about to go", func(cluster client.Object) { terminating(cluster) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			all := everything()
			tt.change(all[0])
			a := newAPI(t, all...)
			before := []client.Object{a.snapshot(t, all[0]), a.snapshot(t, all[1])}

			g.Expect(a.writer().Orphan(t.Context(), placedAt(first))).To(Succeed())

			g.Expect([]client.Object{a.snapshot(t, all[0]), a.snapshot(t, all[1])}).To(Equal(before))
			g.Expect(a.deletes()).To(HaveLen(4))
		})
	}
}

// Fleet deletes the namespace that its Cluster names, and nobody else deletes it.
func TestDeletionNamesTheNamespaceOfARegistrationThatBrokeOff(t *testing.T) {
	first, fallback := names()
	for _, tt := range []struct {
		name   string
		change func(cluster *fleet.Cluster, namespace *corev1.Namespace)
		want   string
	}{
		{"ours", func(*fleet.Cluster, *corev1.Namespace) {}, fallback},
		{"another is named", func(c *fleet.Cluster, _ *corev1.Namespace) { c.Status.Namespace = "cluster-x" }, fallback},
		{"handed over", func(c *fleet.Cluster, _ *corev1.Namespace) { c.Labels = nil }, ""},
		{"someone else's Fleet Cluster", func(c *fleet.Cluster, _ *corev1.Namespace) { foreign(c) }, ""},
		{"someone else's namespace", func(_ *fleet.Cluster, n *corev1.Namespace) { delete(n.Annotations, fleetv1.RegistrationIDAnnotation) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			cluster, namespace := registration.fleetCluster("x"), registration.namespace(fallback)
			// Whoever keeps an object from going lets its end be seen.
			cluster.Finalizers = []string{"fleet.cattle.io/test"}
			tt.change(cluster, namespace)
			a := newAPI(t, cluster, namespace, foreign(registration.namespace(first)))

			_, err := a.writer().Delete(t.Context(), registration, DeleteOptions{})

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(a.snapshot(t, cluster).(*fleet.Cluster).Status.Namespace).To(Equal(tt.want))
		})
	}
}

func TestADeletionThatIsUnderWayIsNotRepeated(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	all := everything()
	terminating(all[0])
	a := newAPI(t, all[:2]...)

	waitingFor, err := a.writer().Delete(t.Context(), placedAt(first), DeleteOptions{})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(Equal(first))
	g.Expect(a.deletes()).To(BeEmpty())
}

func TestDeletionIsBoundToTheObjectThatWasJudged(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	a := newAPI(t, everything()...)
	var uids []types.UID
	spy := interceptor.NewClient(a, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			options := &client.DeleteOptions{}
			options.ApplyOptions(opts)
			if options.Preconditions != nil && options.Preconditions.UID != nil {
				uids = append(uids, *options.Preconditions.UID)
			}
			return c.Delete(ctx, obj, opts...)
		},
	})
	_, err := (&Writer{Client: spy, Reader: a, ManagerNamespace: managerNamespace}).Delete(t.Context(), placedAt(first), DeleteOptions{Abandon: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(uids).To(HaveLen(5))
	g.Expect(uids[0]).To(Equal(types.UID("uid-edge-1")))
}

func TestAnAgentThatReportsAllTheTimeDoesNotKeepItsFleetCluster(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	a := newAPI(t, everything()...)
	mayReport := func() bool {
		return a.has(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: first}})
	}
	raced := interceptor.NewClient(a, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if _, ok := obj.(*fleet.Cluster); ok && mayReport() {
				return apierrors.NewConflict(fleet.GroupVersion.WithResource("clusters").GroupResource(), obj.GetName(), errors.New("it was written to"))
			}
			return c.Delete(ctx, obj, opts...)
		},
	})
	w := &Writer{Client: raced, Reader: a, ManagerNamespace: managerNamespace}

	_, err := w.Delete(t.Context(), placedAt(first), DeleteOptions{})
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	g.Expect(a.has(t, placedAt(first).serviceAccount(managerNamespace))).To(BeTrue())

	waitingFor, err := w.Delete(t.Context(), placedAt(first), DeleteOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waitingFor).To(Equal(first))
	g.Expect(a.has(t, placedAt(first).fleetCluster(""))).To(BeFalse())
}

func TestDeletionStopsAtAServerError(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	a := newAPI(t, everything()...)
	broken := interceptor.NewClient(a, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return apierrors.NewInternalError(errors.New("broken"))
		},
	})
	_, err := (&Writer{Client: broken, Reader: a, ManagerNamespace: managerNamespace}).Delete(t.Context(), placedAt(first), DeleteOptions{})
	g.Expect(apierrors.IsInternalError(err)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("deleting Fleet Cluster team-a/edge-1")))
	g.Expect(a.has(t, placedAt(first).serviceAccount(managerNamespace))).To(BeTrue())
}

// An agent that starts with the token that it had would uninstall what the new namespace
// does not hold.
func TestNobodyGetsRightsInANewNamespaceWhileTheAgentsOldTokenIsGood(t *testing.T) {
	first, _ := names()
	old := placedAt(first)
	for name, missing := range map[string]client.Object{
		"the namespace is gone":          old.namespace(first),
		"someone has made it anew":       nil,
		"the Fleet Cluster is gone, too": old.fleetCluster(""),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var there []client.Object
			for _, obj := range everything() {
				if _, ok := obj.(*corev1.Namespace); ok {
					obj.SetUID("new")
				}
				if missing == nil || kind(obj) != kind(missing) {
					there = append(there, obj)
				}
			}
			a := newAPI(t, there...)
			g.Expect(a.WithWatch.Delete(t.Context(), old.bundlesRoleBinding(managerNamespace))).To(Succeed())
			a.requests = nil
			r := old
			r.NamespaceUID = "of-before"

			// A manager that is killed before it has recorded the new UID does it again.
			for range 2 {
				placed, err := a.writer().Ensure(t.Context(), r, free)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(placed.AccountUID).To(BeEmpty())
				g.Expect(placed.NamespaceUID).NotTo(Or(BeEmpty(), Equal(r.NamespaceUID)))
				g.Expect(a.has(t, r.serviceAccount(managerNamespace))).To(BeFalse())
				g.Expect(a.has(t, r.bundlesRoleBinding(managerNamespace))).To(BeFalse())
			}
			g.Expect(a.deletes()).To(Equal([]string{"service account capi-fleet-system/" + first}))

			r.NamespaceUID = a.snapshot(t, r.namespace(first)).GetUID()
			placed, err := a.writer().Ensure(t.Context(), r, free)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(placed.AccountUID).NotTo(BeEmpty())
			for _, obj := range everything() {
				g.Expect(a.has(t, obj)).To(BeTrue(), kind(obj))
			}
		})
	}
}

func TestARegistrationThatRecordedNothingKeepsTheAccount(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t, everything()...)
	_, err := a.writer().Ensure(t.Context(), registration, free)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.deletes()).To(BeEmpty())
}

func TestAnAccountThatIsNotOursKeepsTheNewNamespaceFromBeingRecorded(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	all := everything()
	foreign(all[account])
	a := newAPI(t, all...)
	r := placedAt(first)
	r.NamespaceUID = "of-before"

	_, err := a.writer().Ensure(t.Context(), r, free)

	g.Expect(err).To(MatchError(HavePrefix(fleetv1.ServiceAccountForeignReason)))
	g.Expect(a.has(t, all[account])).To(BeTrue())
}

func TestANamespaceThatAnotherRegistrationHoldsIsNotTakenFromTheFleetClustersStatus(t *testing.T) {
	first, fallback := names()
	for _, victims := range []string{first, "cluster-of-a-victim"} {
		g := NewWithT(t)
		cluster := registration.fleetCluster("secret")
		cluster.Status.Namespace = victims
		namespace := registration.namespace(victims)
		namespace.UID = "uid-of-the-victims"
		a := newAPI(t, cluster, namespace)

		placed, err := a.writer().Ensure(t.Context(), registration, func(name string) bool { return name == victims || name == first })

		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(placed.Namespace).To(Equal(fallback))
		g.Expect(a.snapshot(t, cluster).(*fleet.Cluster).Status.Namespace).To(Equal(fallback))
	}
}

// Whoever copies the ID of a registration to a Fleet Cluster of their own does not get
// its namespace.
func TestANamespaceThatIsMarkedAsAnothersIsNotTakenByItsIDAlone(t *testing.T) {
	first, fallback := names()
	anothers := func() *corev1.Namespace {
		namespace := registration.namespace(first)
		namespace.UID = "uid-of-the-victims"
		namespace.Annotations[fleet.ClusterNamespaceAnnotation], namespace.Annotations[fleet.ClusterAnnotation] = "team-b", "edge-9"
		return namespace
	}
	for name, named := range map[string]string{"chosen by us": "", "named by the Fleet Cluster": first} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := registration.fleetCluster("secret")
			cluster.Status.Namespace = named
			a := newAPI(t, cluster, anothers())
			before := a.snapshot(t, anothers())

			placed, err := a.writer().Ensure(t.Context(), registration, free)

			if named == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(placed.Namespace).To(Equal(fallback))
			} else {
				g.Expect(err).To(MatchError(HavePrefix(fleetv1.NamespaceForeignReason)))
			}
			g.Expect(a.snapshot(t, anothers())).To(Equal(before))
			g.Expect(a.has(t, placedAt(first).bundlesRoleBinding(managerNamespace))).To(BeFalse())
		})
	}
}

// kubeSystem is a namespace that an agent would have Fleet delete.
func kubeSystem() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
}

func TestAFleetClusterThatNamesAStrangeNamespaceIsPutRightBeforeItIsDeleted(t *testing.T) {
	first, _ := names()
	for name, tt := range map[string]struct {
		r    Registration
		gone bool
		want string
	}{
		"placed":                     {placedAt(first), false, first},
		"nothing is recorded":        {registration, false, first},
		"ours is gone":               {placedAt(first), true, ""},
		"none was made, or recorded": {registration, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all := everything()
			cluster := all[fleetCluster].(*fleet.Cluster)
			cluster.Status.Namespace = "kube-system"
			cluster.Finalizers = []string{"fleet.cattle.io/test"}
			there := slices.Concat(all[2:], []client.Object{cluster, kubeSystem()})
			if !tt.gone {
				there = append(there, all[namespace])
			}
			a := newAPI(t, there...)

			_, err := a.writer().Delete(t.Context(), tt.r, DeleteOptions{})

			g.Expect(err).NotTo(HaveOccurred())
			live := a.snapshot(t, cluster).(*fleet.Cluster)
			g.Expect(live.Status.Namespace).To(Equal(tt.want))
			g.Expect(live.DeletionTimestamp.IsZero()).To(BeFalse())
			g.Expect(a.writes()[:2]).To(Equal([]string{"patch status of Fleet Cluster team-a/edge-1", "delete Fleet Cluster team-a/edge-1"}))
		})
	}
}

func TestAFleetClusterStaysForAsLongAsItNamesAStrangeNamespace(t *testing.T) {
	first, _ := names()
	rename := func(ctx context.Context, c client.Client) error {
		live := registration.fleetCluster("")
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespace":"kube-system"}}`))
		return c.Status().Patch(ctx, live, patch)
	}
	for name, patched := range map[string]func(context.Context, client.Client, client.Object, client.Patch) error{
		"it cannot be put right": func(context.Context, client.Client, client.Object, client.Patch) error {
			return apierrors.NewInternalError(errors.New("broken"))
		},
		"the agent is faster": func(ctx context.Context, c client.Client, obj client.Object, patch client.Patch) error {
			if err := c.Status().Patch(ctx, obj, patch); err != nil {
				return err
			}
			return rename(ctx, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := newAPI(t, append(everything(), kubeSystem())...)
			g.Expect(rename(t.Context(), a)).To(Succeed())
			w := a.writer()
			w.Client = interceptor.NewClient(a, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
					return patched(ctx, c, obj, patch)
				},
			})

			_, err := w.Delete(t.Context(), placedAt(first), DeleteOptions{})

			g.Expect(err).To(HaveOccurred())
			g.Expect(a.has(t, registration.fleetCluster(""))).To(BeTrue())
			g.Expect(a.has(t, placedAt(first).serviceAccount(managerNamespace))).To(BeTrue())
		})
	}
}

func TestANamespaceThatIsNotOursIsNotLabelledAsOurOrphan(t *testing.T) {
	for name, change := range map[string]func(client.Object){
		"one that Fleet made":       func(obj client.Object) { delete(obj.GetAnnotations(), fleetv1.RegistrationIDAnnotation) },
		"another registration's":    func(obj client.Object) { obj.GetAnnotations()[fleetv1.RegistrationIDAnnotation] = "another" },
		"of another Fleet Cluster":  func(obj client.Object) { obj.GetAnnotations()[fleet.ClusterAnnotation] = "edge-9" },
		"of another in a namespace": func(obj client.Object) { obj.GetAnnotations()[fleet.ClusterNamespaceAnnotation] = "team-b" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all := everything()
			change(all[namespace])
			a := newAPI(t, all...)

			g.Expect(a.writer().LabelOrphan(t.Context(), all[fleetCluster].(*fleet.Cluster))).To(Succeed())

			g.Expect(orphaned(a.snapshot(t, all[namespace]))).To(BeFalse())
			g.Expect(orphaned(a.snapshot(t, all[fleetCluster]))).To(BeTrue())
		})
	}
}
