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
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// findTarget finds what should be on the Fleet Cluster and what of it cannot be had.
func (r *Reconciler) findTarget(ctx context.Context, s *scope) {
	spec := s.registration.Spec
	if wanted := spec.PolicyFleetCluster; wanted.Name != "" {
		s.unmet = append(s.unmet, targeting.Problem{Reason: fleetv1.FleetClusterImmutableReason, Message: fmt.Sprintf(
			"The policy would have Fleet Cluster %s/%s now. It stays %s/%s for the life of the registration; to move it, let the Cluster leave Fleet and join again",
			wanted.Namespace, wanted.Name, spec.FleetCluster.Namespace, spec.FleetCluster.Name)})
	}
	target, unmet := targeting.Resolve(spec.Targeting, s.cluster, spec.FleetCluster.Namespace)
	s.target, s.unmet = target, append(s.unmet, unmet...)
	if target.Class == nil {
		return
	}
	err := r.Upstream.LookClass(ctx, *target.Class)
	if refusal := (*upstream.Refusal)(nil); errors.As(err, &refusal) {
		s.stayOut(refusal)
		return
	}
	s.targetErr = err
}

// stayOut leaves the Fleet Cluster in the group that it is in.
func (s *scope) stayOut(refusal *upstream.Refusal) {
	s.target = s.target.StayOut()
	s.unmet = append(s.unmet, targeting.Problem{Reason: refusal.Reason, Message: refusal.Message})
}

// reconcileTarget brings what Fleet selects and templates by in line. What keeps it from
// that keeps nothing else from being done: the agent has to get its credentials all the
// same.
func (r *Reconciler) reconcileTarget(ctx context.Context, s *scope) {
	// One that the cache does not show was made with all that it can have by then.
	if s.targetErr != nil || s.fleetCluster == nil || s.target.Patch(s.fleetCluster) == nil {
		return
	}
	retarget := func() error { return r.Upstream.Retarget(ctx, s.upstreamInput()) }
	wanted := targeting.LabelledClass(s.target.Labels)
	if s.target.Class == nil || wanted == "" || wanted == targeting.LabelledClass(s.fleetCluster.Labels) {
		s.targetErr = retarget()
		return
	}
	// The group of another ClusterClass is made before the Fleet Cluster moves there, so that
	// it is in one all the time: Fleet would uninstall what it has from both.
	s.targetErr = r.Upstream.JoinClass(ctx, *s.target.Class, retarget)
	if refusal := (*upstream.Refusal)(nil); errors.As(s.targetErr, &refusal) {
		s.stayOut(refusal)
		s.targetErr = retarget()
	}
}

// awaitsClass tells whether something may come about that no event tells of: a ClusterClass,
// or an object that no longer is in the way of its group.
func (s *scope) awaitsClass() bool {
	return slices.ContainsFunc(s.unmet, func(problem targeting.Problem) bool {
		return problem.Reason == fleetv1.ClassMissingReason || problem.Reason == fleetv1.ClassGroupForeignReason
	})
}

// notOnlyStatus lets through what may put an object in the way of a group, or out of it.
// Fleet writes the status of groups all the time.
func notOnlyStatus() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// classObjectToRegistrations finds the registrations whose Clusters are to be in a group, or
// to be reached through a mapping, by its name: it may be somebody else's.
func (r *Reconciler) classObjectToRegistrations(ctx context.Context, obj client.Object) []reconcile.Request {
	list := &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to find the registrations of a group")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		reg := &list.Items[i]
		namespace, key := reg.Spec.FleetCluster.Namespace, client.ObjectKeyFromObject(reg)
		if reg.Spec.Targeting.Groups != fleetv1.GroupsClusterClass || namespace != obj.GetNamespace() && namespace != obj.GetName() {
			continue
		}
		cluster := &clusterv1.Cluster{}
		if err := r.Client.Get(ctx, key, cluster); err != nil {
			continue // Its own event brings it.
		}
		if class, _ := targeting.ClassOf(reg.Spec.Targeting, cluster, namespace); class != nil && upstream.IsOf(*class, obj) {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}
