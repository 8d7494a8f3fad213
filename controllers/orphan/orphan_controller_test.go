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

package orphan

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	id               = "the-registration"
	clusterNamespace = "cluster-team-a-edge-1"
	grace            = 30 * time.Second
)

// key is that of the Fleet Cluster and of its registration.
var key = types.NamespacedName{Namespace: "team-a", Name: "edge-1"}

func fleetCluster(change ...func(*fleet.Cluster)) *fleet.Cluster {
	cluster := &fleet.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: "uid-of-fleet-cluster",
			Labels:      map[string]string{fleet.ClusterManagementLabel: upstream.ManagementLabelValue},
			Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: id},
		},
		Status: fleet.ClusterStatus{Namespace: clusterNamespace},
	}
	for _, c := range change {
		c(cluster)
	}
	return cluster
}

func namespace(registrationID string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: clusterNamespace, UID: "uid-of-namespace", Annotations: map[string]string{
			fleetv1.RegistrationIDAnnotation: registrationID,
			fleet.ClusterNamespaceAnnotation: key.Namespace,
			fleet.ClusterAnnotation:          key.Name,
		},
	}}
}

func registration(change ...func(*fleetv1.FleetRegistration)) *fleetv1.FleetRegistration {
	reg := &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       fleetv1.FleetRegistrationSpec{RegistrationID: id, FleetCluster: fleetv1.FleetClusterReference(key)},
	}
	for _, c := range change {
		c(reg)
	}
	return reg
}

// orphaned puts the label on.
func orphaned[T client.Object](obj T) T {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[fleetv1.OrphanLabel] = "true"
	obj.SetLabels(labels)
	return obj
}

// env is the controller on a management cluster in memory.
type env struct {
	*Reconciler
	// api is the management cluster itself, cached what the controller's cache shows.
	api, cached client.WithWatch
	// writes are the requests that would change something.
	writes []string
	// broken fails the writes.
	broken error
	events *events.FakeRecorder
	clock  *testclock.FakePassiveClock
}

func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	e := &env{
		events: events.NewFakeRecorder(100),
		clock:  testclock.NewFakePassiveClock(time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)),
	}
	e.api = newAPI(t, objects...)
	e.cached = e.api
	cached := interceptor.NewClient(e.api, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return e.cached.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return e.cached.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			e.writes = append(e.writes, fmt.Sprintf("patch %T", obj))
			if e.broken != nil {
				return e.broken
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return errors.New("create")
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errors.New("update")
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return errors.New("delete")
		},
	})
	e.Reconciler = &Reconciler{
		APIReader: e.api,
		Client:    cached,
		Upstream:  &upstream.Writer{Client: cached, Reader: e.api},
		Recorder:  e.events,
		Clock:     e.clock,
		Grace:     grace,
	}
	return e
}

func newAPI(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, fleet.AddToScheme, fleetv1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&fleetv1.FleetRegistration{}, fleetClusterIndex, func(obj client.Object) []string {
			return []string{types.NamespacedName(obj.(*fleetv1.FleetRegistration).Spec.FleetCluster).String()}
		}).Build()
}

func (e *env) reconcile(t *testing.T) time.Duration {
	t.Helper()
	result, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// settle lets the controller look twice, with more than the grace between.
func (e *env) settle(t *testing.T) {
	t.Helper()
	e.reconcile(t)
	e.pass(grace + time.Second)
	e.reconcile(t)
}

func (e *env) pass(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }

// labels tells whether the Fleet Cluster and its namespace have the label.
func (e *env) labels(t *testing.T) (cluster, ofNamespace bool) {
	t.Helper()
	c, n := &fleet.Cluster{}, &corev1.Namespace{}
	NewWithT(t).Expect(e.api.Get(t.Context(), key, c)).To(Succeed())
	NewWithT(t).Expect(client.IgnoreNotFound(e.api.Get(t.Context(), types.NamespacedName{Name: clusterNamespace}, n))).To(Succeed())
	return labelled(c), labelled(n)
}

func TestAFleetClusterWithoutRegistrationIsReportedOnce(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, fleetCluster(), namespace(id))

	g.Expect(e.reconcile(t)).To(Equal(grace))
	e.pass(grace - time.Second)
	g.Expect(e.reconcile(t)).To(Equal(time.Second))
	g.Expect(e.writes).To(BeEmpty())
	g.Expect(e.events.Events).To(BeEmpty())

	e.pass(time.Second)
	g.Expect(e.reconcile(t)).To(BeZero())
	g.Expect(e.writes).To(Equal([]string{"patch *v1.Namespace", "patch *fleet.Cluster"}))
	cluster, ofNamespace := e.labels(t)
	g.Expect(cluster).To(BeTrue())
	g.Expect(ofNamespace).To(BeTrue())
	g.Expect(<-e.events.Events).To(And(HavePrefix("Warning Orphaned "), HaveSuffix("clusterctl fleet orphans --delete edge-1 --namespace team-a")))

	e.pass(time.Hour)
	g.Expect(e.reconcile(t)).To(BeZero())
	g.Expect(e.writes).To(HaveLen(2))
	g.Expect(e.events.Events).To(BeEmpty())
}

func TestWhatIsNoOrphanIsLeftAlone(t *testing.T) {
	elsewhere := func(change func(*fleetv1.FleetRegistration)) *fleetv1.FleetRegistration {
		return registration(func(reg *fleetv1.FleetRegistration) {
			reg.Name = "of-another-name"
			change(reg)
		})
	}
	ending := func(reg *fleetv1.FleetRegistration) {
		reg.DeletionTimestamp, reg.Finalizers = &metav1.Time{Time: time.Unix(1_900_000_000, 0)}, []string{fleetv1.FleetRegistrationFinalizer}
	}
	for name, objects := range map[string][]client.Object{
		"registered":                    {fleetCluster(), registration()},
		"registered under another name": {fleetCluster(), elsewhere(func(*fleetv1.FleetRegistration) {})},
		"registered with another filter": {fleetCluster(), elsewhere(func(reg *fleetv1.FleetRegistration) {
			reg.Labels = map[string]string{"cluster.x-k8s.io/watch-filter": "b"}
		})},
		"its registration is going": {fleetCluster(), registration(ending)},
		"terminating": {fleetCluster(func(c *fleet.Cluster) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Unix(1_900_000_000, 0)}, []string{"fleet"}
		})},
		"handed over":                          {fleetCluster(func(c *fleet.Cluster) { c.Labels[fleet.ClusterManagementLabel] = "rancher" })},
		"made by a person":                     {fleetCluster(func(c *fleet.Cluster) { c.Annotations = nil })},
		"an orphan whose registration is back": {orphaned(fleetCluster()), registration()},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, append(objects, namespace(id))...)
			e.settle(t)
			g.Expect(e.writes).To(BeEmpty())
			g.Expect(e.events.Events).To(BeEmpty())
		})
	}
}

// With its cache the manager of one namespace knows no registrations of others.
func TestAManagerOfOneNamespaceReportsNothingInOthers(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, fleetCluster(), namespace(id))
	e.Namespace = "another"
	e.settle(t)
	g.Expect(e.writes).To(BeEmpty())
	e.Namespace = key.Namespace
	e.settle(t)
	cluster, _ := e.labels(t)
	g.Expect(cluster).To(BeTrue())
}

func TestTheRegistrationOfAnotherFleetClusterDoesNotCount(t *testing.T) {
	for name, change := range map[string]func(*fleetv1.FleetRegistration){
		"another Fleet Cluster": func(reg *fleetv1.FleetRegistration) { reg.Spec.FleetCluster.Name = "edge-2" },
		"another ID":            func(reg *fleetv1.FleetRegistration) { reg.Spec.RegistrationID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, fleetCluster(), registration(change))
			e.settle(t)
			cluster, _ := e.labels(t)
			NewWithT(t).Expect(cluster).To(BeTrue())
		})
	}
}

func TestARegistrationThatIsMadeAnewWithinTheGraceKeepsItFromBeingReported(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, fleetCluster(), namespace(id))
	e.reconcile(t)
	e.pass(grace - time.Second)
	anew := registration()
	g.Expect(e.api.Create(t.Context(), anew)).To(Succeed())
	e.reconcile(t)

	g.Expect(e.api.Delete(t.Context(), anew)).To(Succeed())
	e.pass(time.Hour)
	g.Expect(e.reconcile(t)).To(Equal(grace), "it counts anew")
	g.Expect(e.writes).To(BeEmpty())
}

func TestAFleetClusterMadeAnewUnderItsNameIsCountedAnew(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, fleetCluster())
	e.reconcile(t)
	g.Expect(e.api.Delete(t.Context(), fleetCluster())).To(Succeed())
	g.Expect(e.api.Create(t.Context(), fleetCluster(func(c *fleet.Cluster) { c.UID = "another" }))).To(Succeed())
	e.pass(time.Hour)
	g.Expect(e.reconcile(t)).To(Equal(grace))
}

func TestACacheThatIsBehindReportsNothing(t *testing.T) {
	for name, live := range map[string][]client.Object{
		"the registration is there": {fleetCluster(), registration()},
		"the registration is going": {fleetCluster(), registration(func(reg *fleetv1.FleetRegistration) {
			reg.DeletionTimestamp, reg.Finalizers = &metav1.Time{Time: time.Unix(1_900_000_000, 0)}, []string{"a/b"}
		})},
		"the registration is in another namespace": {fleetCluster(), registration(func(reg *fleetv1.FleetRegistration) {
			reg.Namespace = "another"
		})},
		"the Fleet Cluster is gone":   nil,
		"the Fleet Cluster is anew":   {fleetCluster(func(c *fleet.Cluster) { c.UID = "another" })},
		"it was handed over":          {fleetCluster(func(c *fleet.Cluster) { c.Labels = nil })},
		"another manager reported it": {orphaned(fleetCluster())},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, append(live, namespace(id))...)
			e.cached = newAPI(t, fleetCluster())
			e.settle(t)
			g.Expect(e.writes).To(BeEmpty())
			g.Expect(e.events.Events).To(BeEmpty())
		})
	}
}

func TestANamespaceThatIsNotItsOwnIsNotLabelled(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"another's": {fleetCluster(), namespace("another")},
		"gone":      {fleetCluster()},
		"none yet":  {fleetCluster(func(c *fleet.Cluster) { c.Status.Namespace = "" }), namespace(id)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, objects...)
			e.settle(t)
			g.Expect(e.writes).To(Equal([]string{"patch *fleet.Cluster"}))
		})
	}
}

func TestAFailedWriteIsTriedAgainAndReportedOnce(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, fleetCluster(), namespace(id))
	e.reconcile(t)
	e.pass(grace)
	e.broken = errors.New("no")
	_, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	g.Expect(err).To(MatchError(ContainSubstring("no")))
	g.Expect(e.events.Events).To(BeEmpty())

	e.broken = nil
	g.Expect(e.reconcile(t)).To(BeZero())
	cluster, _ := e.labels(t)
	g.Expect(cluster).To(BeTrue())
	g.Expect(e.events.Events).To(HaveLen(1))
}
