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

// Package leave tests what becomes of a workload cluster whose Cluster opts out of
// Fleet, or loses what selected it, and lives on. Each has a deployed bundle.
package leave

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

var lab *env.Lab

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, &lab, env.Options{CheckinInterval: time.Second}))
}

// bundle is deployed to every cluster here.
const bundle = "production"

// join adds a cluster in a namespace of its own, and returns it once its bundle is
// deployed.
func join(t *testing.T, namespace string, labels map[string]string) (*env.Workload, *corev1.ConfigMap) {
	t.Helper()
	return joinOn(t, &lightapi.Options{}, namespace, labels)
}

// joinOn is join for a workload API with options, or a real API server without.
func joinOn(t *testing.T, light *lightapi.Options, namespace string, labels map[string]string) (*env.Workload, *corev1.ConfigMap) {
	t.Helper()
	w := suite.AddCluster(t, lab, "edge", env.ClusterOptions{Namespace: namespace, Labels: labels, Light: light})
	create(t, suite.Bundle(namespace, bundle))
	suite.EventuallyReady(t, lab, w)
	return w, suite.EventuallyDeployed(t, w, bundle)
}

var register = map[string]string{fleetv1.RegisterLabel: "true"}

func create(t *testing.T, obj client.Object) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Create(t.Context(), obj)).To(Succeed())
}

func patch(t *testing.T, obj client.Object, content string) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(content)))).To(Succeed())
}

func clusterOf(w *env.Workload) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
}

func registrationOf(t *testing.T, w *env.Workload) *fleetv1.FleetRegistration {
	t.Helper()
	registration := &fleetv1.FleetRegistration{}
	NewWithT(t).Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
	return registration
}

// expectNothingLeft fails where anything of a registration is on the management cluster
// that is not an orphan.
func expectNothingLeft(t *testing.T, registration *fleetv1.FleetRegistration, orphan bool) {
	t.Helper()
	g := NewWithT(t)
	name := registration.Status.Namespace
	for _, obj := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: name}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: registration.Namespace, Name: name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: registration.Namespace, Name: name}},
	} {
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)).To(Satisfy(apierrors.IsNotFound), "%T", obj)
	}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: registration.Namespace, Name: registration.Name}},
	} {
		err := lab.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
		if !orphan {
			g.Expect(err).To(Satisfy(apierrors.IsNotFound), "%T", obj)
			continue
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(obj.GetLabels()).To(HaveKeyWithValue(fleetv1.OrphanLabel, "true"), "%T", obj)
	}
}

// eventuallyTold waits for an event on the Cluster.
func eventuallyTold(t *testing.T, w *env.Workload, kind, reason string) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		events := &eventsv1.EventList{}
		g.Expect(lab.Client.List(t.Context(), events, client.InNamespace(w.Namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(HaveField("Type", kind), HaveField("Reason", reason), HaveField("Regarding.Kind", "Cluster"))))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}
