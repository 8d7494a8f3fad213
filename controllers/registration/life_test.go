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

package registration

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// life is a registration with a real, if light, workload API, by a clock that only
// the test moves.
type life struct {
	*management
	reconciler *Reconciler
	workload   *lightapi.Server
	client     client.Client
}

func newLife(t *testing.T) *life {
	t.Helper()
	return newLifeOn(t, lightapi.Options{})
}

// newLifeOn has a workload API with these options.
func newLifeOn(t *testing.T, options lightapi.Options) *life {
	t.Helper()
	g := NewWithT(t)
	server, err := lightapi.New(options)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Close)
	workload, err := client.New(server.Config(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())

	host, port := server.Address()
	cluster := livingCluster()
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: host, Port: int32(port)}

	reg := owned()
	reg.Spec.Agent.Image = "agent"
	reg.Spec.Agent.ManagementCluster.Server = "https://management.example"
	m, r := newManagement(t, cluster, reg,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid-of-management"}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1-kubeconfig"},
			Data:       map[string][]byte{"value": server.Kubeconfig()},
		})
	return &life{management: m, reconciler: r, workload: server, client: workload}
}

// reconcile reconciles until nothing is left to do at once.
func (l *life) reconcile(t *testing.T) {
	t.Helper()
	for range 5 {
		result, err := l.reconciler.Reconcile(t.Context(), edge)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		if result.RequeueAfter >= decide.StartTime {
			return
		}
		l.clock.SetTime(l.clock.Now().Add(result.RequeueAfter))
	}
	t.Fatalf("still busy: %+v", l.registration(t).Status.Conditions)
}

func (l *life) heartbeat(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	cluster := &fleet.Cluster{}
	g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	cluster.Status.Agent.LastSeen = metav1.NewTime(l.clock.Now())
	g.Expect(l.Status().Update(t.Context(), cluster)).To(Succeed())
}

// agentsToken returns what the agent reads as its token.
func (l *life) agentsToken(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{}
	NewWithT(t).Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)).To(Succeed())
	return agent.Token(secret)
}

// pushedToken returns the name of that token.
func (l *life) pushedToken(t *testing.T) string {
	t.Helper()
	value := l.agentsToken(t)
	return value[strings.LastIndex(value, ".")+1:]
}

func (l *life) pass(d time.Duration) { l.clock.SetTime(l.clock.Now().Add(d)) }

func TestCredentialsAreRenewedInTimeThreeTimesInARow(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
	before := l.deployment(t)

	// The agent reports all the time, and the manager looks once an hour.
	for range 6 * 24 {
		g.Expect(l.try(t.Context(), l.agentsToken(t), "")).To(Succeed(), "the agent is never refused")
		l.heartbeat(t)
		l.reconcile(t)
		expires := l.registration(t).Status.Credential.ExpirationTime.Time
		g.Expect(expires.Sub(l.clock.Now())).To(BeNumerically(">=", 35*time.Hour), "enough for a manager that is away")
		l.pass(time.Hour)
	}
	g.Expect(l.tokens).To(BeNumerically(">=", 4))
	g.Expect(l.tokens).To(BeNumerically("<=", 7), "no sooner than after a third of the life")
	g.Expect(l.deployment(t).ResourceVersion).To(Equal(before.ResourceVersion), "the agent is never restarted")
	g.Expect(meta.IsStatusConditionTrue(l.registration(t).Status.Conditions, fleetv1.ReadyCondition)).To(BeTrue())
}

func TestASilentAgentIsPutRight(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	deployment := agent.Leftovers()[0]
	g.Expect(l.client.Delete(t.Context(), deployment)).To(Succeed())

	requests := len(l.workload.Requests())
	l.pass(40 * time.Minute)
	l.reconcile(t)
	g.Expect(l.workload.Requests()).To(HaveLen(requests), "not silent for long enough yet")

	writes := len(l.workload.Writes())
	l.pass(10 * time.Minute)
	l.reconcile(t)
	g.Expect(l.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
	g.Expect(l.workload.Writes()).To(HaveLen(writes+1), "only what was missing")
	g.Expect(l.pushedToken(t)).To(Equal("token-1"), "that was not what was wrong")
	g.Expect(hasReason(l.registration(t), fleetv1.AgentConnectedCondition, fleetv1.AgentSilentReason)).To(BeTrue(), "until it reports")
}

func TestAnAgentThatNeverReportsIsCalledSilentHoweverOftenItIsPutRight(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	g.Expect(hasReason(l.registration(t), fleetv1.AgentConnectedCondition, fleetv1.WaitingForHeartbeatReason)).To(BeTrue())
	for range 3 {
		l.pass(50 * time.Minute)
		l.reconcile(t)
		g.Expect(hasReason(l.registration(t), fleetv1.AgentConnectedCondition, fleetv1.AgentSilentReason)).To(BeTrue())
	}
	g.Expect(l.eventsSoFar()).To(ConsistOf(ContainSubstring("Warning AgentSilent")), "said once")
}

// fleetRegistered returns the Cluster's condition and its resource version.
func (l *life) fleetRegistered(t *testing.T) (*metav1.Condition, string) {
	t.Helper()
	cluster := &clusterv1.Cluster{}
	NewWithT(t).Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	return meta.FindStatusCondition(cluster.Status.Conditions, fleetv1.FleetRegisteredCondition), cluster.ResourceVersion
}

// eventsSoFar returns the events that were not returned before.
func (l *life) eventsSoFar() []string {
	var all []string
	for {
		select {
		case event := <-l.events.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

func TestTheClusterSaysWhetherItIsInFleet(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	condition, _ := l.fleetRegistered(t)
	g.Expect(condition).To(BeNil(), "it merely waits so far")
	g.Expect(l.eventsSoFar()).To(BeEmpty())

	l.heartbeat(t)
	l.reconcile(t)
	condition, version := l.fleetRegistered(t)
	g.Expect(condition).To(HaveField("Status", metav1.ConditionTrue))
	joined := condition.LastTransitionTime
	g.Expect(l.eventsSoFar()).To(ConsistOf(ContainSubstring("Normal JoinedFleet")))

	l.pass(10 * time.Minute)
	l.reconcile(t)
	_, again := l.fleetRegistered(t)
	g.Expect(again).To(Equal(version), "nothing changed, nothing is written")
	g.Expect(l.eventsSoFar()).To(BeEmpty())

	l.pass(time.Hour)
	l.reconcile(t)
	condition, _ = l.fleetRegistered(t)
	g.Expect([]any{condition.Status, condition.Reason}).To(Equal([]any{metav1.ConditionFalse, fleetv1.AgentSilentReason}))
	g.Expect(condition.LastTransitionTime.After(joined.Time)).To(BeTrue())
	g.Expect(l.eventsSoFar()).To(ConsistOf(ContainSubstring("Warning AgentSilent")))
}

func TestTheClusterSaysAtOnceWhatKeepsItOut(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1-kubeconfig"}}
	g.Expect(l.WithWatch.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(`{"data":{"value":null}}`)))).To(Succeed())
	for range 2 {
		_, err := l.reconciler.Reconcile(t.Context(), edge)
		g.Expect(err).NotTo(HaveOccurred())
	}
	condition, _ := l.fleetRegistered(t)
	g.Expect([]any{condition.Status, condition.Reason}).To(Equal([]any{metav1.ConditionFalse, fleetv1.KubeconfigKeyMissingReason}))
	g.Expect(l.eventsSoFar()).To(ConsistOf(ContainSubstring("Warning KubeconfigKeyMissing")))
}

func TestThePausedClusterIsToldNothing(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	cluster := &clusterv1.Cluster{}
	g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	g.Expect(l.WithWatch.Update(t.Context(), cluster)).To(Succeed())
	l.heartbeat(t)
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	condition, _ := l.fleetRegistered(t)
	g.Expect(condition).To(BeNil())
	g.Expect(l.eventsSoFar()).To(BeEmpty())
}

func TestTheClusterForgetsARegistrationThatIsNotMadeAnew(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	reg := l.registration(t)
	meta.SetStatusCondition(&reg.Status.Conditions, metav1.Condition{
		Type: fleetv1.SelectedCondition, Status: metav1.ConditionFalse, Reason: fleetv1.LabelRemovedReason,
	})
	g.Expect(l.Status().Update(t.Context(), reg)).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), reg)).To(Succeed())

	_, err := l.reconciler.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	condition, _ := l.fleetRegistered(t)
	g.Expect(condition).To(BeNil())
}

func TestARotationIsAskedForByTheAnnotationAndHeededOnceAMinute(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	ask := func(value string) {
		reg := l.registration(t)
		reg.Annotations = map[string]string{fleetv1.RotateAnnotation: value}
		g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	}

	l.pass(time.Hour / 2)
	ask("now")
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-2"))

	ask("again")
	result, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.pushedToken(t)).To(Equal("token-2"), "not within a minute")
	l.pass(result.RequeueAfter)
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-3"))

	l.pass(time.Minute)
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-3"), "each value once")
}

func TestATokenIsAskedForWithTheLifetimeOfTheSpec(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	reg := l.registration(t)
	reg.Spec.Credentials.Lifetime = metav1.Duration{Duration: 3 * time.Hour}
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.reconcile(t)
	credential := l.registration(t).Status.Credential
	g.Expect(credential.ExpirationTime.Sub(credential.IssuedTime.Time)).To(Equal(3 * time.Hour))
}

func TestAChangeOfManifestsKeepsTheTokenUnlessItIsDue(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	change := func(image string) {
		reg := l.registration(t)
		reg.Spec.Agent.Image = image
		g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
		l.heartbeat(t)
		_, err := l.reconciler.Reconcile(t.Context(), edge)
		g.Expect(err).NotTo(HaveOccurred())
	}
	change("agent:v2")
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
	l.pass(60 * time.Hour)
	change("agent:v3")
	g.Expect(l.pushedToken(t)).To(Equal("token-2"), "in one visit")
}

func TestAnAgentThatAnotherManagementClusterTookOverIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
	g.Expect(l.client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+fleetv1.NamespaceUIDAnnotation+`":"of-another-management-cluster"}}}`)))).To(Succeed())
	writes := len(l.workload.Writes())

	l.pass(time.Hour)
	_, err := l.reconciler.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hasReason(l.registration(t), fleetv1.AgentDeployedCondition, fleetv1.MovedAwayReason)).To(BeTrue())
	g.Expect(l.workload.Writes()).To(HaveLen(writes))
	g.Expect(l.tokens).To(Equal(1), "nothing is minted for it")
}

func TestAFleetClusterInTheWayIsTriedToBeCreatedOnce(t *testing.T) {
	g := NewWithT(t)
	reg := owned()
	theirs := fleetClusterOf(reg)
	m, r := newManagement(t, livingCluster(), reg, theirs)
	for range 3 {
		_, err := r.Reconcile(t.Context(), edge)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(hasReason(m.registration(t), fleetv1.FleetClusterReadyCondition, fleetv1.FleetClusterForeignReason)).To(BeTrue())
	g.Expect(m.writes).To(ConsistOf("create *fleet.Cluster"))
}

func TestTheFirstAnswerOfAnEndpointStartsTheDelaysAnew(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	s := newScope()
	s.cluster = &clusterv1.Cluster{}
	g.Expect(l.Get(t.Context(), edge.NamespacedName, s.cluster)).To(Succeed())
	s.attempt.failures = 5

	g.Expect(l.reconciler.probe(t.Context(), s)).To(Succeed())
	g.Expect(s.attempt.failures).To(BeZero())

	s.attempt.failures = 5
	g.Expect(l.reconciler.probe(t.Context(), s)).To(Succeed())
	g.Expect(s.attempt.failures).To(Equal(5), "only the first")
}
