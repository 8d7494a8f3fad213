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

// Package uninstall tests what becomes of agents and of what they deployed when
// capi-fleet is removed, with and without clusterctl fleet handback before.
package uninstall

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// namespace is that of all Clusters here, and bundle is deployed to all of them.
const (
	namespace = "leaving"
	bundle    = "hello"
)

// lab has no manager of its own: the tests start and stop one.
var lab *env.Lab

// Heartbeats come often, so that a test soon sees which account sends them.
func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, &lab, env.Options{NoManager: true, CheckinInterval: time.Second}))
}

// join adds a registered cluster, on a light API server or a real one.
func join(t *testing.T, name string, light *lightapi.Options) *env.Workload {
	t.Helper()
	return suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Register: true, Light: light})
}

// joinHosted adds a registered cluster whose agent runs on the management cluster.
func joinHosted(t *testing.T, name string) *env.Workload {
	t.Helper()
	g := NewWithT(t)
	policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"placement": name}}
	policy.Spec.Agent.Placement = fleetv1.PlacementManagement
	g.Expect(lab.Client.Create(t.Context(), policy)).To(Succeed())
	return suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Labels: policy.Spec.ClusterSelector.MatchLabels})
}

// deployBundle deploys content to all clusters, in place of what there was.
func deployBundle(t *testing.T, content string) {
	t.Helper()
	g := NewWithT(t)
	object := &fleet.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: bundle}}
	g.Expect(client.IgnoreNotFound(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object))).To(Succeed())
	object.Spec = fleet.BundleSpec{
		Resources: []fleet.BundleResource{{Name: "hello.yaml", Content: content}},
		Targets:   []fleet.BundleTarget{{ClusterSelector: &metav1.LabelSelector{}}},
	}
	if object.UID == "" {
		g.Expect(lab.Client.Create(t.Context(), object)).To(Succeed())
		return
	}
	g.Expect(lab.Client.Update(t.Context(), object)).To(Succeed())
}

// deployed returns what the bundle is in the workload cluster.
func deployed(g Gomega, ctx context.Context, w *env.Workload) *corev1.ConfigMap {
	object := &corev1.ConfigMap{}
	g.Expect(w.Client.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "bundle-" + bundle}, object)).To(Succeed())
	return object
}

func registrationOf(g Gomega, ctx context.Context, w *env.Workload) *fleetv1.FleetRegistration {
	registration := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(ctx, w.Key(), registration)).To(Succeed())
	return registration
}

func fleetClusterOf(g Gomega, ctx context.Context, w *env.Workload) *fleet.Cluster {
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
	return cluster
}

// expectHeartbeats waits for heartbeats that are sent from now on.
func expectHeartbeats(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	sent := heartbeats(w)
	g.Eventually(func() int { return heartbeats(w) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).
		Should(BeNumerically(">=", sent+2), "heartbeats of %s that arrive", w.Name)
}

func heartbeats(w *env.Workload) int {
	total := 0
	for _, report := range w.AgentReports() {
		total += report.Heartbeats
	}
	return total
}

// admin is the user whom the command runs as.
const admin = "uninstaller"

// handback runs the command as an admin of the management cluster. It returns all that the
// command says and its exit code.
func handback(t *testing.T, args ...string) (string, int) {
	t.Helper()
	kubeconfig, err := lab.Management().Kubeconfig(admin, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := suite.Fleetctl(t, path, append([]string{"handback", "--namespace", namespace, "--denied-ranges", ""}, args...)...)
	return out + errOut, code
}

// uninstall does what clusterctl delete does with the CRDs and the manager's
// namespace included: all that bears the provider's label goes, of what lies in no
// namespace only that whose name begins with the manager's; and the manager's
// namespace is emptied.
func uninstall(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	for _, kind := range []schema.GroupVersionKind{
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
		rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
		rbacv1.SchemeGroupVersion.WithKind("Role"),
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		corev1.SchemeGroupVersion.WithKind("Service"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
		apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		g.Expect(lab.Client.List(ctx, list, client.MatchingLabels{clusterv1.ProviderNameLabel: "addon-fleet"})).To(Succeed())
		g.Expect(list.Items).NotTo(BeEmpty(), "objects of kind %s", kind.Kind)
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind)
			isCRD := kind.Kind == "CustomResourceDefinition"
			if object.Namespace == "" && !isCRD && !strings.HasPrefix(object.Name, env.ManagerNamespace+"-") {
				continue
			}
			g.Expect(lab.Client.Delete(ctx, object)).To(Succeed())
		}
	}
	for _, object := range []client.Object{
		&appsv1.Deployment{}, &corev1.ServiceAccount{}, &corev1.Secret{}, &rbacv1.Role{}, &rbacv1.RoleBinding{},
	} {
		g.Expect(lab.Client.DeleteAllOf(ctx, object, client.InNamespace(env.ManagerNamespace))).To(Succeed())
	}
}
