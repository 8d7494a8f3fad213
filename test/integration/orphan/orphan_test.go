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

package orphan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/cli"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestAnOrphanIsReportedAndStaysUntilItsRegistrationIsBack(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w, old := addWithBundle(t, "unselected")
	clusterNamespace := old.Status.Namespace
	before := standing(t, w, clusterNamespace)
	loseSelection(t, w)

	start := suite.Mark(t, lab)
	deleteRegistration(t, w)
	g.Expect(fleetClusterOf(t, w).Labels).NotTo(HaveKey(fleetv1.OrphanLabel), "it is too early to tell")
	eventuallyOrphaned(t, w)

	g.Expect(namespaceOf(t, clusterNamespace).Labels).To(HaveKeyWithValue(fleetv1.OrphanLabel, "true"))
	event := orphanEvents(t, w)[0]
	g.Expect(event.Type).To(Equal(corev1.EventTypeWarning))
	g.Expect(event.Regarding.Kind).To(Equal("Cluster"))
	g.Expect(event.Regarding.APIVersion).To(Equal(fleet.GroupVersion.String()))
	g.Expect(event.Note).To(ContainSubstring("clusterctl fleet orphans --delete edge --namespace unselected"))
	eventuallyCounted(t)
	g.Expect(standing(t, w, clusterNamespace)).To(Equal(before))
	g.Expect(writes(t, start, "unselected", clusterNamespace)).To(ConsistOf("patch namespaces", "patch clusters"))
	expectDeployed(t, w)

	patchf(t, namespaceOf(t, w.Namespace), `{"metadata":{"labels":{%q:"true"}}}`, fleetv1.RegisterLabel)
	reg := suite.EventuallyReady(t, lab, w)
	g.Expect(reg.UID).NotTo(Equal(old.UID))
	g.Expect(reg.Spec.RegistrationID).To(Equal(old.Spec.RegistrationID))
	g.Eventually(func(g Gomega) {
		g.Expect(fleetClusterOf(t, w).Labels).NotTo(HaveKey(fleetv1.OrphanLabel))
		g.Expect(namespaceOf(t, clusterNamespace).Labels).NotTo(HaveKey(fleetv1.OrphanLabel))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	eventuallyCounted(t)
	g.Expect(standing(t, w, clusterNamespace)).To(Equal(before))
	g.Expect(orphanEvents(t, w)).To(HaveLen(1))
	expectDeployed(t, w)
}

func TestWhatAMoveLeavesBehindIsReportedAndRemovedByTheCommandAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w, reg := addWithBundle(t, "moved")
	moveAway(t, w)
	eventuallyOrphaned(t, w)
	expectDeployed(t, w)
	before := standing(t, w, reg.Status.Namespace)

	code, out, _ := suite.Fleetctl(t, lab.Management().AdminKubeconfigPath(), "orphans", "--namespace", w.Namespace)
	g.Expect(code).To(Equal(cli.ExitOK))
	g.Expect(out).To(MatchRegexp(`(?m)^moved +Cluster +edge +` + reg.Status.Namespace + ` +1 +\S+ ago +its agent reported at .*$`))
	expectRefused(t, "less than 1h0m0s ago", cli.ExitFinding, w.Namespace, w.Name)
	code, out, _ = removeOrphan(t, w.Namespace, w.Name, "--silent-for", "0", "--dry-run")
	g.Expect(code).To(Equal(cli.ExitOK))
	g.Expect(out).To(And(ContainSubstring("Fleet Cluster moved/edge"), ContainSubstring("namespace "+reg.Status.Namespace+" with 1 BundleDeployments")))
	g.Expect(standing(t, w, reg.Status.Namespace)).To(Equal(before))
	expectDeployed(t, w)

	code, _, _ = removeOrphan(t, w.Namespace, w.Name, "--silent-for", "0", "--wait", "0")
	g.Expect(code).To(Equal(cli.ExitOK))
	eventuallyNothingIsLeft(t, w, reg.Status.Namespace)
	g.Eventually(deployed).WithArguments(t, w).WithTimeout(suite.Patience).WithPolling(suite.Poll).
		ShouldNot(Succeed(), "this is why the command looks at the agent, and waits")
}

func TestTheCommandRemovesAnOrphanWhoseAgentIsSilent(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	optIn(t, "silent")
	w := suite.AddCluster(t, lab, "edge", env.ClusterOptions{Namespace: "silent", NoKubelet: true, Light: &lightapi.Options{}})
	reg := suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	stays := suite.AddCluster(t, lab, "stays", env.ClusterOptions{Namespace: "silent", NoKubelet: true, Light: &lightapi.Options{}})
	other := suite.EventuallyCondition(t, lab, stays, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	loseSelection(t, w)
	untouched := standing(t, stays, other.Status.Namespace)

	expectRefused(t, "there is no orphan silent/stays", cli.ExitFailed, stays.Namespace, stays.Name)
	expectRefused(t, "there is no orphan silent/nothing", cli.ExitFailed, "silent", "nothing")
	deleteRegistration(t, w)
	expectRefused(t, "has not labelled it", cli.ExitFinding, w.Namespace, w.Name)
	eventuallyOrphaned(t, w)

	halfAnHourAgo := time.Now().Add(-30 * time.Minute).UTC().Format(time.RFC3339)
	// The Fleet Cluster names a namespace that is not its own. Fleet would delete that.
	status := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"namespace":%q,"agent":{"lastSeen":%q}}}`, other.Status.Namespace, halfAnHourAgo))
	g.Expect(lab.Client.Status().Patch(t.Context(), fleetClusterOf(t, w), status)).To(Succeed())
	expectRefused(t, "less than 1h0m0s ago", cli.ExitFinding, w.Namespace, w.Name)
	// Nothing but the name says that this one is the orphan's.
	foreign := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "silent", Name: reg.Status.Namespace}}
	g.Expect(lab.Client.Create(t.Context(), foreign)).To(Succeed())

	start := suite.Mark(t, lab)
	code, _, _ := removeOrphan(t, w.Namespace, w.Name, "--silent-for", "10m", "--wait", "2s")
	g.Expect(code).To(Equal(cli.ExitOK))
	eventuallyNothingIsLeft(t, w, reg.Status.Namespace)
	g.Expect(standing(t, stays, other.Status.Namespace)).To(Equal(untouched))
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
	account, cluster := deletion(t, start, "serviceaccounts", env.ManagerNamespace, reg.Status.Namespace), deletion(t, start, "clusters", w.Namespace, w.Name)
	g.Expect(cluster.Sub(account)).To(BeNumerically(">=", time.Second), "the account ends before, and is waited for; the time is kept in whole seconds")
}

// deletion is when the command's deletion of an object reached the API server: it is logged
// as done at any time after the command knows.
func deletion(t *testing.T, since kube.Mark, resource, namespace, name string) time.Time {
	t.Helper()
	g := NewWithT(t)
	events, err := lab.Management().AuditLog().Since(t.Context(), since)
	g.Expect(err).NotTo(HaveOccurred())
	for _, e := range events {
		if e.Verb == "delete" && e.Resource == resource && e.Namespace == namespace && e.Name == name && strings.HasPrefix(e.UserAgent, "clusterctl-fleet") {
			return e.Received
		}
	}
	t.Fatalf("no %s %s/%s was deleted", resource, namespace, name)
	return time.Time{}
}

// moveAway does to the objects of a cluster what clusterctl does on the management
// cluster that they are moved from.
func moveAway(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	reg := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	cluster := clusterOf(w)
	for _, obj := range []client.Object{cluster, reg} {
		patchf(t, obj, `{"metadata":{"annotations":{%q:""}}}`, "clusterctl.cluster.x-k8s.io/delete-for-move")
	}
	suite.EventuallyCondition(t, lab, w, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.MovingReason)
	for _, obj := range []client.Object{reg, cluster} {
		patchf(t, obj, `{"metadata":{"finalizers":null}}`)
		g.Expect(lab.Client.Delete(t.Context(), obj)).To(Succeed())
	}
}

// parts are the objects of a registration on the management cluster, by what they are.
func parts(w *env.Workload, clusterNamespace string) map[string]client.Object {
	here := metav1.ObjectMeta{Namespace: w.Namespace, Name: clusterNamespace}
	return map[string]client.Object{
		"Fleet Cluster":   &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}},
		"namespace":       &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterNamespace}},
		"service account": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: clusterNamespace}},
		"Role":            &rbacv1.Role{ObjectMeta: here},
		"RoleBinding":     &rbacv1.RoleBinding{ObjectMeta: here},
	}
}

// standing returns the UIDs of those.
func standing(t *testing.T, w *env.Workload, clusterNamespace string) map[string]string {
	t.Helper()
	uids := map[string]string{}
	for name, obj := range parts(w, clusterNamespace) {
		NewWithT(t).Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)).To(Succeed(), name)
		uids[name] = string(obj.GetUID())
	}
	return uids
}

func eventuallyNothingIsLeft(t *testing.T, w *env.Workload, clusterNamespace string) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func() []string {
		var left []string
		for name, obj := range parts(w, clusterNamespace) {
			if err := lab.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); !apierrors.IsNotFound(err) {
				left = append(left, name)
			}
		}
		return left
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeEmpty())
}

// eventuallyCounted waits until the metric says how many orphans there are.
func eventuallyCounted(t *testing.T) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		list := &fleet.ClusterList{}
		g.Expect(lab.Client.List(t.Context(), list, client.MatchingLabels{fleetv1.OrphanLabel: "true"})).To(Succeed())
		families, err := lab.Manager().Metrics(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		metrics := families["capi_fleet_orphaned_fleet_clusters"].GetMetric()
		g.Expect(metrics).To(HaveLen(1))
		g.Expect(metrics[0].GetGauge().GetValue()).To(BeEquivalentTo(len(list.Items)))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// writes are the manager's writes since a mark to a Fleet Cluster's namespace and its
// cluster namespace, without those to objects of Cluster API and of our own.
func writes(t *testing.T, since kube.Mark, namespace, clusterNamespace string) []string {
	t.Helper()
	var found []string
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
		concerns := e.Namespace == namespace || e.Namespace == clusterNamespace || e.Name == clusterNamespace
		if concerns && !strings.HasSuffix(e.Group, "cluster.x-k8s.io") {
			found = append(found, strings.TrimSuffix(e.Verb+" "+e.Resource+"/"+e.Subresource, "/"))
		}
	}
	return found
}
