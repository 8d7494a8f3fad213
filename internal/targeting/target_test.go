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
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

func raw(content string) apiextensionsv1.JSON { return apiextensionsv1.JSON{Raw: []byte(content)} }

// made returns a Fleet Cluster that was made with the target.
func made(target Target) *fleet.Cluster {
	cluster := &fleet.Cluster{}
	cluster.Annotations = map[string]string{fleetv1.RegistrationIDAnnotation: "id"}
	cluster.Labels = map[string]string{fleet.ClusterManagementLabel: "capi-fleet"}
	target.Put(cluster)
	return cluster
}

func TestAFleetClusterThatWasMadeWithATargetNeedsNoPatch(t *testing.T) {
	g := NewWithT(t)
	for _, target := range []Target{
		{},
		{Labels: map[string]string{"env": "prod"}, Annotations: map[string]string{"note": "x"}, Values: map[string]apiextensionsv1.JSON{"mtu": raw("1500")}, Paused: true},
	} {
		g.Expect(target.Patch(made(target))).To(BeNil())
	}
	g.Expect(made(Target{}).Annotations).To(HaveLen(1), "no record of nothing")
}

func TestAPatchHasWhatChangedAndNothingElse(t *testing.T) {
	before := Target{
		Labels:      map[string]string{"env": "prod", "site": "7"},
		Annotations: map[string]string{"note": "x"},
		Values:      map[string]apiextensionsv1.JSON{"mtu": raw("1500"), "region": raw(`"eu"`)},
	}
	for name, tc := range map[string]struct {
		live func(*fleet.Cluster)
		want Target
		// patch leaves the record out.
		patch map[string]any
	}{
		"a label added": {nil,
			Target{Labels: map[string]string{"env": "prod", "site": "7", "new": "y"}, Annotations: before.Annotations, Values: before.Values},
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"new": "y"}}}},
		"a label changed": {nil,
			Target{Labels: map[string]string{"env": "dev", "site": "7"}, Annotations: before.Annotations, Values: before.Values},
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"env": "dev"}}}},
		"a label removed": {nil,
			Target{Labels: map[string]string{"env": "prod"}, Annotations: before.Annotations, Values: before.Values},
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"site": nil}}}},
		"an annotation and values removed": {nil,
			Target{Labels: before.Labels, Values: map[string]apiextensionsv1.JSON{"mtu": raw("1500")}},
			map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{"note": nil}},
				"spec":     map[string]any{"templateValues": map[string]any{"region": nil}},
			}},
		"what others put there": {func(c *fleet.Cluster) {
			c.Labels["theirs"], c.Annotations["theirs"] = "z", "z"
			c.Spec.TemplateValues["theirs"] = raw(`{"a":1}`)
			c.Spec.Paused = true
		}, before, nil},
		"a label that somebody took off": {func(c *fleet.Cluster) { delete(c.Labels, "env") }, before,
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"env": "prod"}}}},
		"a value that somebody changed": {func(c *fleet.Cluster) { c.Spec.TemplateValues["mtu"] = raw("9000") }, before,
			map[string]any{"spec": map[string]any{"templateValues": map[string]any{"mtu": raw("1500").Raw}}}},
		"a number written in another way": {func(c *fleet.Cluster) { c.Spec.TemplateValues["mtu"] = raw("1500.0") }, before, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := made(before)
			if tc.live != nil {
				tc.live(live)
			}
			patch := tc.want.Patch(live)
			if metadata, ok := patch["metadata"].(map[string]any); ok {
				if annotations, ok := metadata["annotations"].(map[string]any); ok {
					delete(annotations, fleetv1.PropagatedAnnotation)
					if len(annotations) == 0 {
						delete(metadata, "annotations")
					}
				}
			}
			if tc.patch == nil {
				g.Expect(patch).To(BeNil())
				return
			}
			g.Expect(patch).To(BeComparableTo(tc.patch, jsonRaw))
		})
	}
}

func TestOnlyOneWhoPausedAFleetClusterUnpausesIt(t *testing.T) {
	g := NewWithT(t)
	paused := Target{Paused: true}
	g.Expect(paused.Patch(made(Target{}))).To(HaveKeyWithValue("spec", map[string]any{"paused": true}))
	g.Expect(Target{}.Patch(made(paused))).To(HaveKeyWithValue("spec", map[string]any{"paused": false}))

	byHand := made(Target{})
	byHand.Spec.Paused = true
	g.Expect(Target{}.Patch(byHand)).To(BeNil())
	g.Expect(paused.Patch(byHand)).To(BeNil(), "it is paused, by somebody else")
}

func TestARecordThatSomebodyWroteTakesNothingOffThatKeepsAFleetClusterOurs(t *testing.T) {
	g := NewWithT(t)
	live := made(Target{})
	live.Annotations[fleetv1.PropagatedAnnotation] = Record{
		Labels:      []string{fleet.ClusterManagementLabel, fleetv1.OrphanLabel},
		Annotations: []string{fleetv1.RegistrationIDAnnotation, fleetv1.PropagatedAnnotation},
	}.String()
	g.Expect(Target{}.Patch(live)).To(Equal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{fleetv1.PropagatedAnnotation: nil}},
	}))
	live.Annotations[fleetv1.PropagatedAnnotation] = "no JSON"
	g.Expect(Target{Labels: map[string]string{"env": "prod"}}.Patch(live)).NotTo(BeNil(), "it is written anew")
}

// Before that somebody else's group may be there, or one that is for others.
func TestAFleetClusterGetsIntoASharedGroupOnlyOnceItIsMade(t *testing.T) {
	g := NewWithT(t)
	target := Target{Labels: merged(map[string]string{"env": "prod"}, Class{ClassNamespace: "classes", Name: "edge"}.Labels())}
	for _, shared := range []bool{true, false} {
		target.Class = &Class{Namespace: "workspace", ClassNamespace: "classes", Name: "edge", Shared: shared}
		live := made(target)
		g.Expect(live.Labels).To(HaveKeyWithValue("env", "prod"))
		class := "classes/edge"
		if shared {
			class = ""
		}
		g.Expect(LabelledClass(live.Labels)).To(Equal(class))
		g.Expect(target.Patch(live) != nil).To(Equal(shared), "it comes next")
	}
	g.Expect(LabelledClass(target.Labels)).To(Equal("classes/edge"), "the target is as it was")
}

func TestOfLabelsThatAreTooLargeOnlyThoseOfTheClusterStay(t *testing.T) {
	g := NewWithT(t)
	before := made(Target{Labels: map[string]string{"env": "prod", fleet.ShardRefLabel: "red", fleet.ClusterDisplayNameLabel: "edge", fleetv1.ClassNameLabel: "old"}})
	patch := Target{Labels: map[string]string{"tier": "edge"}, Full: true}.Patch(before)
	g.Expect(patch["metadata"]).To(HaveKeyWithValue("labels", map[string]any{
		"tier": "edge", fleet.ShardRefLabel: nil, fleet.ClusterDisplayNameLabel: nil, fleetv1.ClassNameLabel: nil,
	}))
}

func TestValuesAreComparedByWhatTheySay(t *testing.T) {
	for _, tc := range []struct {
		there, value string
		same         bool
	}{
		{"9007199254740993", "9007199254740992", false}, // One float64.
		{"9007199254740993.0", "9007199254740993", true},
		{"1e3", "1000", true},
		{"1e999999999", "1000", false},
		{`"1500"`, "1500", false},
		{"1500", `"1500"`, false},
		{`"\u0065u"`, `"eu"`, true},
		{`{"a":1}`, "1", false},
		{"null", `"null"`, false},
		{"no JSON", "1", false},
	} {
		NewWithT(t).Expect(sameJSON([]byte(tc.there), []byte(tc.value))).To(Equal(tc.same), "%s and %s", tc.there, tc.value)
	}
}
