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

// Package repair tests that what others remove or change of a registration's objects
// on the management cluster comes back, and that nothing else is written.
package repair

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const namespace = "repair"

// lab has agents that report once and then not for long, so that no heartbeat makes
// the manager look.
var lab *env.Lab

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, &lab, env.Options{CheckinInterval: 10 * time.Minute}))
}

// registered is a cluster that has joined, with the keys of its objects on the
// management cluster.
type registered struct {
	*env.Workload
	// clusterNamespace is also the name of the agent's service account and Role.
	clusterNamespace string
}

// join adds a cluster and waits until it is Ready and at rest.
func join(t *testing.T, name string) *registered {
	t.Helper()
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}})
	return &registered{w, suite.EventuallyReady(t, lab, w).Status.Namespace}
}

func (r *registered) fleetCluster() *fleet.Cluster {
	return &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.Name}}
}

func (r *registered) namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.clusterNamespace}}
}

func (r *registered) serviceAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: r.clusterNamespace}}
}

func (r *registered) role() *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.clusterNamespace}}
}

func (r *registered) statusBinding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.clusterNamespace}}
}

func (r *registered) bundlesBinding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: r.clusterNamespace, Name: "capi-fleet-agent"}}
}

// state is what should be of a registration's objects, by their names.
type state map[string]any

type marks struct{ Labels, Annotations map[string]string }

// state reads the objects. Heartbeats, versions and UIDs are left out, and of the
// clientID what it is.
func (r *registered) state(t *testing.T) (state, error) {
	t.Helper()
	cluster, role, statusBinding, bundlesBinding := r.fleetCluster(), r.role(), r.statusBinding(), r.bundlesBinding()
	all := state{}
	for name, obj := range map[string]client.Object{
		"Fleet Cluster": cluster, "namespace": r.namespace(), "service account": r.serviceAccount(),
		"Role": role, "status binding": statusBinding, "bundles binding": bundlesBinding,
	} {
		if err := lab.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return nil, err
		}
		all[name] = marks{obj.GetLabels(), obj.GetAnnotations()}
	}
	all["agent namespace"], all["has a clientID"] = cluster.Spec.AgentNamespace, cluster.Spec.ClientID != ""
	all["status.namespace"] = cluster.Status.Namespace
	all["rules"] = role.Rules
	all["status subjects"], all["status role"] = statusBinding.Subjects, statusBinding.RoleRef
	all["bundles subjects"], all["bundles role"] = bundlesBinding.Subjects, bundlesBinding.RoleRef
	return all, nil
}

func (r *registered) mustState(t *testing.T) state {
	t.Helper()
	all, err := r.state(t)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return all
}

func (r *registered) eventually(t *testing.T, want state) {
	t.Helper()
	NewWithT(t).Eventually(func() (state, error) { return r.state(t) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeComparableTo(want))
}

// writes returns what the manager asked to change of the cluster since the mark.
func (r *registered) writes(t *testing.T, since kube.Mark) []string {
	t.Helper()
	var writes []string
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
		if e.Name != r.Name && e.Name != r.clusterNamespace && e.Namespace != r.clusterNamespace {
			continue
		}
		resource := e.Resource
		if resource == "clusters" {
			resource += "." + e.Group
		}
		if e.Subresource != "" {
			resource += "/" + e.Subresource
		}
		writes = append(writes, fmt.Sprintf("%s %s %s/%s", e.Verb, resource, e.Namespace, e.Name))
	}
	return writes
}

// placing returns those of the writes that make or change what is to be repaired. The
// others tell of it, or give the agent a new token.
func placing(writes []string) []string {
	return slices.DeleteFunc(writes, func(write string) bool {
		return strings.Contains(write, " fleetregistrations") || strings.Contains(write, " clusters.cluster.x-k8s.io/status ") ||
			strings.Contains(write, " serviceaccounts/token ")
	})
}

func remove(t *testing.T, obj client.Object) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Delete(t.Context(), obj)).To(Succeed())
}

func patch(t *testing.T, obj client.Object, patch string) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func annotate(t *testing.T, obj client.Object, key, value string) {
	t.Helper()
	patch(t, obj, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value))
}

func label(t *testing.T, obj client.Object, key, value string) {
	t.Helper()
	patch(t, obj, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value))
}

// registrationID returns what marks the registration's objects, in quotes.
func (r *registered) registrationID(t *testing.T) string {
	t.Helper()
	reg := &fleetv1.FleetRegistration{}
	NewWithT(t).Expect(lab.Client.Get(t.Context(), r.Key(), reg)).To(Succeed())
	return fmt.Sprintf("%q", reg.Spec.RegistrationID)
}
