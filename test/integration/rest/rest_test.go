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

package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	namespace = "rest"

	// kubeconfigUser is the manager's user in workload clusters, and nobody else's.
	kubeconfigUser = "owner-of-the-kubeconfig"

	// window is how long the clusters are watched in all.
	window = time.Minute
)

func TestRegisteredClustersAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "everything"}}
	g.Expect(lab.Client.Create(ctx, policy)).To(Succeed())

	workloads := []*env.Workload{realCluster(t, "real-1"), realCluster(t, "real-2")}
	for i := range 3 {
		workloads = append(workloads, lightCluster(t, fmt.Sprintf("light-%d", i+1), false))
	}
	// No agent runs in this one, so that nobody but the manager connects to it.
	lonely := lightCluster(t, "lonely", true)
	suite.EventuallyCondition(t, lab, lonely, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	heartbeat(g, ctx, lonely)
	workloads = append(workloads, lonely)

	for _, w := range workloads {
		suite.EventuallyReady(t, lab, w)
	}
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		g.Expect(policy.Status.Ready).To(HaveValue(BeEquivalentTo(len(workloads))))
		for _, w := range workloads {
			if w == lonely {
				continue
			}
			deployment := &appsv1.Deployment{}
			g.Expect(w.Client.Get(ctx, suite.AgentKey, deployment)).To(Succeed())
			g.Expect(deployment.Status.ReadyReplicas).To(BeEquivalentTo(1))
		}
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())

	_, open := lonely.Light().Connections()
	g.Expect(open).To(BeZero(), "the connection of the push is closed")

	before := snapshot(g, ctx, workloads)
	seen := map[string]time.Time{}
	for _, w := range workloads {
		seen[w.Name] = lastSeen(g, ctx, w)
	}
	marks := map[string]kube.Mark{}
	for _, w := range workloads {
		if plane := w.ControlPlane(); plane != nil {
			marks[w.Name] = mark(g, ctx, plane)
		}
	}
	start := mark(g, ctx, lab.Management())
	requests := map[string]int{}
	for _, w := range workloads {
		if w.Light() != nil {
			requests[w.Name] = managersRequests(w.Light())
			g.Expect(requests[w.Name]).To(BeNumerically(">", 0), "the manager's requests are told from others")
		}
	}
	connections, _ := lonely.Light().Connections()

	quiet := func(g Gomega) {
		events, err := lab.Management().AuditLog().Since(ctx, start)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(uris(kube.Writes(kube.By(env.ManagerUser, events)))).To(BeEmpty(), "writes on the management cluster")
		for _, w := range workloads {
			if plane := w.ControlPlane(); plane != nil {
				events, err := plane.AuditLog().Since(ctx, marks[w.Name])
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(uris(kube.By(kubeconfigUser, events))).To(BeEmpty(), "requests to %s", w.Name)
				continue
			}
			g.Expect(managersRequests(w.Light())).To(Equal(requests[w.Name]), "requests to %s", w.Name)
		}
		accepted, _ := lonely.Light().Connections()
		g.Expect(accepted).To(Equal(connections), "connections to %s", lonely.Name)
	}
	consistentlyQuiet := func(d time.Duration) {
		g.Consistently(quiet).WithTimeout(d).WithPolling(5 * time.Second).Should(Succeed())
	}

	manager := lab.Manager()
	consistentlyQuiet(window / 2)
	g.Expect(manager.Stop()).To(Succeed())
	restarted(g, ctx, manager, len(workloads))
	consistentlyQuiet(window / 4)
	g.Expect(manager.Kill()).To(Succeed())
	restarted(g, ctx, manager, len(workloads))
	consistentlyQuiet(window / 4)

	g.Expect(snapshot(g, ctx, workloads)).To(Equal(before))
	for _, w := range workloads {
		if w != lonely {
			g.Expect(lastSeen(g, ctx, w)).To(BeTemporally(">", seen[w.Name]), "the agent of %s went on", w.Name)
			g.Expect(w.AgentStarts()).To(HaveLen(1))
		}
	}
}

// restarted starts the manager and returns once it has looked at all registrations.
func restarted(g *WithT, ctx context.Context, manager *env.Manager, registrations int) {
	g.Expect(manager.Start(ctx)).To(Succeed())
	g.Eventually(func(g Gomega) {
		families, err := manager.Metrics(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(families).To(HaveKey("controller_runtime_reconcile_total"))
		counts := map[string]float64{}
		for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" {
					counts[label.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
		g.Expect(counts["registration"]).To(BeNumerically(">=", registrations))
		g.Expect(counts["selection"]).To(BeNumerically(">=", registrations))
		g.Expect(counts["policy"]).To(BeNumerically(">=", 1))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// realCluster adds a cluster on a real API server, with a kubeconfig of its own user.
func realCluster(t *testing.T, name string) *env.Workload {
	t.Helper()
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Register: true, NoKubeconfig: true})
	kubeconfig, err := w.ControlPlane().Kubeconfig(kubeconfigUser, "system:masters")
	if err == nil {
		err = w.WriteKubeconfig(t.Context(), kubeconfig)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// lightCluster adds a cluster on a light API server, with a kubeconfig of its own user.
func lightCluster(t *testing.T, name string, noKubelet bool) *env.Workload {
	t.Helper()
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{
		Namespace: namespace, Register: true, NoKubeconfig: true, NoKubelet: noKubelet, Light: &lightapi.Options{},
	})
	if noKubelet {
		// Cuts the lab's own connection, so that every one to come is the manager's.
		g.Expect(w.StopAPI()).To(Succeed())
		g.Expect(w.StartAPI(t.Context())).To(Succeed())
	}
	const token = "of-the-kubeconfig"
	w.Light().AllowToken(token, kubeconfigUser)
	config, err := clientcmd.Load(w.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	kubeconfig, err := clientcmd.Write(*config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.WriteKubeconfig(t.Context(), kubeconfig)).To(Succeed())
	return w
}

func managersRequests(server *lightapi.Server) int {
	count := 0
	for _, request := range server.Requests() {
		if request.User == kubeconfigUser {
			count++
		}
	}
	return count
}

// heartbeat does what an agent does where none runs.
func heartbeat(g *WithT, ctx context.Context, w *env.Workload) {
	cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	patch := fmt.Appendf(nil, `{"status":{"agent":{"lastSeen":%q,"namespace":%q}}}`, time.Now().UTC().Add(time.Second).Format(time.RFC3339), agent.Namespace)
	g.Expect(lab.Client.Status().Patch(ctx, cluster, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

func lastSeen(g *WithT, ctx context.Context, w *env.Workload) time.Time {
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
	return cluster.Status.Agent.LastSeen.Time
}

func mark(g *WithT, ctx context.Context, plane *kube.ControlPlane) kube.Mark {
	at, err := plane.AuditLog().Mark(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	return at
}

func uris(events []kube.Event) []string {
	var uris []string
	for _, event := range events {
		uris = append(uris, event.Verb+" "+event.RequestURI)
	}
	return uris
}

// snapshot returns the version of every object of ours in all clusters. A Fleet
// Cluster, whose status the agents write, is given by what else it holds.
func snapshot(g *WithT, ctx context.Context, workloads []*env.Workload) map[string]string {
	versions := map[string]string{}
	note := func(cluster string, obj client.Object, kind string) {
		versions[fmt.Sprintf("%s: %s %s", cluster, kind, client.ObjectKeyFromObject(obj))] = string(obj.GetUID()) + " " + obj.GetResourceVersion()
	}
	for _, list := range []client.ObjectList{
		&fleetv1.FleetRegistrationList{}, &fleetv1.FleetRegistrationPolicyList{}, &corev1.ServiceAccountList{},
		&corev1.NamespaceList{}, &corev1.SecretList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{},
	} {
		each(g, ctx, lab.Client, list, func(obj client.Object) { note("management", obj, fmt.Sprintf("%T", obj)) })
	}
	each(g, ctx, lab.Client, &fleet.ClusterList{}, func(obj client.Object) {
		cluster := obj.(*fleet.Cluster)
		versions["Fleet Cluster "+client.ObjectKeyFromObject(obj).String()] = withoutStatus(g, ctx, cluster)
	})
	for _, w := range workloads {
		ours := append(agent.Leftovers(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: "default"}})
		for _, obj := range ours {
			kind := fmt.Sprintf("%T", obj)
			if _, lease := obj.(*coordinationv1.Lease); lease {
				continue // It is the agent's.
			}
			g.Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
			note(w.Name, obj, kind)
		}
	}
	return versions
}

func each(g *WithT, ctx context.Context, c client.Client, list client.ObjectList, visit func(client.Object)) {
	g.Expect(c.List(ctx, list)).To(Succeed())
	items, err := apimeta.ExtractList(list)
	g.Expect(err).NotTo(HaveOccurred())
	for _, item := range items {
		visit(item.(client.Object))
	}
}

// withoutStatus returns all fields of the live object that agents do not change.
func withoutStatus(g *WithT, ctx context.Context, cluster *fleet.Cluster) string {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(fleet.GroupVersion.WithKind("Cluster"))
	g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(cluster), live)).To(Succeed())
	live.SetResourceVersion("")
	live.SetManagedFields(nil)
	unstructured.RemoveNestedField(live.Object, "status", "agent")
	content, err := json.Marshal(live.Object)
	g.Expect(err).NotTo(HaveOccurred())
	return string(content)
}
