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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// joined returns a registration whose agent has reported.
func joined(t *testing.T) *life {
	t.Helper()
	l := newLife(t)
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
	return l
}

func (l *life) expect(t *testing.T, condition string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	found := meta.FindStatusCondition(l.registration(t).Status.Conditions, condition)
	NewWithT(t).Expect(found).To(And(HaveField("Status", status), HaveField("Reason", reason)))
}

// step reconciles once and returns when the next time is due.
func (l *life) step(t *testing.T) time.Duration {
	t.Helper()
	result, err := l.reconciler.Reconcile(t.Context(), edge)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// take gives the registration another image, as a rollout does, and reconciles once.
func (l *life) take(t *testing.T) {
	t.Helper()
	reg := l.registration(t)
	reg.Spec.Agent.Image = "agent:v2"
	NewWithT(t).Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.step(t)
}

func (l *life) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	NewWithT(t).Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, deployment)).To(Succeed())
	return deployment
}

// deploymentSays does what the workload cluster's Deployment controller does: with 1 the
// new pod is available, with 0 it is not yet, and the old one still there.
func (l *life) deploymentSays(t *testing.T, available int32) {
	t.Helper()
	deployment := l.deployment(t)
	reason := "NewReplicaSetAvailable"
	if available == 0 {
		reason = "ReplicaSetUpdated"
	}
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: 2 - available, UpdatedReplicas: 1, AvailableReplicas: 1, UnavailableReplicas: 1 - available,
		Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: reason, LastUpdateTime: metav1.NewTime(l.clock.Now()),
		}},
	}
	NewWithT(t).Expect(l.client.Status().Update(t.Context(), deployment)).To(Succeed())
}

// podWaits makes a pod of the agent whose container waits for that reason.
func (l *life) podWaits(t *testing.T, reason string) *corev1.Pod {
	t.Helper()
	g := NewWithT(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: "agent-2", Labels: agent.PodLabels()},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: agent.Name, Image: "agent"}}},
	}
	g.Expect(l.client.Create(t.Context(), pod)).To(Succeed())
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: agent.Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "their words"}},
	}}
	g.Expect(l.client.Status().Update(t.Context(), pod)).To(Succeed())
	return pod
}

func TestAnAgentThatWasChangedIsWatchedUntilItHasCheckedIn(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	before := l.registration(t).Status.Agent.Image
	g.Expect(before).NotTo(BeEmpty())
	l.take(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
	wanted := l.registration(t).Spec.Agent.Image
	g.Expect(wanted).NotTo(Equal(before))

	l.deploymentSays(t, 0)
	l.heartbeat(t) // of the old pod
	requests := len(l.workload.Requests())
	g.Expect(l.step(t)).To(Equal(firstCheck))
	g.Expect(l.workload.Requests()).To(HaveLen(requests), "not before it is time")
	writes := len(l.workload.Writes())
	l.pass(firstCheck)
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)

	l.deploymentSays(t, 1)
	writes++
	l.pass(time.Minute)
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
	g.Expect(l.registration(t).Status.Agent.Image).To(Equal(before), "nobody knows yet what runs")
	l.pass(time.Second)
	l.heartbeat(t)
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
	g.Expect(l.registration(t).Status.Agent.Image).To(Equal(wanted))
	g.Expect(l.workload.Writes()).To(HaveLen(writes), "a look writes nothing")

	requests = len(l.workload.Requests())
	l.pass(time.Minute)
	l.step(t)
	g.Expect(l.workload.Requests()).To(HaveLen(requests), "that was all")
	g.Expect(l.eventsSoFar()).To(ConsistOf(ContainSubstring("JoinedFleet")), "an update is no news to the Cluster")
}

func TestAHeartbeatIsAReasonToLookAtAnAgentThatWasChangedAtOnce(t *testing.T) {
	l := joined(t)
	l.take(t)
	l.deploymentSays(t, 1)
	l.pass(time.Second)
	l.heartbeat(t)
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
}

func TestAnAgentThatDoesNotComeBackCountsAsFailedAndIsLookedAtLessAndLess(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.take(t)
	visits := func(d time.Duration) int {
		visits := 0
		for end := l.clock.Now().Add(d); l.clock.Now().Before(end); {
			l.heartbeat(t) // of the old pod
			before := len(l.workload.Requests())
			l.pass(max(l.step(t), time.Second))
			if len(l.workload.Requests()) > before {
				visits++
			}
		}
		return visits
	}
	g.Expect(visits(updateDeadline)).To(BeNumerically("~", 12, 3))
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdateFailedReason)
	g.Expect(visits(2 * time.Hour)).To(BeNumerically("~", 14, 3))

	l.deploymentSays(t, 1)
	l.pass(unwellCheckCap)
	l.heartbeat(t)
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
}

func TestAnImageThatCannotBePulledIsSaidAtOnceAndTakenBackWhenItCan(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.take(t)
	l.deploymentSays(t, 0)
	pod := l.podWaits(t, "ImagePullBackOff")
	l.pass(firstCheck)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentImagePullFailedReason)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdateFailedReason)
	message := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition).Message
	g.Expect(message).To(And(ContainSubstring("agent:v2"), Not(ContainSubstring("their words"))))

	requests := len(l.workload.Requests())
	l.step(t)
	g.Expect(l.workload.Requests()).To(HaveLen(requests), "no loop")

	g.Expect(l.client.Delete(t.Context(), pod)).To(Succeed())
	l.deploymentSays(t, 1)
	l.pass(time.Minute)
	l.heartbeat(t)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
}

// It would take a place in a rollout, and settings that are held back by one.
func TestARepairIsNoUpdate(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	deployment := l.deployment(t)
	deployment.Spec.Template.Spec.Containers[0].Image = "another"
	g.Expect(l.client.Update(t.Context(), deployment)).To(Succeed())

	l.pass(time.Hour)
	l.step(t)

	g.Expect(l.deployment(t).Spec.Template.Spec.Containers[0].Image).To(Equal("agent"))
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
	reg := l.registration(t)
	g.Expect(decide.Changing(reg)).To(BeFalse())
	g.Expect(reg.Status.Agent.UpdatedTime.IsZero()).To(BeTrue())
}

func TestAChangeThatAManagerDidNotLiveToRecordIsWatchedByTheNext(t *testing.T) {
	l := joined(t)
	before := l.registration(t).Status
	l.take(t)
	reg := l.registration(t)
	reg.Status = before
	NewWithT(t).Expect(l.Status().Update(t.Context(), reg)).To(Succeed())

	l.restarted()
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
}

func TestSettingsThatMakeNoOtherObjectsAreInPlaceAtOnce(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	requests := len(l.workload.Requests())
	reg := l.registration(t)
	reg.Spec.Agent.Manifests, l.reconciler.Manifests = "next", "next"
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
	g.Expect(l.workload.Requests()).To(HaveLen(requests))
}

// upgrade makes the manager one of another version, which builds other manifests.
func (l *life) upgrade() {
	l.reconciler.Manifests, l.reconciler.TokenDir = "next", "/of/the/next/version"
}

func TestBeforeItsTurnAnAgentGetsAFreshCredentialAndWhatIsMissingAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	before, revision := l.deployment(t), l.registration(t).Status.Agent.Revision
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
	g.Expect(l.client.Delete(t.Context(), account)).To(Succeed())
	l.upgrade()
	requests := len(l.workload.Requests())
	l.step(t)
	g.Expect(l.workload.Requests()).To(HaveLen(requests), "a new version alone is no reason to visit")

	l.pass(60 * time.Hour)
	l.heartbeat(t)
	l.step(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-2"))
	g.Expect(l.deployment(t).ResourceVersion).To(Equal(before.ResourceVersion))
	g.Expect(l.client.Get(t.Context(), client.ObjectKeyFromObject(account), account)).To(Succeed())
	secret := &corev1.Secret{}
	g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)).To(Succeed())
	g.Expect(string(secret.Data["kubeconfig"])).NotTo(ContainSubstring("/of/the/next/version"), "the pod that runs has no such folder")
	g.Expect(string(secret.Data["kubeconfig"])).To(ContainSubstring(agent.Token(secret)))
	g.Expect(l.registration(t).Status.Agent.Revision).To(Equal(revision))
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)

	reg := l.registration(t)
	reg.Spec.Agent.Manifests = "next"
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.step(t)
	g.Expect(l.deployment(t).ResourceVersion).NotTo(Equal(before.ResourceVersion))
	g.Expect(l.registration(t).Status.Agent.Revision).NotTo(Equal(revision))
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
}

func TestADeploymentThatIsMissingComesAtTheNewRevision(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	revision := l.registration(t).Status.Agent.Revision
	g.Expect(l.client.Delete(t.Context(), agent.Leftovers()[0])).To(Succeed())
	l.upgrade()
	l.pass(time.Hour)
	l.runFor(t, time.Minute)
	g.Expect(l.deployment(t).Spec.Template.Spec.Containers[0].VolumeMounts).To(ContainElement(HaveField("MountPath", "/of/the/next/version")))
	g.Expect(l.registration(t).Status.Agent.Revision).NotTo(Equal(revision))
}

func TestASilentAgentWithNothingWrongIsRestartedOnceEachTime(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.deploymentSays(t, 1)
	restartedAt := func() string { return l.deployment(t).Spec.Template.Annotations[fleetv1.KeyPrefix+"restarted-at"] }
	l.pass(40 * time.Minute)
	l.step(t)
	g.Expect(restartedAt()).To(BeEmpty(), "not silent for long enough")
	l.pass(10 * time.Minute)
	l.step(t)
	first := restartedAt()
	g.Expect(first).NotTo(BeEmpty())
	l.deploymentSays(t, 1)
	for range 4 {
		l.pass(10 * time.Minute)
		l.step(t)
	}
	g.Expect(restartedAt()).To(Equal(first), "the new pod has its time")
	l.pass(10 * time.Minute)
	l.step(t)
	g.Expect(restartedAt()).NotTo(Equal(first))

	writes := l.workload.Writes()
	g.Expect(writes[len(writes)-1].Query).To(ContainSubstring("fieldManager="+upstream.RestartOwner), "an apply of ours would take the mark away otherwise")
}

func TestASilentAgentWhosePodIsNotWellIsNotRestarted(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.deploymentSays(t, 0)
	l.podWaits(t, "CrashLoopBackOff")
	l.pass(50 * time.Minute)
	l.step(t)
	g.Expect(l.deployment(t).Spec.Template.Annotations).NotTo(HaveKey(fleetv1.KeyPrefix + "restarted-at"))
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentCrashLoopingReason)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionFalse, fleetv1.AgentCrashLoopingReason)
}

func TestBundlesReadyRepeatsWhatFleetSaysOfTheCluster(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	g.Expect(meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.BundlesReadyCondition)).To(BeNil(), "Fleet has said nothing yet")
	say := func(status metav1.ConditionStatus) {
		cluster := &fleet.Cluster{}
		g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
		cluster.Status.Conditions = []fleet.Condition{{Type: "Processed", Status: metav1.ConditionTrue}, {Type: fleet.ReadyCondition, Status: status}}
		g.Expect(l.Status().Update(t.Context(), cluster)).To(Succeed())
		l.step(t)
	}
	say(metav1.ConditionFalse)
	l.expect(t, fleetv1.BundlesReadyCondition, metav1.ConditionFalse, fleetv1.BundlesNotReadyReason)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionTrue, fleetv1.ReadyReason)
	say(metav1.ConditionTrue)
	l.expect(t, fleetv1.BundlesReadyCondition, metav1.ConditionTrue, fleetv1.BundlesReadyReason)
}
