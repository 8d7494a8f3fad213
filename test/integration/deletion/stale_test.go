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
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// staleStatuses writes the whole status of a Fleet Cluster, as Fleet's controller does, from
// copies that are older than what the manager and the agent wrote last.
type staleStatuses struct {
	w     *env.Workload
	known []string
	count int
}

// write writes one of the statuses that were known before. A Fleet Cluster that is not there
// is none of its business.
func (s *staleStatuses) write(g Gomega, t *testing.T) {
	t.Helper()
	cluster := &fleet.Cluster{}
	err := lab.Client.Get(t.Context(), s.w.Key(), cluster)
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return
	}
	stale := s.known[s.count%len(s.known)]
	s.count++
	patch := fmt.Appendf(nil, `[{"op":"add","path":"/status","value":%s}]`, stale)
	g.Expect(client.IgnoreNotFound(lab.Client.Status().Patch(t.Context(), cluster, client.RawPatch(types.JSONPatchType, patch)))).To(Succeed())
}

// expectFewWrites fails where the manager wrote more of a registration to the management
// cluster than it would alone and one more for each stale status.
func expectFewWrites(t *testing.T, registration *fleetv1.FleetRegistration, stale int) {
	t.Helper()
	g := NewWithT(t)
	const alone = 15
	var writes []string
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, kube.Mark{})) {
		if e.Namespace != registration.Namespace && !strings.Contains(e.RequestURI, registration.Status.Namespace) {
			continue
		}
		writes = append(writes, fmt.Sprintf("%s %s: %d", e.Verb, e.RequestURI, e.Code))
	}
	t.Logf("%d writes beside %d stale statuses", len(writes), stale)
	g.Expect(len(writes)).To(BeNumerically("<=", alone+stale), strings.Join(writes, "\n"))
}

func TestStaleStatusesDuringAJoinAndADeletionAreNoLoop(t *testing.T) {
	t.Parallel()
	const own = "stale"
	g := NewWithT(t)
	w := add(t, own, "edge", func(o *env.ClusterOptions) { o.NoKubelet = true })
	stale := &staleStatuses{w: w, known: []string{`{}`}}
	registration := &fleetv1.FleetRegistration{}
	g.Eventually(func(g Gomega) {
		stale.write(g, t)
		g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(registration.Status.Conditions, fleetv1.AgentDeployedCondition)).To(BeTrue())
		g.Expect(stale.count).To(BeNumerically(">=", 10))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	connected := fmt.Sprintf(`{"namespace":%q,"agent":{"lastSeen":%q}}`, registration.Status.Namespace, time.Now().UTC().Format(time.RFC3339))
	stale.known = append(stale.known, connected)
	g.Eventually(func(g Gomega) {
		stale.write(g, t)
		g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(registration.Status.Conditions, fleetv1.ReadyCondition)).To(BeTrue())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Eventually(func(g Gomega) {
		cluster := &fleet.Cluster{}
		g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
		g.Expect(cluster.Status.Namespace).To(Equal(registration.Status.Namespace))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	suite.EventuallyReady(t, lab, w)
	expectFewWrites(t, registration, stale.count)

	suite.DeleteCluster(t, lab, w)
	g.Eventually(func(g Gomega) {
		stale.write(g, t)
		g.Expect(lab.Client.Get(t.Context(), w.Key(), &fleetv1.FleetRegistration{})).To(Satisfy(apierrors.IsNotFound))
	}).WithTimeout(bound).WithPolling(suite.Poll).Should(Succeed())
	expectGone(t, w)
	for obj, key := range map[client.Object]client.ObjectKey{
		&fleet.Cluster{}:         w.Key(),
		&corev1.Namespace{}:      {Name: registration.Status.Namespace},
		&corev1.ServiceAccount{}: {Namespace: env.ManagerNamespace, Name: registration.Status.Namespace},
	} {
		g.Eventually(func() error { return lab.Client.Get(t.Context(), key, obj) }).
			WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound), "%T %s", obj, key)
	}
	expectFewWrites(t, registration, stale.count)
}
