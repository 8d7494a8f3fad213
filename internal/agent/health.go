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
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Ailment says why an agent's pod is not available: a reason of the AgentDeployed
// condition, and what a person needs to know, in our own words. Nothing that the workload
// cluster says is repeated.
type Ailment struct {
	Reason, Message string
}

// Site is where an agent's pod runs, as messages name it.
type Site struct{ cluster, namespace, label string }

// WorkloadSite is for pods in the workload cluster.
func WorkloadSite() Site { return Site{"workload", Namespace, "app=" + Name} }

// HostedSite is for pods in the manager's namespace.
func HostedSite(managerNamespace, clusterNamespace string) Site {
	return Site{"management", managerNamespace, clusterNamespaceLabel + "=" + clusterNamespace}
}

// pod names the agent's pod.
func (s Site) pod() string {
	return fmt.Sprintf("the pod with the label %s in namespace %s of the %s cluster", s.label, s.namespace, s.cluster)
}

// Complete tells whether the Deployment's newest pod is available and no older one is
// left.
func Complete(deployment *appsv1.Deployment) bool {
	wanted, status := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status
	return wanted > 0 && status.ObservedGeneration >= deployment.Generation &&
		status.UpdatedReplicas == wanted && status.Replicas == wanted && status.AvailableReplicas == wanted
}

// AvailableSince returns when a Deployment that is Complete became so after the last
// change of its pod template, by the workload cluster's clock; zero where it does not say
// (Kubernetes, deployment controller: the condition Progressing).
func AvailableSince(deployment *appsv1.Deployment) time.Time {
	if progressing := deploymentCondition(deployment, appsv1.DeploymentProgressing); progressing != nil &&
		progressing.Reason == newReplicaSetAvailable {
		return progressing.LastUpdateTime.Time
	}
	return time.Time{}
}

// newReplicaSetAvailable is the reason of a Deployment's condition Progressing once there
// is nothing left to do.
const newReplicaSetAvailable = "NewReplicaSetAvailable"

// Diagnose says what is wrong with the pod of a Deployment that is not Complete. It
// returns nil while Kubernetes is still about to make it. The image is the one that was
// asked for.
func (s Site) Diagnose(deployment *appsv1.Deployment, pods []corev1.Pod, image string) *Ailment {
	if deployment.Status.ObservedGeneration < deployment.Generation || len(deployment.Status.Conditions) == 0 {
		return nil
	}
	if failure := deploymentCondition(deployment, appsv1.DeploymentReplicaFailure); failure != nil && failure.Status == corev1.ConditionTrue {
		return &Ailment{fleetv1.AgentPodRejectedReason,
			fmt.Sprintf("The %s cluster refuses the agent's pod; look at the events of ReplicaSets in namespace %s, and at its Pod Security levels, quotas and admission webhooks", s.cluster, s.namespace)}
	}
	if pod := newest(pods); pod != nil {
		if ailment := s.diagnosePod(pod, image); ailment != nil {
			return ailment
		}
	}
	progressing := deploymentCondition(deployment, appsv1.DeploymentProgressing)
	if progressing != nil && progressing.Status == corev1.ConditionTrue && progressing.Reason != newReplicaSetAvailable {
		return nil
	}
	return &Ailment{fleetv1.AgentNotAvailableReason, "The agent's pod is not available; look at " + s.pod()}
}

func (s Site) diagnosePod(pod *corev1.Pod, image string) *Ailment {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return &Ailment{fleetv1.AgentUnschedulableReason,
				fmt.Sprintf("No node of the %s cluster takes the agent's pod: there is none, or its taints, room or labels do not fit", s.cluster)}
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		if container.State.Waiting == nil {
			continue
		}
		switch container.State.Waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable":
			return &Ailment{fleetv1.AgentImagePullFailedReason,
				fmt.Sprintf("The %s cluster cannot pull the agent's image %s: look at its name, at the registry and at pull secrets", s.cluster, image)}
		case "CrashLoopBackOff":
			return s.crashLooping(container)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return &Ailment{fleetv1.AgentStartFailedReason, "A node cannot start the agent's container; look at " + s.pod()}
		}
	}
	return nil
}

func (s Site) crashLooping(container corev1.ContainerStatus) *Ailment {
	if ended := container.LastTerminationState.Terminated; ended != nil && ended.Reason == "OOMKilled" {
		return &Ailment{fleetv1.AgentCrashLoopingReason, "The agent runs out of memory again and again; look at " + s.pod()}
	}
	return &Ailment{fleetv1.AgentCrashLoopingReason, "The agent ends again and again; look at the log of " + s.pod()}
}

// restartedAnnotation on the pod template is when an agent was restarted.
const restartedAnnotation = fleetv1.KeyPrefix + "restarted-at"

// Restart returns a patch of the agent's Deployment that gives it a new pod. Write it as
// an owner of its own: an apply of the Deployment would take the mark away.
func Restart(now time.Time) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`,
		restartedAnnotation, now.UTC().Format(time.RFC3339)))
}

// newest returns the pod that was made last and is not about to end: that of the newest
// template. Nil means that there is none.
func newest(pods []corev1.Pod) *corev1.Pod {
	var last *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp.IsZero() && (last == nil || last.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			last = pod
		}
	}
	return last
}

func deploymentCondition(deployment *appsv1.Deployment, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range deployment.Status.Conditions {
		if deployment.Status.Conditions[i].Type == kind {
			return &deployment.Status.Conditions[i]
		}
	}
	return nil
}
