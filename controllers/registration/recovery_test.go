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
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// run lets the controller work until the given time: what asks to be looked at again
// is, when its time has come.
func (m *management) run(t *testing.T, r *Reconciler, until time.Time, requests ...ctrl.Request) {
	t.Helper()
	due := map[ctrl.Request]time.Time{}
	for _, request := range requests {
		due[request] = m.clock.Now()
	}
	for {
		next, at := ctrl.Request{}, until
		for _, request := range requests {
			if when, ok := due[request]; ok && when.Before(at) {
				next, at = request, when
			}
		}
		m.clock.SetTime(at)
		if next.Name == "" {
			return
		}
		result, err := r.Reconcile(t.Context(), next)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		delete(due, next)
		if result.RequeueAfter > 0 {
			due[next] = at.Add(result.RequeueAfter)
		}
	}
}

func (l *life) runFor(t *testing.T, d time.Duration) {
	t.Helper()
	l.run(t, l.reconciler, l.clock.Now().Add(d), edge)
}

// says returns the status and the reason of a condition.
func says(reg *fleetv1.FleetRegistration, condition string) []string {
	c := meta.FindStatusCondition(reg.Status.Conditions, condition)
	if c == nil {
		return nil
	}
	return []string{string(c.Status), c.Reason}
}

// workloadFault breaks the workload cluster of a registration and mends it.
type workloadFault struct {
	name, reason   string
	damage, repair func(t *testing.T, l *life)
}

func injected(name, reason string, fault lightapi.Fault) workloadFault {
	return workloadFault{
		name: name, reason: reason,
		damage: func(_ *testing.T, l *life) { l.workload.SetFault(fault) },
		repair: func(_ *testing.T, l *life) { l.workload.SetFault(nil) },
	}
}

var workloadFaults = []workloadFault{
	{
		name: "answers 401", reason: fleetv1.CredentialsRejectedReason,
		damage: func(_ *testing.T, l *life) { l.workload.RevokeToken(l.workload.Token()) },
		repair: func(_ *testing.T, l *life) { l.workload.AllowToken(l.workload.Token(), lightapi.AdminUser) },
	},
	injected("answers 403", fleetv1.AccessDeniedReason, lightapi.Refuse(http.StatusForbidden)),
	injected("answers 429", fleetv1.ServerErrorReason, lightapi.Refuse(http.StatusTooManyRequests)),
	injected("answers 503", fleetv1.ServerErrorReason, lightapi.Refuse(http.StatusServiceUnavailable)),
	injected("resets connections", fleetv1.ConnectionFailedReason, lightapi.Reset()),
	{
		name: "hangs", reason: fleetv1.ResponseTimeoutReason,
		damage: func(_ *testing.T, l *life) {
			l.workload.SetFault(lightapi.Hang())
			l.reconciler.Dialer.RequestTimeout = 300 * time.Millisecond
		},
		repair: func(_ *testing.T, l *life) {
			l.workload.SetFault(nil)
			l.reconciler.Dialer.RequestTimeout = 0
		},
	},
	{
		name: "refuses connections", reason: fleetv1.ConnectionFailedReason,
		damage: func(t *testing.T, l *life) { t.Helper(); NewWithT(t).Expect(l.workload.Stop()).To(Succeed()) },
		repair: func(t *testing.T, l *life) { t.Helper(); NewWithT(t).Expect(l.workload.Start()).To(Succeed()) },
	},
	{
		name: "presents another authority", reason: fleetv1.ServerCertificateInvalidReason,
		damage: func(t *testing.T, l *life) { t.Helper(); NewWithT(t).Expect(l.workload.RenewCA()).To(Succeed()) },
		repair: func(t *testing.T, l *life) { t.Helper(); l.writeKubeconfig(t, l.workload.Kubeconfig()) },
	},
	{
		name: "is written to in vain", reason: fleetv1.ServerErrorReason,
		damage: func(_ *testing.T, l *life) {
			l.workload.SetFault(lightapi.When(func(r *http.Request) bool { return r.Method != http.MethodGet }, lightapi.Refuse(http.StatusInternalServerError)))
		},
		repair: func(_ *testing.T, l *life) { l.workload.SetFault(nil) },
	},
}

// runUntil gives the workload cluster a few more visits to be found as it is: on a busy
// machine a short time for a request may pass before it is connected.
func (l *life) runUntil(t *testing.T, reason string) {
	t.Helper()
	for range 5 {
		if hasReason(l.registration(t), fleetv1.WorkloadReachableCondition, reason) {
			return
		}
		l.runFor(t, 2*time.Minute)
	}
}

func TestAWorkloadClusterThatFailsWhenItsTokenIsDueIsTriedWithPatienceAndRecovers(t *testing.T) {
	for _, tt := range workloadFaults {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.joined(t)
			issued := l.registration(t).Status.Credential
			tt.damage(t, l)
			l.pass(36 * time.Hour)
			l.heartbeat(t)

			before := connections(l)
			l.runFor(t, 20*time.Minute)
			l.runUntil(t, tt.reason)
			reg := l.registration(t)
			g.Expect(says(reg, fleetv1.WorkloadReachableCondition)).To(Equal([]string{"False", tt.reason}))
			g.Expect(says(reg, fleetv1.CredentialsValidCondition)).To(Equal([]string{"True", fleetv1.CredentialsIssuedReason}))
			g.Expect(says(reg, fleetv1.ReadyCondition)).To(Equal([]string{"False", tt.reason}))
			g.Expect(connections(l)-before).To(BeNumerically("<=", 25), "a backoff that grows")
			g.Expect(l.reconciler.attempts.get(edge.NamespacedName).failures).To(And(BeNumerically(">=", 12), BeNumerically("<=", 25)))

			// Now the agent is refused as well.
			l.clock.SetTime(issued.ExpirationTime.Add(time.Second))
			l.runFor(t, 5*time.Minute)
			l.runUntil(t, tt.reason)
			reg = l.registration(t)
			g.Expect(says(reg, fleetv1.WorkloadReachableCondition)).To(Equal([]string{"False", tt.reason}))
			g.Expect(says(reg, fleetv1.CredentialsValidCondition)).To(Equal([]string{"False", fleetv1.CredentialsExpiredReason}))

			tokens := l.tokens
			tt.repair(t, l)
			l.runFor(t, 3*time.Minute)
			g.Expect(l.tokens).To(Equal(tokens + 1))
			g.Expect(l.registration(t).Status.Credential.ExpirationTime.Sub(l.clock.Now())).To(BeNumerically(">", 71*time.Hour))
			g.Expect(says(l.registration(t), fleetv1.WorkloadReachableCondition)).To(Equal([]string{"True", fleetv1.WorkloadReachableReason}))
			l.heartbeat(t)
			l.runFor(t, time.Second)
			g.Expect(says(l.registration(t), fleetv1.ReadyCondition)).To(Equal([]string{"True", fleetv1.ReadyReason}))
		})
	}
}

func connections(l *life) int {
	accepted, _ := l.workload.Connections()
	return accepted
}

// The agent's way to the management cluster and the manager's way to the workload
// cluster can break and heal together. Then nothing is left to put right.
func TestAnAgentThatReportsAgainLeavesNoFindingBehind(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.joined(t)
	g.Expect(l.workload.Stop()).To(Succeed())
	l.pass(2 * time.Hour)
	l.runFor(t, 10*time.Minute)
	g.Expect(says(l.registration(t), fleetv1.WorkloadReachableCondition)).To(Equal([]string{"False", fleetv1.ConnectionFailedReason}))
	tokens := l.tokens

	g.Expect(l.workload.Start()).To(Succeed())
	l.heartbeat(t)
	l.runFor(t, 3*time.Minute)

	reg := l.registration(t)
	g.Expect(says(reg, fleetv1.WorkloadReachableCondition)).To(Equal([]string{"True", fleetv1.WorkloadReachableReason}))
	g.Expect(says(reg, fleetv1.ReadyCondition)).To(Equal([]string{"True", fleetv1.ReadyReason}))
	g.Expect(l.tokens).To(Equal(tokens), "the token was good all the time")
	quiet := connections(l)
	l.runFor(t, 10*time.Minute)
	g.Expect(connections(l)).To(Equal(quiet))
}

// Fleet's controller writes the whole status of its Clusters, from what it read a
// while ago.
func TestAHeartbeatThatStepsBackIsNoOutage(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.joined(t)
	stepBack := func(to metav1.Time) {
		cluster := &fleet.Cluster{}
		g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
		cluster.Status.Agent.LastSeen = to
		g.Expect(l.Status().Update(t.Context(), cluster)).To(Succeed())
	}
	first := metav1.NewTime(l.clock.Now())
	l.pass(40 * time.Minute)
	l.heartbeat(t)
	l.runFor(t, time.Second)
	l.eventsSoFar()
	visits := connections(l)

	for _, to := range []metav1.Time{first, {}} {
		stepBack(to)
		l.runFor(t, 15*time.Minute)
		g.Expect(says(l.registration(t), fleetv1.AgentConnectedCondition)).To(Equal([]string{"True", fleetv1.AgentConnectedReason}))
	}
	g.Expect(connections(l)).To(Equal(visits))
	g.Expect(l.eventsSoFar()).To(BeEmpty())

	l.runFor(t, 20*time.Minute)
	g.Expect(says(l.registration(t), fleetv1.AgentConnectedCondition)).To(Equal([]string{"False", fleetv1.AgentSilentReason}),
		"silence is still noticed, 45 minutes after the newest heartbeat")
}

// heartbeatOf writes a heartbeat by the clock of an agent that is wrong by so much.
func (l *life) heartbeatOf(t *testing.T, wrong time.Duration) {
	t.Helper()
	l.pass(wrong)
	l.heartbeat(t)
	l.pass(-wrong)
}

func TestAnAgentWhoseClockIsWrongIsJudgedByWhenItIsHeard(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"behind": -10 * time.Hour, "ahead": 10 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.reconcile(t)
			l.heartbeatOf(t, wrong)
			l.reconcile(t)
			visits := connections(l)
			connected := func() []string { return says(l.registration(t), fleetv1.AgentConnectedCondition) }

			l.eventsSoFar()
			for range 8 {
				l.runFor(t, 15*time.Minute)
				l.heartbeatOf(t, wrong)
				l.runFor(t, time.Second)
				g.Expect(connected()).To(Equal([]string{"True", fleetv1.AgentConnectedReason}))
			}
			// A manager that starts anew knows nothing of when it was heard.
			l.runFor(t, 14*time.Minute)
			before := l.registration(t).ResourceVersion
			l.reconciler.attempts = attempts{}
			l.runFor(t, time.Minute)
			l.heartbeatOf(t, wrong)
			l.runFor(t, time.Second)
			g.Expect(l.registration(t).ResourceVersion).To(Equal(before))
			g.Expect(connections(l)).To(Equal(visits), "nothing was wrong all the time")
			g.Expect(l.eventsSoFar()).To(BeEmpty())

			l.runFor(t, 46*time.Minute)
			g.Expect(connected()).To(Equal([]string{"False", fleetv1.AgentSilentReason}))
			g.Expect(connections(l)).To(BeNumerically(">", visits))
		})
	}
}

func TestAnAgentThatWasSilentBeforeTheManagerStartedIsSilentStill(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.joined(t)
	l.runFor(t, time.Hour)
	before := l.registration(t)
	g.Expect(says(before, fleetv1.AgentConnectedCondition)).To(Equal([]string{"False", fleetv1.AgentSilentReason}))

	l.reconciler.attempts = attempts{}
	l.runFor(t, 10*time.Second)
	g.Expect(l.registration(t).ResourceVersion).To(Equal(before.ResourceVersion))
	l.heartbeat(t)
	l.runFor(t, time.Second)
	g.Expect(says(l.registration(t), fleetv1.AgentConnectedCondition)).To(Equal([]string{"True", fleetv1.AgentConnectedReason}))
}

// lives are many registrations under one controller, each with a workload API.
type lives struct {
	*management
	reconciler *Reconciler
	requests   []ctrl.Request
	workloads  []*lightapi.Server
}

// newLives makes n. Their agents report so seldom that silence is not the matter, once they
// have reported.
func newLives(t *testing.T, n int) *lives {
	t.Helper()
	all := &lives{}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid-of-management"}}}
	for i := range n {
		server, err := lightapi.New(lightapi.Options{})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		t.Cleanup(server.Close)
		name := fmt.Sprintf("edge-%d", i)
		host, port := server.Address()
		cluster := livingCluster()
		cluster.Name, cluster.UID = name, types.UID("uid-of-cluster-"+name)
		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: host, Port: int32(port)}
		reg := owned()
		reg.Name, reg.UID = name, types.UID("uid-of-registration-"+name)
		reg.OwnerReferences = []metav1.OwnerReference{decide.OwnerReference(cluster)}
		reg.Spec.RegistrationID = "id-of-" + name
		reg.Spec.FleetCluster.Name = name
		reg.Spec.Agent.Image = "agent"
		reg.Spec.Agent.ManagementCluster.Server = "https://management.example"
		reg.Spec.Agent.CheckinInterval = metav1.Duration{Duration: 1000 * time.Hour}
		objects = append(objects, cluster, reg, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name + "-kubeconfig"},
			Data:       map[string][]byte{"value": server.Kubeconfig()},
		})
		all.workloads = append(all.workloads, server)
		all.requests = append(all.requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(reg)})
	}
	all.management, all.reconciler = newManagement(t, objects...)
	// They have nothing in common, and most of the time would go into finding that out.
	all.reconciler.Client = interceptor.NewClient(all.management, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	return all
}

func (l *lives) runFor(t *testing.T, d time.Duration) {
	t.Helper()
	l.run(t, l.reconciler, l.clock.Now().Add(d), l.requests...)
}

func (l *lives) registrations(t *testing.T) []fleetv1.FleetRegistration {
	t.Helper()
	list := &fleetv1.FleetRegistrationList{}
	NewWithT(t).Expect(l.List(t.Context(), list)).To(Succeed())
	return list.Items
}

// report has every agent send a heartbeat.
func (l *lives) report(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	list := &fleet.ClusterList{}
	g.Expect(l.List(t.Context(), list)).To(Succeed())
	g.Expect(list.Items).To(HaveLen(len(l.workloads)))
	for i := range list.Items {
		cluster := &list.Items[i]
		cluster.Status.Agent.LastSeen = metav1.NewTime(l.clock.Now())
		g.Expect(l.Status().Update(t.Context(), cluster)).To(Succeed())
	}
}

// dials returns how often each workload cluster was connected to.
func (l *lives) dials() []int {
	var dials []int
	for _, server := range l.workloads {
		accepted, _ := server.Connections()
		dials = append(dials, accepted)
	}
	return dials
}

func TestManyClustersWhoseTokensHaveExpiredRecoverWithoutAStorm(t *testing.T) {
	const count = manyClusters
	g := NewWithT(t)
	l := newLives(t, count)
	l.runFor(t, time.Second)
	g.Expect(l.tokens).To(Equal(count))
	l.report(t)

	// The manager is away for too long, and finds that no workload cluster answers.
	for _, server := range l.workloads {
		g.Expect(server.Stop()).To(Succeed())
	}
	l.clock.SetTime(l.clock.Now().Add(100 * time.Hour))
	l.runFor(t, 2*time.Minute)
	g.Expect(l.tokens).To(Equal(count), "nothing is minted that cannot be pushed")
	for _, reg := range l.registrations(t) {
		g.Expect(says(&reg, fleetv1.CredentialsValidCondition)).To(Equal([]string{"False", fleetv1.CredentialsExpiredReason}))
	}

	before, written := l.dials(), len(l.writes)
	var asked []int
	for _, server := range l.workloads {
		asked = append(asked, len(server.Requests()))
		g.Expect(server.Start()).To(Succeed())
	}
	l.runFor(t, 3*time.Minute)
	g.Expect(l.writes).To(HaveLen(written), "nothing is made anew on the management cluster")
	for i, server := range l.workloads {
		g.Expect(len(server.Requests())-asked[i]).To(BeNumerically("<=", asked[i]), "as much as it took to join, at most")
	}
	g.Expect(l.tokens).To(Equal(2 * count))
	issued := map[time.Time]int{}
	dials := l.dials()
	for i, reg := range l.registrations(t) {
		g.Expect(says(&reg, fleetv1.CredentialsValidCondition)).To(Equal([]string{"True", fleetv1.CredentialsIssuedReason}))
		g.Expect(dials[i] - before[i]).To(BeNumerically("<=", 2))
		issued[reg.Status.Credential.IssuedTime.Truncate(time.Second)]++
	}
	for _, together := range issued {
		g.Expect(together).To(BeNumerically("<=", count/2), "within one second")
	}
}

func TestClustersThatRegisteredTogetherDoNotRenewTogether(t *testing.T) {
	g := NewWithT(t)
	const life = 72 * time.Hour
	renewals := map[time.Duration]int{}
	for i := range 100 {
		in := decide.PushInput{Now: epoch, RegistrationID: fmt.Sprintf("id-%d", i), Heard: epoch.Add(life), Status: &fleetv1.FleetRegistrationStatus{}}
		in.Status.Credential = fleetv1.CredentialStatus{IssuedTime: metav1.NewTime(epoch), ExpirationTime: metav1.NewTime(epoch.Add(life))}
		renewals[decide.NextPush(in).Sub(epoch).Truncate(time.Hour)]++
	}
	for hour, together := range renewals {
		g.Expect(hour).To(And(BeNumerically(">=", life/3), BeNumerically("<", life/2)))
		g.Expect(together).To(BeNumerically("<=", 20), "in one of twelve hours")
	}
}

func TestAManagerThatIsAwayForThirtyHoursLeavesNobodyWithoutAToken(t *testing.T) {
	const life, away = 72 * time.Hour, 30 * time.Hour
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		id := fmt.Sprint(random.Uint64())
		leaves := epoch.Add(time.Duration(random.Float64() * float64(10*24*time.Hour)))
		in := decide.PushInput{Now: epoch, RegistrationID: id, Heard: epoch.Add(10000 * time.Hour), Status: &fleetv1.FleetRegistrationStatus{}}
		in.Status.Agent.Revision, in.Revision = "r", "r"
		for !in.Now.After(leaves) {
			in.Status.Credential = fleetv1.CredentialStatus{IssuedTime: metav1.NewTime(in.Now), ExpirationTime: metav1.NewTime(in.Now.Add(life))}
			in.Now = decide.NextPush(in)
		}
		g := NewWithT(t)
		g.Expect(in.Status.Credential.ExpirationTime.Sub(leaves)).To(BeNumerically(">", away), "%s, away from %s", id, leaves)
		in.Now = leaves.Add(away)
		g.Expect(decide.Push(in)).To(Or(Equal(decide.CredentialDue), BeEmpty()))
	}
}
