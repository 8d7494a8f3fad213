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

package targeting

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// apply does with a merge patch what the API server does.
func apply(t *testing.T, live *fleet.Cluster, patch map[string]any) {
	t.Helper()
	if patch == nil {
		return
	}
	g := NewWithT(t)
	document, err := json.Marshal(live)
	g.Expect(err).NotTo(HaveOccurred())
	content, err := json.Marshal(patch)
	g.Expect(err).NotTo(HaveOccurred())
	document, err = jsonpatch.MergePatch(document, content)
	g.Expect(err).NotTo(HaveOccurred())
	*live = fleet.Cluster{}
	g.Expect(json.Unmarshal(document, live)).To(Succeed())
}

func TestTheClassOfAClusterIsOnItsFleetCluster(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("c", 100) + "-end"
	for _, tc := range []struct{ ref, name, wantNamespace, wantName string }{
		{"", "edge", own, "edge"},
		{"classes", "edge", "classes", "edge"},
		{"classes", long, "classes", strings.Repeat("c", 46) + "-"},
	} {
		target, _ := Resolve(fleetv1.TargetingSettings{}, newCluster(ofClass(tc.ref, tc.name)), own)
		g.Expect(target.Labels).To(HaveLen(2))
		g.Expect(target.Labels).To(HaveKeyWithValue(fleetv1.ClassNamespaceLabel, tc.wantNamespace))
		g.Expect(target.Labels[fleetv1.ClassNameLabel]).To(HavePrefix(tc.wantName))
		g.Expect(len(target.Labels[fleetv1.ClassNameLabel])).To(BeNumerically("<=", 63))
	}
	target, _ := Resolve(fleetv1.TargetingSettings{}, newCluster(), own)
	g.Expect(target.Labels).To(BeEmpty())
}

func TestAClassOfAnotherNamespaceCountsOnlyWhereThePolicyListsThat(t *testing.T) {
	listed := fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{"classes"}}
	for name, tc := range map[string]struct {
		settings            fleetv1.TargetingSettings
		ref, fleetNamespace string
		want                *Class
		reason              string
	}{
		"groups are off":                     {fleetv1.TargetingSettings{}, "classes", own, nil, ""},
		"groups are None":                    {fleetv1.TargetingSettings{Groups: fleetv1.GroupsNone}, "", own, nil, ""},
		"a class of the Cluster's namespace": {fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass}, "", own, &Class{Namespace: own, ClassNamespace: own, Name: "edge"}, ""},
		"the same, named":                    {fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass}, own, own, &Class{Namespace: own, ClassNamespace: own, Name: "edge"}, ""},
		"a listed one":                       {listed, "classes", own, &Class{Namespace: own, ClassNamespace: "classes", Name: "edge"}, ""},
		"one that is not listed":             {listed, "others", own, nil, fleetv1.ClassNamespaceNotListedReason},
		// Its bundles would reach all of the workspace.
		"the Cluster's own, in another workspace": {listed, "", shared, nil, fleetv1.ClassNamespaceNotListedReason},
		"that of the workspace, where not listed": {listed, shared, shared, nil, fleetv1.ClassNamespaceNotListedReason},
		"a listed one, in another workspace":      {listed, "classes", shared, &Class{Namespace: shared, ClassNamespace: "classes", Name: "edge", Shared: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			class, problem := ClassOf(tc.settings, newCluster(ofClass(tc.ref, "edge")), tc.fleetNamespace)
			g.Expect(class).To(Equal(tc.want))
			if tc.reason == "" {
				g.Expect(problem).To(BeNil())
				return
			}
			g.Expect(problem).To(HaveField("Reason", tc.reason))
			_, problems := Resolve(tc.settings, newCluster(ofClass(tc.ref, "edge")), tc.fleetNamespace)
			g.Expect(problems).To(ConsistOf(*problem))
		})
	}
}

func TestAClassIsKnownByItsLabels(t *testing.T) {
	g := NewWithT(t)
	for _, name := range []string{"edge", strings.Repeat("c", 100)} {
		class := Class{Namespace: own, ClassNamespace: "classes", Name: name}
		g.Expect(LabelledClass(class.Labels())).To(Equal(class.ID()))
		g.Expect(ClassKey(newCluster(ofClass("classes", name)))).To(Equal(class.ID()))
	}
	g.Expect(LabelledClass(map[string]string{"env": "prod"})).To(BeEmpty())
	g.Expect(ClassKey(newCluster())).To(BeEmpty())
}

func TestAGroupHasTheLabelsOfItsClassButNoMarksOfOwnership(t *testing.T) {
	g := NewWithT(t)
	class := Class{Namespace: own, ClassNamespace: "classes", Name: "edge"}
	all := merged(ownership, map[string]string{"tier": "edge"})
	g.Expect(class.GroupLabels(all)).To(Equal(map[string]string{
		"tier": "edge", fleetv1.ClassNameLabel: "edge", fleetv1.ClassNamespaceLabel: "classes",
	}))
}

func TestAGroupForClustersOfOtherNamespacesHasNoLabelsOfItsClass(t *testing.T) {
	g := NewWithT(t)
	class, _ := ClassOf(fleetv1.TargetingSettings{
		Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{own},
		Labels: fleetv1.LabelPropagation{Include: []fleetv1.KeyPattern{fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel, "tier"}},
	}, newCluster(ofClass("", "edge")), shared)
	g.Expect(class.GroupLabels(map[string]string{"tier": "core"})).To(Equal(map[string]string{
		fleetv1.ClassNameLabel: "edge", fleetv1.ClassNamespaceLabel: own,
	}), "whatever is listed for the Fleet Cluster")
}

// The labels of a class are what its group selects by, that of another policy among them.
func TestAClassThatIsNotListedGivesNoLabels(t *testing.T) {
	g := NewWithT(t)
	settings := fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, Labels: fleetv1.LabelPropagation{
		Include: []fleetv1.KeyPattern{"env", fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel},
	}}
	cluster := labelled(map[string]string{"env": "prod"})
	ofClass("others", "edge")(cluster)
	for _, namespace := range []string{own, shared} {
		target, problems := Resolve(settings, cluster, namespace)
		g.Expect(target.Labels).To(Equal(map[string]string{"env": "prod"}))
		g.Expect(problems).To(ConsistOf(HaveField("Reason", fleetv1.ClassNamespaceNotListedReason)))
	}
}

// A label that is taken off uninstalls what reached the cluster by it.
func TestAFleetClusterStaysInItsGroupWhereThatOfItsClassCannotBeHad(t *testing.T) {
	listed := fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{"classes"}}
	cluster := newCluster(ofClass("classes", "old"))
	before, _ := Resolve(listed, cluster, own)
	old, renamed := before.Class.Labels(), Class{ClassNamespace: "classes", Name: "new"}.Labels()
	after := func(t *testing.T, live *fleet.Cluster, target Target) map[string]string {
		t.Helper()
		apply(t, live, target.Patch(live))
		NewWithT(t).Expect(target.Patch(live)).To(BeNil(), "it is done")
		labels := maps.Clone(live.Labels)
		delete(labels, fleet.ClusterManagementLabel)
		return labels
	}
	unlisted, _ := Resolve(fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass}, cluster, own)
	unlistedNew, _ := Resolve(listed, newCluster(ofClass("others", "new")), own)
	foreign, _ := Resolve(listed, newCluster(ofClass("classes", "new")), own)
	foreign = foreign.StayOut()
	for name, target := range map[string]Target{
		"the policy lists it no more": unlisted, "a class that is not listed": unlistedNew, "a group of someone else": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := made(before)
			g.Expect(after(t, live, target)).To(Equal(old))
			// Once it can be had, or is wanted no more, the old ones go.
			g.Expect(after(t, live, Target{Labels: renamed})).To(Equal(renamed))
			g.Expect(after(t, live, Target{})).To(BeEmpty())
		})
	}
	t.Run("labels that somebody else put there", func(t *testing.T) {
		g := NewWithT(t)
		live := made(Target{})
		maps.Copy(live.Labels, old)
		g.Expect(after(t, live, foreign)).To(Equal(old))
		g.Expect(after(t, live, Target{})).To(Equal(old), "they are not ours to take off")
	})
}

func TestAClusterWhoseGroupCannotBeHadHasTheLabelsOfItsClassAmongItsOwnOnly(t *testing.T) {
	g := NewWithT(t)
	settings := fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{"classes"}, Labels: fleetv1.LabelPropagation{
		Include: []fleetv1.KeyPattern{fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel},
	}}
	for namespace, want := range map[string]int{own: 2, shared: 0} {
		target, _ := Resolve(settings, newCluster(ofClass("classes", "edge")), namespace)
		target = target.StayOut()
		g.Expect(target.Labels).To(HaveLen(want))
		g.Expect(target.Class).To(BeNil())
		live := made(target)
		g.Expect(target.Patch(live)).To(BeNil())
	}
}
