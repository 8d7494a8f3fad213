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

package move

import (
	"context"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestMovedClusterKeepsItsBundlesAndItsAgentChangesOver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		present, missing []string // of the bundles, on target when the Cluster arrives
	}{
		{name: "none", missing: []string{"db", "web"}},
		{name: "some", present: []string{"web"}, missing: []string{"db"}},
		{name: "all", present: []string{"db", "web"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			ctx := t.Context()
			namespace := "moves-" + tt.name
			w := join(t, namespace, env.ClusterOptions{Register: true}, "db", "web")
			if len(tt.present) > 0 {
				makeBundles(t, target, namespace, tt.present...)
			}
			old := registrationOf(g, ctx, source, w)
			before := deployed(g, ctx, w.Client, "db", "web")
			left := standing(g, t, source, w, old.Status.Namespace)
			written := len(writes(w))
			mark := suite.Mark(t, source)

			clusterctlMove(t, source, target, namespace)

			g.Expect(source.Client.Get(ctx, w.Key(), &clusterv1.Cluster{})).To(Satisfy(apierrors.IsNotFound))
			g.Expect(source.Client.Get(ctx, w.Key(), &fleetv1.FleetRegistration{})).To(Satisfy(apierrors.IsNotFound))
			g.Expect(managerWrites(t, source, mark, namespace)).To(HaveEach("patch fleetregistrations/status"), "more than the condition Paused")

			if len(tt.missing) > 0 {
				suite.EventuallyCondition(t, target, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForBundlesReason)
				g.Eventually(missing).WithContext(ctx).WithArguments(w).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(tt.missing))
				eventuallyReports(t, source, w)
				g.Expect(w.AgentStarts()).To(HaveLen(1))
				g.Expect(writes(w)).To(HaveLen(written), "the workload cluster was written to before its bundles were there")
				makeBundles(t, target, namespace, tt.missing...)
			}

			moved := suite.EventuallyReady(t, target, w)
			g.Expect(moved.Spec.RegistrationID).To(Equal(old.Spec.RegistrationID))
			eventuallyDeployed(t, target, w, "db", "web")
			eventuallyReports(t, target, w)
			g.Expect(pushes(w)).To(Equal(2), "one by each management cluster")
			g.Expect(w.AgentStarts()).To(HaveLen(2))
			clusters := &fleet.ClusterList{}
			g.Expect(target.Client.List(ctx, clusters, client.InNamespace(namespace))).To(Succeed())
			g.Expect(clusters.Items).To(ConsistOf(HaveField("Annotations", HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, old.Spec.RegistrationID))))

			g.Expect(deployed(g, ctx, w.Client, "db", "web")).To(Equal(before))
			expectNothingUninstalled(t, w)
			g.Expect(standing(g, t, source, w, old.Status.Namespace)).To(Equal(left))
			g.Expect(managerWrites(t, source, mark, namespace)).NotTo(ContainElement(HavePrefix("delete")))
		})
	}
}

func TestClusterOnARealAPIServerMovesOnceItsBundlesAreThere(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "moves-real"
	w := joinAs(t, namespace, env.ClusterOptions{Register: true}, "db", "web")
	old := registrationOf(g, ctx, source, w)
	before := deployed(g, ctx, w.Client, "db", "web")
	pushed := suite.AgentSecret(g, ctx, w)
	makeBundles(t, target, namespace, "web")

	clusterctlMove(t, source, target, namespace)

	suite.EventuallyCondition(t, target, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForBundlesReason)
	g.Eventually(missing).WithContext(ctx).WithArguments(w).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf("db"))
	eventuallyReports(t, source, w)
	g.Expect(suite.AgentSecret(g, ctx, w).ResourceVersion).To(Equal(pushed.ResourceVersion))
	g.Expect(w.AgentStarts()).To(HaveLen(1))

	makeBundles(t, target, namespace, "db")
	moved := suite.EventuallyReady(t, target, w)
	g.Expect(moved.Spec.RegistrationID).To(Equal(old.Spec.RegistrationID))
	eventuallyDeployed(t, target, w, "db", "web")
	eventuallyReports(t, target, w)
	g.Expect(w.AgentStarts()).To(HaveLen(2))
	g.Expect(deployed(g, ctx, w.Client, "db", "web")).To(Equal(before))
	for _, report := range w.AgentReports() {
		g.Expect(report.Uninstalled).To(BeEmpty())
	}
}

// Fleet gives a BundleDeployment that is paused since it was made no options, and an agent
// that started would uninstall the release of a bundle that has any.
func TestMovedClusterWaitsForABundleThatIsPausedAtTheTarget(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "moves-paused"
	bundle := func() *fleet.Bundle {
		db := suite.Bundle(namespace, "db")
		db.Spec.TargetNamespace = "databases"
		return db
	}
	w := join(t, namespace, env.ClusterOptions{Register: true}, "web")
	g.Expect(source.Client.Create(ctx, bundle())).To(Succeed())
	eventuallyDeployed(t, source, w, "db", "web")
	key := types.NamespacedName{Namespace: "databases", Name: "bundle-db"}
	before := &corev1.ConfigMap{}
	g.Expect(w.Client.Get(ctx, key, before)).To(Succeed())
	makeBundles(t, target, namespace, "web")
	paused := bundle()
	paused.Spec.Paused = true
	g.Expect(target.Client.Create(ctx, paused)).To(Succeed())

	clusterctlMove(t, source, target, namespace)

	suite.EventuallyCondition(t, target, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForBundlesReason)
	g.Eventually(missing).WithContext(ctx).WithArguments(w).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf("db"))
	there := &fleet.BundleDeployment{}
	g.Expect(target.Client.Get(ctx, types.NamespacedName{Namespace: registrationOf(g, ctx, target, w).Status.Namespace, Name: "db"}, there)).To(Succeed())
	g.Expect(there.Spec.DeploymentID).To(BeEmpty())
	g.Expect(w.AgentStarts()).To(HaveLen(1))

	g.Expect(target.Client.Patch(ctx, paused, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":false}}`)))).To(Succeed())
	suite.EventuallyReady(t, target, w)
	eventuallyDeployed(t, target, w, "db", "web")
	eventuallyReports(t, target, w)
	after := &corev1.ConfigMap{}
	g.Expect(w.Client.Get(ctx, key, after)).To(Succeed())
	g.Expect(after.UID).To(Equal(before.UID))
	expectNothingUninstalled(t, w)
}

// missing returns which of the bundles db and web the registration at target waits for.
func missing(g Gomega, ctx context.Context, w *env.Workload) []string {
	condition := meta.FindStatusCondition(registrationOf(g, ctx, target, w).Status.Conditions, fleetv1.AgentDeployedCondition)
	g.Expect(condition).NotTo(BeNil())
	var named []string
	for _, bundle := range []string{"db", "web"} {
		if regexp.MustCompile(`\b` + bundle + `\b`).MatchString(condition.Message) {
			named = append(named, bundle)
		}
	}
	return named
}

// standing returns the UIDs of what a management cluster keeps for an agent.
func standing(g Gomega, t *testing.T, lab *env.Lab, w *env.Workload, clusterNamespace string) []types.UID {
	t.Helper()
	objects := []client.Object{
		&fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterNamespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: clusterNamespace}},
	}
	var uids []types.UID
	for _, object := range objects {
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
		g.Expect(object.GetDeletionTimestamp().IsZero()).To(BeTrue())
		uids = append(uids, object.GetUID())
	}
	return uids
}

func TestClusterMovesBack(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "there-and-back"
	w := join(t, namespace, env.ClusterOptions{Register: true}, "db", "web")
	old := registrationOf(g, ctx, source, w)
	before := deployed(g, ctx, w.Client, "db", "web")
	left := standing(g, t, source, w, old.Status.Namespace)

	makeBundles(t, target, namespace, "db", "web")
	clusterctlMove(t, source, target, namespace)
	suite.EventuallyReady(t, target, w)
	provision(t, target, w.Key())
	clusterctlMove(t, target, source, namespace)

	back := suite.EventuallyReady(t, source, w)
	g.Expect(back.Spec.RegistrationID).To(Equal(old.Spec.RegistrationID))
	g.Expect(standing(g, t, source, w, back.Status.Namespace)).To(Equal(left), "what was left there is used again")
	eventuallyReports(t, source, w)
	g.Expect(pushes(w)).To(Equal(3))
	g.Expect(deployed(g, ctx, w.Client, "db", "web")).To(Equal(before))
	expectNothingUninstalled(t, w)
}

func TestMovedClusterStaysWithoutTheLabelOfItsNamespace(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "opted-in"
	g.Expect(source.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{fleetv1.RegisterLabel: "true"},
	}})).To(Succeed())
	w := join(t, namespace, env.ClusterOptions{}, "web")
	old := registrationOf(g, ctx, source, w)
	before := deployed(g, ctx, w.Client, "web")

	clusterctlMove(t, source, target, namespace)
	home := &corev1.Namespace{}
	g.Expect(target.Client.Get(ctx, types.NamespacedName{Name: namespace}, home)).To(Succeed())
	g.Expect(home.Labels).NotTo(HaveKey(fleetv1.RegisterLabel), "clusterctl brings no labels of Namespaces along")

	suite.EventuallyCondition(t, target, w, fleetv1.SelectedCondition, metav1.ConditionFalse, fleetv1.LabelRemovedReason)
	makeBundles(t, target, namespace, "web")
	moved := suite.EventuallyReady(t, target, w)
	g.Expect(moved.Spec.RegistrationID).To(Equal(old.Spec.RegistrationID))
	eventuallyDeployed(t, target, w, "web")
	eventuallyReports(t, target, w)

	home.Labels[fleetv1.RegisterLabel] = "true"
	g.Expect(target.Client.Update(ctx, home)).To(Succeed())
	suite.EventuallyCondition(t, target, w, fleetv1.SelectedCondition, metav1.ConditionTrue, fleetv1.SelectedReason)
	g.Expect(registrationOf(g, ctx, target, w).UID).To(Equal(moved.UID))
	g.Expect(w.AgentStarts()).To(HaveLen(2))
	g.Expect(deployed(g, ctx, w.Client, "web")).To(Equal(before))
	expectNothingUninstalled(t, w)
}

func TestPoliciesMoveWithTheClusters(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	const namespace, label = "by-policy", "by-policy"
	policy := &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "moves"},
		Spec: fleetv1.FleetRegistrationPolicySpec{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}},
			Credentials:     fleetv1.CredentialsSpec{Lifetime: metav1.Duration{Duration: 48 * time.Hour}},
		},
	}
	g.Expect(source.Client.Create(ctx, policy.DeepCopy())).To(Succeed())
	w := join(t, namespace, env.ClusterOptions{Labels: map[string]string{label: "true"}})

	clusterctlMove(t, source, target, namespace)
	moved := &fleetv1.FleetRegistrationPolicy{}
	g.Expect(target.Client.Get(ctx, client.ObjectKeyFromObject(policy), moved)).To(Succeed())
	g.Expect(moved.Spec).To(Equal(policy.Spec))
	g.Expect(source.Client.Get(ctx, client.ObjectKeyFromObject(policy), moved)).To(Succeed(), "others may need it")

	registration := suite.EventuallyReady(t, target, w)
	g.Expect(registration.Spec.SelectedBy.Policy).To(Equal(policy.Name))
	g.Expect(registration.Spec.Credentials).To(Equal(policy.Spec.Credentials))
	suite.EventuallyCondition(t, target, w, fleetv1.SelectedCondition, metav1.ConditionTrue, fleetv1.SelectedReason)
	g.Expect(pushes(w)).To(Equal(2), "the second one was for the target at once")
}
