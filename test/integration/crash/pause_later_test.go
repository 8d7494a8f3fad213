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

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
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

// hold is a finalizer that keeps an object until the test lets it go.
const hold = "example.com/hold"

// change is what befalls a registered cluster, to be paused on the way.
type change struct {
	name   string
	labels map[string]string
	begin  func(*testing.T, *env.Workload)
	// writes are the manager's writes to the workload cluster to pause at.
	writes []int
	// stays says that the registration goes on.
	stays bool
}

// changes has none that ends before it can be paused: held objects keep Fleet from
// deleting the cluster namespace, for which each end waits.
var changes = []change{
	{name: "orphan", begin: optOut, writes: []int{0, 1, 2, 4}},
	{name: "uninstall", labels: map[string]string{"leaves": "nothing"}, begin: optOut},
	{name: "delete", writes: []int{0, 1, 3}, begin: func(t *testing.T, w *env.Workload) { suite.DeleteCluster(t, lab, w) }},
	{name: "renew", writes: []int{0, 1}, begin: deleteAccount, stays: true},
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

	var workloads, ended, orphaned, renewed []*env.Workload
	var begin []func()
	var pausing errgroup.Group
	add := func(c change, at string, prepare func(w *env.Workload, clusterNamespace string, p pause)) {
		p := pauses[len(workloads)%len(pauses)]
		w := suite.AddCluster(t, lab, c.name+"-"+at, env.ClusterOptions{
			Namespace: namespace, Register: true, Labels: c.labels, Light: &lightapi.Options{},
			Modify: func(c *clusterv1.Cluster) { c.Finalizers = []string{hold} },
		})
		workloads = append(workloads, w)
		if c.stays {
			renewed = append(renewed, w)
		} else {
			ended = append(ended, w)
		}
		if c.name == "orphan" {
			orphaned = append(orphaned, w)
		}
		begin = append(begin, func() {
			suite.EventuallyDeployed(t, w, bundle)
			holdNamespace(t, fleet.ClusterNamespace(namespace, w.Name))
			prepare(w, fleet.ClusterNamespace(namespace, w.Name), p)
			c.begin(t, w)
		})
	}
	for _, c := range changes {
		for _, n := range c.writes {
			add(c, fmt.Sprintf("write-%d", n), func(w *env.Workload, _ string, p pause) {
				w.Light().SetFault(atWrite(n, func() {
					if err := p.begin(ctx, namespace, w.Name); err != nil {
						t.Error(err)
					}
				}))
			})
		}
		if c.stays {
			continue
		}
		add(c, "begun", func(w *env.Workload, _ string, p pause) {
			pauseOnceDeleted(ctx, &pausing, w, p, &fleetv1.FleetRegistrationList{}, w.Key())
		})
		add(c, "fleet-cluster-gone", func(w *env.Workload, clusterNamespace string, p pause) {
			pauseOnceDeleted(ctx, &pausing, w, p, &corev1.NamespaceList{}, client.ObjectKey{Name: clusterNamespace})
		})
	}
	tokens := map[*env.Workload]string{}
	for i, w := range workloads {
		suite.EventuallyReady(t, lab, w)
		tokens[w] = agent.Token(suite.AgentSecret(g, ctx, w))
		begin[i]()
	}
	for _, w := range workloads {
		suite.EventuallyCondition(t, lab, w, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
	}
	g.Expect(pausing.Wait()).To(Succeed())
	expectAtRest(t, manager, workloads)

	for _, w := range workloads {
		g.Expect(endPauses(ctx, w)).To(Succeed())
		g.Expect(mergePatch(ctx, cluster(metav1.ObjectMeta{Namespace: namespace, Name: w.Name}), letGo)).To(Succeed())
		releaseNamespace(t, fleet.ClusterNamespace(namespace, w.Name))
	}
	for _, w := range ended {
		suite.EventuallyGone(t, lab, w)
	}
	for _, w := range orphaned {
		expectLeft(t, w)
	}
	for _, w := range renewed {
		suite.EventuallyReady(t, lab, w)
		g.Eventually(func(g Gomega) {
			g.Expect(agent.Token(suite.AgentSecret(g, ctx, w))).NotTo(Equal(tokens[w]))
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	}
	clusters := &fleet.ClusterList{}
	g.Expect(lab.Client.List(ctx, clusters, client.InNamespace(namespace))).To(Succeed())
	g.Expect(clusters.Items).To(HaveLen(len(renewed)), "one Fleet Cluster for each that stays")
	for _, w := range workloads {
		g.Expect(lab.RemoveCluster(ctx, w)).To(Succeed())
	}
	g.Eventually(inventoryOf).WithContext(ctx).WithArguments(namespace).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(before))
}

// inventoryOf returns what of the inventory is named after a namespace or is in it.
func inventoryOf(g Gomega, ctx context.Context, namespace string) []string {
	return slices.DeleteFunc(suite.Inventory(g, ctx, lab), func(object string) bool { return !strings.Contains(object, namespace) })
}

// pauseOnceDeleted pauses the cluster once an object is being deleted.
func pauseOnceDeleted(ctx context.Context, group *errgroup.Group, w *env.Workload, p pause, list client.ObjectList, key client.ObjectKey) {
	going := point{cluster: w.Name, list: list, key: key, there: func(obj client.Object) bool { return !obj.GetDeletionTimestamp().IsZero() }}
	group.Go(func() error {
		return whenThere(ctx, going, func() error { return p.begin(ctx, w.Namespace, w.Name) })
	})
}

// letGo is a patch that removes the finalizers of an object.
const letGo = `{"metadata":{"finalizers":null}}`

func held(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "held", Finalizers: []string{hold}}}
}

func holdNamespace(t *testing.T, namespace string) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Create(t.Context(), held(namespace))).To(Succeed())
}

func releaseNamespace(t *testing.T, namespace string) {
	t.Helper()
	NewWithT(t).Expect(mergePatch(t.Context(), held(namespace), letGo)).To(Succeed())
}

// deleteAccount takes the account of the cluster's agent away, and with it the token.
func deleteAccount(t *testing.T, w *env.Workload) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: fleet.ClusterNamespace(w.Namespace, w.Name)}}
	NewWithT(t).Expect(lab.Client.Delete(t.Context(), account)).To(Succeed())
}
