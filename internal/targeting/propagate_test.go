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
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

const own, shared = "team-a", "fleet-default"

func newCluster(modify ...func(*clusterv1.Cluster)) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "edge-1"}}
	for _, m := range modify {
		m(cluster)
	}
	return cluster
}

func labelled(labels map[string]string) *clusterv1.Cluster {
	return newCluster(func(c *clusterv1.Cluster) { c.Labels = labels })
}

func ofClass(namespace, name string) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) {
		c.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Name: name, Namespace: namespace}
	}
}

func TestAllLabelsAndNoAnnotationsAreCopiedUnlessThePolicySaysOtherwise(t *testing.T) {
	g := NewWithT(t)
	cluster := labelled(map[string]string{"env": "prod", "example.org/site": "7", "empty": ""})
	cluster.Annotations = map[string]string{"note": "x"}
	target, problems := Resolve(fleetv1.TargetingSettings{}, cluster, own)
	g.Expect(problems).To(BeEmpty())
	g.Expect(target.Labels).To(Equal(cluster.Labels))
	g.Expect(target.Annotations).To(BeEmpty())
	g.Expect(target.Values).To(BeEmpty())
}

func TestPatternsSayWhichKeysAreCopied(t *testing.T) {
	all := map[string]string{"env": "a", "env-old": "b", "example.org/site": "c", "sub.example.org/x": "d"}
	for name, tc := range map[string]struct {
		include, exclude []fleetv1.KeyPattern
		want             []string
	}{
		"none given":            {nil, nil, []string{"env", "env-old", "example.org/site", "sub.example.org/x"}},
		"one key":               {[]fleetv1.KeyPattern{"env"}, nil, []string{"env"}},
		"a prefix":              {[]fleetv1.KeyPattern{"env*"}, nil, []string{"env", "env-old"}},
		"a domain":              {[]fleetv1.KeyPattern{"example.org/*"}, nil, []string{"example.org/site"}},
		"domains below":         {[]fleetv1.KeyPattern{"*example.org/*"}, nil, []string{"example.org/site", "sub.example.org/x"}},
		"the end has to match":  {[]fleetv1.KeyPattern{"*old"}, nil, []string{"env-old"}},
		"parts in order":        {[]fleetv1.KeyPattern{"s*org*x", "x*s"}, nil, []string{"sub.example.org/x"}},
		"exclude wins":          {[]fleetv1.KeyPattern{"*"}, []fleetv1.KeyPattern{"*.org/*"}, []string{"env", "env-old"}},
		"exclude all":           {nil, []fleetv1.KeyPattern{"*"}, nil},
		"a dot is only a dot":   {[]fleetv1.KeyPattern{"example-org/site"}, nil, nil},
		"not a part of the key": {[]fleetv1.KeyPattern{"nv"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			target, _ := Resolve(fleetv1.TargetingSettings{
				Labels: fleetv1.LabelPropagation{Include: tc.include, Exclude: tc.exclude},
			}, labelled(all), own)
			NewWithT(t).Expect(sortedKeys(target.Labels)).To(HaveExactElements(toAny(tc.want)...))
		})
	}
}

func TestOutsideTheNamespaceOnlyAnnotationsThatAreListedAreCopied(t *testing.T) {
	g := NewWithT(t)
	cluster := newCluster(func(c *clusterv1.Cluster) { c.Annotations = map[string]string{"contact": "a", "note": "b"} })
	settings := fleetv1.TargetingSettings{Annotations: fleetv1.AnnotationPropagation{
		Include: []fleetv1.KeyPattern{"contact", "*"}, Static: map[string]fleetv1.AnnotationValue{"tier": "edge"},
	}}
	target, _ := Resolve(settings, cluster, "workspace")
	g.Expect(target.Annotations).To(Equal(map[string]string{"contact": "a", "tier": "edge"}))
	target, _ = Resolve(settings, cluster, own)
	g.Expect(target.Annotations).To(Equal(map[string]string{"contact": "a", "note": "b", "tier": "edge"}))
}

func toAny(in []string) []any {
	out := make([]any, 0, len(in))
	for _, s := range in {
		out = append(out, s)
	}
	return out
}

// ownership is what tools put on an object to know that it is theirs.
var ownership = map[string]string{
	"meta.helm.sh/release-name":                        "x",
	"helm.sh/chart":                                    "x",
	"app.kubernetes.io/managed-by":                     "Helm",
	"app.kubernetes.io/instance":                       "x",
	"argocd.argoproj.io/instance":                      "x",
	"argocd.argoproj.io/tracking-id":                   "x",
	"kustomize.toolkit.fluxcd.io/name":                 "x",
	"helm.toolkit.fluxcd.io/namespace":                 "x",
	"kapp.k14s.io/app":                                 "x",
	"kubectl.kubernetes.io/last-applied-configuration": "{}",
	"applyset.kubernetes.io/part-of":                   "x",
	"objectset.rio.cattle.io/hash":                     "x",
	"objectset.rio.cattle.io/owner-name":               "x",
	"management.cattle.io/cluster-display-name":        "prod",
	"provisioning.cattle.io/administrator":             "x",
	"fleet.cattle.io/cluster-management":               "",
	"fleet.cattle.io/managed":                          "true",
	"fleet.cattle.io/shard-ref":                        "x",
	"cattle.io/creator":                                "norman",
	"cluster.x-k8s.io/cluster-name":                    "x",
	"topology.cluster.x-k8s.io/owned":                  "",
	"fleet.addons.cluster.x-k8s.io/register":           "true",
	"fleet.addons.cluster.x-k8s.io/registration-id":    "stolen",
	"fleet.addons.cluster.x-k8s.io/orphan":             "true",
	fleetv1.ClassNameLabel:                             "prod",
	fleetv1.ClassNamespaceLabel:                        "classes",
}

func TestMarksOfOwnershipAreNeverCopied(t *testing.T) {
	g := NewWithT(t)
	cluster := newCluster(func(c *clusterv1.Cluster) { c.Labels, c.Annotations = ownership, ownership })
	var listed []fleetv1.KeyPattern
	static := map[string]fleetv1.LabelValue{}
	staticAnnotations := map[string]fleetv1.AnnotationValue{}
	for key := range ownership {
		listed = append(listed, fleetv1.KeyPattern(key))
		static[key], staticAnnotations[key] = "x", "x"
	}
	for _, include := range [][]fleetv1.KeyPattern{{"*"}, listed} {
		for _, namespace := range []string{own, shared} {
			target, _ := Resolve(fleetv1.TargetingSettings{
				Labels:      fleetv1.LabelPropagation{Include: include, Static: static},
				Annotations: fleetv1.AnnotationPropagation{Include: include, Static: staticAnnotations},
			}, cluster, namespace)
			g.Expect(target.Labels).To(BeEmpty())
			g.Expect(target.Annotations).To(BeEmpty())
		}
	}
}

func TestKeysThatOnlyLookLikeMarksAreCopied(t *testing.T) {
	g := NewWithT(t)
	labels := map[string]string{
		"x-k8s.io": "a", "notcattle.io/x": "b", "topology.kubernetes.io/region": "c", "app.kubernetes.io/name": "d", "cattle.io": "e",
	}
	target, _ := Resolve(fleetv1.TargetingSettings{}, labelled(labels), own)
	g.Expect(target.Labels).To(Equal(labels))
}

func TestStaticLabelsWinOverThoseOfTheCluster(t *testing.T) {
	g := NewWithT(t)
	cluster := labelled(map[string]string{"env": "prod", "site": "7"})
	cluster.Annotations = map[string]string{"note": "mine", "other": "y"}
	target, _ := Resolve(fleetv1.TargetingSettings{
		Labels: fleetv1.LabelPropagation{Static: map[string]fleetv1.LabelValue{"env": "dev", "tier": "edge"}},
		Annotations: fleetv1.AnnotationPropagation{
			Include: []fleetv1.KeyPattern{"*"},
			Static:  map[string]fleetv1.AnnotationValue{"note": "the policy's"},
		},
	}, cluster, own)
	g.Expect(target.Labels).To(Equal(map[string]string{"env": "dev", "tier": "edge", "site": "7"}))
	g.Expect(target.Annotations).To(Equal(map[string]string{"note": "the policy's", "other": "y"}))
}

func TestInAnotherWorkspaceOnlyLabelsThatAreListedArrive(t *testing.T) {
	cluster := labelled(map[string]string{"env": "prod", "team": "a"})
	ofClass("", "prod")(cluster)
	for name, tc := range map[string]struct {
		include []fleetv1.KeyPattern
		want    map[string]string
	}{
		// As where the policy changed after the registration was made.
		"nothing listed":   {nil, map[string]string{}},
		"a pattern":        {[]fleetv1.KeyPattern{"*", "e*"}, map[string]string{}},
		"one key":          {[]fleetv1.KeyPattern{"env"}, map[string]string{"env": "prod"}},
		"the class's keys": {[]fleetv1.KeyPattern{fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel}, map[string]string{fleetv1.ClassNameLabel: "prod", fleetv1.ClassNamespaceLabel: own}},
	} {
		t.Run(name, func(t *testing.T) {
			target, _ := Resolve(fleetv1.TargetingSettings{Labels: fleetv1.LabelPropagation{Include: tc.include}}, cluster, shared)
			NewWithT(t).Expect(target.Labels).To(Equal(tc.want))
		})
	}
}

func TestADisplayNameInAnotherWorkspaceSaysWhoseItIs(t *testing.T) {
	g := NewWithT(t)
	name := func(format fleetv1.NameFormat, namespace string) string {
		target, _ := Resolve(fleetv1.TargetingSettings{DisplayName: format}, newCluster(), namespace)
		return target.Labels[fleet.ClusterDisplayNameLabel]
	}
	g.Expect(name("", own)).To(BeEmpty())
	g.Expect(name(fleetv1.FormatName, own)).To(Equal("edge-1"))
	g.Expect(name(fleetv1.FormatNamespaceName, own)).To(Equal("team-a.edge-1"))
	g.Expect(name(fleetv1.FormatName, shared)).To(Equal("team-a.edge-1"), "bundles can be for a name")
	g.Expect(name(fleetv1.FormatNamespaceName, shared)).To(Equal("team-a.edge-1"))
}

func TestTheShardIsALabelOfThePolicyAlone(t *testing.T) {
	g := NewWithT(t)
	target, _ := Resolve(fleetv1.TargetingSettings{Shard: "red"}, labelled(map[string]string{fleet.ShardRefLabel: "blue"}), own)
	g.Expect(target.Labels).To(Equal(map[string]string{fleet.ShardRefLabel: "red"}))
}

func TestAnnotationsThatAreTooLargeAreLeftOutAndReported(t *testing.T) {
	g := NewWithT(t)
	cluster := newCluster()
	cluster.Annotations = map[string]string{}
	for i := range 5 {
		cluster.Annotations[fmt.Sprintf("part-%d", i)] = strings.Repeat("x", 30<<10)
	}
	target, problems := Resolve(fleetv1.TargetingSettings{Annotations: fleetv1.AnnotationPropagation{Include: []fleetv1.KeyPattern{"*"}}}, cluster, own)
	g.Expect(sortedKeys(target.Annotations)).To(Equal([]string{"part-0", "part-1", "part-2", "part-3"}))
	g.Expect(problems).To(ConsistOf(HaveField("Reason", fleetv1.AnnotationsTooLargeReason)))
}

// many returns so many labels or annotations.
func many(count int) map[string]string {
	all := map[string]string{}
	for i := range count {
		all[fmt.Sprintf("a-long-domain-of-some-tenant.example.org/label-%d", i)] = "x"
	}
	return all
}

func TestLabelsThatAreTooLargeStayAsTheyAreAndAreReported(t *testing.T) {
	g := NewWithT(t)
	settings := fleetv1.TargetingSettings{Labels: fleetv1.LabelPropagation{Static: map[string]fleetv1.LabelValue{"tier": "edge"}}, Shard: "red"}
	few := labelled(map[string]string{"env": "prod", "site": "7"})
	before, problems := Resolve(settings, few, own)
	g.Expect(problems).To(BeEmpty())
	live := made(before)
	labels := maps.Clone(live.Labels)

	// Also those that the Cluster has no more, or has another value of.
	settings.Shard = "blue"
	flooded, problems := Resolve(settings, labelled(merged(many(1000), map[string]string{"env": "dev"})), own)
	g.Expect(problems).To(ConsistOf(HaveField("Reason", fleetv1.LabelsTooLargeReason)))
	apply(t, live, flooded.Patch(live))
	labels[fleet.ShardRefLabel] = "blue"
	g.Expect(live.Labels).To(Equal(labels), "what the policy sets is in place")
	g.Expect(flooded.Patch(live)).To(BeNil())
	g.Expect(made(flooded).Labels).To(Equal(map[string]string{
		"tier": "edge", fleet.ShardRefLabel: "blue", fleet.ClusterManagementLabel: "capi-fleet",
	}), "one that is made now")

	after, _ := Resolve(settings, labelled(map[string]string{"env": "dev"}), own)
	apply(t, live, after.Patch(live))
	delete(labels, "site")
	labels["env"] = "dev"
	g.Expect(live.Labels).To(Equal(labels))
}

// The record of what was copied is an annotation too.
func TestAllThatIsCopiedFitsIntoTheAnnotationsOfAnObject(t *testing.T) {
	g := NewWithT(t)
	settings := fleetv1.TargetingSettings{Annotations: fleetv1.AnnotationPropagation{Include: []fleetv1.KeyPattern{"*"}}}
	for count := 100; count < 4000; count += 100 {
		cluster := labelled(many(min(count, 600)))
		cluster.Annotations = many(count)
		target, _ := Resolve(settings, cluster, own)
		g.Expect(target.Full).To(BeFalse())
		sum := 0
		for key, value := range made(target).Annotations {
			sum += len(key) + len(value)
		}
		g.Expect(sum).To(BeNumerically("<", 200<<10), "of 256 KiB")
	}
}
