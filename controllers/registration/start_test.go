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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
)

// restarted is another manager that takes over.
func (l *life) restarted() {
	l.reconciler = &Reconciler{
		Client: l, APIReader: l, Clock: l.clock, Recorder: l.events, Dialer: l.reconciler.Dialer,
		Upstream: l.reconciler.Upstream, Tokens: l.reconciler.Tokens, TryToken: l.try,
	}
}

func TestAnAgentThatCannotStartSaysWhyLongBeforeItCountsAsSilent(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	g.Expect(l.step(t)).To(Equal(decide.StartTime))
	l.deploymentSays(t, 0)
	pod := l.podWaits(t, "ImagePullBackOff")
	visits := connections(l)
	writes := len(l.workload.Writes())

	l.pass(decide.StartTime)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentImagePullFailedReason)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionFalse, fleetv1.AgentImagePullFailedReason)
	g.Expect(l.eventsSoFar()).To(ConsistOf(ContainSubstring("Warning AgentImagePullFailed")))
	g.Expect(connections(l)).To(Equal(visits + 1))

	// 30 s, 1, 2, 4, 8, 16, 26 and 36 minutes after the push.
	l.runFor(t, 44*time.Minute)
	g.Expect(connections(l)-visits).To(Equal(8), "the pauses grow up to ten minutes")
	g.Expect(l.workload.Writes()).To(HaveLen(writes), "a look writes nothing")
	g.Expect(l.eventsSoFar()).To(BeEmpty(), "said once")

	g.Expect(l.client.Delete(t.Context(), pod)).To(Succeed())
	l.deploymentSays(t, 1)
	l.heartbeat(t)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionTrue, fleetv1.ReadyReason)
	visits = connections(l)
	l.runFor(t, 40*time.Minute)
	g.Expect(connections(l)).To(Equal(visits), "one that reports is left alone")
}

// Its container can run for a while before it ends.
func TestAnAgentThatStartsAndThenEndsAgainAndAgainSaysSo(t *testing.T) {
	l := newLife(t)
	l.reconcile(t)
	l.deploymentSays(t, 1)
	l.runFor(t, time.Minute+time.Second)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	l.expect(t, fleetv1.AgentConnectedCondition, metav1.ConditionFalse, fleetv1.WaitingForHeartbeatReason)

	l.deploymentSays(t, 0)
	l.podWaits(t, "CrashLoopBackOff")
	l.runFor(t, time.Minute)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentCrashLoopingReason)
}

func TestAnAgentThatReportsInTimeIsNotLookedAt(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	visits := connections(l)
	l.pass(decide.StartTime - time.Second)
	l.heartbeat(t)
	l.runFor(t, 40*time.Minute)
	g.Expect(connections(l)).To(Equal(visits))
}

func TestAManagerThatIsRestartedLooksAtNoAgentThatReportsOrMayYet(t *testing.T) {
	for name, reports := range map[string]bool{"reports": true, "may yet": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.reconcile(t)
			if reports {
				l.heartbeat(t)
				l.runFor(t, 10*time.Minute)
			}
			visits := connections(l)
			l.restarted()
			l.runFor(t, decide.StartTime-time.Second)
			g.Expect(connections(l)).To(Equal(visits))
		})
	}
}

func TestAManagerThatIsRestartedGoesOnWithThePausesBetweenLooks(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	l.runFor(t, 20*time.Minute)
	visits := connections(l)
	l.restarted()
	l.runFor(t, 9*time.Minute)
	g.Expect(connections(l)).To(Equal(visits+1), "one look, and the next ten minutes later")
}

// A repair of an agent that was silent makes a new pod, which may not start either.
func TestAnAgentThatWasPutRightAndDoesNotStartSaysWhy(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	g.Expect(l.client.Delete(t.Context(), l.deployment(t))).To(Succeed())
	l.pass(50 * time.Minute)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	l.deploymentSays(t, 0)
	l.podWaits(t, "ErrImagePull")
	l.runFor(t, time.Minute)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentImagePullFailedReason)
}

// unschedulable makes a pod that no node takes.
func (l *life) unschedulable(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := l.podWaits(t, "")
	pod.Status = corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}}
	NewWithT(t).Expect(l.client.Status().Update(t.Context(), pod)).To(Succeed())
	return pod
}

// made sets the age of the Cluster.
func (l *life) made(t *testing.T, before time.Duration) {
	t.Helper()
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{}
	g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	cluster.CreationTimestamp = metav1.NewTime(l.clock.Now().Add(-before))
	g.Expect(l.WithWatch.Update(t.Context(), cluster)).To(Succeed())
}

// The agent is there as soon as the API server answers; nodes and their network take longer.
func TestAYoungClusterWithoutNodesIsWaitedForAndNotBlamed(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.made(t, time.Minute)
	l.reconcile(t)
	l.deploymentSays(t, 0)
	pod := l.unschedulable(t)
	visits := connections(l)
	l.runFor(t, 5*time.Minute)
	g.Expect(connections(l)-visits).To(Equal(4), "30 s, 1, 2 and 4 minutes after the push")
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForNodeReason)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionFalse, fleetv1.WaitingForNodeReason)
	g.Expect(l.eventsSoFar()).To(BeEmpty())
	condition, _ := l.fleetRegistered(t)
	g.Expect(condition).To(BeNil())

	t.Run("until it has nodes", func(t *testing.T) {
		l.pass(time.Minute)
		NewWithT(t).Expect(l.client.Delete(t.Context(), pod)).To(Succeed())
		l.deploymentSays(t, 1)
		l.heartbeat(t)
		l.step(t)
		l.expect(t, fleetv1.ReadyCondition, metav1.ConditionTrue, fleetv1.ReadyReason)
	})
}

func TestAClusterThatShouldHaveNodesByNowIsBlamed(t *testing.T) {
	for name, age := range map[string]time.Duration{"that was young": time.Minute, "that was made long ago": time.Hour} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.made(t, age)
			l.reconcile(t)
			l.deploymentSays(t, 0)
			l.unschedulable(t)
			l.runFor(t, max(time.Minute, 2*youngAge-age))
			l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentUnschedulableReason)
			g.Expect(l.eventsSoFar()).To(ConsistOf(ContainSubstring("Warning AgentUnschedulable")))
		})
	}
}

// An agent that reported once has had a node.
func TestAnAgentThatLostItsNodeIsNotWaitedFor(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.made(t, time.Minute)
	l.take(t)
	l.deploymentSays(t, 0)
	l.unschedulable(t)
	l.runFor(t, time.Minute)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentUnschedulableReason)
	upToDate := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentUpToDateCondition)
	g.Expect(upToDate.Reason).To(Equal(fleetv1.AgentUpdateFailedReason))
}

func TestLooksAtAnAgentGetRarer(t *testing.T) {
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(epoch.Add(-d)) }
	for _, tt := range []struct {
		name   string
		update fleetv1.AgentStatus
		want   time.Duration
	}{
		{"put in place just now", fleetv1.AgentStatus{PushedTime: at(0)}, decide.StartTime},
		{"put in place five minutes ago", fleetv1.AgentStatus{PushedTime: at(5 * time.Minute)}, 5 * time.Minute},
		{"put in place an hour ago", fleetv1.AgentStatus{PushedTime: at(time.Hour)}, unwellCheckCap},
		{"put in place by a clock that is ahead", fleetv1.AgentStatus{PushedTime: at(-time.Hour)}, decide.StartTime},
		{"changed just now", fleetv1.AgentStatus{PushedTime: at(0), UpdatedTime: at(0)}, firstCheck},
		{"changed twenty seconds ago", fleetv1.AgentStatus{PushedTime: at(20 * time.Second), UpdatedTime: at(20 * time.Second)}, 20 * time.Second},
		{"changed five minutes ago", fleetv1.AgentStatus{PushedTime: at(5 * time.Minute), UpdatedTime: at(5 * time.Minute)}, updatingCheckCap},
		{"changed too long ago, and put right since", fleetv1.AgentStatus{PushedTime: at(0), UpdatedTime: at(updateDeadline)}, unwellCheckCap},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(checkPause(tt.update, epoch)).To(Equal(tt.want))
		})
	}
}
