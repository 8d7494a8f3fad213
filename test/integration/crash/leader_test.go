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
	"math/rand/v2"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

func TestNextLeaderTakesOverAndRepeatsNothing(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "leaders"
	election := []string{
		"--leader-elect", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
	}
	leader, standby := suite.NewManager(t, lab, "leader", election...), suite.NewManager(t, lab, "standby", election...)
	g.Expect(leader.Start(ctx)).To(Succeed())
	g.Eventually(holder).WithTimeout(suite.Patience).WithPolling(suite.Poll).ShouldNot(BeEmpty())
	g.Expect(standby.Start(ctx)).To(Succeed())
	first := holder(g)
	start := suite.Mark(t, lab)

	workloads := addStopped(t, namespace, 10)
	early, late := workloads[:5], workloads[5:]
	startAPIs(t, early)
	g.Eventually(func() int {
		return len(tokens(suite.ManagerEvents(t, lab, start)))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll / 5).Should(BeNumerically(">=", 2))
	g.Expect(leader.Kill()).To(Succeed())
	killed := suite.Mark(t, lab)
	placed := placedNow(t, namespace)
	startAPIs(t, late)

	for _, w := range workloads {
		suite.EventuallyReady(t, lab, w)
	}
	g.Expect(holder(g)).NotTo(Equal(first))
	g.Expect(standby.Running()).To(BeTrue())
	expectMadeOnce(t, suite.ManagerEvents(t, lab, start), workloads)

	afterwards := creates(suite.ManagerEvents(t, lab, killed), http.StatusConflict)
	for _, reg := range placed {
		g.Expect(afterwards).NotTo(ContainElement(ContainSubstring(reg.Status.Namespace)), "what the first leader had made is not made again")
		g.Expect(afterwards).NotTo(ContainElement(HaveSuffix("/" + reg.Name)))
		if reg.Status.Agent.Revision != "" {
			g.Expect(tokens(suite.ManagerEvents(t, lab, killed))).NotTo(ContainElement(reg.Status.Namespace), "its agent has a token")
		}
	}
}

// holder returns who holds the lease, "" for nobody.
func holder(g Gomega) string {
	leases := &coordinationv1.LeaseList{}
	g.Expect(lab.Client.List(context.Background(), leases, client.InNamespace(env.ManagerNamespace))).To(Succeed())
	if len(leases.Items) == 0 {
		return ""
	}
	return ptr.Deref(leases.Items[0].Spec.HolderIdentity, "")
}

// tokens returns the service account of each token that was asked for.
func tokens(events []kube.Event) []string {
	var accounts []string
	for _, e := range events {
		if e.Resource == "serviceaccounts" && e.Subresource == "token" {
			accounts = append(accounts, e.Name)
		}
	}
	return accounts
}

// placedNow returns the registrations whose objects on the management cluster are
// known to be complete.
func placedNow(t *testing.T, namespace string) []fleetv1.FleetRegistration {
	t.Helper()
	list := &fleetv1.FleetRegistrationList{}
	NewWithT(t).Expect(lab.Client.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	var placed []fleetv1.FleetRegistration
	for _, reg := range list.Items {
		if meta.IsStatusConditionTrue(reg.Status.Conditions, fleetv1.FleetClusterReadyCondition) {
			placed = append(placed, reg)
		}
	}
	return placed
}

func TestManagerThatWasKilledAtAnyPointGoesOn(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	const (
		rounds, clusters = 3, 3
		// writesEach is about what one registration takes on the management cluster.
		writesEach = 11
	)
	random := rand.New(rand.NewPCG(20, 26))
	manager := suite.NewManager(t, lab, "manager")
	for round := range rounds {
		start := suite.Mark(t, lab)
		g.Expect(manager.Start(ctx)).To(Succeed())
		killAt := 1 + random.IntN(clusters*writesEach)
		t.Logf("round %d: killed at write %d", round+1, killAt)
		workloads := addStopped(t, fmt.Sprintf("killed-%d", round+1), clusters)
		startAPIs(t, workloads)
		g.Eventually(func() int { return len(kube.Writes(suite.ManagerEvents(t, lab, start))) }).
			WithTimeout(suite.Patience).WithPolling(suite.Poll / 5).Should(BeNumerically(">=", killAt))
		g.Expect(manager.Kill()).To(Succeed())
		g.Expect(manager.Start(ctx)).To(Succeed())
		for _, w := range workloads {
			suite.EventuallyReady(t, lab, w)
		}
		expectMadeOnce(t, suite.ManagerEvents(t, lab, start), workloads)
		g.Expect(manager.Kill()).To(Succeed())
	}
}
