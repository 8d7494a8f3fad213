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

package deletion

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// state is one in which a Cluster is deleted.
type state struct {
	// startLater says that the test starts the API server itself, or never.
	startLater bool
	// reach brings a new Cluster into the state. Before, it is registered, unless its
	// API server is started later.
	reach func(t *testing.T, w *env.Workload)
	// agentStays says that the agent cannot be removed.
	agentStays bool
	// real says that the API server is a real one.
	real bool
}

var states = map[string]state{
	"registered":      {reach: func(*testing.T, *env.Workload) {}},
	"registered-real": {real: true, reach: func(*testing.T, *env.Workload) {}},
	"never-up": {startLater: true, reach: func(t *testing.T, w *env.Workload) {
		suite.EventuallyCondition(t, lab, w, fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.WaitingForControlPlaneReason)
	}},
	"refusing": {agentStays: true, reach: func(t *testing.T, w *env.Workload) {
		NewWithT(t).Expect(w.StopAPI()).To(Succeed())
	}},
	"hanging":      {agentStays: true, reach: hang},
	"dead-address": {agentStays: true, reach: moveToADeadAddress},
	"secret-gone": {agentStays: true, reach: func(t *testing.T, w *env.Workload) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name + "-kubeconfig"}}
		NewWithT(t).Expect(lab.Client.Delete(t.Context(), secret)).To(Succeed())
	}},
	// What a visit left behind that did not end is not known.
	"in-a-dial":     {startLater: true, agentStays: true, reach: startAndHangInTheFirstDial},
	"label-removed": {reach: removeLabel},
	"label-removed-before": {reach: func(t *testing.T, w *env.Workload) {
		removeLabel(t, w)
		eventuallyNoticed(t, w)
	}},
	"label-removed-hanging": {agentStays: true, reach: func(t *testing.T, w *env.Workload) {
		hang(t, w)
		removeLabel(t, w)
		eventuallyNoticed(t, w)
	}},
}

func TestDeletedClusterLeavesNothingBehindWhateverItsState(t *testing.T) {
	suite.EventuallyReady(t, lab, add(t, namespace, "stays"))
	before := suite.Inventory(NewWithT(t), t.Context(), lab)
	workloads := map[string]*env.Workload{}
	for name, state := range states {
		workloads[name] = add(t, namespace, name, func(o *env.ClusterOptions) {
			o.StartLater = state.startLater
			if state.real {
				o.Light = nil
			}
		})
	}
	for name, state := range states {
		if !state.startLater {
			suite.EventuallyReady(t, lab, workloads[name])
		}
	}
	for name, state := range states {
		state.reach(t, workloads[name])
	}
	for _, w := range workloads {
		suite.DeleteCluster(t, lab, w)
	}
	for name, w := range workloads {
		expectGone(t, w)
		if state := states[name]; !state.startLater && !state.agentStays {
			expectAgentRemoved(t, w)
		}
	}
	expectInventory(t, before)
}

// hang lets the API server answer the manager no more.
func hang(_ *testing.T, w *env.Workload) {
	w.Light().SetFault(lightapi.When(byManager, lightapi.Hang()))
}

// moveToADeadAddress lets the kubeconfig name an address where connections are taken
// and nothing is said.
func moveToADeadAddress(t *testing.T, w *env.Workload) {
	g := NewWithT(t)
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(silent.Close()).To(Succeed()) })
	kubeconfig := strings.ReplaceAll(string(w.Kubeconfig()), w.Light().URL(), "https://"+silent.Addr().String())
	g.Expect(kubeconfig).NotTo(Equal(string(w.Kubeconfig())))
	g.Expect(w.WriteKubeconfig(t.Context(), []byte(kubeconfig))).To(Succeed())
}

// startAndHangInTheFirstDial returns while the manager is in the middle of its first
// visit: the agent's Secret is there, its Deployment is not.
func startAndHangInTheFirstDial(t *testing.T, w *env.Workload) {
	g := NewWithT(t)
	reached := make(chan struct{}, 1)
	endless := lightapi.Hang()
	w.Light().SetFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !byManager(r) || !strings.Contains(r.URL.Path, "/clusterroles/") {
			return false
		}
		select {
		case reached <- struct{}{}:
		default:
		}
		return endless(rw, r)
	})
	g.Expect(w.StartAPI(t.Context())).To(Succeed())
	g.Eventually(reached).WithTimeout(suite.Patience).Should(Receive())
	suite.AgentSecret(g, t.Context(), w)
}

func TestFiftyClustersAreDeletedAtOnce(t *testing.T) {
	const n = 50
	makeNamespace(t)
	before := suite.Inventory(NewWithT(t), t.Context(), lab)
	workloads := addMany(t, namespace, "fifty", n, func(o *env.ClusterOptions) { o.NoKubelet = true })
	for _, w := range workloads {
		suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	}
	for _, w := range workloads {
		suite.DeleteCluster(t, lab, w)
	}
	for _, w := range workloads {
		expectGone(t, w)
		expectAgentRemoved(t, w)
	}
	expectInventory(t, before)
}

func TestPausedClusterIsDeletedAfterThePause(t *testing.T) {
	g := NewWithT(t)
	makeNamespace(t)
	before := suite.Inventory(g, t.Context(), lab)
	// Something else keeps the Cluster, as mostly its infrastructure does.
	w := add(t, namespace, "paused", func(o *env.ClusterOptions) {
		o.Modify = func(c *clusterv1.Cluster) { c.Finalizers = []string{"test.cluster.x-k8s.io/infrastructure"} }
	})
	const release = `{"metadata":{"finalizers":null},"spec":{"paused":false}}`
	t.Cleanup(func() { patchCluster(t, w, release) })
	reg := suite.EventuallyReady(t, lab, w)
	patchCluster(t, w, `{"spec":{"paused":true}}`)
	suite.EventuallyCondition(t, lab, w, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)

	start := suite.Mark(t, lab)
	suite.DeleteCluster(t, lab, w)
	fence(t)
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, start)) {
		g.Expect(e.Name).NotTo(Or(Equal(w.Name), Equal(reg.Status.Namespace)), "written while paused: %s %s", e.Verb, e.RequestURI)
	}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), reg)).To(Succeed())
	g.Expect(reg.DeletionTimestamp.IsZero()).To(BeTrue())
	suite.AgentSecret(g, t.Context(), w)

	patchCluster(t, w, release)
	expectGone(t, w)
	expectAgentRemoved(t, w)
	expectInventory(t, before)
}

func TestNamespaceIsDeletedWithAllItsClusters(t *testing.T) {
	const (
		doomed = "doomed"
		n      = 5
		// mostWrites is what the end of one registration takes, and some of its status.
		mostWrites = 15
	)
	g := NewWithT(t)
	ctx := t.Context()
	before := suite.Inventory(g, ctx, lab)
	for round := range 2 {
		workloads := addMany(t, doomed, fmt.Sprintf("round-%d", round), n, func(*env.ClusterOptions) {})
		for _, w := range workloads {
			suite.EventuallyReady(t, lab, w)
		}
		logged, err := lab.Manager().Log()
		g.Expect(err).NotTo(HaveOccurred())
		start := suite.Mark(t, lab)
		g.Expect(lab.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed}})).To(Succeed())
		g.Eventually(func() error {
			return lab.Client.Get(ctx, client.ObjectKey{Name: doomed}, &corev1.Namespace{})
		}).WithTimeout(bound).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
		expectInventory(t, before)

		writes := 0
		for _, e := range kube.Writes(suite.ManagerEvents(t, lab, start)) {
			if strings.Contains(e.RequestURI, doomed) {
				writes++
			}
		}
		g.Expect(writes).To(BeNumerically("<=", mostWrites*n), "no loop of creates that are refused")
		log, err := lab.Manager().Log()
		g.Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(log[len(logged):]) {
			g.Expect(line).NotTo(And(ContainSubstring(doomed), ContainSubstring("Reconciler error")))
		}
	}
}

// eventuallyNoticed waits until the registration is no longer selected, or gone.
func eventuallyNoticed(t *testing.T, w *env.Workload) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		reg := &fleetv1.FleetRegistration{}
		if err := lab.Client.Get(t.Context(), w.Key(), reg); !apierrors.IsNotFound(err) {
			g.Expect(err).NotTo(HaveOccurred())
			selected := meta.IsStatusConditionTrue(reg.Status.Conditions, fleetv1.SelectedCondition)
			g.Expect(selected && reg.DeletionTimestamp.IsZero()).To(BeFalse())
		}
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// byManager tells the manager's requests to a workload cluster, which it makes as a
// controller of Cluster API, from the lab's and the agent's.
func byManager(r *http.Request) bool { return strings.Contains(r.UserAgent(), "cluster.x-k8s.io/") }

// fence returns once the manager has worked through everything that happened before:
// it has registered a Cluster that is younger.
func fence(t *testing.T) {
	t.Helper()
	w := add(t, namespace, "late", func(o *env.ClusterOptions) { o.NoKubelet = true })
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	suite.DeleteCluster(t, lab, w)
	expectGone(t, w)
}
