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

package leave

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	optOut      = `{"metadata":{"labels":{"` + fleetv1.RegisterLabel + `":"false"}}}`
	optIn       = `{"metadata":{"labels":{"` + fleetv1.RegisterLabel + `":"true"}}}`
	removeLabel = `{"metadata":{"labels":{"` + fleetv1.RegisterLabel + `":null}}}`
)

// policyFor makes a policy that takes the Clusters of a namespace, as it is.
func policyFor(t *testing.T, namespace string, deletion fleetv1.DeletionSpec) {
	t.Helper()
	create(t, &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: fleetv1.FleetRegistrationPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Deletion:          deletion,
		},
	})
}

func TestAClusterThatOptsOutKeepsWhatIsDeployed(t *testing.T) {
	for name, tt := range map[string]struct {
		change string
		light  *lightapi.Options // nil means a real API server
	}{
		"label-false":   {optOut, nil},
		"label-removed": {removeLabel, &lightapi.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			w, object := joinOn(t, tt.light, name, register)
			registration := registrationOf(t, w)

			patch(t, clusterOf(w), tt.change)
			suite.EventuallyGone(t, lab, w)

			suite.ExpectKept(t, w, bundle, object)
			expectNothingLeft(t, registration, false)
			for _, left := range agent.Leftovers() {
				g.Expect(w.Client.Get(t.Context(), client.ObjectKeyFromObject(left), left)).To(Satisfy(apierrors.IsNotFound), "%T", left)
			}
			cluster := clusterOf(w)
			g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
			g.Expect(meta.FindStatusCondition(cluster.Status.Conditions, fleetv1.FleetRegisteredCondition)).To(BeNil())
			eventuallyTold(t, w, corev1.EventTypeNormal, "LeftFleet")

			// And back again.
			patch(t, clusterOf(w), optIn)
			again := suite.EventuallyReady(t, lab, w)
			g.Expect(again.Spec.RegistrationID).NotTo(Equal(registration.Spec.RegistrationID))
			suite.ExpectKept(t, w, bundle, object)
		})
	}
}

func TestAClusterThatComesBackWaitsForItsBundles(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "comes-back"
	w, object := join(t, namespace, register)
	patch(t, clusterOf(w), optOut)
	suite.EventuallyGone(t, lab, w)
	g.Expect(lab.Client.Delete(t.Context(), suite.Bundle(namespace, bundle))).To(Succeed())

	patch(t, clusterOf(w), optIn)
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForBundlesReason)
	g.Expect(w.Client.Get(t.Context(), suite.AgentKey, &appsv1.Deployment{})).To(Satisfy(apierrors.IsNotFound))

	create(t, suite.Bundle(namespace, bundle))
	suite.EventuallyReady(t, lab, w)
	suite.ExpectKept(t, w, bundle, object)
}

func TestAClusterThatCannotBeReachedLeavesAnOrphanAndItsWorkloads(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w, object := join(t, "unreachable", register)
	registration := registrationOf(t, w)
	// The agent goes on running behind a kubeconfig that leads nowhere.
	kubeconfig := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name + "-kubeconfig"}}
	g.Expect(lab.Client.Delete(t.Context(), kubeconfig)).To(Succeed())

	patch(t, clusterOf(w), optOut)
	suite.EventuallyCondition(t, lab, w, fleetv1.DeletingCondition, metav1.ConditionTrue, fleetv1.StoppingAgentReason)
	g.Eventually(func() error { return lab.Client.Get(t.Context(), w.Key(), &fleetv1.FleetRegistration{}) }).
		WithTimeout(3 * time.Minute).WithPolling(time.Second).Should(Satisfy(apierrors.IsNotFound))

	expectNothingLeft(t, registration, true)
	eventuallyTold(t, w, corev1.EventTypeWarning, "LeftAsOrphan")
	suite.ExpectKept(t, w, bundle, object)
}

func TestUninstallIsForWhoAsksForIt(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "uninstall"
	policyFor(t, namespace, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})
	w, _ := join(t, namespace, register)
	registration := registrationOf(t, w)
	g.Expect(registration.Spec.Deletion.Workloads).To(Equal(fleetv1.WorkloadsUninstall))

	patch(t, clusterOf(w), optOut)
	suite.EventuallyGone(t, lab, w)

	expectNothingLeft(t, registration, false)
	objects := &corev1.ConfigMapList{}
	g.Expect(w.Client.List(t.Context(), objects, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	g.Expect(objects.Items).NotTo(ContainElement(HaveField("Name", "bundle-"+bundle)))
	g.Expect(w.Client.Get(t.Context(), suite.AgentKey, &appsv1.Deployment{})).To(Satisfy(apierrors.IsNotFound))
	eventuallyTold(t, w, corev1.EventTypeNormal, "LeftFleet")
}

func TestAnAgentThatIsKeptIsStoppedAndTakenUpAgain(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "kept"
	policyFor(t, namespace, fleetv1.DeletionSpec{Agent: fleetv1.AgentKeep})
	w, object := join(t, namespace, register)

	patch(t, clusterOf(w), optOut)
	suite.EventuallyGone(t, lab, w)
	deployment := &appsv1.Deployment{}
	g.Expect(w.Client.Get(t.Context(), suite.AgentKey, deployment)).To(Succeed())
	g.Expect(*deployment.Spec.Replicas).To(BeZero())
	g.Expect(w.Client.Get(t.Context(), suite.AgentKey, &corev1.Secret{})).To(Satisfy(apierrors.IsNotFound))
	suite.ExpectKept(t, w, bundle, object)

	patch(t, clusterOf(w), optIn)
	suite.EventuallyReady(t, lab, w)
	suite.ExpectKept(t, w, bundle, object)
}

// What takes a Cluster's selection away and is no wish of the Cluster itself.
func TestLostSelectionUninstallsNothingAndTheAgentGoesOn(t *testing.T) {
	for name, tt := range map[string]struct {
		labels map[string]string
		lose   func(*testing.T, *env.Workload)
		reason string
	}{
		"policy-deleted": {register, func(t *testing.T, w *env.Workload) {
			policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
			NewWithT(t).Expect(lab.Client.Delete(t.Context(), policy)).To(Succeed())
		}, fleetv1.PolicyDeletedReason},
		"namespace-label-lost": {nil, func(t *testing.T, w *env.Workload) {
			patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, removeLabel)
		}, fleetv1.LabelRemovedReason},
		"namespace-false": {nil, func(t *testing.T, w *env.Workload) {
			patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, optOut)
		}, fleetv1.OptedOutReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: register}})
			policyFor(t, name, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})
			w, object := join(t, name, tt.labels)
			before := registrationOf(t, w)

			tt.lose(t, w)
			after := suite.EventuallyCondition(t, lab, w, fleetv1.SelectedCondition, metav1.ConditionFalse, tt.reason)

			g.Expect(after.UID).To(Equal(before.UID))
			seen := lastSeen(t, w)
			g.Eventually(func() time.Time { return lastSeen(t, w) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeTemporally(">", seen))
			suite.ExpectKept(t, w, bundle, object)
		})
	}
}

// Another policy selects the Cluster as well, and would take the label from it that the
// bundle goes by. It gets its way once a person says so, and not before.
func TestAPolicyThatIsLostLeavesToAnotherNothingThatItTargetsOtherwise(t *testing.T) {
	const name, labelled = "policy-replaced", "labelled"
	t.Parallel()
	g := NewWithT(t)
	tier := map[string]string{"tier": "edge"}
	namespaced := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	create(t, suite.Bundle(name, labelled, fleet.BundleTarget{ClusterSelector: &metav1.LabelSelector{MatchLabels: tier}}))
	lost, other := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name + "-lost"}}, &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	lost.Spec = fleetv1.FleetRegistrationPolicySpec{NamespaceSelector: namespaced, Priority: 1}
	lost.Spec.FleetCluster.Labels.Static = map[string]fleetv1.LabelValue{"tier": "edge"}
	other.Spec = fleetv1.FleetRegistrationPolicySpec{NamespaceSelector: namespaced}
	create(t, lost)
	create(t, other)
	w, _ := join(t, name, register)
	object := suite.EventuallyDeployed(t, w, labelled)

	g.Expect(lab.Client.Delete(t.Context(), lost)).To(Succeed())
	kept := suite.EventuallyCondition(t, lab, w, fleetv1.SelectedCondition, metav1.ConditionFalse, fleetv1.TargetingDiffersReason)

	seen := lastSeen(t, w)
	g.Eventually(func() time.Time { return lastSeen(t, w) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeTemporally(">", seen))
	suite.ExpectKept(t, w, labelled, object)

	patch(t, kept, `{"spec":{"selectedBy":{"policy":"`+other.Name+`"}}}`)
	suite.EventuallyCondition(t, lab, w, fleetv1.SelectedCondition, metav1.ConditionTrue, fleetv1.SelectedReason)
	g.Eventually(func(g Gomega) {
		cluster := &fleet.Cluster{}
		g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
		g.Expect(cluster.Labels).NotTo(HaveKey("tier"))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

func lastSeen(t *testing.T, w *env.Workload) time.Time {
	t.Helper()
	cluster := &fleet.Cluster{}
	NewWithT(t).Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
	return cluster.Status.Agent.LastSeen.Time
}

func TestADeletedRegistrationUninstallsNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "object-deleted"
	policyFor(t, namespace, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})
	w, object := join(t, namespace, register)
	before := registrationOf(t, w)
	g.Expect(lab.Client.Delete(t.Context(), before.DeepCopy())).To(Succeed())
	g.Eventually(func(g Gomega) {
		registration := &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
		g.Expect(registration.UID).NotTo(Equal(before.UID))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	after := suite.EventuallyReady(t, lab, w)
	g.Expect(after.Spec.RegistrationID).To(Equal(before.Spec.RegistrationID))
	g.Expect(after.Status.Credential.ExpirationTime).To(Equal(before.Status.Credential.ExpirationTime), "its agent's token was found again")
	suite.ExpectKept(t, w, bundle, object)
}

func TestAClusterThatOptedOutIsDeletedWithoutAHitch(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w, _ := join(t, "opted-out-deleted", register)
	registration := registrationOf(t, w)
	patch(t, clusterOf(w), removeLabel)
	suite.DeleteCluster(t, lab, w)
	suite.EventuallyGone(t, lab, w)
	g.Eventually(func() error { return lab.Client.Get(t.Context(), w.Key(), &clusterv1.Cluster{}) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
	expectNothingLeft(t, registration, false)
}
