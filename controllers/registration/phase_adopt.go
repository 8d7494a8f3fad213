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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// prove lets the workload cluster prove that it is the one behind the Fleet Cluster that is
// to be adopted, before anything is written in either: whoever may make a Cluster in the
// namespace may give it any name. It returns an *upstream.Refusal where there is no proof,
// which stands until the next visit is due.
func (r *Reconciler) prove(ctx context.Context, s *scope, clusterNamespace string) error {
	if s.attempt.wait(hint(s), s.now) > 0 && s.attempt.unproven != nil {
		return s.attempt.unproven
	}
	err := r.toWorkload(ctx, s, func(ctx context.Context, workload *remote.Client) error {
		there, err := readAgent(ctx, workload)
		if err != nil {
			return err
		}
		s.workloadReachable = reachable(workload)
		return r.judgeProof(ctx, s, there, clusterNamespace)
	})
	var refusal *upstream.Refusal
	var management managementError
	switch {
	case err == nil:
		s.attempt.failures, s.attempt.unproven = 0, nil
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.As(err, &management):
		return err
	case !errors.As(err, &refusal):
		s.workloadReachable = unreachable(s, true, err)
		refusal = &upstream.Refusal{Reason: fleetv1.WaitingForWorkloadReason, Message: fmt.Sprintf(
			"Fleet Cluster %s is adopted once the workload cluster has proved to be the one behind it", types.NamespacedName(s.registration.Spec.FleetCluster))}
	}
	now := r.Clock.Now()
	s.attempt.failed(now, now.Sub(s.now), oldRetryCap)
	s.attempt.unproven = refusal
	return refusal
}

// judgeProof returns an *upstream.Refusal unless the agent that is there belongs to the
// Fleet Cluster to be adopted and has a live token for its cluster namespace. What the
// Secret says anyone could write; the token only who has it.
func (r *Reconciler) judgeProof(ctx context.Context, s *scope, there presentAgent, clusterNamespace string) error {
	const where = agent.Namespace + "/" + agent.Name
	fleetCluster := types.NamespacedName(s.registration.Spec.FleetCluster)
	unproven := func(format string, args ...any) error {
		return &upstream.Refusal{Reason: fleetv1.AdoptionUnprovenReason, Message: fmt.Sprintf(
			"The workload cluster does not prove to be the one behind Fleet Cluster %s: ", fleetCluster) + fmt.Sprintf(format, args...)}
	}
	switch {
	case there.secret == nil:
		return unproven("it has no Secret %s of an agent", where)
	case !agent.Registered(there.secret, fleetCluster):
		return unproven("its Secret %s is not one that Fleet's own registration made for this Fleet Cluster", where)
	}
	value := agent.RegisteredToken(there.secret)
	if value == "" {
		return unproven("the kubeconfig in its Secret %s has no token", where)
	}
	switch err := r.TryToken(ctx, value, clusterNamespace); {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return unproven("the management cluster does not accept the token in its Secret %s for namespace %s", where, clusterNamespace)
	case err != nil:
		return managementError{err}
	}
	return nil
}
