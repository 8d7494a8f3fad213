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

// Package decide holds the decisions of the controllers as pure functions: what
// was gathered goes in, what to do and why comes out. It has no client and no
// clock.
package decide

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// SelectionInput is what a selection is made from.
type SelectionInput struct {
	// ClusterLabels and NamespaceLabels are those of the Cluster and its Namespace.
	ClusterLabels, NamespaceLabels map[string]string
	// Policies are all there are, in any order. They are read only.
	Policies []fleetv1.FleetRegistrationPolicy
	// BuiltInPolicy says whether the built-in policy is on.
	BuiltInPolicy bool
	// Current is what selected the Cluster so far; nil where it is not registered.
	Current *fleetv1.SelectedBy
	// Targeting is what the registration has now; it counts only where Current is set.
	Targeting fleetv1.TargetingSettings
}

// Selection says whether a Cluster is selected, and by what.
type Selection struct {
	// By is what selects the Cluster; nil means that nothing does.
	By *fleetv1.SelectedBy
	// Policy is the policy of By, or where nothing selects the Cluster any more the one
	// that did, out of those of the input. Nil means the built-in one, or one that is gone.
	Policy *fleetv1.FleetRegistrationPolicy
	// Reason is one of the Selected condition, Message says more where nothing
	// selects the Cluster.
	Reason, Message string
	// OptsOut says that a registered Cluster itself asks to be taken out of Fleet. All
	// else that makes it lose its selection changes nothing.
	OptsOut bool
}

// Select decides whether a Cluster is selected. The built-in policy makes new
// registrations and keeps its own; it never takes one over that a named policy
// made.
//
// A registration whose policy was lost goes over to another one only where that one
// targets alike. Labels would go and come with it, Fleet would uninstall what selected
// by them, and nobody asked for that.
func Select(in SelectionInput) Selection {
	selection := selectBy(in)
	if next := selection.Policy; next != nil && lost(in) && !equality.Semantic.DeepEqual(next.Spec.FleetCluster.TargetingSettings, in.Targeting) {
		selection = Selection{Reason: fleetv1.TargetingDiffersReason, Message: fmt.Sprintf(
			"What selected the Cluster was lost. FleetRegistrationPolicy %s selects it too, but targets it otherwise, and Fleet could uninstall workloads", next.Name)}
	}
	if selection.By == nil && in.Current != nil {
		_, selection.OptsOut = Departure(in.ClusterLabels, *in.Current, fleetv1.DeletionSpec{})
		selection.Policy = named(in.Policies, in.Current.Policy)
	}
	return selection
}

func named(policies []fleetv1.FleetRegistrationPolicy, name string) *fleetv1.FleetRegistrationPolicy {
	for i := range policies {
		if policies[i].Name == name {
			return &policies[i]
		}
	}
	return nil
}

// Departure tells whether a Cluster that nothing selects any more opts out of Fleet, and
// what becomes of the workload cluster. Only its own label counts: set to "false", or
// removed where it was what selected the Cluster. Removal can be a slip, so it never
// uninstalls anything. The result has no empty fields.
func Departure(clusterLabels map[string]string, selectedBy fleetv1.SelectedBy, asked fleetv1.DeletionSpec) (fleetv1.DeletionSpec, bool) {
	how := fleetv1.DeletionSpec{
		Workloads: cmp.Or(asked.Workloads, fleetv1.WorkloadsOrphan),
		Agent:     cmp.Or(asked.Agent, fleetv1.AgentRemove),
	}
	value, present := clusterLabels[fleetv1.RegisterLabel]
	if !present {
		how.Workloads = fleetv1.WorkloadsOrphan
		return how, selectedBy.Label == fleetv1.LabelOnCluster
	}
	return how, value == "false"
}

func selectBy(in SelectionInput) Selection {
	label := effectiveLabel(in)
	switch {
	case label.present && label.value == "false":
		return Selection{Reason: fleetv1.OptedOutReason,
			Message: fmt.Sprintf("The %s has the label %s=false", label.holder, fleetv1.RegisterLabel)}
	case label.present && label.value != "true":
		return Selection{Reason: fleetv1.LabelInvalidReason,
			Message: fmt.Sprintf("The label %s of the %s must be \"true\" or \"false\"", fleetv1.RegisterLabel, label.holder)}
	}

	for _, policy := range byPrecedence(in.Policies, in.Current) {
		matched, err := matches(policy, in, label)
		if err != nil || !matched {
			continue
		}
		return selected(&fleetv1.SelectedBy{
			Policy: policy.Name, Label: usedLabel(policy, label), NamespaceSelector: namespaceSelector(policy),
		}, policy)
	}
	ownedByNamed := in.Current != nil && in.Current.Policy != ""
	if in.BuiltInPolicy && label.value == "true" && !ownedByNamed {
		return selected(&fleetv1.SelectedBy{Label: label.holder}, nil)
	}
	return unselected(in, label)
}

// lost tells whether the policy of a registered Cluster stopped selecting it by what
// befell the policy or the Namespace. A selector that was changed and can be read is
// meant, and so is what was done to the Cluster itself.
func lost(in SelectionInput) bool {
	if in.Current == nil {
		return false
	}
	_, own := in.ClusterLabels[fleetv1.RegisterLabel]
	label := effectiveLabel(in)
	switch {
	case in.Current.Label == fleetv1.LabelOnCluster && !own:
		return false
	case in.Current.Label == fleetv1.LabelOnNamespace && !label.present:
		return true
	case in.Current.Policy == "":
		return false
	}
	policy := named(in.Policies, in.Current.Policy)
	if policy == nil {
		return true
	}
	inNamespace, inErr := selects(policy.Spec.NamespaceSelector, in.NamespaceLabels, true)
	cluster, err := selects(policy.Spec.ClusterSelector, in.ClusterLabels, label.value == "true")
	if inErr != nil || err != nil || !cluster || inNamespace {
		return inErr != nil || err != nil
	}
	// Where the selector that it had selects the Namespace, that is as it was.
	asItWas, err := selects(in.Current.NamespaceSelector, in.NamespaceLabels, false)
	return err != nil || !asItWas
}

// namespaceSelector returns the selector as it is recorded, where an empty one is for all
// and none is not known.
func namespaceSelector(policy *fleetv1.FleetRegistrationPolicy) *metav1.LabelSelector {
	if policy.Spec.NamespaceSelector == nil {
		return &metav1.LabelSelector{}
	}
	return policy.Spec.NamespaceSelector.DeepCopy()
}

func selected(by *fleetv1.SelectedBy, policy *fleetv1.FleetRegistrationPolicy) Selection {
	return Selection{By: by, Policy: policy, Reason: fleetv1.SelectedReason}
}

// unselected says why nothing selects the Cluster, in view of what did.
func unselected(in SelectionInput, label optInLabel) Selection {
	if in.Current == nil {
		return Selection{Reason: fleetv1.PolicyMismatchReason, Message: "No policy selects the Cluster"}
	}
	if in.Current.Label != "" && !label.present {
		return Selection{Reason: fleetv1.LabelRemovedReason,
			Message: fmt.Sprintf("Neither the Cluster nor its Namespace has the label %s any more", fleetv1.RegisterLabel)}
	}
	if in.Current.Policy == "" {
		return Selection{Reason: fleetv1.PolicyMismatchReason, Message: "The built-in policy is off and no other policy selects the Cluster"}
	}
	policy := named(in.Policies, in.Current.Policy)
	if policy == nil {
		return Selection{Reason: fleetv1.PolicyDeletedReason,
			Message: fmt.Sprintf("FleetRegistrationPolicy %s is gone, and no other selects the Cluster", in.Current.Policy)}
	}
	if _, err := matches(policy, in, label); err != nil {
		return Selection{Reason: fleetv1.PolicyInvalidReason,
			Message: fmt.Sprintf("A selector of FleetRegistrationPolicy %s is not valid", policy.Name)}
	}
	return Selection{Reason: fleetv1.PolicyMismatchReason,
		Message: fmt.Sprintf("FleetRegistrationPolicy %s no longer selects the Cluster, and no other does", policy.Name)}
}

// optInLabel is the opt-in label that counts for a Cluster.
type optInLabel struct {
	present bool
	value   string
	holder  fleetv1.LabelHolder
}

func effectiveLabel(in SelectionInput) optInLabel {
	if value, ok := in.ClusterLabels[fleetv1.RegisterLabel]; ok {
		return optInLabel{true, value, fleetv1.LabelOnCluster}
	}
	if value, ok := in.NamespaceLabels[fleetv1.RegisterLabel]; ok {
		return optInLabel{true, value, fleetv1.LabelOnNamespace}
	}
	return optInLabel{}
}

// usedLabel returns who carries the label, if the policy goes by it.
func usedLabel(policy *fleetv1.FleetRegistrationPolicy, label optInLabel) fleetv1.LabelHolder {
	if policy.Spec.ClusterSelector != nil {
		return ""
	}
	return label.holder
}

func matches(policy *fleetv1.FleetRegistrationPolicy, in SelectionInput, label optInLabel) (bool, error) {
	inNamespace, err := selects(policy.Spec.NamespaceSelector, in.NamespaceLabels, true)
	if err != nil {
		return false, fmt.Errorf("reading spec.namespaceSelector: %w", err)
	}
	cluster, err := selects(policy.Spec.ClusterSelector, in.ClusterLabels, label.value == "true")
	if err != nil {
		return false, fmt.Errorf("reading spec.clusterSelector: %w", err)
	}
	return inNamespace && cluster, nil
}

func selects(selector *metav1.LabelSelector, set map[string]string, omitted bool) (bool, error) {
	if selector == nil {
		return omitted, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return s.Matches(labels.Set(set)), nil
}

// ValidateSelectors returns an error where a selector of the policy cannot be
// read. Such a policy selects nothing.
func ValidateSelectors(policy *fleetv1.FleetRegistrationPolicy) error {
	_, err := matches(policy, SelectionInput{}, optInLabel{})
	return err
}

// byPrecedence returns the policies with the one that wins first. Of equal priority that
// is the one that has the Cluster: age decides about new ones, or a policy that is deleted
// and applied again would lose its Clusters to another.
func byPrecedence(policies []fleetv1.FleetRegistrationPolicy, current *fleetv1.SelectedBy) []*fleetv1.FleetRegistrationPolicy {
	has := func(policy *fleetv1.FleetRegistrationPolicy) int {
		if current != nil && current.Policy == policy.Name {
			return 0
		}
		return 1
	}
	sorted := make([]*fleetv1.FleetRegistrationPolicy, 0, len(policies))
	for i := range policies {
		sorted = append(sorted, &policies[i])
	}
	slices.SortFunc(sorted, func(a, b *fleetv1.FleetRegistrationPolicy) int {
		return cmp.Or(
			cmp.Compare(b.Spec.Priority, a.Spec.Priority),
			cmp.Compare(has(a), has(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return sorted
}
