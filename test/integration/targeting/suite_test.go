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

// Package targeting tests what a policy puts on Fleet Clusters for Fleet to select and
// template by, and that nobody reaches bundles of others by it.
package targeting

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// checkin is the time between two heartbeats: many of them pass in a test.
const checkin = time.Second

// lab is shared by the tests of the package. Each uses namespaces of its own.
var lab *env.Lab

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, &lab, env.Options{CheckinInterval: checkin}))
}

// newPolicy returns a policy of that name, with spec.fleetCluster in JSON, for the Clusters
// with that value of the label "policy".
func newPolicy(t *testing.T, name, settings string) *unstructured.Unstructured {
	t.Helper()
	fleetCluster := map[string]any{}
	if err := json.Unmarshal([]byte(settings), &fleetCluster); err != nil {
		t.Fatalf("%s: %v", settings, err)
	}
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"clusterSelector": map[string]any{"matchLabels": map[string]any{"policy": name}},
		"fleetCluster":    fleetCluster,
	}}}
	policy.SetGroupVersionKind(fleetv1.GroupVersion.WithKind("FleetRegistrationPolicy"))
	policy.SetName(name)
	return policy
}

func apply(t *testing.T, policy *unstructured.Unstructured) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(policy),
		client.FieldOwner("test"), client.ForceOwnership)).To(Succeed())
}

// join adds a Cluster of a policy and waits until it is Ready.
func join(t *testing.T, namespace, name, policy string, modify func(*clusterv1.Cluster)) *env.Workload {
	t.Helper()
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{
		Namespace: namespace, Labels: map[string]string{"policy": policy}, Modify: modify, Light: &lightapi.Options{},
	})
	suite.EventuallyReady(t, lab, w)
	return w
}

func registrationOf(g Gomega, t *testing.T, w *env.Workload) *fleetv1.FleetRegistration {
	reg := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), reg)).To(Succeed())
	return reg
}

// fleetClusterOf returns the Fleet Cluster of a cluster.
func fleetClusterOf(g Gomega, t *testing.T, w *env.Workload) *fleet.Cluster {
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), types.NamespacedName(registrationOf(g, t, w).Spec.FleetCluster), cluster)).To(Succeed())
	return cluster
}

// eventually waits until the Fleet Cluster of a cluster is as it should be.
func eventually(t *testing.T, w *env.Workload, check func(g Gomega, cluster *fleet.Cluster)) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) { check(g, fleetClusterOf(g, t, w)) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// patch changes the Cluster, as its owner does.
func patch(t *testing.T, w *env.Workload, patch string) {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	NewWithT(t).Expect(lab.Client.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// writesTo returns what the manager wrote to the Fleet Cluster since the mark.
func writesTo(t *testing.T, key types.NamespacedName, since kube.Mark) []string {
	t.Helper()
	var writes []string
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
		if e.Group == fleet.GroupVersion.Group && e.Resource == "clusters" && e.Namespace == key.Namespace && e.Name == key.Name {
			writes = append(writes, e.Verb+" "+e.Subresource)
		}
	}
	return writes
}

// follow watches all objects of some kinds from now on, and returns what it has seen so
// far in the order in which it happened.
func follow(t *testing.T, lists ...client.ObjectList) (seen func() []watch.Event) {
	t.Helper()
	g := NewWithT(t)
	var mu sync.Mutex
	var events []watch.Event
	for _, list := range lists {
		g.Expect(lab.Client.List(t.Context(), list)).To(Succeed())
		from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
		watcher, err := lab.Client.Watch(t.Context(), list, from)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(watcher.Stop)
		go func() {
			for event := range watcher.ResultChan() {
				mu.Lock()
				events = append(events, event)
				mu.Unlock()
			}
		}()
	}
	version := func(event watch.Event) string { return event.Object.(client.Object).GetResourceVersion() }
	return func() []watch.Event {
		mu.Lock()
		defer mu.Unlock()
		sorted := slices.Clone(events)
		slices.SortStableFunc(sorted, func(a, b watch.Event) int {
			order, err := resourceversion.CompareResourceVersion(version(a), version(b))
			if err != nil {
				t.Error(err)
			}
			return order
		})
		return sorted
	}
}

func makeNamespace(t *testing.T, name string) {
	t.Helper()
	err := lab.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func makeClass(t *testing.T, namespace, name string, labels map[string]string) {
	t.Helper()
	makeNamespace(t, namespace)
	template := clusterv1.ClusterClassTemplateReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevClusterTemplate", Name: name}
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	class.Spec.Infrastructure.TemplateRef = template
	class.Spec.ControlPlane.TemplateRef = template
	NewWithT(t).Expect(lab.Client.Create(t.Context(), class)).To(Succeed())
}

// ofClass makes a Cluster use a ClusterClass.
func ofClass(namespace, name string) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) {
		c.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: namespace, Name: name}
		c.Spec.Topology.Version = "v1.36.0"
	}
}

// uidOf returns the UID of an object, empty where there is none.
func uidOf(g Gomega, t *testing.T, obj client.Object, namespace, name string) types.UID {
	err := lab.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, obj)
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return ""
	}
	return obj.GetUID()
}
