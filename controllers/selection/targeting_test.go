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

package selection

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

func policyWith(name string, settings fleetv1.FleetClusterSettings) *fleetv1.FleetRegistrationPolicy {
	return &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: fleetv1.FleetRegistrationPolicySpec{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"policy": name}},
			FleetCluster:    settings,
		},
	}
}

func TestAPolicySaysWhereAFleetClusterIsAndWhatItIsCalled(t *testing.T) {
	for name, tc := range map[string]struct {
		settings fleetv1.FleetClusterSettings
		want     fleetv1.FleetClusterReference
	}{
		"nothing": {fleetv1.FleetClusterSettings{}, fleetv1.FleetClusterReference{Namespace: "team-a", Name: "edge-1"}},
		"a format": {fleetv1.FleetClusterSettings{NameFormat: fleetv1.FormatNamespaceName},
			fleetv1.FleetClusterReference{Namespace: "team-a", Name: fleet.NamespacedClusterName("team-a", "edge-1")}},
		"a workspace": {fleetv1.FleetClusterSettings{Workspace: "fleet-default", NameFormat: fleetv1.FormatNamespaceName},
			fleetv1.FleetClusterReference{Namespace: "fleet-default", Name: fleet.NamespacedClusterName("team-a", "edge-1")}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tc.settings.TargetingSettings = fleetv1.TargetingSettings{Labels: fleetv1.LabelPropagation{Include: []fleetv1.KeyPattern{"env"}}}
			e := newEnv(t, cluster(map[string]string{"policy": "a"}), namespace(nil), policyWith("a", tc.settings))
			e.reconcile(t)
			reg := e.registrationNow(t)
			g.Expect(reg.Spec.FleetCluster).To(Equal(tc.want))
			g.Expect(reg.Spec.Targeting).To(Equal(tc.settings.TargetingSettings))
			g.Expect(reg.Spec.PolicyFleetCluster).To(BeZero())
		})
	}
}

func TestAFleetClusterStaysWhereItIsWhenItsPolicyChanges(t *testing.T) {
	g := NewWithT(t)
	policy := policyWith("a", fleetv1.FleetClusterSettings{})
	e := newEnv(t, cluster(map[string]string{"policy": "a"}), namespace(nil), policy)
	e.reconcile(t)
	before := e.registrationNow(t)
	e.change(t, policy, func() {
		policy.Spec.FleetCluster = fleetv1.FleetClusterSettings{Workspace: "fleet-default", NameFormat: fleetv1.FormatNamespaceName}
	})
	e.reconcile(t)
	reg := e.registrationNow(t)
	g.Expect(reg.Spec.FleetCluster).To(Equal(before.Spec.FleetCluster))
	g.Expect(reg.Spec.PolicyFleetCluster).To(Equal(fleetv1.FleetClusterReference{
		Namespace: "fleet-default", Name: fleet.NamespacedClusterName("team-a", "edge-1"),
	}))
	e.change(t, policy, func() { policy.Spec.FleetCluster = fleetv1.FleetClusterSettings{} })
	e.reconcile(t)
	g.Expect(e.registrationNow(t).Spec.PolicyFleetCluster).To(BeZero(), "the policy is as before")
}

func TestPoliciesThatSwapAClusterBringTheirSettingsAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	static := func(value fleetv1.LabelValue) fleetv1.FleetClusterSettings {
		return fleetv1.FleetClusterSettings{TargetingSettings: fleetv1.TargetingSettings{
			Labels: fleetv1.LabelPropagation{Static: map[string]fleetv1.LabelValue{"tier": value}},
		}}
	}
	a, b := policyWith("a", static("edge")), policyWith("b", static("core"))
	e := newEnv(t, cluster(map[string]string{"policy": "a"}), namespace(nil), a, b)
	e.reconcile(t)
	before := e.registrationNow(t)
	e.change(t, a, func() { a.Spec.ClusterSelector.MatchLabels["policy"] = "b" })
	e.change(t, b, func() { b.Spec.ClusterSelector.MatchLabels["policy"] = "a" })
	e.writes = nil

	e.reconcile(t)

	after := e.registrationNow(t)
	g.Expect(e.writes).To(Equal([]string{"patch *v1alpha1.FleetRegistration"}))
	g.Expect(after.Spec.SelectedBy.Policy).To(Equal("b"))
	g.Expect(after.Spec.Targeting.Labels.Static).To(HaveKeyWithValue("tier", fleetv1.LabelValue("core")))
	after.Spec.SelectedBy, after.Spec.Targeting = before.Spec.SelectedBy, before.Spec.Targeting
	g.Expect(after.Spec).To(Equal(before.Spec))
	g.Expect(after.UID).To(Equal(before.UID))
}

// Selectors of Namespaces can be swapped as well; a label that a Namespace lost is no swap.
func TestPoliciesThatSwapNamespacesSwapTheirClusters(t *testing.T) {
	in := func(policy *fleetv1.FleetRegistrationPolicy, team string) {
		policy.Spec.ClusterSelector = &metav1.LabelSelector{}
		policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
	}
	static := func(value fleetv1.LabelValue) fleetv1.FleetClusterSettings {
		return fleetv1.FleetClusterSettings{TargetingSettings: fleetv1.TargetingSettings{
			Labels: fleetv1.LabelPropagation{Static: map[string]fleetv1.LabelValue{"tier": value}},
		}}
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, e *env, namespace client.Object, a, b *fleetv1.FleetRegistrationPolicy)
		by     string
	}{
		"the policies changed": {func(t *testing.T, e *env, _ client.Object, a, b *fleetv1.FleetRegistrationPolicy) {
			e.change(t, a, func() { in(a, "b") })
			e.reconcile(t)
			e.change(t, b, func() { in(b, "a") })
		}, "b"},
		"the Namespace changed": {func(t *testing.T, e *env, namespace client.Object, _, _ *fleetv1.FleetRegistrationPolicy) {
			e.change(t, namespace, func() { namespace.SetLabels(map[string]string{"team": "b"}) })
		}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a, b, namespace := policyWith("a", static("edge")), policyWith("b", static("core")), namespace(map[string]string{"team": "a"})
			in(a, "a")
			in(b, "b")
			e := newEnv(t, cluster(nil), namespace, a, b)
			e.reconcile(t)
			before := e.registrationNow(t)
			g.Expect(before.Spec.SelectedBy.Policy).To(Equal("a"))

			tc.change(t, e, namespace, a, b)
			e.reconcile(t)

			after := e.registrationNow(t)
			g.Expect(after.UID).To(Equal(before.UID))
			g.Expect(after.Spec.SelectedBy.Policy).To(Equal(tc.by))
			tier := fleetv1.LabelValue("edge")
			if tc.by == "b" {
				tier = "core"
			}
			g.Expect(after.Spec.Targeting.Labels.Static).To(HaveKeyWithValue("tier", tier))
		})
	}
}

func TestAPolicyThatIsGoneLeavesItsSettings(t *testing.T) {
	g := NewWithT(t)
	policy := policyWith("a", fleetv1.FleetClusterSettings{TargetingSettings: fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass}})
	e := newEnv(t, cluster(map[string]string{"policy": "a"}), namespace(nil), policy)
	e.reconcile(t)
	g.Expect(e.api.Delete(t.Context(), policy)).To(Succeed())
	e.reconcile(t)
	g.Expect(e.registrationNow(t).Spec.Targeting.Groups).To(Equal(fleetv1.GroupsClusterClass), "or Fleet would uninstall what came through a group")
}
