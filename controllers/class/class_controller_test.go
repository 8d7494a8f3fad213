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

package class

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	team    = "team-a"
	classes = "classes"
)

// env is a class controller on a management cluster in memory.
type env struct {
	*Reconciler
	client.WithWatch
	// writes are the requests that would change something.
	writes []string
	events *events.FakeRecorder
}

func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, fleet.AddToScheme, fleetv1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	// The classes of the tests, but where they have one of their own.
	for _, name := range []string{"edge", "core", strings.Repeat("c", 100)} {
		if !slices.ContainsFunc(objects, func(obj client.Object) bool { return isClass(obj) && obj.GetName() == name }) {
			objects = append(objects, &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: name}})
		}
	}
	e := &env{events: events.NewFakeRecorder(10)}
	note := func(verb string, obj client.Object) {
		e.writes = append(e.writes, fmt.Sprintf("%s %T %s", verb, obj, client.ObjectKeyFromObject(obj)))
	}
	e.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&clusterv1.Cluster{}, classIndex, classesOf).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				note("create", obj)
				obj.SetUID(types.UID(fmt.Sprintf("uid-%d", len(e.writes))))
				return c.Create(ctx, obj, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				note("patch", obj)
				return c.Patch(ctx, obj, patch, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				note("delete", obj)
				return c.Delete(ctx, obj, opts...)
			},
		}).Build()
	e.Reconciler = &Reconciler{
		Client: e.WithWatch, APIReader: e.WithWatch, Recorder: e.events,
		Upstream: &upstream.Writer{Client: e.WithWatch, Reader: e.WithWatch, Cache: e.WithWatch},
	}
	return e
}

func isClass(obj client.Object) bool {
	_, ok := obj.(*clusterv1.ClusterClass)
	return ok
}

var inClasses = use{team, classes + "/edge"}

func (e *env) reconcile(t *testing.T, u use) {
	t.Helper()
	e.writes = nil
	_, err := e.Reconcile(t.Context(), u)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

// joined returns a Cluster of the class edge in another namespace, its registration and
// its Fleet Cluster.
func joined(name string, modify ...func(*clusterv1.Cluster, *fleetv1.FleetRegistration, *fleet.Cluster)) []client.Object {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, UID: types.UID("uid-" + name)}}
	cluster.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: classes, Name: "edge"}
	reg := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
	reg.Spec.FleetCluster = fleetv1.FleetClusterReference{Namespace: team, Name: name}
	reg.Spec.Targeting = fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{classes}}
	fleetCluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: team, Name: name, Labels: targeting.Class{ClassNamespace: classes, Name: "edge"}.Labels(),
	}}
	for _, m := range modify {
		m(cluster, reg, fleetCluster)
	}
	return []client.Object{cluster, reg, fleetCluster}
}

func (e *env) remove(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		NewWithT(t).Expect(e.WithWatch.Delete(t.Context(), obj)).To(Succeed())
	}
}

func TestSharedObjectsLiveAsLongAsOneClusterNeedsThem(t *testing.T) {
	g := NewWithT(t)
	a, b := joined("a"), joined("b")
	e := newEnv(t, append(a, b...)...)
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(Equal([]string{"create *fleet.ClusterGroup team-a/edge.classes", "create *fleet.BundleNamespaceMapping classes/team-a"}))
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty())

	e.remove(t, a...)
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty(), "b needs them")

	e.remove(t, b[:2]...)
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty(), "its Fleet Cluster is there, and what was deployed through the group")

	e.remove(t, b[2])
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(Equal([]string{"delete *fleet.ClusterGroup team-a/edge.classes", "delete *fleet.BundleNamespaceMapping classes/team-a"}))
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty())
}

func TestWhatReachedAClusterThroughAGroupIsNotUninstalledByAChange(t *testing.T) {
	for name, modify := range map[string]func(*clusterv1.Cluster, *fleetv1.FleetRegistration, *fleet.Cluster){
		"groups are off now": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			r.Spec.Targeting.Groups = ""
		},
		"the namespace is not listed now": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			r.Spec.Targeting.ClassNamespaces = nil
		},
		"the Fleet Cluster is an orphan": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, f *fleet.Cluster) {
			r.Name, f.Labels[fleetv1.OrphanLabel] = "other", "true"
		},
		"the Fleet Cluster was handed over": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) { r.Name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := newEnv(t, joined("a")...)
			before.reconcile(t, inClasses)
			group, mapping := &fleet.ClusterGroup{}, &fleet.BundleNamespaceMapping{}
			g.Expect(before.WithWatch.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "edge.classes"}, group)).To(Succeed())
			g.Expect(before.WithWatch.Get(t.Context(), client.ObjectKey{Namespace: classes, Name: team}, mapping)).To(Succeed())
			group.ResourceVersion, mapping.ResourceVersion = "", ""

			e := newEnv(t, append(joined("a", modify), group, mapping)...)
			e.reconcile(t, inClasses)
			g.Expect(e.writes).To(BeEmpty())
			e.reconcile(t, use{team, classes + "/"})
			g.Expect(e.writes).To(BeEmpty())
		})
	}
}

func TestNothingIsMadeWhereNobodyMayNeedIt(t *testing.T) {
	for name, modify := range map[string]func(*clusterv1.Cluster, *fleetv1.FleetRegistration, *fleet.Cluster){
		"groups are off": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			r.Spec.Targeting.Groups = ""
		},
		"the namespace is not listed": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			r.Spec.Targeting.ClassNamespaces = nil
		},
		"another namespace is listed": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			r.Spec.Targeting.ClassNamespaces = []string{"others"}
		},
		"the Cluster is not registered": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) { r.Name = "other" },
		"the registration is another Cluster's": func(_ *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			r.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "a", UID: "another"}}
		},
		"the class is not there": func(c *clusterv1.Cluster, _ *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			c.Spec.Topology.ClassRef.Name = "missing"
		},
		"the Cluster is paused": func(c *clusterv1.Cluster, _ *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			c.Spec.Paused = ptr.To(true)
		},
		"the Cluster is about to be moved": func(c *clusterv1.Cluster, _ *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			c.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, joined("a", modify)...)
			e.reconcile(t, inClasses)
			e.reconcile(t, use{team, classes + "/missing"})
			NewWithT(t).Expect(e.writes).To(BeEmpty())
		})
	}
}

func TestAGroupOfClustersOfSeveralNamespacesHasNoLabelsOfItsClass(t *testing.T) {
	for _, tenant := range []string{"a-tenant", "z-tenant"} { // Before and after the other one in the list.
		g := NewWithT(t)
		e := newEnv(t, append(joined("theirs", func(c *clusterv1.Cluster, r *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			c.Namespace, r.Namespace = tenant, tenant
		}), append(joined("m"), &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{
			Namespace: classes, Name: "edge", Labels: map[string]string{"tier": "core"},
		}})...)...)
		e.reconcile(t, inClasses)
		group := &fleet.ClusterGroup{}
		g.Expect(e.WithWatch.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "edge.classes"}, group)).To(Succeed())
		g.Expect(group.Labels).To(Equal(targeting.Class{ClassNamespace: classes, Name: "edge"}.Labels()))
	}
}

func TestAManagerWithAWatchFilterLeavesTheGroupsOfOthersToThem(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, joined("a")...)
	e.WatchFilter = "blue"
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty())
	e.WatchFilter = ""
	e.reconcile(t, inClasses)
	e.WatchFilter = "blue"
	e.remove(t, joined("a")[2])
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty(), "the other manager would make it again")
}

func TestAMappingIsForAllClassesOfItsNamespace(t *testing.T) {
	g := NewWithT(t)
	core := func(c *clusterv1.Cluster, _ *fleetv1.FleetRegistration, f *fleet.Cluster) {
		c.Spec.Topology.ClassRef.Name = "core"
		f.Labels[fleetv1.ClassNameLabel] = "core"
	}
	a, b := joined("a"), joined("b", core)
	e := newEnv(t, append(a, b...)...)
	e.reconcile(t, inClasses)
	e.reconcile(t, use{team, classes + "/core"})
	g.Expect(e.writes).To(Equal([]string{"create *fleet.ClusterGroup team-a/core.classes"}))
	e.remove(t, a...)
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(Equal([]string{"delete *fleet.ClusterGroup team-a/edge.classes"}))

	e.remove(t, b[2])
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty(), "b is registered, though it has no Fleet Cluster yet")

	mapping := &fleet.BundleNamespaceMapping{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: team}}
	g.Expect(e.WithWatch.Get(t.Context(), client.ObjectKeyFromObject(mapping), mapping)).To(Succeed())
	e.remove(t, mapping)
	e.reconcile(t, ofMapping(t.Context(), mapping)[0])
	g.Expect(e.writes).To(Equal([]string{"create *fleet.BundleNamespaceMapping classes/team-a"}))
}

// Any Cluster can name a class that does not exist, or one that cannot have a group.
func TestAClassThatDoesNotExistKeepsNoMappingFromComingBack(t *testing.T) {
	for _, other := range []string{"0", "z"} { // Before and after the good one in the list.
		g := NewWithT(t)
		e := newEnv(t, append(joined("a"), joined(other, func(c *clusterv1.Cluster, _ *fleetv1.FleetRegistration, _ *fleet.Cluster) {
			c.Spec.Topology.ClassRef.Name = "missing"
		})...)...)
		e.reconcile(t, inClasses)
		mapping := &fleet.BundleNamespaceMapping{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: team}}
		g.Expect(e.WithWatch.Get(t.Context(), client.ObjectKeyFromObject(mapping), mapping)).To(Succeed())
		e.remove(t, mapping)
		e.reconcile(t, ofMapping(t.Context(), mapping)[0])
		g.Expect(e.writes).To(Equal([]string{"create *fleet.BundleNamespaceMapping classes/team-a"}))

		// Where there is none that exists, each class tells of itself.
		e.remove(t, joined("a")[:2]...)
		e.reconcile(t, ofMapping(t.Context(), mapping)[0])
		g.Expect(e.events.Events).To(BeEmpty())
		e.reconcile(t, use{team, classes + "/missing"})
		g.Expect(e.events.Events).To(Receive(ContainSubstring(fleetv1.ClassMissingReason)))
	}
}

// A mapping is not only for clusters of a class.
func TestAMappingStaysAsLongAsABundleReachesAnyClusterThroughIt(t *testing.T) {
	deployed := func(bundleNamespace, clusterNamespace, cluster string) *fleet.BundleDeployment {
		return &fleet.BundleDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-" + cluster, Name: "shop", Labels: map[string]string{
			fleet.BundleNamespaceLabel: bundleNamespace, fleet.ClusterNamespaceLabel: clusterNamespace, fleet.ClusterLabel: cluster,
		}}}
	}
	for name, tc := range map[string]struct {
		deployment *fleet.BundleDeployment
		stays      bool
	}{
		"a bundle of its namespace":                   {deployed(classes, team, "plain"), true},
		"one of another namespace":                    {deployed(team, team, "plain"), false},
		"one on a cluster of another namespace":       {deployed(classes, "team-b", "plain"), false},
		"one that goes with the cluster that is gone": {deployed(classes, team, "a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := joined("a")
			plain := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "plain"}}
			e := newEnv(t, append(a, plain, tc.deployment)...)
			e.reconcile(t, inClasses)
			e.remove(t, a...)
			e.reconcile(t, inClasses)
			mapping := "delete *fleet.BundleNamespaceMapping classes/team-a"
			if !tc.stays {
				g.Expect(e.writes).To(ContainElement(mapping))
				return
			}
			g.Expect(e.writes).To(Equal([]string{"delete *fleet.ClusterGroup team-a/edge.classes"}))

			// The last one that goes takes it along, though it has no class.
			e.remove(t, plain)
			uses := e.ofFleetCluster(t.Context(), plain)
			g.Expect(uses).To(HaveLen(1))
			e.reconcile(t, uses[0])
			g.Expect(e.writes).To(Equal([]string{mapping}))
		})
	}
}

func TestObjectsOfOthersAreNeverDeletedAndReportedOnce(t *testing.T) {
	g := NewWithT(t)
	foreign := &fleet.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "edge.classes", Labels: targeting.Class{ClassNamespace: classes, Name: "edge"}.Labels()}}
	mapping := &fleet.BundleNamespaceMapping{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: team}}
	a := joined("a")
	e := newEnv(t, append(a, foreign, mapping)...)
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty())
	g.Expect(<-e.events.Events).To(ContainSubstring(fleetv1.ClassGroupForeignReason))
	e.reconcile(t, inClasses)
	g.Expect(e.events.Events).To(BeEmpty())
	e.remove(t, a...)
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty())
}

// Who can write to an object but not delete it must not have us do that.
func TestARecordThatSomebodyWroteMakesNoObjectOurs(t *testing.T) {
	selecting := func(class targeting.Class) fleet.ClusterGroupSpec {
		return fleet.ClusterGroupSpec{Selector: &metav1.LabelSelector{MatchLabels: class.Labels()}}
	}
	edgeClass := targeting.Class{ClassNamespace: classes, Name: "edge"}
	for name, tc := range map[string]struct {
		group, class string
		spec         fleet.ClusterGroupSpec
	}{
		"a group of another name":            {"prod", classes + "/edge", selecting(edgeClass)},
		"a group that selects something":     {"edge.classes", classes + "/edge", fleet.ClusterGroupSpec{Selector: &metav1.LabelSelector{}}},
		"a class that is none":               {"prod", "/", fleet.ClusterGroupSpec{}},
		"a class in no namespace":            {"edge", "edge", fleet.ClusterGroupSpec{}},
		"a class in what is no namespace":    {"a.b.c", "b.c/a", selecting(targeting.Class{ClassNamespace: "b.c", Name: "a"})},
		"a class that is no value of labels": {"edge.classes", classes + "/no value", fleet.ClusterGroupSpec{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			group := &fleet.ClusterGroup{
				ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: tc.group,
					Annotations: map[string]string{fleetv1.PropagatedAnnotation: targeting.Record{Class: tc.class}.String()}},
				Spec: tc.spec,
			}
			e := newEnv(t, group)
			for _, u := range append(ofGroup(t.Context(), group), inClasses, use{team, tc.class}) {
				e.reconcile(t, u)
				g.Expect(e.writes).To(BeEmpty())
			}
			if tc.group != "edge.classes" || tc.class != inClasses.class {
				g.Expect(ofGroup(t.Context(), group)).To(BeEmpty(), "nothing to do, again and again")
			}
		})
	}
	t.Run("a mapping of other bundles", func(t *testing.T) {
		mapping := &fleet.BundleNamespaceMapping{
			ObjectMeta:     metav1.ObjectMeta{Namespace: classes, Name: team, Annotations: map[string]string{fleetv1.PropagatedAnnotation: "{}"}},
			BundleSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"some": "bundles"}},
		}
		e := newEnv(t, mapping)
		e.reconcile(t, ofMapping(t.Context(), mapping)[0])
		NewWithT(t).Expect(e.writes).To(BeEmpty())
	})
}

// meanwhile is an API server that is asked while something else happens.
type meanwhile struct {
	client.Reader
	happens func()
}

func (m meanwhile) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := m.Reader.List(ctx, list, opts...)
	m.happens()
	return err
}

func TestAClusterThatComesToAClassAtTheLastMomentFindsItsGroup(t *testing.T) {
	g := NewWithT(t)
	a, b := joined("a"), joined("b", func(c *clusterv1.Cluster, _ *fleetv1.FleetRegistration, f *fleet.Cluster) {
		c.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{}
		f.Labels = nil
	})
	e := newEnv(t, append(a, b...)...)
	e.reconcile(t, inClasses)
	e.remove(t, a...)
	e.APIReader = meanwhile{e.WithWatch, func() {
		cluster := &clusterv1.Cluster{}
		g.Expect(e.WithWatch.Get(t.Context(), client.ObjectKeyFromObject(b[0]), cluster)).To(Succeed())
		cluster.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: classes, Name: "edge"}
		g.Expect(e.WithWatch.Update(t.Context(), cluster)).To(Succeed())
	}}
	e.reconcile(t, inClasses)
	g.Expect(e.writes).To(BeEmpty())
}

func TestTheGroupOfALongNameIsFoundByItsLabel(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("c", 100)
	a := joined("a", func(c *clusterv1.Cluster, _ *fleetv1.FleetRegistration, f *fleet.Cluster) {
		c.Spec.Topology.ClassRef.Name = long
		f.Labels = targeting.Class{ClassNamespace: classes, Name: long}.Labels()
	})
	e := newEnv(t, a...)
	u := e.ofFleetCluster(t.Context(), a[2])[0]
	e.reconcile(t, u)
	g.Expect(e.writes).To(ContainElement("create *fleet.ClusterGroup team-a/" + long + ".classes"))
	e.remove(t, a...)
	e.reconcile(t, u)
	g.Expect(e.writes).To(ContainElement("delete *fleet.ClusterGroup team-a/" + long + ".classes"))
}

func TestEveryObjectLeadsToTheClassesThatItConcerns(t *testing.T) {
	g := NewWithT(t)
	a := joined("a")
	e := newEnv(t, a...)
	e.reconcile(t, inClasses)
	group := &fleet.ClusterGroup{}
	g.Expect(e.WithWatch.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "edge.classes"}, group)).To(Succeed())
	group.Labels = nil
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: "edge"}}
	for name, got := range map[string][]use{
		"Cluster":              e.ofCluster(t.Context(), a[0]),
		"registration":         e.ofRegistration(t.Context(), a[1]),
		"ClusterClass":         e.ofClass(t.Context(), class),
		"group without labels": ofGroup(t.Context(), group),
	} {
		g.Expect(got).To(Equal([]use{inClasses}), name)
	}
	g.Expect(e.ofFleetCluster(t.Context(), a[2])).To(Equal([]use{inClasses, {team, classes + "/"}}), "and to the mapping")
	g.Expect(e.ofFleetCluster(t.Context(), &fleet.Cluster{})).To(BeEmpty())
}

func TestTheEndOfAMoveIsSeen(t *testing.T) {
	g := NewWithT(t)
	before := joined("a")[0]
	after := before.DeepCopyObject().(client.Object)
	g.Expect(newNeed().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeFalse())
	after.SetAnnotations(map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""})
	g.Expect(newNeed().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeTrue())
	g.Expect(newNeed().Update(event.UpdateEvent{ObjectOld: after, ObjectNew: before})).To(BeTrue())
}
