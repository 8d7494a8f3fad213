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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// fleetDeletionTimeout is how long Fleet is given to delete the cluster namespace
	// before the agent's account goes all the same.
	fleetDeletionTimeout = 2 * time.Minute

	// removalTimeout bounds one visit that takes an agent away, and leaves time for what
	// comes after it.
	removalTimeout = 20 * time.Second
)

// reconcileDelete takes the registration away. If the Cluster lives and did not opt out,
// somebody deleted our object and nothing else: it goes, all else stays, and the object
// is made anew while the Cluster is selected.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.lives() {
		if s.restored() {
			return ctrl.Result{}, r.handOver(ctx, s)
		}
		if wait := s.awaitsCluster(); wait > 0 && s.fleetCluster != nil {
			// The garbage collector takes a registration whose owner is not there. The Fleet
			// Cluster may have come back before its Cluster, as it did.
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return r.deleteAll(ctx, s)
	}
	switch doomed, err := r.doomed(ctx, s); {
	case err != nil:
		return ctrl.Result{}, err
	case doomed:
		return r.deleteAll(ctx, s)
	}
	if how, departs := decide.Departure(s.cluster.Labels, s.registration.Spec.SelectedBy, s.registration.Spec.Deletion); departs {
		return r.leave(ctx, s, how)
	}
	if done, result, err := r.finishLeaving(ctx, s); !done {
		return result, err
	}
	if meta.IsStatusConditionFalse(s.registration.Status.Conditions, fleetv1.SelectedCondition) {
		// Nothing makes it anew, so nothing would keep the Cluster's condition true.
		if err := r.forgetOnCluster(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.removeFinalizer(ctx, s)
}

// doomed tells, by the API server, whether a Cluster that the cache shows alive is gone or
// going. The garbage collector can be faster than the cache; and in a namespace that is
// being deleted all goes, in any order, and the Cluster may be the last.
func (r *Reconciler) doomed(ctx context.Context, s *scope) (bool, error) {
	key := client.ObjectKeyFromObject(s.registration)
	cluster := &clusterv1.Cluster{}
	switch err := r.APIReader.Get(ctx, key, cluster); {
	case upstream.Gone(err), err == nil && (cluster.UID != s.cluster.UID || !cluster.DeletionTimestamp.IsZero()):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	namespace := &corev1.Namespace{}
	if err := r.APIReader.Get(ctx, types.NamespacedName{Name: key.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading namespace %s: %w", key.Namespace, err)
	}
	return !namespace.DeletionTimestamp.IsZero(), nil
}

// finishLeaving takes the rest away where the Fleet Cluster is gone, by a Cluster that
// opted out and no longer does, or by a person, and tells whether there is nothing left to
// do. Nothing can be registered with what would stay: the next registration has another ID.
// The agent is the last to go, so that this is tried once; what it could not uninstall by
// then stays.
func (r *Reconciler) finishLeaving(ctx context.Context, s *scope) (done bool, _ ctrl.Result, _ error) {
	exists, err := r.Upstream.Exists(ctx, s.upstreamInput())
	switch refusal := (*upstream.Refusal)(nil); {
	case exists || errors.As(err, &refusal):
		return true, ctrl.Result{}, nil
	case err != nil:
		return false, ctrl.Result{}, err
	}
	done, result, err := r.deleteUpstream(ctx, s, upstream.DeleteOptions{FoundGone: true})
	if done && err == nil {
		r.tryRemoveAgent(ctx, s, fleetv1.AgentRemove)
	}
	return done, result, err
}

// forgetOnCluster takes our condition off the Cluster.
func (r *Reconciler) forgetOnCluster(ctx context.Context, s *scope) error {
	if meta.FindStatusCondition(s.cluster.Status.Conditions, fleetv1.FleetRegisteredCondition) == nil {
		return nil
	}
	return r.writeToCluster(ctx, s)
}

// handOver lets a registration go that a backup brought back for a Cluster which has
// another UID now. The one that is made in its place finds the Fleet Cluster to be the
// Cluster's, and with it the ID that the workload cluster knows.
func (r *Reconciler) handOver(ctx context.Context, s *scope) error {
	in := s.upstreamInput()
	in.ClusterUID = s.namesake.UID
	if err := r.Upstream.SetClusterUID(ctx, in); err != nil {
		return err
	}
	return r.removeFinalizer(ctx, s)
}

// deleteAll takes everything away, since the Cluster is gone or going.
func (r *Reconciler) deleteAll(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !hasReason(s.registration, fleetv1.DeletingCondition, fleetv1.WaitingForFleetReason) {
		if done, err := r.removeHosted(ctx, s, stopTimeout); err != nil || !done {
			return ctrl.Result{RequeueAfter: time.Second}, err
		}
		r.tryRemoveAgent(ctx, s, fleetv1.AgentRemove)
	}
	if done, result, err := r.deleteUpstream(ctx, s, upstream.DeleteOptions{}); !done {
		return result, err
	}
	r.tellOfFleetCluster(ctx, s)
	return ctrl.Result{}, r.removeFinalizer(ctx, s)
}

// deleteUpstream takes the objects on the management cluster away, and tells whether
// that is done. Fleet has its time to delete the cluster namespace.
func (r *Reconciler) deleteUpstream(ctx context.Context, s *scope, opts upstream.DeleteOptions) (done bool, _ ctrl.Result, _ error) {
	opts.Abandon = s.attempt.leavingFor(s.now) > fleetDeletionTimeout
	namespace, err := r.Upstream.Delete(ctx, s.upstreamInput(), opts)
	if err != nil {
		s.deleting = &finding{true, fleetv1.WaitingForFleetReason, "Taking the objects on the management cluster away"}
		return false, ctrl.Result{}, err
	}
	if namespace != "" && !opts.Abandon {
		s.deleting = &finding{true, fleetv1.WaitingForFleetReason, "Waiting for Fleet to delete namespace " + namespace}
		return false, ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if !opts.KeepAccount {
		// An earlier step may have left it to work, and that is over whatever ended it.
		if done, err := r.removeHosted(ctx, s, stopTimeout); err != nil || !done {
			return false, ctrl.Result{RequeueAfter: time.Second}, err
		}
		r.tellOfNamespace(s, namespace)
	}
	return true, ctrl.Result{}, nil
}

// namespaceLeftReason is the reason of the event for a cluster namespace that Fleet did not
// delete in time, which nobody looks after from now on.
const namespaceLeftReason = "NamespaceLeft"

// tellOfNamespace tells of a cluster namespace that stays, if there is one. The Cluster may
// be gone.
func (r *Reconciler) tellOfNamespace(s *scope, namespace string) {
	if namespace == "" {
		return
	}
	r.Recorder.Eventf(s.registration, nil, corev1.EventTypeWarning, namespaceLeftReason, "Deregister",
		"Fleet did not delete namespace %s in %s. Look whether fleet-controller runs, and delete it once nothing in it is needed", namespace, fleetDeletionTimeout)
}

// fleetClusterLeftReason is the reason of the event on a registration whose Fleet Cluster
// stays because it is not ours to delete any more.
const fleetClusterLeftReason = "FleetClusterLeft"

// tellOfFleetCluster records an event where a registration ends whose Fleet Cluster somebody
// took a mark off, by which it was ours: nobody else looks after it.
func (r *Reconciler) tellOfFleetCluster(ctx context.Context, s *scope) {
	in := s.upstreamInput()
	if in.ClusterUID == "" {
		in.ClusterUID = decide.OwnerUID(s.registration)
	}
	_, err := r.Upstream.Exists(ctx, in)
	if refused := (*upstream.Refusal)(nil); !errors.As(err, &refused) {
		return
	}
	r.Recorder.Eventf(s.registration, nil, corev1.EventTypeWarning, fleetClusterLeftReason, "Deregister",
		"Fleet Cluster %s stays, since marks that made it ours were taken off. Delete it once no agent works for it", in.FleetCluster)
}

// agentLeftReason is the reason of the event for an agent that could not be taken out of
// its workload cluster with its registration.
const agentLeftReason = "AgentCleanupSkipped"

// tryRemoveAgent makes one attempt to take the agent, of which not all may have been put in
// place, out of a workload cluster that is about to go or where it can do nothing any more.
// What comes of it changes nothing.
func (r *Reconciler) tryRemoveAgent(ctx context.Context, s *scope, what fleetv1.AgentDeletion) {
	if s.registration.Status.Agent.Revision == "" && !isTrue(s.registration, fleetv1.WorkloadReachableCondition) {
		return
	}
	err := r.toWorkload(ctx, s, func(ctx context.Context, workload *remote.Client) error {
		return removeAgent(ctx, workload, s.registration, what)
	})
	if err == nil {
		return
	}
	r.Recorder.Eventf(s.registration, nil, corev1.EventTypeWarning, agentLeftReason, "Deregister",
		"What there is of the agent stays in the workload cluster: %s", remote.Classify(err).Message)
}

// errOtherCluster says that a kubeconfig leads to a cluster which is not the one that was
// registered. Nothing that is seen there says anything about that one.
var errOtherCluster = &remote.Error{
	Reason:  fleetv1.WorkloadClusterChangedReason,
	Message: "the kubeconfig leads to another cluster than the one that was registered",
}

// sameCluster tells whether a workload cluster is the one that was registered, by the UID
// of its namespace kube-system. Where none was recorded, there is nothing to compare.
func sameCluster(reg *fleetv1.FleetRegistration, systemUID types.UID) bool {
	recorded := reg.Status.Workload.SystemNamespaceUID
	return recorded == "" || recorded == systemUID
}

// toWorkload connects to the workload cluster that was registered, for a bounded time.
func (r *Reconciler) toWorkload(ctx context.Context, s *scope, visit func(context.Context, *remote.Client) error) error {
	kubeconfig, err := r.kubeconfig(ctx, s)
	if err != nil {
		return err
	}
	workload, err := r.Dialer.Connect(kubeconfig)
	if err != nil {
		return err
	}
	defer workload.Close()
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	systemUID, err := workload.SystemNamespaceUID(ctx)
	if err != nil {
		return err
	}
	if !sameCluster(s.registration, systemUID) {
		return errOtherCluster
	}
	return visit(ctx, workload)
}

func (r *Reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	reg := s.registration
	before := reg.DeepCopy()
	controllerutil.RemoveFinalizer(reg, fleetv1.FleetRegistrationFinalizer)
	return client.IgnoreNotFound(r.patch(ctx, reg, before))
}
