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
	"errors"
	"fmt"
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	g.Expect(w.JoinClass(t.Context(), otherClass)).To(Succeed())
	g.Expect(a.group(t, otherClass).Spec).To(Equal(group.Spec))

	foreign := clusterGroup(otherClass, nil)
	foreign.Annotations, foreign.Spec.Selector = nil, &metav1.LabelSelector{}
	a = newAPI(t, foreign, class.DeepCopy())
	var refusal *Refusal
	g.Expect(errors.As(a.writer().JoinClass(t.Context(), otherClass), &refusal)).To(BeTrue())
	g.Expect(a.group(t, otherClass).Spec).To(Equal(foreign.Spec))
}
