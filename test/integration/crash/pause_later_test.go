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

package crash

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// hold is a finalizer that keeps an object until the test lets it go.
const hold = "example.com/hold"

// change is what befalls a registered cluster, to be paused on the way.
type change struct {
	name   string
	labels map[string]string
	begin  func(*testing.T, *env.Workload)
	// writes are the manager's writes to the workload cluster to pause at.
	writes []int
	// steps are those besides to pause at.
	steps []step
}

// step is where a change is paused.
type step struct {
	name string
	// holds keeps the change from its end until the test lets it go.
	holds func(*testing.T, *env.Workload) (letGo func())
	// pause prepares the pause, before the change begins. What it returns pauses once the
	// change has come to the step.
	pause func(ctx context.Context, w *env.Workload, p pause) func() error
}

var (
	begun            = step{"begun", holdNamespace, onceDeleted(&fleetv1.FleetRegistrationList{}, (*env.Workload).Key)}
	fleetClusterGone = step{"fleet-cluster-gone", holdNamespace, onceDeleted(&corev1.NamespaceList{}, clusterNamespace)}
	uninstalling     = step{"uninstalling", holdRelease, onceThere(waitsForReleases)}
	accountGone      = step{"account-gone", holdNothing, onceThere(hasNoAccount)}
)

// changes has none that ends before it can be paused. Held objects keep Fleet from
// deleting the cluster namespace, for which each end waits, or the agent from
// uninstalling; or the API server keeps the finalizer (keepFinalizers).
var changes = []change{
	{name: "orphan", begin: optOut, writes: []int{0, 1, 2, 4}, steps: []step{begun, fleetClusterGone, accountGone}},
	{name: "uninstall", labels: map[string]string{"leaves": "nothing"}, begin: optOut, steps: []step{begun, fleetClusterGone, uninstalling, accountGone}},
	{
		name: "delete", writes: []int{0, 1, 3}, steps: []step{begun, fleetClusterGone, accountGone},
		begin: func(t *testing.T, w *env.Workload) { suite.DeleteCluster(t, lab, w) },
	},
	{name: "renew", writes: []int{0, 1}, begin: deleteAccount},
}

// ending is a cluster on its way through a change.
type ending struct {
	change   change
	at       step
	by       pause
	workload *env.Workload
	token    string
	letGo    func()
}

// endings returns a cluster for each point of the changes, none of them added.
func endings() []*ending {
	var all []*ending
	add := func(c change, s step) {
		all = append(all, &ending{change: c, at: s, by: pauses[len(all)%len(pauses)]})
	}
	for _, c := range changes {
		for _, n := range c.writes {
			add(c, step{fmt.Sprintf("write-%d", n), holdNamespace, onceWritten(n)})
		}
		for _, s := range c.steps {
			add(c, s)
		}
	}
	return all
}

func TestWhatEndsOrRenewsIsPausedBetweenAnyTwoPhases(t *testing.T) {
	const namespace = "paused-later"
	g := NewWithT(t)
	ctx := t.Context()
	manager := suite.StartManager(t, lab)
	uninstall := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	uninstall.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	uninstall.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"leaves": "nothing"}}
	uninstall.Spec.Deletion.Workloads = fleetv1.WorkloadsUninstall
	g.Expect(lab.Client.Create(ctx, uninstall)).To(Succeed())
	deployBundle(t, namespace)
	before := inventoryOf(g, ctx, namespace)

	all := endings()
	var workloads []*env.Workload
	var adding, pausing errgroup.Group
	for _, e := range all {
		adding.Go(func() (err error) {
			e.workload, err = lab.AddCluster(ctx, e.change.name+"-"+e.at.name, env.ClusterOptions{
				Namespace: namespace, Register: true, Labels: e.change.labels, Light: &lightapi.Options{},
				Modify: func(c *clusterv1.Cluster) { c.Finalizers = []string{hold} },
			})
			return err
		})
	}
	g.Expect(adding.Wait()).To(Succeed())
	for _, e := range all {
		workloads = append(workloads, e.workload)
		suite.EventuallyReady(t, lab, e.workload)
		suite.EventuallyDeployed(t, e.workload, bundle)
	}
	resume := keepFinalizers(t, accountGone.name, workloads)
	for _, e := range all {
		e.token = agent.Token(suite.AgentSecret(g, ctx, e.workload))
		e.letGo = e.at.holds(t, e.workload)
		pausing.Go(e.at.pause(ctx, e.workload, e.by))
		e.change.begin(t, e.workload)
	}
	g.Expect(pausing.Wait()).To(Succeed())
	for _, w := range workloads {
		suite.EventuallyCondition(t, lab, w, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
	}
	expectAtRest(t, manager, workloads)

	resume()
	for _, e := range all {
		g.Expect(endPauses(ctx, e.workload)).To(Succeed())
		g.Expect(mergePatch(ctx, cluster(metav1.ObjectMeta{Namespace: namespace, Name: e.workload.Name}), letGo)).To(Succeed())
		e.letGo()
	}
	var renewed []*env.Workload
	for _, e := range all {
		switch e.change.name {
		case "renew":
			renewed = append(renewed, e.workload)
			suite.EventuallyReady(t, lab, e.workload)
			g.Eventually(func(g Gomega) {
				g.Expect(agent.Token(suite.AgentSecret(g, ctx, e.workload))).NotTo(Equal(e.token))
			}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
			continue
		case "orphan":
			suite.EventuallyGone(t, lab, e.workload)
			expectLeft(t, e.workload)
		case "uninstall":
			suite.EventuallyGone(t, lab, e.workload)
			g.Expect(e.workload.Client.Get(ctx, suite.AgentKey, &appsv1.Deployment{})).To(Satisfy(apierrors.IsNotFound), e.workload.Name)
		default:
			suite.EventuallyGone(t, lab, e.workload)
		}
	}
	clusters := &fleet.ClusterList{}
	g.Expect(lab.Client.List(ctx, clusters, client.InNamespace(namespace))).To(Succeed())
	g.Expect(clusters.Items).To(HaveLen(len(renewed)), "one Fleet Cluster for each that stays")
	for _, w := range renewed {
		suite.DeleteCluster(t, lab, w)
	}
	g.Eventually(inventoryOf).WithContext(ctx).WithArguments(namespace).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(before))
}

// inventoryOf returns what of the inventory is named after a namespace or is in it.
func inventoryOf(g Gomega, ctx context.Context, namespace string) []string {
	return slices.DeleteFunc(suite.Inventory(g, ctx, lab), func(object string) bool { return !strings.Contains(object, namespace) })
}

// clusterNamespace returns the key of the cluster namespace.
func clusterNamespace(w *env.Workload) client.ObjectKey {
	return client.ObjectKey{Name: fleet.ClusterNamespace(w.Namespace, w.Name)}
}

// onceDeleted pauses once an object is being deleted.
func onceDeleted(list client.ObjectList, key func(*env.Workload) client.ObjectKey) func(context.Context, *env.Workload, pause) func() error {
	return func(ctx context.Context, w *env.Workload, p pause) func() error {
		going := point{list: list.DeepCopyObject().(client.ObjectList), key: key(w), there: func(obj client.Object) bool { return !obj.GetDeletionTimestamp().IsZero() }}
		return func() error {
			return whenThere(ctx, going, func() error { return p.begin(ctx, w.Namespace, w.Name) })
		}
	}
}

// onceWritten pauses during the manager's n-th write to the workload cluster.
func onceWritten(n int) func(context.Context, *env.Workload, pause) func() error {
	return func(ctx context.Context, w *env.Workload, p pause) func() error {
		paused := make(chan error, 1)
		w.Light().SetFault(atWrite(n, func() { paused <- p.begin(ctx, w.Namespace, w.Name) }))
		return func() error {
			select {
			case err := <-paused:
				return err
			case <-time.After(suite.Patience):
				return fmt.Errorf("the manager did not write to %s", w.Key())
			}
		}
	}
}

// onceThere pauses once a change has come to where it stays.
func onceThere(is func(context.Context, *env.Workload) (bool, error)) func(context.Context, *env.Workload, pause) func() error {
	return func(ctx context.Context, w *env.Workload, p pause) func() error {
		return func() error {
			there := func(ctx context.Context) (bool, error) { return is(ctx, w) }
			if err := wait.PollUntilContextTimeout(ctx, suite.Poll, suite.Patience, true, there); err != nil {
				return fmt.Errorf("waiting for %s: %w", w.Key(), err)
			}
			return p.begin(ctx, w.Namespace, w.Name)
		}
	}
}

func waitsForReleases(ctx context.Context, w *env.Workload) (bool, error) {
	reg := &fleetv1.FleetRegistration{}
	if err := lab.Client.Get(ctx, w.Key(), reg); err != nil {
		return false, err
	}
	deleting := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.DeletingCondition)
	return deleting != nil && deleting.Reason == fleetv1.UninstallingWorkloadsReason, nil
}

func hasNoAccount(ctx context.Context, w *env.Workload) (bool, error) {
	err := lab.Client.Get(ctx, client.ObjectKeyFromObject(account(w)), &corev1.ServiceAccount{})
	return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
}

// letGo is a patch that removes the finalizers of an object.
const letGo = `{"metadata":{"finalizers":null}}`

func holdNothing(*testing.T, *env.Workload) func() { return func() {} }

func holdNamespace(t *testing.T, w *env.Workload) func() {
	t.Helper()
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace(w).Name, Name: "held", Finalizers: []string{hold}}}
	NewWithT(t).Expect(lab.Client.Create(t.Context(), held)).To(Succeed())
	return func() { NewWithT(t).Expect(mergePatch(t.Context(), held, letGo)).To(Succeed()) }
}

// holdRelease keeps the release of the bundle in the workload cluster.
func holdRelease(t *testing.T, w *env.Workload) func() {
	t.Helper()
	release, err := agentsim.ReleaseSecret(bundle, agent.Namespace)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	patch := func(data string) {
		NewWithT(t).Expect(w.Client.Patch(t.Context(), release, client.RawPatch(types.MergePatchType, []byte(data)))).To(Succeed())
	}
	patch(fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, hold))
	return func() { patch(letGo) }
}

// keepFinalizers lets the API server refuse to take the finalizers off the registrations
// whose names have a suffix, one of which the clusters have, and returns once it does.
func keepFinalizers(t *testing.T, suffix string, workloads []*env.Workload) (end func()) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	name := "keeps-finalizers"
	group := fleetv1.GroupVersion.Group
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"fleetregistrations"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: fmt.Sprintf("!object.metadata.name.endsWith(%q) || has(object.metadata.finalizers)", suffix),
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	g.Expect(lab.Client.Create(ctx, policy)).To(Succeed())
	g.Expect(lab.Client.Create(ctx, binding)).To(Succeed())
	i := slices.IndexFunc(workloads, func(w *env.Workload) bool { return strings.HasSuffix(w.Name, suffix) })
	g.Eventually(func() error {
		reg := registration(metav1.ObjectMeta{Namespace: workloads[i].Namespace, Name: workloads[i].Name})
		return lab.Client.Patch(ctx, reg, client.RawPatch(types.MergePatchType, []byte(letGo)), client.DryRunAll)
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(MatchError(ContainSubstring(name)))
	return func() {
		g.Expect(lab.Client.Delete(ctx, binding)).To(Succeed())
		g.Expect(lab.Client.Delete(ctx, policy)).To(Succeed())
	}
}

func account(w *env.Workload) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: clusterNamespace(w).Name}}
}

// deleteAccount takes the account of the cluster's agent away, and with it the token.
func deleteAccount(t *testing.T, w *env.Workload) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Delete(t.Context(), account(w))).To(Succeed())
}
