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

// Package orphan tests that Fleet Clusters whose registration is gone are reported and
// stay, and that the command which removes them removes nothing else.
package orphan

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// lab is shared by the tests of the package. Each uses namespaces of its own.
var lab *env.Lab

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &lab, env.Options{})) }

// bundle is the name of the Bundle that addWithBundle makes.
const bundle = "production"

// optIn makes a namespace whose Clusters are selected.
func optIn(t *testing.T, namespace string) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{fleetv1.RegisterLabel: "true"},
	}})).To(Succeed())
}

// addWithBundle adds a cluster to such a namespace, and returns once a bundle is
// deployed there.
func addWithBundle(t *testing.T, namespace string) (*env.Workload, *fleetv1.FleetRegistration) {
	t.Helper()
	g := NewWithT(t)
	optIn(t, namespace)
	w := suite.AddCluster(t, lab, "edge", env.ClusterOptions{Namespace: namespace, Light: &lightapi.Options{}})
	g.Expect(lab.Client.Create(t.Context(), suite.Bundle(namespace, bundle))).To(Succeed())
	reg := suite.EventuallyReady(t, lab, w)
	suite.EventuallyDeployed(t, w, bundle)
	return w, reg
}

// deployed fails where the ConfigMap that agentsim makes of the bundle is not in the
// workload cluster.
func deployed(t *testing.T, w *env.Workload) error {
	return w.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "bundle-" + bundle}, &corev1.ConfigMap{})
}

// expectDeployed fails unless the bundle stayed in the workload cluster, untouched, with
// its agent.
func expectDeployed(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(deployed(t, w)).To(Succeed())
	g.Expect(w.AgentStarts()).To(HaveLen(1))
	for _, report := range w.AgentReports() {
		g.Expect(report.Uninstalled).To(BeEmpty())
	}
}

// loseSelection takes the label off the namespace, and returns once the registration
// says so.
func loseSelection(t *testing.T, w *env.Workload) {
	t.Helper()
	patchf(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, `{"metadata":{"labels":{%q:null}}}`, fleetv1.RegisterLabel)
	suite.EventuallyCondition(t, lab, w, fleetv1.SelectedCondition, metav1.ConditionFalse, fleetv1.LabelRemovedReason)
}

func deleteRegistration(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	reg := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	g.Expect(lab.Client.Delete(t.Context(), reg)).To(Succeed())
	g.Eventually(func() error { return lab.Client.Get(t.Context(), w.Key(), reg) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
}

func clusterOf(w *env.Workload) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
}

func fleetClusterOf(t *testing.T, w *env.Workload) *fleet.Cluster {
	t.Helper()
	cluster := &fleet.Cluster{}
	NewWithT(t).Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
	return cluster
}

func namespaceOf(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{}
	NewWithT(t).Expect(lab.Client.Get(t.Context(), client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

func patchf(t *testing.T, obj client.Object, format string, args ...any) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...)))).To(Succeed())
}

// eventuallyOrphaned waits until the cluster's Fleet Cluster is reported.
func eventuallyOrphaned(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		g.Expect(fleetClusterOf(t, w).Labels).To(HaveKeyWithValue(fleetv1.OrphanLabel, "true"))
		g.Expect(orphanEvents(t, w)).To(HaveLen(1))
	}).WithTimeout(2 * suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// orphanEvents are the Events that report the cluster's Fleet Cluster.
func orphanEvents(t *testing.T, w *env.Workload) []eventsv1.Event {
	t.Helper()
	list := &eventsv1.EventList{}
	NewWithT(t).Expect(lab.Client.List(t.Context(), list, client.InNamespace(w.Namespace))).To(Succeed())
	var found []eventsv1.Event
	for _, event := range list.Items {
		if event.Reason == "Orphaned" && event.Regarding.Name == w.Name {
			found = append(found, event)
		}
	}
	return found
}

// removeOrphan runs the command that removes orphans of the cluster's namespace.
func removeOrphan(t *testing.T, namespace string, args ...string) (code int, out, errOut string) {
	t.Helper()
	return suite.Fleetctl(t, lab.Management().AdminKubeconfigPath(), append([]string{"orphans", "--delete", "--namespace", namespace}, args...)...)
}

// expectRefused fails unless the command gives that reason and removes nothing.
func expectRefused(t *testing.T, reason string, code int, namespace string, args ...string) {
	t.Helper()
	g := NewWithT(t)
	got, out, errOut := removeOrphan(t, namespace, args...)
	g.Expect(got).To(Equal(code))
	g.Expect(errOut).To(ContainSubstring(reason))
	g.Expect(out).To(BeEmpty())
}
