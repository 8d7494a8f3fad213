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

package selection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/endpoint"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/internal/written"
)

const (
	// policyStatusInterval is the least time between two looks at the registrations of a
	// policy that is as it was: a thousand that become ready, or whose tokens are renewed,
	// are not a thousand writes, nor a thousand looks at a thousand.
	policyStatusInterval = 5 * time.Second

	// unwatchedInterval is how often the ConfigMap or Secret that a policy names for
	// its CA is looked for again: they are not watched.
	unwatchedInterval = 10 * time.Second

	// changeInterval is how often one that is there is looked at for a change.
	changeInterval = 10 * time.Minute

	// policyIndex finds the registrations of a policy in the cache.
	policyIndex = "spec.selectedBy.policy"
)

// policyReconciler reports on FleetRegistrationPolicies.
type policyReconciler struct {
	client   client.Client
	endpoint *endpoint.Resolver
	clock    clock.PassiveClock

	looks sync.Map // name of a policy ► its last look
}

// look is when a policy's registrations were looked at, and which generation it had.
type look struct {
	at         time.Time
	generation int64
}

// policyNameOf is the index of registrations by their policy, empty for the built-in one.
func policyNameOf(obj client.Object) []string {
	return []string{obj.(*fleetv1.FleetRegistration).Spec.SelectedBy.Policy}
}

func (r *Reconciler) setupPolicies(mgr ctrl.Manager) error {
	policies := &policyReconciler{client: r.Client, endpoint: r.Endpoint, clock: r.Clock}
	if err := ctrl.NewControllerManagedBy(mgr).
		Named("policy").
		For(&fleetv1.FleetRegistrationPolicy{}).
		Watches(&fleetv1.FleetRegistration{}, handler.EnqueueRequestsFromMapFunc(policyOf)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(policies.all)).
		Complete(policies); err != nil {
		return fmt.Errorf("setting up the policy controller: %w", err)
	}
	return nil
}

func policyOf(_ context.Context, obj client.Object) []reconcile.Request {
	policy := obj.(*fleetv1.FleetRegistration).Spec.SelectedBy.Policy
	if policy == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: policy}}}
}

func (r *policyReconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &fleetv1.FleetRegistrationPolicyList{}
	if err := r.client.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list FleetRegistrationPolicies")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile reports on one policy.
func (r *policyReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	policy := &fleetv1.FleetRegistrationPolicy{}
	if err := r.client.Get(ctx, req.NamespacedName, policy); err != nil {
		r.looks.Delete(req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := r.clock.Now()
	if last, ok := r.looks.Load(req.Name); ok && last.(look).generation == policy.Generation {
		if wait := policyStatusInterval - now.Sub(last.(look).at); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	r.looks.Store(req.Name, look{at: now, generation: policy.Generation})
	status, err := r.status(ctx, policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	result := ctrl.Result{}
	if unwatched(policy.Spec.ManagementCluster.CA) || unwatched(policy.Spec.Agent.AdditionalCA) {
		// What changes there changes status.revision, which brings the Clusters back.
		result.RequeueAfter = changeInterval
	}
	if ready := meta.FindStatusCondition(status.Conditions, fleetv1.ReadyCondition); ready.Reason == fleetv1.CAUnavailableReason {
		// When it turns up, the change of our status brings the Clusters back.
		result.RequeueAfter = unwatchedInterval
	}
	if equality.Semantic.DeepEqual(policy.Status, status) {
		return result, nil
	}
	err = written.ApplyStatus(ctx, r.client, policy, &status, upstream.FieldOwner, client.ForceOwnership)
	return result, client.IgnoreNotFound(err)
}

// unwatched tells whether a CA is in an object that is not watched.
func unwatched(ca fleetv1.CASource) bool { return ca.ConfigMap.Name != "" || ca.Secret.Name != "" }

func (r *policyReconciler) status(ctx context.Context, policy *fleetv1.FleetRegistrationPolicy) (fleetv1.FleetRegistrationPolicyStatus, error) {
	list := &fleetv1.FleetRegistrationList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy, client.MatchingFields{policyIndex: policy.Name}); err != nil {
		return fleetv1.FleetRegistrationPolicyStatus{}, fmt.Errorf("listing the registrations of FleetRegistrationPolicy %s: %w", policy.Name, err)
	}
	ready := 0
	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, fleetv1.ReadyCondition) {
			ready++
		}
	}
	wanted, problem, err := r.agent(ctx, policy)
	if err != nil {
		return fleetv1.FleetRegistrationPolicyStatus{}, err
	}
	condition := metav1.Condition{
		Type: fleetv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: fleetv1.ReadyReason,
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	}
	if err := decide.ValidateSelectors(policy); err != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, fleetv1.PolicyInvalidReason, err.Error()
	} else if problem != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, problem.Reason, problem.Message
	}
	status := *policy.Status.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, condition)
	status.Matched, status.Ready = countOf(len(list.Items)), countOf(ready)
	if problem == nil {
		r.reportRollout(&status, decide.ProgressOf(policy.Spec.Rollout, list.Items, wanted))
		status.Revision = decide.Settings(wanted)
	}
	return status, nil
}

// reportRollout puts how far a rollout is into the status of its policy.
func (r *policyReconciler) reportRollout(status *fleetv1.FleetRegistrationPolicyStatus, progress decide.Progress) {
	condition := metav1.Condition{
		Type: fleetv1.RolledOutCondition, Status: metav1.ConditionFalse, Reason: progress.Reason, Message: progress.Message,
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	}
	if progress.Done {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	status.Updated, status.Failed = countOf(progress.Updated), countOf(progress.Failed)
}

func countOf(n int) *int32 {
	return ptr.To(int32(min(n, 1<<30))) //nolint:gosec // Not more than fits.
}

// agent resolves what the agents of a policy are made from, or says what keeps them from
// being made.
func (r *policyReconciler) agent(ctx context.Context, policy *fleetv1.FleetRegistrationPolicy) (fleetv1.AgentSpec, *endpoint.Error, error) {
	agent, err := r.endpoint.Resolve(ctx, policy.Spec)
	var problem *endpoint.Error
	switch {
	case errors.As(err, &problem):
		return agent, problem, nil
	case err != nil:
		return agent, nil, err
	case agent.Image == "":
		return agent, r.endpoint.ImageUnknown(), nil
	}
	return agent, nil, nil
}
