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

package agent

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

var made = metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

// reported is a Deployment whose controller says that its pod is available, changed.
func reported(change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: newReplicaSetAvailable, LastUpdateTime: made},
			},
		},
	}
	for _, f := range change {
		f(deployment)
	}
	return deployment
}

func progressing(status corev1.ConditionStatus, reason string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.AvailableReplicas = 0
		d.Status.Conditions[1].Status, d.Status.Conditions[1].Reason = status, reason
	}
}

func TestADeploymentIsCompleteOnlyWithItsNewestPodAlone(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Complete(reported())).To(BeTrue())
	g.Expect(AvailableSince(reported())).To(BeTemporally("==", made.Time))
	for name, change := range map[string]func(*appsv1.Deployment){
		"the change was not seen yet":    func(d *appsv1.Deployment) { d.Generation++ },
		"the old pod is still there":     func(d *appsv1.Deployment) { d.Status.Replicas++ },
		"the pod is of the old template": func(d *appsv1.Deployment) { d.Status.UpdatedReplicas-- },
		"the pod is not available":       func(d *appsv1.Deployment) { d.Status.AvailableReplicas-- },
		"it is stopped": func(d *appsv1.Deployment) {
			d.Spec.Replicas, d.Status = new(int32), appsv1.DeploymentStatus{ObservedGeneration: 2}
		},
	} {
		g.Expect(Complete(reported(change))).To(BeFalse(), name)
	}
	g.Expect(AvailableSince(reported(progressing(corev1.ConditionTrue, "ReplicaSetUpdated")))).To(BeZero())
	g.Expect(Complete(&appsv1.Deployment{})).To(BeFalse())
}

func TestDiagnosisOfAPod(t *testing.T) {
	const theirs = "their-words"
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: theirs}},
		}}}
	}
	outOfMemory := waiting("CrashLoopBackOff")
	outOfMemory.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", Message: theirs}
	unschedulable := corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: theirs},
	}}
	inProgress := progressing(corev1.ConditionTrue, "ReplicaSetUpdated")
	gaveUp := progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded")
	refused := func(d *appsv1.Deployment) {
		inProgress(d)
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: theirs})
	}
	for _, tt := range []struct {
		name    string
		change  func(*appsv1.Deployment)
		pod     *corev1.PodStatus
		reason  string
		message string
	}{
		{name: "Kubernetes is about to make the pod", change: inProgress},
		{name: "the pod is about to start", change: inProgress, pod: new(waiting("ContainerCreating"))},
		{name: "the change was not seen yet", change: func(d *appsv1.Deployment) { gaveUp(d); d.Generation++ }},
		{name: "nobody looks after Deployments", change: func(d *appsv1.Deployment) { d.Status.Conditions = nil }},
		{name: "refused", change: refused, reason: fleetv1.AgentPodRejectedReason, message: "quotas"},
		{name: "image", change: inProgress, pod: new(waiting("ErrImagePull")), reason: fleetv1.AgentImagePullFailedReason, message: "our/image:v2"},
		{name: "image, later", change: inProgress, pod: new(waiting("ImagePullBackOff")), reason: fleetv1.AgentImagePullFailedReason},
		{name: "image that is no name", change: inProgress, pod: new(waiting("InvalidImageName")), reason: fleetv1.AgentImagePullFailedReason},
		{name: "crash loop", change: inProgress, pod: new(waiting("CrashLoopBackOff")), reason: fleetv1.AgentCrashLoopingReason, message: "log"},
		{name: "out of memory", change: inProgress, pod: &outOfMemory, reason: fleetv1.AgentCrashLoopingReason, message: "memory"},
		{name: "container", change: inProgress, pod: new(waiting("CreateContainerConfigError")), reason: fleetv1.AgentStartFailedReason},
		{name: "no room", change: inProgress, pod: &unschedulable, reason: fleetv1.AgentUnschedulableReason, message: "taints"},
		{name: "Kubernetes gave up", change: gaveUp, reason: fleetv1.AgentNotAvailableReason},
		{name: "was available before", change: func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 0 }, reason: fleetv1.AgentNotAvailableReason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			var pods []corev1.Pod
			if tt.pod != nil {
				pods = []corev1.Pod{{Status: *tt.pod}}
			}
			ailment := WorkloadSite().Diagnose(reported(tt.change), pods, "our/image:v2")
			if tt.reason == "" {
				g.Expect(ailment).To(BeNil())
				return
			}
			g.Expect(ailment.Reason).To(Equal(tt.reason))
			g.Expect(ailment.Message).To(ContainSubstring(tt.message))
			g.Expect(ailment.Message).NotTo(ContainSubstring(theirs))
		})
	}
}

func TestOnlyTheNewestPodIsDiagnosed(t *testing.T) {
	g := NewWithT(t)
	failing := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	}}}
	later := metav1.NewTime(made.Add(time.Minute))
	deployment := reported(progressing(corev1.ConditionTrue, "ReplicaSetUpdated"))
	old := corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: made}, Status: failing}
	fresh := corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: later}}
	g.Expect(WorkloadSite().Diagnose(deployment, []corev1.Pod{old, fresh}, "")).To(BeNil())
	fresh.DeletionTimestamp = &later
	g.Expect(WorkloadSite().Diagnose(deployment, []corev1.Pod{fresh, old}, "")).NotTo(BeNil(), "one that is about to end does not count")
}
