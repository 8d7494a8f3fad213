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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// updateDeadline is how long an agent that was changed may take to check in.
	updateDeadline = 10 * time.Minute

	// maxPods bounds what is read of the agent's pods. There is one, or there are two
	// while it is changed; ones that failed can lie about.
	maxPods = 20
)

// checkHealth looks at an agent that was changed, was not well or does not report, and
// writes nothing.
func (r *Reconciler) checkHealth(ctx context.Context, s *scope, workload *remote.Client) error {
	deployment := &appsv1.Deployment{}
	found, err := get(ctx, workload, types.NamespacedName{Namespace: agent.Namespace, Name: agent.Name}, deployment)
	if err != nil {
		return err
	}
	if !found || !agent.Ours(deployment, s.registration.Spec.RegistrationID) {
		// The next visit that may write puts that right.
		deployment = &appsv1.Deployment{}
	}
	return r.judgeHealth(ctx, s, workload, deployment)
}

// judgeHealth turns how the agent's Deployment is into findings.
func (r *Reconciler) judgeHealth(ctx context.Context, s *scope, workload *remote.Client, deployment *appsv1.Deployment) error {
	status := &s.registration.Status
	ailment, err := diagnose(ctx, r.site(s, workload), deployment, s.registration.Spec.Agent.Image)
	if err != nil {
		return err
	}
	complete := agent.Complete(deployment)
	switch {
	case ailment != nil && ailment.Reason == fleetv1.AgentUnschedulableReason && awaitsNodes(s):
		s.agentDeployed = &finding{reason: fleetv1.WaitingForNodeReason, message: "No node of the workload cluster takes the agent's pod yet"}
	case ailment != nil:
		s.agentDeployed = &finding{reason: ailment.Reason, message: ailment.Message}
	case complete && decide.Unwell(status.Conditions):
		s.agentDeployed = &finding{ok: true, reason: fleetv1.AgentDeployedReason}
	}
	if updated := status.Agent.UpdatedTime; complete && !updated.IsZero() && status.Agent.AvailableTime.IsZero() {
		status.Agent.AvailableTime = updated
		if since := agent.AvailableSince(deployment); !since.IsZero() {
			status.Agent.AvailableTime = metav1.NewTime(since)
		}
		confirmUpdate(s)
	}
	s.attempt.checkAfter(checkPause(status.Agent, s.now), s.now)
	return nil
}

// awaitsNodes tells whether the nodes of a workload cluster may still come, or become ready:
// the agent is put there as soon as the API server answers.
func awaitsNodes(s *scope) bool {
	return !s.registration.Spec.Agent.Hosted() && s.heartbeat.Seen.IsZero() && s.now.Sub(s.cluster.CreationTimestamp.Time) < youngAge
}

// diagnose returns what is wrong with the agent's pod, or nil. It reads pods only where
// the Deployment says that something is.
func diagnose(ctx context.Context, site agentSite, deployment *appsv1.Deployment, image string) (*agent.Ailment, error) {
	if agent.Complete(deployment) || len(deployment.Status.Conditions) == 0 {
		return nil, nil
	}
	pods := &corev1.PodList{}
	err := site.reader.List(ctx, pods, client.InNamespace(site.namespace), client.MatchingLabels(site.labels), client.Limit(maxPods))
	if err != nil {
		return nil, err
	}
	return site.Diagnose(deployment, pods.Items, image), nil
}

// updating tells whether an agent was changed and may still check in.
func updating(s *scope) bool {
	return s.now.Sub(s.registration.Status.Agent.UpdatedTime.Time) < updateDeadline
}

// reportsAgain tells whether an agent that was not well has begun to report since it was
// last looked at.
func reportsAgain(s *scope) bool {
	checkin := s.registration.Spec.Agent.CheckinInterval.Duration
	return decide.Unwell(s.registration.Status.Conditions) && !decide.Reported(s.attempt.heardAtCheck, checkin, s.now)
}

// confirmUpdate notes that an agent which was changed has checked in since it became
// available. Both times are those of the workload cluster.
func confirmUpdate(s *scope) {
	update := &s.registration.Status.Agent
	if !update.AvailableTime.IsZero() && s.heartbeat.Seen.After(update.AvailableTime.Time) {
		update.UpdatedTime, update.AvailableTime = metav1.Time{}, metav1.Time{}
	}
}

// restart gives an agent that is silent although nothing is wrong with its objects and
// its pod a new pod: one that holds its lease and does nothing is like that. It is called
// once each time that the agent has been silent for too long.
func (r *Reconciler) restart(ctx context.Context, workload *remote.Client, s *scope) (wrote bool, err error) {
	if s.registration.Spec.Agent.Hosted() {
		return r.Upstream.RestartHosted(ctx, s.upstreamInput(), s.now)
	}
	deployment := &appsv1.Deployment{}
	found, err := get(ctx, workload, types.NamespacedName{Namespace: agent.Namespace, Name: agent.Name}, deployment)
	if err != nil || !found || !agent.Complete(deployment) {
		return false, err
	}
	err = workload.Patch(ctx, deployment, agent.Restart(s.now), client.FieldOwner(upstream.RestartOwner))
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return err == nil, rejected(deployment, err)
}
