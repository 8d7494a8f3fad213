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

package rotation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// lastSeen returns the newest heartbeat on the Fleet Cluster.
func lastSeen(g Gomega, t *testing.T, w *env.Workload) time.Time {
	t.Helper()
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
	return cluster.Status.Agent.LastSeen.Time
}

// An agent reads its token anew about once a minute, as client-go does.
func TestADeletedServiceAccountComesBackWithATokenThatTheAgentTakesWithoutARestart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "account", env.ClusterOptions{Namespace: "account", Register: true, Light: &lightapi.Options{}})
	registration := suite.EventuallyReady(t, lab, w)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: registration.Status.Namespace}}
	key := client.ObjectKeyFromObject(account)
	g.Expect(lab.Client.Get(t.Context(), key, account)).To(Succeed())
	before := account.UID
	token := agent.Token(suite.AgentSecret(g, t.Context(), w))

	g.Expect(lab.Client.Delete(t.Context(), account)).To(Succeed())

	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), key, account)).To(Succeed())
		g.Expect(account.UID).NotTo(Equal(before))
		g.Expect(agent.Token(suite.AgentSecret(g, t.Context(), w))).NotTo(Equal(token))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	renewed := time.Now().Add(time.Second) // Heartbeats are in whole seconds.
	g.Eventually(func(g Gomega) {
		g.Expect(lastSeen(g, t, w)).To(BeTemporally(">", renewed))
	}).WithTimeout(3 * suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(w.AgentStarts()).To(HaveLen(1))
	g.Expect(w.AgentReports()).To(ConsistOf(HaveField("Restarts", BeZero())))
	suite.EventuallyCondition(t, lab, w, fleetv1.ReadyCondition, metav1.ConditionTrue, fleetv1.ReadyReason)
}
