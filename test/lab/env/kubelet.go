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

package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// agentName is the name of the agent's Deployment, and the value of the label app
// of its pods.
const agentName = "fleet-agent"

// restartBackoff is the pause before an agent that ended by itself runs again.
const restartBackoff = time.Second

// AgentStart is one start of an agent.
type AgentStart struct {
	Time time.Time
	// Pod is the name of the pod that the agent was started for. Two starts with the
	// same pod mean that the agent ended by itself in between.
	Pod string
	// Template is a hash of the pod template.
	Template string
}

// AgentSpec says how an agent is run: what its pod would tell it.
type AgentSpec struct {
	// Name is that of the workload cluster.
	Name string
	// Kubeconfig is the content of a kubeconfig whose user may do everything in the
	// workload cluster.
	Kubeconfig []byte
	// Namespace is the agent's own.
	Namespace string
	// Env holds the variables of the container, by name.
	Env map[string]string
}

// AgentFunc runs an agent until ctx ends. An agent that returns before is started
// again after a second.
type AgentFunc func(ctx context.Context, spec AgentSpec) error

// kubelet does in one workload cluster what a kubelet and some controllers of
// kube-controller-manager do in a cluster with nodes, as far as Fleet's agent needs
// it: it runs the agent of Deployment fleet-agent in namespace cattle-fleet-system
// for as long as that wants a replica, with a Pod to show for it, keeps the
// Deployment's status, mounts the Secrets of the pod, makes default service accounts
// and finishes deleted namespaces.
//
// A pod is replaced as with strategy Recreate, whatever the Deployment says: the
// agent ends before its pod goes, and the next starts after that. Only where the new image
// cannot be pulled, and the Deployment does not ask for Recreate, does the old agent go on
// beside the pod that waits.
type kubelet struct {
	client client.WithWatch
	volume *volumes
	run    AgentFunc
	spec   AgentSpec // without Env
	report func(error)
	// observe is called when the agent's Secret and Deployment are seen, with true
	// where both are there, and started when an agent starts.
	observe func(complete bool)
	started func()

	changed trigger
	running *runningAgent // only for the loop
	pending *pendingPod   // only for the loop

	mu         sync.Mutex
	starts     []AgentStart
	unpullable map[string]bool
}

// pendingPod is a pod whose image cannot be pulled.
type pendingPod struct {
	pod      client.ObjectKey
	template string
}

// runningAgent is an agent and the pod that it runs for.
type runningAgent struct {
	pod      client.ObjectKey
	spec     *corev1.PodSpec
	since    metav1.Time
	template string
	owner    *appsv1.Deployment
	cancel   context.CancelFunc
	done     chan struct{}
}

func (a *runningAgent) stop() {
	a.cancel()
	<-a.done
}

// loop works until ctx ends, and then ends the agent.
func (k *kubelet) loop(ctx context.Context) {
	var group sync.WaitGroup
	namespace := client.InNamespace(k.spec.Namespace)
	for _, watched := range []struct {
		list client.ObjectList
		opts []client.ListOption
	}{
		{&corev1.NamespaceList{}, nil},
		{&appsv1.DeploymentList{}, []client.ListOption{namespace}},
		{&corev1.SecretList{}, []client.ListOption{namespace}},
		{&corev1.PodList{}, []client.ListOption{namespace}},
	} {
		group.Go(func() { follow(ctx, k.client, watched.list, k.changed.fired, watched.opts...) })
	}
	k.changed.loop(ctx, k.report, k.round)
	if k.running != nil {
		k.running.stop()
	}
	group.Wait()
}

func (k *kubelet) round(ctx context.Context) error {
	return errors.Join(k.keepAgent(ctx), keepNamespaces(ctx, k.client))
}

// keepAgent brings the agent, its pod and the Deployment's status in line with the
// Deployment. Nothing happens to an agent while the API server does not answer.
func (k *kubelet) keepAgent(ctx context.Context) error {
	deployment, err := k.deployment(ctx)
	if err != nil {
		return err
	}
	k.observeObjects(ctx, deployment)
	template, err := wantedTemplate(deployment)
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := k.client.List(ctx, &pods, client.InNamespace(k.spec.Namespace), client.MatchingLabels{"app": agentName}); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}

	blocked := template != "" && k.cannotPull(deployment) && (k.running == nil || k.running.template != template)
	goesOn := blocked && deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
	if k.running != nil && (k.running.template != template && !goesOn || k.running.owner.UID != deployment.GetUID() || !alive(pods.Items, k.running.pod)) {
		k.running.stop()
		k.running = nil
	}
	if k.running == nil {
		k.volume.unmountAll()
	}
	if k.pending != nil && (!blocked || k.pending.template != template || !alive(pods.Items, k.pending.pod)) {
		k.pending = nil
	}
	if err := k.removePods(ctx, pods.Items); err != nil {
		return err
	}

	var errs []error
	switch {
	case blocked && k.running != nil:
		errs = append(errs, k.volume.mount(ctx, k.client, k.spec.Namespace, k.running.spec), k.pend(ctx, deployment, template))
	case blocked:
		errs = append(errs, k.pend(ctx, deployment, template))
	case template != "":
		if err := k.volume.mount(ctx, k.client, k.spec.Namespace, &deployment.Spec.Template.Spec); err != nil {
			errs = append(errs, err)
		} else if k.running == nil {
			errs = append(errs, k.start(ctx, deployment, template))
		}
	}
	if k.running != nil {
		errs = append(errs, k.writePodStatus(ctx))
	}
	if deployment != nil {
		errs = append(errs, k.writeDeploymentStatus(ctx, deployment, template), k.finishForeground(ctx, deployment))
	}
	return errors.Join(errs...)
}

// setUnpullable has pods of these images, and of no others, wait for their image.
func (k *kubelet) setUnpullable(images []string) {
	k.mu.Lock()
	k.unpullable = map[string]bool{}
	for _, image := range images {
		k.unpullable[image] = true
	}
	k.mu.Unlock()
	k.changed.fire()
}

func (k *kubelet) cannotPull(deployment *appsv1.Deployment) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if k.unpullable[container.Image] {
			return true
		}
	}
	return false
}

// pend makes a pod that waits for its image.
func (k *kubelet) pend(ctx context.Context, deployment *appsv1.Deployment, template string) error {
	if k.pending != nil {
		return nil
	}
	pod, err := k.createPod(ctx, deployment, template)
	if err != nil {
		return err
	}
	k.pending = &pendingPod{client.ObjectKeyFromObject(pod), template}
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp}}
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image"}},
		})
	}
	if err := k.writeStatus(ctx, pod); err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// deployment returns the agent's Deployment, nil where there is none.
func (k *kubelet) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	err := k.client.Get(ctx, client.ObjectKey{Namespace: k.spec.Namespace, Name: agentName}, deployment)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the agent's Deployment: %w", err)
	}
	return deployment, nil
}

func (k *kubelet) observeObjects(ctx context.Context, deployment *appsv1.Deployment) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := k.client.Get(ctx, client.ObjectKey{Namespace: k.spec.Namespace, Name: agentName}, secret)
	k.observe(deployment != nil && err == nil)
}

// wantedTemplate returns a hash of the pod template, empty where no pod is wanted.
func wantedTemplate(deployment *appsv1.Deployment) (string, error) {
	if deployment == nil || !deployment.DeletionTimestamp.IsZero() || ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
		return "", nil
	}
	content, err := json.Marshal(deployment.Spec.Template)
	if err != nil {
		return "", fmt.Errorf("reading the agent's pod template: %w", err)
	}
	return digest(content)[:10], nil
}

func alive(pods []corev1.Pod, key client.ObjectKey) bool {
	for i := range pods {
		if client.ObjectKeyFromObject(&pods[i]) == key {
			return pods[i].DeletionTimestamp.IsZero()
		}
	}
	return false
}

// removePods deletes every pod of an agent but that of the running one and the one that
// waits, at once, as a kubelet does when the containers of a pod have ended.
func (k *kubelet) removePods(ctx context.Context, pods []corev1.Pod) error {
	for i := range pods {
		pod := &pods[i]
		key := client.ObjectKeyFromObject(pod)
		if k.running != nil && key == k.running.pod || k.pending != nil && key == k.pending.pod {
			continue
		}
		if err := k.client.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

func (k *kubelet) createPod(ctx context.Context, deployment *appsv1.Deployment, template string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			// Not by the API server: Cluster API's in-memory one generates no names.
			Name:        agentName + "-" + template + "-" + rand.String(5),
			Namespace:   k.spec.Namespace,
			Labels:      deployment.Spec.Template.Labels,
			Annotations: deployment.Spec.Template.Annotations,
		},
		Spec: *deployment.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = "lab"
	// Without UIDs there are no owners: the in-memory API server refuses to delete an object
	// whose dependents went before it.
	if deployment.UID != "" {
		if err := controllerutil.SetControllerReference(deployment, pod, k.client.Scheme()); err != nil {
			return nil, err
		}
	}
	if err := k.client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("creating the agent's pod: %w", err)
	}
	return pod, nil
}

// start makes a pod and runs the agent for it, again whenever it ends by itself.
func (k *kubelet) start(ctx context.Context, deployment *appsv1.Deployment, template string) error {
	pod, err := k.createPod(ctx, deployment, template)
	if err != nil {
		return err
	}

	agentCtx, cancel := context.WithCancel(ctx)
	agent := &runningAgent{
		pod: client.ObjectKeyFromObject(pod), spec: &pod.Spec, since: pod.CreationTimestamp, template: template, owner: deployment,
		cancel: cancel, done: make(chan struct{}),
	}
	spec := k.spec
	spec.Env = containerEnv(&deployment.Spec.Template.Spec, k.spec.Namespace)
	k.running = agent
	go func() {
		defer close(agent.done)
		for agentCtx.Err() == nil {
			k.recordStart(agent)
			if err := k.run(agentCtx, spec); err != nil && agentCtx.Err() == nil {
				k.report(fmt.Errorf("the agent ended: %w", err))
			}
			pause(agentCtx, restartBackoff)
		}
	}()
	return nil
}

func (k *kubelet) recordStart(agent *runningAgent) {
	k.mu.Lock()
	k.starts = append(k.starts, AgentStart{Time: time.Now(), Pod: agent.pod.Name, Template: agent.template})
	k.mu.Unlock()
	k.started()
	k.changed.fire() // The pod's status counts restarts.
}

// agentStarts returns every start so far, oldest first.
func (k *kubelet) agentStarts() []AgentStart {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]AgentStart(nil), k.starts...)
}

// containerEnv returns the variables of the pod's first container that have a value
// here: plain ones, and the namespace.
func containerEnv(spec *corev1.PodSpec, namespace string) map[string]string {
	env := map[string]string{}
	if len(spec.Containers) == 0 {
		return env
	}
	for _, v := range spec.Containers[0].Env {
		switch {
		case v.ValueFrom == nil:
			env[v.Name] = v.Value
		case v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
			env[v.Name] = namespace
		}
	}
	return env
}

func (k *kubelet) writePodStatus(ctx context.Context) error {
	pod := &corev1.Pod{}
	if err := k.client.Get(ctx, k.running.pod, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	restarts := int32(-1)
	for _, start := range k.agentStarts() {
		if start.Pod == pod.Name {
			restarts++
		}
	}
	before := pod.Status.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.HostIP, pod.Status.PodIP = "127.0.0.1", "127.0.0.1"
	pod.Status.PodIPs = []corev1.PodIP{{IP: "127.0.0.1"}}
	pod.Status.StartTime = ptr.To(pod.CreationTimestamp)
	pod.Status.Conditions = nil
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp,
		})
	}
	pod.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: ptr.To(true), RestartCount: max(restarts, 0),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}},
		})
	}
	if equality.Semantic.DeepEqual(before, &pod.Status) {
		return nil
	}
	if err := k.writeStatus(ctx, pod); err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// writeDeploymentStatus writes what kube-controller-manager would.
func (k *kubelet) writeDeploymentStatus(ctx context.Context, deployment *appsv1.Deployment, template string) error {
	before := deployment.Status.DeepCopy()
	status := &deployment.Status
	status.ObservedGeneration = deployment.Generation
	status.Replicas, status.UpdatedReplicas, status.AvailableReplicas = 0, 0, 0
	available := corev1.ConditionFalse
	progressing := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated", LastUpdateTime: metav1.Now()}
	if k.running != nil {
		status.Replicas, status.AvailableReplicas, available = 1, 1, corev1.ConditionTrue
		if k.running.template == template {
			status.UpdatedReplicas = 1
			progressing.Reason, progressing.LastUpdateTime = "NewReplicaSetAvailable", k.running.since
		}
	}
	if k.pending != nil {
		status.Replicas++
		status.UpdatedReplicas = 1
	}
	status.ReadyReplicas = status.AvailableReplicas
	status.UnavailableReplicas = max(ptr.Deref(deployment.Spec.Replicas, 1), status.Replicas) - status.AvailableReplicas
	setCondition(status, appsv1.DeploymentAvailable, available, "MinimumReplicasAvailable", "MinimumReplicasUnavailable")
	setProgressing(status, progressing)
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	if err := k.writeStatus(ctx, deployment); err != nil {
		return fmt.Errorf("writing the status of Deployment %s: %w", deployment.Name, err)
	}
	return nil
}

// writeStatus writes the status of an object. One that is gone is no error.
func (k *kubelet) writeStatus(ctx context.Context, o client.Object) error {
	err := k.client.Status().Update(ctx, o)
	if !apierrors.IsNotFound(err) {
		return err
	}
	// Else it is Cluster API's in-memory API server, which has no status apart from the
	// rest, and takes every update for a new generation.
	if deployment, ok := o.(*appsv1.Deployment); ok {
		deployment.Status.ObservedGeneration++
	}
	return client.IgnoreNotFound(k.client.Update(ctx, o))
}

func setCondition(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, value corev1.ConditionStatus, yes, no string) {
	reason := yes
	if value != corev1.ConditionTrue {
		reason = no
	}
	now := metav1.Now()
	condition := appsv1.DeploymentCondition{Type: kind, Status: value, Reason: reason, LastUpdateTime: now, LastTransitionTime: now}
	for i := range status.Conditions {
		if status.Conditions[i].Type != kind {
			continue
		}
		if status.Conditions[i].Status != value {
			status.Conditions[i] = condition
		}
		return
	}
	status.Conditions = append(status.Conditions, condition)
}

// setProgressing replaces the condition where its reason changes, or where it is about
// another pod.
func setProgressing(status *appsv1.DeploymentStatus, condition appsv1.DeploymentCondition) {
	condition.LastTransitionTime = condition.LastUpdateTime
	for i := range status.Conditions {
		was := &status.Conditions[i]
		if was.Type != condition.Type {
			continue
		}
		condition.LastTransitionTime = was.LastTransitionTime
		if was.Reason != condition.Reason || condition.Reason == "NewReplicaSetAvailable" && was.LastUpdateTime.Before(&condition.LastUpdateTime) {
			*was = condition
		}
		return
	}
	status.Conditions = append(status.Conditions, condition)
}

// finishForeground does the garbage collector's part in a foreground deletion: the
// pods are gone by now.
func (k *kubelet) finishForeground(ctx context.Context, deployment *appsv1.Deployment) error {
	if deployment.DeletionTimestamp.IsZero() {
		return nil
	}
	before := deployment.DeepCopy()
	removed := controllerutil.RemoveFinalizer(deployment, metav1.FinalizerDeleteDependents)
	if !controllerutil.RemoveFinalizer(deployment, metav1.FinalizerOrphanDependents) && !removed {
		return nil
	}
	if err := k.client.Patch(ctx, deployment, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("finishing the deletion of Deployment %s: %w", deployment.Name, err)
	}
	return nil
}

// agentTokensDir is the folder under the lab's that Secrets are mounted in.
func agentTokensDir(dir string) string { return filepath.Join(dir, "tokens") }

// agentNamespace is where agents run.
const agentNamespace = fleet.DefaultAgentNamespace
