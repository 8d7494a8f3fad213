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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// hostedPolicy is the FleetRegistrationPolicy of a lab whose agents have a placement.
const hostedPolicy = "lab"

// setPlacement makes a policy that takes labelled Clusters as the built-in one does, and
// says where their agents run.
func (l *Lab) setPlacement(ctx context.Context) error {
	if l.opts.Placement == "" {
		return nil
	}
	policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: hostedPolicy}}
	policy.Spec.Agent.Placement = l.opts.Placement
	if err := l.Client.Create(ctx, policy); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating FleetRegistrationPolicy %s: %w", policy.Name, err)
	}
	return nil
}

// hostedKubelet does what a kubelet does for the pods of hosted agents in the manager's
// namespace, which kube-controller-manager makes: it runs each agent for as long as its
// pod is to live, with the Secrets and the token of the pod on disk. It is the only node.
type hostedKubelet struct {
	lab     *Lab
	client  client.WithWatch
	changed trigger
	running map[types.UID]*hostedAgent // only for the loop
}

// hostedAgent is an agent and the pod that it runs for.
type hostedAgent struct {
	volume *volumes
	cancel context.CancelFunc
	done   chan struct{}
}

func (a *hostedAgent) stop() {
	a.cancel()
	<-a.done
	a.volume.unmountAll()
	_ = a.volume.close() // nothing is left to write
}

func (l *Lab) startHostedKubelet() {
	kubelet := &hostedKubelet{lab: l, client: l.Client, changed: newTrigger(), running: map[types.UID]*hostedAgent{}}
	namespace := client.InNamespace(ManagerNamespace)
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}} {
		l.group.Go(func() { follow(l.ctx, kubelet.client, list, kubelet.changed.fired, namespace) })
	}
	l.group.Go(func() {
		kubelet.changed.loop(l.ctx, func(err error) { l.opts.Log("hosted agents: %v", err) }, kubelet.round)
		for _, agent := range kubelet.running {
			agent.stop()
		}
	})
}

func (k *hostedKubelet) round(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := k.client.List(ctx, pods, client.InNamespace(ManagerNamespace), client.MatchingLabels{"app": agentName}); err != nil {
		return fmt.Errorf("listing the pods of hosted agents: %w", err)
	}
	var errs []error
	there := map[types.UID]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		there[pod.UID] = pod.DeletionTimestamp.IsZero()
		if there[pod.UID] {
			errs = append(errs, k.keep(ctx, pod))
		}
	}
	for uid, agent := range k.running {
		if !there[uid] {
			agent.stop()
			delete(k.running, uid)
		}
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; !pod.DeletionTimestamp.IsZero() {
			errs = append(errs, client.IgnoreNotFound(k.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})))
		}
	}
	return errors.Join(errs...)
}

// keep starts the agent of a pod, or renews its files.
func (k *hostedKubelet) keep(ctx context.Context, pod *corev1.Pod) error {
	agent := k.running[pod.UID]
	if agent != nil {
		return agent.volume.mount(ctx, k.client, pod.Namespace, &pod.Spec)
	}
	if pod.Spec.NodeName == "" {
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "lab"}}
		// The binding is an event of the pod, which brings the next round.
		if err := k.client.SubResource("binding").Create(ctx, pod, binding); err != nil {
			return fmt.Errorf("binding pod %s: %w", pod.Name, err)
		}
		return nil
	}
	volume, err := openVolumes(agentTokensDir(k.lab.Dir))
	if err != nil {
		return err
	}
	agent = &hostedAgent{volume: volume, cancel: func() {}, done: make(chan struct{})}
	spec, err := k.prepare(ctx, pod, volume)
	if err != nil {
		close(agent.done)
		agent.stop()
		return err
	}
	agentCtx, cancel := context.WithCancel(ctx)
	agent.cancel = cancel
	k.running[pod.UID] = agent
	go k.run(agentCtx, agent, spec)
	return k.writeRunning(ctx, pod)
}

// prepare mounts the volumes of a pod and returns what its agent is run with.
func (k *hostedKubelet) prepare(ctx context.Context, pod *corev1.Pod, volume *volumes) (AgentSpec, error) {
	if err := volume.mount(ctx, k.client, pod.Namespace, &pod.Spec); err != nil {
		return AgentSpec{}, err
	}
	env := containerEnv(&pod.Spec, pod.Namespace)
	path := env["KUBECONFIG"]
	if target, err := filepath.Rel(k.lab.Dir, path); err != nil || !filepath.IsLocal(target) {
		return AgentSpec{}, fmt.Errorf("the agent's KUBECONFIG %s is not in the lab's folder", path)
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return AgentSpec{}, err
	}
	return AgentSpec{Name: pod.Annotations[fleetv1.HostedForAnnotation], Kubeconfig: kubeconfig, Namespace: env["NAMESPACE"], Env: env}, nil
}

func (k *hostedKubelet) run(ctx context.Context, agent *hostedAgent, spec AgentSpec) {
	defer close(agent.done)
	namespace, name, _ := strings.Cut(spec.Name, "/")
	key := client.ObjectKey{Namespace: namespace, Name: name}
	k.lab.timeline.record(key, CredentialInPlace)
	k.lab.timeline.record(key, AgentStarted)
	for ctx.Err() == nil {
		if err := k.lab.opts.Agent(ctx, spec); err != nil && ctx.Err() == nil {
			k.lab.opts.Log("%s: the hosted agent ended: %v", spec.Name, err)
		}
		pause(ctx, restartBackoff)
	}
}

func (k *hostedKubelet) writeRunning(ctx context.Context, pod *corev1.Pod) error {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.HostIP, pod.Status.PodIP = "127.0.0.1", "127.0.0.1"
	pod.Status.PodIPs = []corev1.PodIP{{IP: "127.0.0.1"}}
	pod.Status.Conditions = nil
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		})
	}
	if err := k.client.Status().Update(ctx, pod); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of pod %s: %w", pod.Name, err)
	}
	return nil
}
