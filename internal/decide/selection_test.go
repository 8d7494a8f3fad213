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

package decide

import (
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// epoch is when the policies of these tests were made, unless they say otherwise.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func policy(name string, change ...func(*fleetv1.FleetRegistrationPolicy)) fleetv1.FleetRegistrationPolicy {
	p := fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(epoch)}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func priority(n int32) func(*fleetv1.FleetRegistrationPolicy) {
	return func(p *fleetv1.FleetRegistrationPolicy) { p.Spec.Priority = n }
}

func made(t time.Time) func(*fleetv1.FleetRegistrationPolicy) {
	return func(p *fleetv1.FleetRegistrationPolicy) { p.CreationTimestamp = metav1.NewTime(t) }
}

func clusters(set map[string]string) func(*fleetv1.FleetRegistrationPolicy) {
	return func(p *fleetv1.FleetRegistrationPolicy) {
		p.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: set}
	}
}

func namespaces(set map[string]string) func(*fleetv1.FleetRegistrationPolicy) {
	return func(p *fleetv1.FleetRegistrationPolicy) {
		p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: set}
	}
}

// unreadable gives a policy a selector that no one can read.
func unreadable(p *fleetv1.FleetRegistrationPolicy) {
	p.Spec.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "tier", Operator: "Near", Values: []string{"edge"}},
	}}
}

func label(value string) map[string]string { return map[string]string{fleetv1.RegisterLabel: value} }

func TestSelect(t *testing.T) {
	edge := map[string]string{"tier": "edge"}
	everything := map[string]string{}
	builtIn := func(holder fleetv1.LabelHolder) *fleetv1.SelectedBy { return &fleetv1.SelectedBy{Label: holder} }
	named := func(name string, holder fleetv1.LabelHolder) *fleetv1.SelectedBy {
		return &fleetv1.SelectedBy{Policy: name, Label: holder, NamespaceSelector: &metav1.LabelSelector{}}
	}
	within := func(by *fleetv1.SelectedBy, set map[string]string) *fleetv1.SelectedBy {
		by.NamespaceSelector = &metav1.LabelSelector{MatchLabels: set}
		return by
	}
	core := map[string]string{"tier": "core"}
	a := map[string]string{"team": "a"}
	type policies = []fleetv1.FleetRegistrationPolicy

	targeted := fleetv1.TargetingSettings{Labels: fleetv1.LabelPropagation{Static: map[string]fleetv1.LabelValue{"tier": "edge"}}}
	alike := func(p *fleetv1.FleetRegistrationPolicy) { p.Spec.FleetCluster.TargetingSettings = targeted }

	for _, tt := range []struct {
		name       string
		in         SelectionInput
		builtInOff bool
		by         *fleetv1.SelectedBy
		reason     string
	}{
		// The label.
		{name: "no label, no policy", reason: fleetv1.PolicyMismatchReason},
		{name: "label on the Cluster", in: SelectionInput{ClusterLabels: label("true")}, by: builtIn(fleetv1.LabelOnCluster)},
		{name: "label on the Namespace", in: SelectionInput{NamespaceLabels: label("true")}, by: builtIn(fleetv1.LabelOnNamespace)},
		{name: "label on both", in: SelectionInput{ClusterLabels: label("true"), NamespaceLabels: label("true")}, by: builtIn(fleetv1.LabelOnCluster)},
		{name: "the Cluster opts out of its Namespace", in: SelectionInput{ClusterLabels: label("false"), NamespaceLabels: label("true")}, reason: fleetv1.OptedOutReason},
		{name: "the Cluster opts into its Namespace", in: SelectionInput{ClusterLabels: label("true"), NamespaceLabels: label("false")}, by: builtIn(fleetv1.LabelOnCluster)},
		{name: "the Cluster's label counts although the Namespace's is wrong", in: SelectionInput{ClusterLabels: label("true"), NamespaceLabels: label("yes")}, by: builtIn(fleetv1.LabelOnCluster)},
		{name: "the Namespace opts out", in: SelectionInput{NamespaceLabels: label("false")}, reason: fleetv1.OptedOutReason},
		{name: "another value", in: SelectionInput{ClusterLabels: label("True")}, reason: fleetv1.LabelInvalidReason},
		{name: "an empty value", in: SelectionInput{ClusterLabels: label(""), NamespaceLabels: label("true")}, reason: fleetv1.LabelInvalidReason},
		{name: "another value on the Namespace", in: SelectionInput{NamespaceLabels: label("1")}, reason: fleetv1.LabelInvalidReason},
		{name: "opted out, and a policy's selector matches", in: SelectionInput{ClusterLabels: label("false"), Policies: policies{policy("all", clusters(everything))}}, reason: fleetv1.OptedOutReason},
		{name: "opted out by the Namespace, and a policy's selector matches", in: SelectionInput{NamespaceLabels: label("false"), Policies: policies{policy("all", clusters(everything))}}, reason: fleetv1.OptedOutReason},
		{name: "another value, and a policy's selector matches", in: SelectionInput{ClusterLabels: label("on"), Policies: policies{policy("all", clusters(everything))}}, reason: fleetv1.LabelInvalidReason},

		// The built-in policy.
		{name: "built-in policy off", builtInOff: true, in: SelectionInput{ClusterLabels: label("true")}, reason: fleetv1.PolicyMismatchReason},
		{name: "a named policy goes before the built-in one", in: SelectionInput{ClusterLabels: label("true"), Policies: policies{policy("low", priority(-1000))}}, by: named("low", fleetv1.LabelOnCluster)},
		{name: "the built-in policy keeps its own", in: SelectionInput{ClusterLabels: label("true"), Current: builtIn(fleetv1.LabelOnCluster)}, by: builtIn(fleetv1.LabelOnCluster)},
		{name: "the built-in policy takes over nothing", in: SelectionInput{ClusterLabels: label("true"), Current: named("gone", fleetv1.LabelOnCluster)}, reason: fleetv1.PolicyDeletedReason},
		{name: "a named policy takes over from the built-in one", in: SelectionInput{ClusterLabels: label("true"), Current: builtIn(fleetv1.LabelOnCluster), Policies: policies{policy("new")}}, by: named("new", fleetv1.LabelOnCluster)},
		{name: "a named policy takes over from another that is gone", in: SelectionInput{ClusterLabels: label("true"), Current: named("gone", fleetv1.LabelOnCluster), Policies: policies{policy("new")}}, by: named("new", fleetv1.LabelOnCluster)},

		// Selectors.
		{name: "an empty policy selects what is labelled", builtInOff: true, in: SelectionInput{NamespaceLabels: label("true"), Policies: policies{policy("p")}}, by: named("p", fleetv1.LabelOnNamespace)},
		{name: "an empty policy does not select what is not", in: SelectionInput{Policies: policies{policy("p")}}, reason: fleetv1.PolicyMismatchReason},
		{name: "a cluster selector needs no label", in: SelectionInput{ClusterLabels: edge, Policies: policies{policy("p", clusters(edge))}}, by: named("p", "")},
		{name: "a cluster selector that matches a labelled Cluster does not go by the label", in: SelectionInput{ClusterLabels: map[string]string{"tier": "edge", fleetv1.RegisterLabel: "true"}, Policies: policies{policy("p", clusters(edge))}}, by: named("p", "")},
		{name: "an empty cluster selector selects all", in: SelectionInput{Policies: policies{policy("p", clusters(everything))}}, by: named("p", "")},
		{name: "a cluster selector looks at the Cluster only", in: SelectionInput{NamespaceLabels: edge, Policies: policies{policy("p", clusters(edge))}}, reason: fleetv1.PolicyMismatchReason},
		{name: "a namespace selector needs the label too", in: SelectionInput{NamespaceLabels: edge, Policies: policies{policy("p", namespaces(edge))}}, reason: fleetv1.PolicyMismatchReason},
		{name: "a namespace selector with the label", builtInOff: true, in: SelectionInput{ClusterLabels: label("true"), NamespaceLabels: edge, Policies: policies{policy("p", namespaces(edge))}}, by: within(named("p", fleetv1.LabelOnCluster), edge)},
		{name: "a namespace selector that does not match", builtInOff: true, in: SelectionInput{ClusterLabels: label("true"), Policies: policies{policy("p", namespaces(edge))}}, reason: fleetv1.PolicyMismatchReason},
		{name: "both selectors match", in: SelectionInput{ClusterLabels: edge, NamespaceLabels: a, Policies: policies{policy("p", clusters(edge), namespaces(a))}}, by: within(named("p", ""), a)},
		{name: "only the cluster selector matches", in: SelectionInput{ClusterLabels: edge, NamespaceLabels: map[string]string{"team": "b"}, Policies: policies{policy("p", clusters(edge), namespaces(map[string]string{"team": "a"}))}}, reason: fleetv1.PolicyMismatchReason},
		{name: "only the namespace selector matches", in: SelectionInput{NamespaceLabels: map[string]string{"team": "a"}, Policies: policies{policy("p", clusters(edge), namespaces(map[string]string{"team": "a"}))}}, reason: fleetv1.PolicyMismatchReason},

		// Precedence.
		{name: "the highest priority wins", in: SelectionInput{ClusterLabels: label("true"), Policies: policies{policy("a"), policy("b", priority(2), made(epoch.Add(time.Hour))), policy("c", priority(1))}}, by: named("b", fleetv1.LabelOnCluster)},
		{name: "then the older", in: SelectionInput{ClusterLabels: label("true"), Policies: policies{policy("a"), policy("b", made(epoch.Add(-time.Hour)))}}, by: named("b", fleetv1.LabelOnCluster)},
		{name: "then the name", in: SelectionInput{ClusterLabels: label("true"), Policies: policies{policy("b"), policy("a"), policy("c")}}, by: named("a", fleetv1.LabelOnCluster)},
		{name: "of equal priority the one that has the Cluster, also when it was made anew", in: SelectionInput{ClusterLabels: label("true"), Current: named("p", fleetv1.LabelOnCluster), Policies: policies{policy("a"), policy("p", made(epoch.Add(time.Hour)))}}, by: named("p", fleetv1.LabelOnCluster)},
		{name: "of more priority also over the one that has the Cluster", in: SelectionInput{ClusterLabels: label("true"), Current: named("p", fleetv1.LabelOnCluster), Policies: policies{policy("a", priority(1)), policy("p")}}, by: named("a", fleetv1.LabelOnCluster)},
		{name: "one that does not match is passed over", in: SelectionInput{ClusterLabels: label("true"), Policies: policies{policy("a", priority(9), clusters(edge)), policy("b")}}, by: named("b", fleetv1.LabelOnCluster)},
		{name: "one that cannot be read is passed over", in: SelectionInput{ClusterLabels: label("true"), Policies: policies{policy("a", priority(9), unreadable), policy("b")}}, by: named("b", fleetv1.LabelOnCluster)},
		{name: "one that cannot be read leaves new Clusters to the built-in one", in: SelectionInput{ClusterLabels: label("true"), Policies: policies{policy("a", unreadable)}}, by: builtIn(fleetv1.LabelOnCluster)},

		// Lost selection.
		{name: "the label of the Cluster is gone", in: SelectionInput{Current: builtIn(fleetv1.LabelOnCluster)}, reason: fleetv1.LabelRemovedReason},
		{name: "the label of the Namespace is gone", in: SelectionInput{Current: named("p", fleetv1.LabelOnNamespace), Policies: policies{policy("p")}}, reason: fleetv1.LabelRemovedReason},
		{name: "the built-in policy was turned off", builtInOff: true, in: SelectionInput{ClusterLabels: label("true"), Current: builtIn(fleetv1.LabelOnCluster)}, reason: fleetv1.PolicyMismatchReason},
		{name: "the policy is gone", in: SelectionInput{Current: named("p", ""), Policies: policies{policy("q", clusters(edge))}}, reason: fleetv1.PolicyDeletedReason},
		{name: "the policy no longer matches", in: SelectionInput{Current: named("p", ""), Policies: policies{policy("p", clusters(edge))}}, reason: fleetv1.PolicyMismatchReason},
		{name: "the policy cannot be read any more", in: SelectionInput{ClusterLabels: label("true"), Current: named("p", fleetv1.LabelOnCluster), Policies: policies{policy("p", unreadable)}}, reason: fleetv1.PolicyInvalidReason},
		{name: "registered, then opted out", in: SelectionInput{ClusterLabels: label("false"), Current: builtIn(fleetv1.LabelOnCluster)}, reason: fleetv1.OptedOutReason},
		{name: "registered, then mistyped", in: SelectionInput{ClusterLabels: label("ture"), Current: builtIn(fleetv1.LabelOnCluster)}, reason: fleetv1.LabelInvalidReason},
		{name: "the Namespace's label takes the place of the Cluster's", in: SelectionInput{NamespaceLabels: label("true"), Current: builtIn(fleetv1.LabelOnCluster)}, by: builtIn(fleetv1.LabelOnNamespace)},

		// Lost selection, and another policy that targets otherwise.
		{name: "the policy is gone, another targets otherwise", in: SelectionInput{Current: named("p", ""), Targeting: targeted, Policies: policies{policy("q", clusters(everything))}}, reason: fleetv1.TargetingDiffersReason},
		{name: "the policy is gone, another targets alike", in: SelectionInput{Current: named("p", ""), Targeting: targeted, Policies: policies{policy("q", clusters(everything), alike)}}, by: named("q", "")},
		{name: "the policy cannot be read any more, another targets otherwise", in: SelectionInput{Current: named("p", ""), Targeting: targeted, Policies: policies{policy("p", alike, unreadable), policy("q", clusters(everything))}}, reason: fleetv1.TargetingDiffersReason},
		{name: "the label of the Namespace is gone, another policy targets otherwise", in: SelectionInput{Current: named("p", fleetv1.LabelOnNamespace), Targeting: targeted, Policies: policies{policy("p", alike), policy("q", clusters(everything))}}, reason: fleetv1.TargetingDiffersReason},
		{name: "the label of the Namespace is gone, which the built-in policy went by", in: SelectionInput{Current: builtIn(fleetv1.LabelOnNamespace), Policies: policies{policy("q", clusters(everything), alike)}}, reason: fleetv1.TargetingDiffersReason},
		{name: "the Namespace lost what the policy selects by, another targets otherwise", in: SelectionInput{Current: within(named("p", ""), edge), Targeting: targeted, Policies: policies{policy("p", alike, clusters(everything), namespaces(edge)), policy("q", clusters(everything))}}, reason: fleetv1.TargetingDiffersReason},
		{name: "the Namespace lost what the policy selects by, and then the policy was changed", in: SelectionInput{Current: within(named("p", ""), edge), Targeting: targeted, Policies: policies{policy("p", alike, clusters(everything), namespaces(core)), policy("q", clusters(everything))}}, reason: fleetv1.TargetingDiffersReason},
		{name: "it is not known how the policy selected Namespaces", in: SelectionInput{NamespaceLabels: edge, Current: &fleetv1.SelectedBy{Policy: "p"}, Targeting: targeted, Policies: policies{policy("p", alike, clusters(everything), namespaces(core)), policy("q", clusters(everything))}}, reason: fleetv1.TargetingDiffersReason},
		{name: "the policy selects other Namespaces now, another targets otherwise", in: SelectionInput{NamespaceLabels: edge, Current: within(named("p", ""), edge), Targeting: targeted, Policies: policies{policy("p", alike, clusters(everything), namespaces(core)), policy("q", clusters(everything), namespaces(edge))}}, by: within(named("q", ""), edge)},
		{name: "the policy selected all Namespaces, another targets otherwise", in: SelectionInput{NamespaceLabels: edge, Current: named("p", ""), Targeting: targeted, Policies: policies{policy("p", alike, clusters(everything), namespaces(core)), policy("q", clusters(everything))}}, by: named("q", "")},
		{name: "the Cluster itself went to another policy", in: SelectionInput{ClusterLabels: edge, Current: named("p", ""), Targeting: targeted, Policies: policies{policy("p", alike, clusters(map[string]string{"tier": "core"})), policy("q", clusters(edge))}}, by: named("q", "")},
		{name: "the Cluster took its own label off, and another policy needs none", in: SelectionInput{Current: named("p", fleetv1.LabelOnCluster), Targeting: targeted, Policies: policies{policy("q", clusters(everything))}}, by: named("q", "")},
		{name: "another policy of more weight", in: SelectionInput{ClusterLabels: label("true"), Current: named("p", fleetv1.LabelOnCluster), Targeting: targeted, Policies: policies{policy("p", alike), policy("q", priority(1))}}, by: named("q", fleetv1.LabelOnCluster)},
		{name: "handed over by a person", in: SelectionInput{Current: named("q", ""), Targeting: targeted, Policies: policies{policy("q", clusters(everything))}}, by: named("q", "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			tt.in.BuiltInPolicy = !tt.builtInOff

			got := Select(tt.in)

			g.Expect(got.By).To(Equal(tt.by))
			if tt.by == nil {
				g.Expect(got.Policy == nil || tt.in.Current != nil && got.Policy.Name == tt.in.Current.Policy).To(BeTrue())
				g.Expect(got.Reason).To(Equal(tt.reason))
				g.Expect(got.Message).NotTo(BeEmpty())
				return
			}
			g.Expect(got.Reason).To(Equal(fleetv1.SelectedReason))
			g.Expect(got.Message).To(BeEmpty())
			if tt.by.Policy == "" {
				g.Expect(got.Policy).To(BeNil())
			} else {
				g.Expect(got.Policy.Name).To(Equal(tt.by.Policy))
			}
		})
	}
}

func TestSelectNeverRepeatsTheLabelsValue(t *testing.T) {
	got := Select(SelectionInput{ClusterLabels: label("look-at-this"), BuiltInPolicy: true})
	NewWithT(t).Expect(got.Message).NotTo(ContainSubstring("look-at-this"))
}

// TestSelectAtRandom holds the rules that nothing may break against many inputs.
func TestSelectAtRandom(t *testing.T) {
	g := NewWithT(t)
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	someLabels := func() map[string]string {
		set := map[string]string{}
		if random.IntN(2) == 0 {
			set["tier"] = pick("edge", "core")
		}
		if random.IntN(3) > 0 {
			set[fleetv1.RegisterLabel] = pick("true", "false", "True", "")
		}
		return set
	}
	var selectedByName, selectedByBuiltIn, notSelected, optedOut int
	for range 20_000 {
		in := SelectionInput{ClusterLabels: someLabels(), NamespaceLabels: someLabels(), BuiltInPolicy: random.IntN(4) > 0}
		for range random.IntN(4) {
			p := policy(pick("a", "b", "c"), priority(int32(random.IntN(2))))
			switch random.IntN(4) {
			case 0:
				clusters(map[string]string{"tier": "edge"})(&p)
			case 1:
				clusters(nil)(&p)
			case 2:
				unreadable(&p)
			}
			if random.IntN(3) == 0 {
				namespaces(map[string]string{"tier": pick("edge", "core")})(&p)
			}
			in.Policies = append(in.Policies, p)
		}
		if random.IntN(2) == 0 {
			in.Current = &fleetv1.SelectedBy{Policy: pick("", "a", "gone"), Label: fleetv1.LabelHolder(pick("", "Cluster", "Namespace"))}
		}

		got := Select(in)

		value, present := in.ClusterLabels[fleetv1.RegisterLabel]
		if !present {
			value, present = in.NamespaceLabels[fleetv1.RegisterLabel]
		}
		if present && value != "true" {
			g.Expect(got.By).To(BeNil(), "%+v", in)
		}
		if got.OptsOut {
			g.Expect(got.By).To(BeNil(), "%+v", in)
			g.Expect(in.Current).NotTo(BeNil(), "%+v", in)
			own, present := in.ClusterLabels[fleetv1.RegisterLabel]
			g.Expect(own == "false" || !present && in.Current.Label == fleetv1.LabelOnCluster).To(BeTrue(), "%+v", in)
			optedOut++
		}
		switch {
		case got.By == nil:
			notSelected++
			g.Expect(got.Reason).NotTo(Equal(fleetv1.SelectedReason), "%+v", in)
			g.Expect(got.Message).NotTo(BeEmpty(), "%+v", in)
		case got.By.Policy == "":
			selectedByBuiltIn++
			g.Expect(in.BuiltInPolicy).To(BeTrue(), "%+v", in)
			g.Expect(value).To(Equal("true"), "%+v", in)
			g.Expect(in.Current == nil || in.Current.Policy == "").To(BeTrue(), "%+v", in)
		default:
			selectedByName++
			g.Expect(ValidateSelectors(got.Policy)).To(Succeed(), "%+v", in)
		}
	}
	g.Expect(min(selectedByName, selectedByBuiltIn, notSelected, optedOut)).To(BeNumerically(">", 100))
}

func TestSelectLeavesItsPoliciesAsTheyAre(t *testing.T) {
	policies := []fleetv1.FleetRegistrationPolicy{policy("b", namespaces(nil)), policy("a", clusters(map[string]string{"tier": "edge"}))}
	before := (&fleetv1.FleetRegistrationPolicyList{Items: policies}).DeepCopy().Items

	Select(SelectionInput{ClusterLabels: label("true"), Policies: policies})
	Select(SelectionInput{Current: &fleetv1.SelectedBy{Policy: "a"}, Policies: policies})

	NewWithT(t).Expect(policies).To(Equal(before))
}

func TestValidateSelectors(t *testing.T) {
	g := NewWithT(t)
	empty, good, bad := policy("empty"), policy("good", clusters(map[string]string{"tier": "edge"}), namespaces(nil)), policy("bad", unreadable)
	g.Expect(ValidateSelectors(&empty)).To(Succeed())
	g.Expect(ValidateSelectors(&good)).To(Succeed())
	g.Expect(ValidateSelectors(&bad)).To(MatchError(ContainSubstring("spec.clusterSelector")))

	badNamespace := policy("bad")
	badNamespace.Spec.NamespaceSelector = bad.Spec.ClusterSelector
	g.Expect(ValidateSelectors(&badNamespace)).To(MatchError(ContainSubstring("spec.namespaceSelector")))
}

func TestDeparture(t *testing.T) {
	uninstall := fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall, Agent: fleetv1.AgentKeep}
	orphan := fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsOrphan, Agent: fleetv1.AgentRemove}
	for _, tt := range []struct {
		name    string
		labels  map[string]string
		by      *fleetv1.SelectedBy
		asked   fleetv1.DeletionSpec
		departs bool
		how     fleetv1.DeletionSpec
	}{
		{"asked for, with the defaults", label("false"), &fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster}, fleetv1.DeletionSpec{}, true, orphan},
		{"asked for, as the policy says", label("false"), &fleetv1.SelectedBy{Policy: "p"}, uninstall, true, uninstall},
		{"own label removed never uninstalls", nil, &fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster}, uninstall, true, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsOrphan, Agent: fleetv1.AgentKeep}},
		{"another's label removed", nil, &fleetv1.SelectedBy{Label: fleetv1.LabelOnNamespace}, uninstall, false, fleetv1.DeletionSpec{}},
		{"no label counted", nil, &fleetv1.SelectedBy{Policy: "p"}, uninstall, false, fleetv1.DeletionSpec{}},
		{"registered", label("true"), &fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster}, uninstall, false, fleetv1.DeletionSpec{}},
		{"mistyped", label("False"), &fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster}, uninstall, false, fleetv1.DeletionSpec{}},
		{"emptied", label(""), &fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster}, uninstall, false, fleetv1.DeletionSpec{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			how, departs := Departure(tt.labels, *tt.by, tt.asked)
			g.Expect(departs).To(Equal(tt.departs))
			if departs {
				g.Expect(how).To(Equal(tt.how))
			}
		})
	}
}
