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
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// reconcileDelete takes the registration away. If the Cluster lives, somebody
// deleted our object and nothing else: it goes, all else stays, and the object is
// made anew while the Cluster is selected.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.lives() {
		announced := meta.FindStatusCondition(s.cluster.Status.Conditions, fleetv1.FleetRegisteredCondition) != nil
		if announced && meta.IsStatusConditionFalse(s.registration.Status.Conditions, fleetv1.SelectedCondition) {
			// Nothing makes it anew, so nothing would keep the Cluster's condition true.
			if err := r.writeToCluster(ctx, s); err != nil {
				return ctrl.Result{}, err
			}
		}
		return ctrl.Result{}, r.removeFinalizer(ctx, s)
	}
	if !hasReason(s.registration, fleetv1.DeletingCondition, fleetv1.WaitingForFleetReason) {
		r.removeAgent(ctx, s)
	}
	abandon := s.now.Sub(s.registration.DeletionTimestamp.Time) > fleetDeletionTimeout
	waitingFor, err := r.Upstream.Delete(ctx, s.upstreamInput(), abandon)
	if err != nil {
		s.deleting = &finding{true, fleetv1.WaitingForFleetReason, "Taking the objects on the management cluster away"}
		return ctrl.Result{}, err
	}
	if waitingFor != "" {
		s.deleting = &finding{true, fleetv1.WaitingForFleetReason, "Waiting for Fleet to delete namespace " + waitingFor}
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{}, r.removeFinalizer(ctx, s)
}

// fleetDeletionTimeout is how long Fleet is given to delete the cluster namespace
// before the agent's account goes all the same.
const fleetDeletionTimeout = 2 * time.Minute

// removalTimeout bounds that attempt, and leaves time for what comes after it.
const removalTimeout = 20 * time.Second

// removeAgent makes one attempt to take the agent out of a workload cluster that
// is about to go. What comes of it changes nothing.
func (r *Reconciler) removeAgent(ctx context.Context, s *scope) {
	log := ctrl.LoggerFrom(ctx)
	if s.registration.Status.Agent.Revision == "" {
		return
	}
	kubeconfig, err := r.kubeconfig(ctx, s)
	if err != nil {
		log.Info("Leaving the agent in the workload cluster", "reason", remote.Classify(err).Reason)
		return
	}
	workload, err := r.Dialer.Connect(kubeconfig)
	if err != nil {
		log.Info("Leaving the agent in the workload cluster", "reason", remote.Classify(err).Reason)
		return
	}
	defer workload.Close()
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	if err := removeAgent(ctx, workload, s.registration.Spec.RegistrationID); err != nil {
		log.Info("Leaving the agent in the workload cluster", "reason", remote.Classify(err).Reason)
	}
}

func (r *Reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	reg := s.registration
	before := reg.DeepCopy()
	controllerutil.RemoveFinalizer(reg, fleetv1.FleetRegistrationFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, reg, patch, client.FieldOwner(upstream.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of FleetRegistration %s: %w", client.ObjectKeyFromObject(reg), err)
	}
	return nil
}
