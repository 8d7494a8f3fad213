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
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// stopTimeout is how long an agent is given to be seen stopped.
	stopTimeout = 2 * time.Minute

	// uninstallTimeout is how long an agent is given, once its bundles are gone, to
	// uninstall them.
	uninstallTimeout = 2 * time.Minute
)

// Reasons of the events that tell the owner of a Cluster how its registration ended.
const (
	leftReason         = "LeftFleet"
	leftAsOrphanReason = "LeftAsOrphan"
)

// leave takes a Cluster that opted out, and lives on, out of Fleet.
func (r *Reconciler) leave(ctx context.Context, s *scope, how fleetv1.DeletionSpec) (ctrl.Result, error) {
	if status := &s.registration.Status; status.Namespace == "" {
		// The manager may have ended between a push and the report of it, and the agent run.
		found, err := r.Upstream.Find(ctx, s.upstreamInput())
		if err != nil {
			return ctrl.Result{}, err
		}
		status.Namespace, status.NamespaceUID = found.Namespace, found.NamespaceUID
	}
	if how.Workloads == fleetv1.WorkloadsUninstall {
		return r.leaveUninstalled(ctx, s, how.Agent)
	}
	return r.leaveRunning(ctx, s, how.Agent)
}

// leaveRunning leaves what is deployed as it is. An agent that runs would uninstall it
// as soon as the Fleet Cluster goes, so that stays until the agent was seen to have
// stopped; for good if it never is.
func (r *Reconciler) leaveRunning(ctx context.Context, s *scope, what fleetv1.AgentDeletion) (ctrl.Result, error) {
	// What the status says of an earlier try proves nothing.
	exists, err := r.Upstream.Exists(ctx, s.upstreamInput())
	if refusal := (*upstream.Refusal)(nil); err != nil && !errors.As(err, &refusal) {
		return ctrl.Result{}, err
	}
	if exists {
		waitsFor, err := r.stopAgent(ctx, s, what)
		switch {
		case err != nil:
			return ctrl.Result{}, err
		case waitsFor == "":
		case s.attempt.leavingFor(s.now) < stopTimeout:
			s.deleting = &finding{true, fleetv1.StoppingAgentReason, waitsFor}
			return ctrl.Result{RequeueAfter: s.attempt.failed(r.Clock.Now(), 0, youngRetryCap)}, nil
		default:
			return ctrl.Result{}, r.leaveAsOrphan(ctx, s)
		}
	}
	if done, result, err := r.deleteUpstream(ctx, s, upstream.DeleteOptions{FoundGone: !exists}); !done {
		return result, err
	}
	// There was no need to see the agent stop where there is no Fleet Cluster, or where it
	// cannot have worked.
	r.tryRemoveAgent(ctx, s, what)
	return ctrl.Result{}, r.left(ctx, s, corev1.EventTypeNormal, leftReason, "The cluster is out of Fleet. What Fleet deployed there goes on running")
}

func (r *Reconciler) leaveAsOrphan(ctx context.Context, s *scope) error {
	if err := r.Upstream.Orphan(ctx, s.upstreamInput()); err != nil {
		return err
	}
	if _, err := r.Upstream.RemoveHosted(ctx, s.upstreamInput(), true); err != nil {
		return err
	}
	return r.left(ctx, s, corev1.EventTypeWarning, leftAsOrphanReason, fmt.Sprintf(
		"The agent could not be seen to have stopped, and without its Fleet Cluster it would uninstall what it deployed. So Fleet Cluster %s stays, labelled %s",
		types.NamespacedName(s.registration.Spec.FleetCluster), fleetv1.OrphanLabel))
}

// leaveUninstalled lets the agent uninstall what it deployed, which it does when its
// BundleDeployments go with the Fleet Cluster, and then takes it away.
func (r *Reconciler) leaveUninstalled(ctx context.Context, s *scope, what fleetv1.AgentDeletion) (ctrl.Result, error) {
	if done, result, err := r.deleteUpstream(ctx, s, upstream.DeleteOptions{KeepAccount: true}); !done {
		return result, err
	}
	last := s.attempt.leavingFor(s.now) >= fleetDeletionTimeout+uninstallTimeout
	left := r.uninstalled(ctx, s, what, last)
	if left != "" && !last {
		s.deleting = &finding{true, fleetv1.UninstallingWorkloadsReason, "Waiting until all is uninstalled. " + left}
		return ctrl.Result{RequeueAfter: s.attempt.failed(r.Clock.Now(), 0, youngRetryCap)}, nil
	}
	namespace, err := r.Upstream.Delete(ctx, s.upstreamInput(), upstream.DeleteOptions{Abandon: true})
	if err != nil {
		return ctrl.Result{}, err
	}
	if done, err := r.removeHosted(ctx, s, fleetDeletionTimeout+uninstallTimeout+stopTimeout); err != nil || !done {
		return ctrl.Result{RequeueAfter: time.Second}, err
	}
	r.tellOfNamespace(s, namespace)
	if left != "" {
		return ctrl.Result{}, r.left(ctx, s, corev1.EventTypeWarning, leftReason, "The cluster is out of Fleet, but not all that Fleet deployed there is known to be gone. "+left)
	}
	return ctrl.Result{}, r.left(ctx, s, corev1.EventTypeNormal, leftReason, "The cluster is out of Fleet. What Fleet had deployed there was uninstalled")
}

// left ends the registration of a Cluster that lives on, and tells its owner.
func (r *Reconciler) left(ctx context.Context, s *scope, kind, reason, note string) error {
	if err := r.forgetOnCluster(ctx, s); err != nil {
		return err
	}
	r.tellOfFleetCluster(ctx, s)
	if err := r.removeFinalizer(ctx, s); err != nil {
		return err
	}
	r.Recorder.Eventf(s.cluster, nil, kind, reason, "Deregister", "%s", note)
	return nil
}

// stopAgent stops our agent and takes its objects away. It returns what it waits for,
// empty once the agent was seen to have stopped or there cannot be one.
func (r *Reconciler) stopAgent(ctx context.Context, s *scope, what fleetv1.AgentDeletion) (waitsFor string, err error) {
	never, err := r.neverHadAgent(ctx, s)
	if err != nil {
		return "", err
	}
	if was, err := r.wasHosted(ctx, s); err != nil {
		return "", err
	} else if was {
		refused := (*upstream.Refusal)(nil)
		switch there, stopped, err := r.stopHosted(ctx, s, what); {
		case errors.As(err, &refused):
			return "The agent on the management cluster cannot be stopped: " + refused.Message, nil
		case err != nil:
			return "", err
		case !stopped:
			return "Waiting for the agent to stop", nil
		case there:
			return "", nil
		}
	}
	stopped, others := false, false
	err = r.toWorkload(ctx, s, func(ctx context.Context, workload *remote.Client) error {
		there, err := readAgent(ctx, workload)
		if err != nil {
			return err
		}
		if there.holder(s.registration.Spec.RegistrationID) != agent.HeldByNobody && !there.belongsTo(s.registration) {
			// What we see is not ours, and ours may still run.
			stopped, others = never, true
			return nil
		}
		if stopped, err = stop(ctx, workload, there); err != nil || !stopped {
			return err
		}
		return discard(ctx, workload, s.registration, there, what)
	})
	switch {
	case never, stopped && err == nil:
		return "", nil
	case err != nil:
		return "Waiting for the workload cluster, in which the agent is to be stopped: " + remote.Classify(err).Message, nil
	}
	if others {
		return "The agent there is not this registration's, and whether its own still runs cannot be seen", nil
	}
	return "Waiting for the agent to stop", nil
}

// neverHadAgent tells whether no agent can ever have worked in the cluster namespace:
// none was pushed, none has reported, and there is nothing that it could uninstall.
func (r *Reconciler) neverHadAgent(ctx context.Context, s *scope) (bool, error) {
	status := s.registration.Status
	if status.Agent.Revision != "" || !s.heartbeat.Seen.IsZero() {
		return false, nil
	}
	if status.Namespace == "" {
		return true, nil
	}
	deployments, err := r.bundleDeployments(ctx, status.Namespace)
	return err == nil && len(deployments) == 0, err
}

// stop scales the agent to nothing and tells whether it is seen to run no more.
func stop(ctx context.Context, workload *remote.Client, there presentAgent) (stopped bool, err error) {
	if d := there.deployment; d != nil && (d.Spec.Replicas == nil || *d.Spec.Replicas != 0) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
		if err := workload.Patch(ctx, d, patch, client.FieldOwner(upstream.FieldOwner)); err != nil {
			return false, err
		}
	}
	if !agent.Stopped(there.deployment) {
		return false, nil
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := workload.List(ctx, pods, client.InNamespace(agent.Namespace), client.MatchingLabels(agent.PodLabels()), client.Limit(1)); err != nil {
		return false, err
	}
	return len(pods.Items) == 0, nil
}

// discard takes the objects of an agent that is done away, or only its credentials.
func discard(ctx context.Context, workload *remote.Client, reg *fleetv1.FleetRegistration, there presentAgent, what fleetv1.AgentDeletion) error {
	switch {
	case what == fleetv1.AgentKeep:
		if err := removePullSecrets(ctx, workload, reg.Spec.RegistrationID, nil); err != nil {
			return err
		}
		if there.secret == nil {
			return nil
		}
		return remove(ctx, workload, there.secret)
	case !there.belongsTo(reg):
		// Nobody's, such as what another registration left stopped.
		return nil
	}
	return removeAll(ctx, workload, reg.Spec.RegistrationID, there)
}

// uninstalled takes the agent away once everything that it deployed is uninstalled, the
// last time in any case. It returns what is left, empty once nothing is.
func (r *Reconciler) uninstalled(ctx context.Context, s *scope, what fleetv1.AgentDeletion, last bool) (left string) {
	err := r.toWorkload(ctx, s, func(ctx context.Context, workload *remote.Client) error {
		there, err := readAgent(ctx, workload)
		if err != nil {
			return err
		}
		releases, err := fleetReleases(ctx, workload)
		if err != nil {
			return err
		}
		ours := there.belongsTo(s.registration)
		switch {
		case len(releases) > 0 && !ours:
			left = fmt.Sprintf("%d of its releases are there, and no agent of this registration", len(releases))
			return nil
		case len(releases) > 0:
			left = fmt.Sprintf("%d of its releases are there", len(releases))
		}
		if !ours || left != "" && !last {
			return nil
		}
		if what == fleetv1.AgentKeep {
			if stopped, err := stop(ctx, workload, there); err != nil || !stopped {
				left = "Its agent has not stopped yet"
				return err
			}
		}
		return discard(ctx, workload, s.registration, there, what)
	})
	if err != nil {
		return "The workload cluster cannot be looked into: " + remote.Classify(err).Message
	}
	return left
}
