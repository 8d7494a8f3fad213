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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// refusedRetry is how often we look again at an object in our way.
const refusedRetry = 30 * time.Second

// cacheLag is how long the cache may not show what was just made. It is looked for on
// the API server only after that.
const cacheLag = 5 * time.Second

// adoptedReason is the reason of the event for a Fleet Cluster that was taken over.
const adoptedReason = "Adopted"

// reconcileUpstream makes the objects on the management cluster, and puts right what
// the cache shows amiss with them.
func (r *Reconciler) reconcileUpstream(ctx context.Context, s *scope) (ctrl.Result, error) {
	reg := s.registration
	r.findTarget(ctx, s)
	in := s.upstreamInput()
	made := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.FleetClusterReadyCondition)
	if reg.Status.Namespace == "" || made == nil || made.Status != metav1.ConditionTrue {
		return r.ensureUpstream(ctx, s, in)
	}
	account, amiss, err := r.Upstream.Look(ctx, in, s.fleetCluster)
	switch {
	case err != nil:
		return refusedUpstream(s, err)
	case amiss == "":
		s.accountUID = account
		return ctrl.Result{}, nil
	case s.now.Sub(made.LastTransitionTime.Time) < cacheLag:
		// The event that brings the cache up to date comes sooner.
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case s.fleetCluster == nil:
		return r.findFleetCluster(ctx, s, in)
	}
	ctrl.LoggerFrom(ctx).Info("Looking after the objects on the management cluster", "amiss", amiss)
	in.LookFirst = true
	return r.ensureUpstream(ctx, s, in)
}

// findFleetCluster judges a Fleet Cluster that the cache does not have: it was deleted
// or handed over, unless the cache is behind.
func (r *Reconciler) findFleetCluster(ctx context.Context, s *scope, in upstream.Registration) (ctrl.Result, error) {
	exists, err := r.Upstream.Exists(ctx, in)
	if err != nil {
		return refusedUpstream(s, err)
	}
	if exists {
		return ctrl.Result{}, nil
	}
	// It is gone, and its namespace with it. That is written down before anything is
	// made anew, or a crash could leave the old namespace's UID in the status for good.
	s.fleetClusterReady = &finding{reason: fleetv1.WaitingForFleetClusterReason, message: "The Fleet Cluster is gone and is made anew"}
	return ctrl.Result{RequeueAfter: time.Second}, nil
}

func (r *Reconciler) ensureUpstream(ctx context.Context, s *scope, in upstream.Registration) (ctrl.Result, error) {
	if s.registration.Spec.Adoption == fleetv1.AdoptionAdopt {
		in.Adopt = func(ctx context.Context, clusterNamespace string) error { return r.prove(ctx, s, clusterNamespace) }
	}
	placed, err := r.Upstream.Ensure(ctx, in, func(namespace string) bool {
		return r.namespaceTaken(ctx, s, namespace)
	})
	if err != nil {
		return refusedUpstream(s, err)
	}
	if hasReason(s.registration, fleetv1.FleetClusterReadyCondition, fleetv1.WaitingForAdoptionReason) {
		r.Recorder.Eventf(s.cluster, s.registration, corev1.EventTypeNormal, adoptedReason, "Register",
			"Fleet Cluster %s was taken over from Fleet's own registration. Its ClusterRegistrations, with their accounts, are left; the documentation says how to remove them",
			in.FleetCluster)
	}
	s.registration.Status.Namespace, s.registration.Status.NamespaceUID = placed.Namespace, placed.NamespaceUID
	if placed.AccountUID == "" {
		// The agent's tokens ended. Only when the new namespace is written down does anyone
		// get rights in it, so a crash in between ends them once more.
		s.fleetClusterReady = &finding{reason: fleetv1.WaitingForFleetClusterReason, message: "The cluster namespace is another one than before; the agent's account is made anew"}
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	s.accountUID = placed.AccountUID
	s.fleetClusterReady = &finding{ok: true, reason: fleetv1.FleetClusterCreatedReason}
	return ctrl.Result{}, nil
}

func refusedUpstream(s *scope, err error) (ctrl.Result, error) {
	var refusal *upstream.Refusal
	switch {
	case errors.Is(err, context.Canceled):
		// The manager is about to end; that is no finding.
		return ctrl.Result{}, err
	case !errors.As(err, &refusal):
		s.fleetClusterReady = internalError()
		return ctrl.Result{}, err
	}
	s.fleetClusterReady = &finding{reason: refusal.Reason, message: refusal.Message}
	switch refusal.Reason {
	case fleetv1.FleetClusterTerminatingReason, fleetv1.NamespaceTerminatingReason, fleetv1.WaitingForAdoptionReason,
		fleetv1.WaitingForAgentToStopReason:
		// Somebody is at work and soon done.
		return ctrl.Result{RequeueAfter: s.attempt.failed(s.now, 0, youngRetryCap)}, nil
	}
	return ctrl.Result{RequeueAfter: refusedRetry}, nil
}

// namespaceTaken tells whether another registration holds a cluster namespace.
// The index is the cache's; what it does not show yet is found by the create.
func (r *Reconciler) namespaceTaken(ctx context.Context, s *scope, namespace string) bool {
	list := &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{clusterNamespaceIndex: namespace}); err != nil {
		// A name that is held is found to be by the annotations of its namespace.
		return false
	}
	for i := range list.Items {
		if list.Items[i].UID != s.registration.UID {
			return true
		}
	}
	return false
}
