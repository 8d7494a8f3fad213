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
	"maps"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
)

var (
	ownClass   = targeting.Class{Namespace: "team-a", ClassNamespace: "team-a", Name: "edge"}
	otherClass = targeting.Class{Namespace: "team-a", ClassNamespace: "classes", Name: "edge"}
)

func classWith(namespace string, labels map[string]string) *clusterv1.ClusterClass {
	return &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge", Labels: labels}}
}

func (a *api) group(t *testing.T, class targeting.Class) *fleet.ClusterGroup {
	t.Helper()
	return a.snapshot(t, clusterGroup(class, nil)).(*fleet.ClusterGroup)
}

func (a *api) mapping(t *testing.T) *fleet.BundleNamespaceMapping {
	t.Helper()
	return a.snapshot(t, bundleNamespaceMapping(otherClass)).(*fleet.BundleNamespaceMapping)
}

// The objects of the provider that came before this one (its version 0.11, the examples of
// its documentation), for the class edge: in the namespace of the Cluster, and in another.
func TestTheObjectsOfTheEarlierProviderAreReproduced(t *testing.T) {
	g := NewWithT(t)
	two := map[string]string{
		"clusterclass-name.fleet.addons.cluster.x-k8s.io":      "edge",
		"clusterclass-namespace.fleet.addons.cluster.x-k8s.io": "team-a",
	}
	withTier := map[string]string{"tier": "edge"}
	a := newAPI(t, classWith("team-a", withTier), classWith("classes", withTier))

	g.Expect(a.writer().EnsureClass(t.Context(), ownClass)).To(Succeed())
	g.Expect(a.writes()).To(Equal([]string{"create ClusterGroup team-a/edge"}), "no mapping")
	group := a.group(t, ownClass)
	g.Expect(group.Labels).To(Equal(merge(two, withTier)))
	g.Expect(group.Spec).To(Equal(fleet.ClusterGroupSpec{Selector: &metav1.LabelSelector{MatchLabels: two}}))
	g.Expect(group.OwnerReferences).To(BeEmpty(), "it would go with one of its Clusters")

	a.requests = nil
	g.Expect(a.writer().EnsureClass(t.Context(), otherClass)).To(Succeed())
	g.Expect(a.writes()).To(Equal([]string{"create ClusterGroup team-a/edge.classes", "create BundleNamespaceMapping classes/team-a"}))
	two["clusterclass-namespace.fleet.addons.cluster.x-k8s.io"] = "classes"
	group = a.group(t, otherClass)
	g.Expect(group.Labels).To(Equal(merge(two, withTier)))
	g.Expect(group.Spec).To(Equal(fleet.ClusterGroupSpec{Selector: &metav1.LabelSelector{MatchLabels: two}}))
	mapping := a.mapping(t)
	g.Expect(mapping.Labels).To(BeEmpty())
	g.Expect(mapping.OwnerReferences).To(BeEmpty())
	g.Expect(mapping.BundleSelector).To(Equal(&metav1.LabelSelector{}), "all bundles; none would be nil")
	g.Expect(mapping.NamespaceSelector).To(Equal(&metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "team-a"}}))
}

func merge(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

func TestTheObjectsOfAClassAreWrittenOnlyWhereTheyDiffer(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fleet.ClusterGroup, *fleet.BundleNamespaceMapping)
		want   []string
	}{
		"nothing": {func(*fleet.ClusterGroup, *fleet.BundleNamespaceMapping) {}, nil},
		"foreign labels": {func(g *fleet.ClusterGroup, m *fleet.BundleNamespaceMapping) {
			g.Labels["theirs"] = "x"
			m.Labels = map[string]string{"theirs": "x"}
		}, nil},
		"a label taken off": {func(g *fleet.ClusterGroup, _ *fleet.BundleNamespaceMapping) { g.Labels = nil },
			[]string{"patch ClusterGroup team-a/edge.classes"}},
		"another selector": {func(g *fleet.ClusterGroup, _ *fleet.BundleNamespaceMapping) {
			g.Spec.Selector = &metav1.LabelSelector{
				MatchLabels:      map[string]string{"env": "prod"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpExists}},
			}
		}, []string{"patch ClusterGroup team-a/edge.classes"}},
		"a wider mapping": {func(_ *fleet.ClusterGroup, m *fleet.BundleNamespaceMapping) {
			m.NamespaceSelector = &metav1.LabelSelector{}
		}, []string{"patch BundleNamespaceMapping classes/team-a"}},
		"a mapping of other namespaces": {func(_ *fleet.ClusterGroup, m *fleet.BundleNamespaceMapping) {
			m.NamespaceSelector.MatchLabels["also"] = "this"
		}, []string{"patch BundleNamespaceMapping classes/team-a"}},
		"a mapping of no bundles": {func(_ *fleet.ClusterGroup, m *fleet.BundleNamespaceMapping) { m.BundleSelector = nil },
			[]string{"patch BundleNamespaceMapping classes/team-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			group, mapping := clusterGroup(otherClass, nil), bundleNamespaceMapping(otherClass)
			group.UID, mapping.UID = "uid-of-group", "uid-of-mapping"
			tc.change(group, mapping)
			a := newAPI(t, group, mapping, classWith("classes", nil))

			g.Expect(a.writer().EnsureClass(t.Context(), otherClass)).To(Succeed())

			g.Expect(a.writes()).To(Equal(tc.want))
			live := a.group(t, otherClass)
			g.Expect(live.Spec.Selector.MatchLabels).To(Equal(otherClass.Labels()))
			g.Expect(live.Spec.Selector.MatchExpressions).To(BeEmpty())
			g.Expect(sameSelectors(a.mapping(t), bundleNamespaceMapping(otherClass))).To(BeTrue())
			a.requests = nil
			g.Expect(a.writer().EnsureClass(t.Context(), otherClass)).To(Succeed())
			g.Expect(a.writes()).To(BeEmpty(), "it is done")
		})
	}
}

func TestALabelThatIsTakenOffAClassGoesFromItsGroup(t *testing.T) {
	g := NewWithT(t)
	group := clusterGroup(ownClass, map[string]string{"tier": "edge", "old": "x"})
	group.UID = "uid"
	group.Labels["theirs"] = "z"
	a := newAPI(t, group, classWith("team-a", map[string]string{"tier": "core"}))
	g.Expect(a.writer().EnsureClass(t.Context(), ownClass)).To(Succeed())
	g.Expect(a.group(t, ownClass).Labels).To(Equal(merge(ownClass.Labels(), map[string]string{"tier": "core", "theirs": "z"})))
}

func TestObjectsOfOthersAreNotTouched(t *testing.T) {
	// Those of the earlier provider select the same, and have its owner references.
	alike := clusterGroup(otherClass, nil)
	alike.Annotations = nil
	alikeMapping := bundleNamespaceMapping(otherClass)
	alikeMapping.Annotations = nil
	foreign := alike.DeepCopy()
	foreign.Spec.Selector = &metav1.LabelSelector{}
	foreignMapping := alikeMapping.DeepCopy()
	foreignMapping.BundleSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"some": "bundles"}}
	// A class a.b in this namespace has the name of a class a in namespace b.
	namesake := clusterGroup(targeting.Class{Namespace: "team-a", ClassNamespace: "team-a", Name: "edge.classes"}, nil)
	for name, tc := range map[string]struct {
		objects []client.Object
		refused bool
	}{
		"they select the same":              {[]client.Object{alike, alikeMapping}, false},
		"a group that selects others":       {[]client.Object{foreign, alikeMapping}, true},
		"a mapping that selects others":     {[]client.Object{alike, foreignMapping}, true},
		"our group of a class of that name": {[]client.Object{namesake, alikeMapping}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for _, obj := range tc.objects {
				obj.SetUID(types.UID("uid-" + obj.GetName()))
			}
			a := newAPI(t, append(tc.objects, classWith("classes", nil))...)
			for _, ensure := range []error{a.writer().EnsureClass(t.Context(), otherClass), a.writer().LookClass(t.Context(), otherClass)} {
				var refusal *Refusal
				g.Expect(errors.As(ensure, &refusal)).To(Equal(tc.refused), "%v", ensure)
				if tc.refused {
					g.Expect(refusal.Reason).To(Equal(fleetv1.ClassGroupForeignReason))
				} else {
					g.Expect(ensure).NotTo(HaveOccurred())
				}
			}
			g.Expect(a.writes()).To(BeEmpty())
		})
	}
}

func inWorkspace(class targeting.Class) targeting.Class {
	class.Shared = true
	return class
}

// A bundle of the namespace that selects groups by a label of the ClusterClass would be for
// clusters of whoever wrote it there.
func TestNobodyChoosesAmongTheBundlesOfAWorkspaceByTheLabelsOfAClass(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t, classWith("classes", map[string]string{"tier": "core"}))
	for range 2 {
		g.Expect(a.writer().EnsureClass(t.Context(), inWorkspace(otherClass))).To(Succeed())
		g.Expect(a.group(t, otherClass).Labels).To(Equal(otherClass.Labels()))
	}

	// Nor when a Cluster of the namespace itself comes later.
	g.Expect(a.writer().LookClass(t.Context(), otherClass)).To(Succeed())
	g.Expect(a.writer().EnsureClass(t.Context(), otherClass)).To(Succeed())
	g.Expect(a.group(t, otherClass).Labels).To(Equal(otherClass.Labels()))
}

func TestAGroupWithLabelsIsNoneForClustersOfOtherNamespaces(t *testing.T) {
	ofOthers := clusterGroup(otherClass, map[string]string{"tier": "core"})
	ofOthers.Annotations = nil
	for name, group := range map[string]*fleet.ClusterGroup{
		"ours":                                 clusterGroup(otherClass, map[string]string{"tier": "core"}),
		"ours, of a class that has no label":   clusterGroup(otherClass, nil),
		"of somebody else, selecting the same": ofOthers,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			group.UID = "uid"
			a := newAPI(t, group, classWith("classes", map[string]string{"tier": "edge"}))
			for _, err := range []error{
				a.writer().LookClass(t.Context(), inWorkspace(otherClass)), a.writer().EnsureClass(t.Context(), inWorkspace(otherClass)),
			} {
				var refusal *Refusal
				g.Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
				g.Expect(refusal.Reason).To(Equal(fleetv1.ClassGroupForeignReason))
			}
			if OurClassObject(group) {
				g.Expect(a.group(t, otherClass).Labels).To(HaveKeyWithValue("tier", "edge"), "it is kept up to date for the others")
			}
		})
	}
}

func TestLabelsOfAClassThatAreTooLargeLeaveItsGroupAsItIs(t *testing.T) {
	g := NewWithT(t)
	flood := map[string]string{}
	for i := range 2000 {
		flood[fmt.Sprintf("a-long-domain-of-some-tenant.example.org/label-%d", i)] = "x"
	}
	group := clusterGroup(ownClass, map[string]string{"tier": "edge"})
	group.UID, group.Labels["theirs"] = "uid", "z"
	a := newAPI(t, group, classWith("team-a", flood), classWith("classes", flood))
	for _, class := range []targeting.Class{ownClass, otherClass} {
		var refusal *Refusal
		err := a.writer().EnsureClass(t.Context(), class)
		g.Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
		g.Expect(refusal.Reason).To(Equal(fleetv1.LabelsTooLargeReason))
	}
	g.Expect(a.group(t, ownClass).Labels).To(Equal(group.Labels))
	g.Expect(a.group(t, otherClass).Labels).To(Equal(otherClass.Labels()), "it is made nevertheless")
	g.Expect(a.writes()).To(Equal([]string{"create ClusterGroup team-a/edge.classes", "create BundleNamespaceMapping classes/team-a"}))
}

func TestAClassThatIsNotThereHasNoGroup(t *testing.T) {
	g := NewWithT(t)
	group := clusterGroup(otherClass, map[string]string{"tier": "edge"})
	for _, a := range []*api{newAPI(t), newAPI(t, group)} {
		for _, err := range []error{a.writer().LookClass(t.Context(), otherClass), a.writer().EnsureClass(t.Context(), otherClass)} {
			var refusal *Refusal
			g.Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
			g.Expect(refusal.Reason).To(Equal(fleetv1.ClassMissingReason))
			g.Expect(refusal.Message).To(ContainSubstring("classes/edge"))
		}
		g.Expect(a.writes()).To(BeEmpty(), "also of a group that is there: bundles select it by what it has")
	}
}

// The class controller deletes a group with the last Fleet Cluster of its class.
func TestAGroupThatOnlyTheCacheShowsIsMadeForOneThatJoinsIt(t *testing.T) {
	g := NewWithT(t)
	group, mapping, class := clusterGroup(otherClass, nil), bundleNamespaceMapping(otherClass), classWith("classes", nil)
	a := newAPI(t, mapping.DeepCopy(), class.DeepCopy())
	w := a.writer()
	w.Cache = newAPI(t, group, mapping, class).WithWatch
	joined := false
	g.Expect(w.JoinClass(t.Context(), otherClass, func() error {
		g.Expect(a.group(t, otherClass).Spec).To(Equal(group.Spec), "before it joins")
		joined = true
		return nil
	})).To(Succeed())
	g.Expect(joined).To(BeTrue())

	foreign := clusterGroup(otherClass, nil)
	foreign.Annotations, foreign.Spec.Selector = nil, &metav1.LabelSelector{}
	a = newAPI(t, foreign, class.DeepCopy())
	var refusal *Refusal
	g.Expect(errors.As(a.writer().JoinClass(t.Context(), otherClass, neverJoins(t)), &refusal)).To(BeTrue())
	g.Expect(a.group(t, otherClass).Spec).To(Equal(foreign.Spec))
}

func neverJoins(t *testing.T) func() error {
	return func() error {
		t.Error("it joined")
		return nil
	}
}

// What the cache does not show yet may be anybody's, and what is about to go is no group.
func TestAGroupThatTheCacheDoesNotShowIsJudgedBeforeAClusterJoinsIt(t *testing.T) {
	another := targeting.Class{Namespace: "team-a", ClassNamespace: "team-a", Name: "edge.classes"}
	for name, tc := range map[string]struct {
		class  targeting.Class
		change func(*fleet.ClusterGroup, *fleet.BundleNamespaceMapping)
		err    OmegaMatcher
	}{
		"the right ones":           {otherClass, nil, BeNil()},
		"the group of another":     {another, nil, BeAssignableToTypeOf(&Refusal{})},
		"a group for others":       {inWorkspace(otherClass), nil, MatchError(errNotSettled)},
		"a group about to be gone": {otherClass, func(group *fleet.ClusterGroup, _ *fleet.BundleNamespaceMapping) { end(group) }, MatchError(errNotSettled)},
		"a mapping about to be":    {otherClass, func(_ *fleet.ClusterGroup, mapping *fleet.BundleNamespaceMapping) { end(mapping) }, MatchError(errNotSettled)},
		"somebody else's group for the same": {otherClass, func(group *fleet.ClusterGroup, _ *fleet.BundleNamespaceMapping) {
			group.Annotations, group.Labels = nil, map[string]string{"tier": "core"}
		}, BeNil()},
		"somebody else's group for others": {otherClass, func(group *fleet.ClusterGroup, _ *fleet.BundleNamespaceMapping) {
			group.Annotations = nil
		}, MatchError(errNotSettled)},
		"somebody else's mapping": {otherClass, func(_ *fleet.ClusterGroup, mapping *fleet.BundleNamespaceMapping) {
			mapping.Annotations, mapping.BundleSelector = nil, nil
		}, BeAssignableToTypeOf(&Refusal{})},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			group, mapping, class := clusterGroup(tc.class, nil), bundleNamespaceMapping(otherClass), classWith("classes", nil)
			if tc.change != nil {
				tc.change(group, mapping)
			}
			a := newAPI(t, group, mapping, class.DeepCopy())
			w, joined := a.writer(), false
			w.Cache = newAPI(t, class).WithWatch
			err := w.JoinClass(t.Context(), otherClass, func() error {
				joined = true
				return nil
			})
			g.Expect(err).To(tc.err)
			g.Expect(joined).To(Equal(err == nil))
		})
	}

	w := newAPI(t, classWith("classes", nil)).writer()
	w.Client = refusing{w.Client}
	NewWithT(t).Expect(w.JoinClass(t.Context(), otherClass, neverJoins(t))).To(MatchError(errNotSettled), "it went at once")
}

// refusing is an API server where all that is created is there already.
type refusing struct{ client.Client }

func (refusing) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return apierrors.NewAlreadyExists(schema.GroupResource{}, obj.GetName())
}

// end lets an object be deleted, and somebody hold it.
func end(obj client.Object) {
	obj.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	obj.SetFinalizers([]string{"example.org/theirs"})
}

// late is a cache that does not show a group when it is asked for the first time.
type late struct {
	client.Reader
	asked bool
}

func (l *late) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*fleet.ClusterGroup); ok && !l.asked {
		l.asked = true
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return l.Reader.Get(ctx, key, obj, opts...)
}

// Labels of a class on a group that was made for Clusters of other namespaces meanwhile
// would let who writes them choose among bundles.
func TestAGroupThatWasMadeForOthersMeanwhileStaysAsItIs(t *testing.T) {
	g := NewWithT(t)
	for _, made := range []targeting.Class{otherClass, inWorkspace(otherClass)} {
		wanted := otherClass
		wanted.Shared = !made.Shared
		group := clusterGroup(made, nil)
		group.UID = "uid"
		a := newAPI(t, group, bundleNamespaceMapping(otherClass), classWith("classes", map[string]string{"tier": "core"}))
		w := a.writer()
		for _, try := range []func() error{
			func() error { return w.EnsureClass(t.Context(), wanted) },
			func() error { return w.JoinClass(t.Context(), wanted, neverJoins(t)) },
		} {
			w.Cache = &late{Reader: a.WithWatch}
			g.Expect(try()).To(MatchError(errNotSettled))
			live := a.group(t, otherClass)
			g.Expect(live.Labels).To(Equal(otherClass.Labels()))
			g.Expect(live.Annotations).To(Equal(group.Annotations))
		}
	}
}

func TestAnUnusedGroupIsDeletedAsItWasJudgedOnly(t *testing.T) {
	unused := func() (bool, error) { return false, nil }
	for name, tc := range map[string]struct {
		change func(*fleet.ClusterGroup)
		used   func() (bool, error)
		goes   bool
	}{
		"unused":             {nil, unused, true},
		"used":               {nil, func() (bool, error) { return true, nil }, false},
		"written to since":   {func(group *fleet.ClusterGroup) { group.Labels["theirs"] = "x" }, unused, false},
		"made anew meantime": {func(group *fleet.ClusterGroup) { group.UID = "another" }, unused, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			group := clusterGroup(otherClass, nil)
			group.UID = "uid"
			a := newAPI(t, group)
			judged := a.group(t, otherClass)
			if tc.change != nil {
				changed := judged.DeepCopy()
				tc.change(changed)
				g.Expect(a.WithWatch.Delete(t.Context(), judged.DeepCopy())).To(Succeed())
				changed.ResourceVersion = ""
				g.Expect(a.WithWatch.Create(t.Context(), changed)).To(Succeed())
				g.Expect(a.WithWatch.Patch(t.Context(), changed, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"more":"x"}}}`)))).To(Succeed())
			}
			g.Expect(a.writer().DeleteUnused(t.Context(), judged, tc.used)).To(Succeed())
			err := a.Get(t.Context(), client.ObjectKeyFromObject(group), &fleet.ClusterGroup{})
			g.Expect(apierrors.IsNotFound(err)).To(Equal(tc.goes), "%v", err)
		})
	}
	NewWithT(t).Expect(newAPI(t).writer().DeleteUnused(t.Context(), clusterGroup(otherClass, nil),
		func() (bool, error) { return false, errors.New("no answer") })).To(MatchError("no answer"))
}

func TestNoGroupIsDeletedWhileAClusterJoinsIt(t *testing.T) {
	g := NewWithT(t)
	group := clusterGroup(otherClass, nil)
	group.UID = "uid"
	a := newAPI(t, group, bundleNamespaceMapping(otherClass), classWith("classes", nil))
	w, judged := a.writer(), a.group(t, otherClass)
	var joined atomic.Bool
	asked, deleted := make(chan struct{}), make(chan error)
	g.Expect(w.JoinClass(t.Context(), otherClass, func() error {
		go func() {
			deleted <- w.DeleteUnused(t.Context(), judged, func() (bool, error) {
				close(asked)
				return joined.Load(), nil
			})
		}()
		g.Consistently(asked, "200ms").ShouldNot(BeClosed())
		joined.Store(true)
		return nil
	})).To(Succeed())
	g.Eventually(deleted).Should(Receive(BeNil()))
	g.Expect(a.group(t, otherClass).UID).To(Equal(judged.UID))
}
