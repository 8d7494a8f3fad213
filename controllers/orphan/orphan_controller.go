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

// Package orphan reports Fleet Clusters of ours whose registration is gone, by a label
// and an Event. Such are left behind by a move to another management cluster, and where
// a registration was deleted that nothing makes anew. The manager sets it up.
//
// It deletes nothing and never touches a workload cluster. The registration controller
// takes the label off where a registration comes back.
package orphan

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// fleetClusterIndex is the cache's index that the registration controller sets up:
	// namespace and name of the Fleet Cluster.
	fleetClusterIndex = "spec.fleetCluster"

	// orphanedReason is the reason of the Event.
	orphanedReason = "Orphaned"
)

//+kubebuilder:rbac:groups=fleet.cattle.io,resources=clusters,verbs=get;list;watch;patch
//+kubebuilder:rbac:groups=fleet.addons.cluster.x-k8s.io,resources=fleetregistrations,verbs=list;watch
//+kubebuilder:rbac:groups=core,resources=namespaces,verbs=get;patch
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Fleet Clusters.
type Reconciler struct {
	// Client reads from the cache.
	Client client.Reader
	// APIReader reads without a cache what is about to be written to.
	APIReader client.Reader
	// Upstream writes the label.
	Upstream *upstream.Writer
	// Recorder records events on Fleet Clusters.
	Recorder events.EventRecorder
	// Clock is the time.
	Clock clock.PassiveClock
	// Grace is how long a Fleet Cluster has to be seen without a registration before it
	// counts as an orphan: a registration that was deleted by hand is made anew at once.
	Grace time.Duration
	// Namespace is the only one that Fleet Clusters are reported in. Empty means all.
	Namespace string

	missing sync.Map // key of a Fleet Cluster ► absence
}

// absence is since when a Fleet Cluster was seen without a registration.
type absence struct {
	uid   types.UID
	since time.Time
}

// SetupWithManager adds the controller to the manager. It needs the index of the
// registration controller, which has to be set up before.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := ctrl.NewControllerManagedBy(mgr).
		Named("orphan").
		For(&fleet.Cluster{}).
		Watches(&fleetv1.FleetRegistration{}, handler.EnqueueRequestsFromMapFunc(fleetClusterOf)).
		Complete(r); err != nil {
		return fmt.Errorf("setting up the orphan controller: %w", err)
	}
	return nil
}

func fleetClusterOf(_ context.Context, obj client.Object) []reconcile.Request {
	reg := obj.(*fleetv1.FleetRegistration)
	return []reconcile.Request{{NamespacedName: types.NamespacedName(reg.Spec.FleetCluster)}}
}

// Reconcile judges one Fleet Cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if r.Namespace != "" && req.Namespace != r.Namespace {
		return ctrl.Result{}, nil
	}
	cluster := &fleet.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		r.missing.Delete(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !upstream.MadeForRegistration(cluster) {
		r.missing.Delete(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	registered, err := hasRegistration(ctx, r.Client, cluster, client.UnsafeDisableDeepCopy,
		client.MatchingFields{fleetClusterIndex: req.String()})
	if err != nil {
		return ctrl.Result{}, err
	}
	if registered || labelled(cluster) {
		r.missing.Delete(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if left := r.Grace - r.absent(cluster); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	return ctrl.Result{}, r.report(ctx, cluster)
}

func labelled(obj client.Object) bool { return obj.GetLabels()[fleetv1.OrphanLabel] == "true" }

// hasRegistration tells whether a Fleet Cluster has a registration, also one that is
// being deleted and may yet do something about it. Which manager is responsible for the
// registration does not matter.
func hasRegistration(ctx context.Context, reader client.Reader, cluster *fleet.Cluster, opts ...client.ListOption) (bool, error) {
	list := &fleetv1.FleetRegistrationList{}
	key := client.ObjectKeyFromObject(cluster)
	if err := reader.List(ctx, list, opts...); err != nil {
		return false, fmt.Errorf("looking for the registration of Fleet Cluster %s: %w", key, err)
	}
	return slices.ContainsFunc(list.Items, func(reg fleetv1.FleetRegistration) bool {
		return types.NamespacedName(reg.Spec.FleetCluster) == key &&
			reg.Spec.RegistrationID == cluster.Annotations[fleetv1.RegistrationIDAnnotation]
	}), nil
}

// absent returns for how long the Fleet Cluster was seen without a registration. It
// begins to count where that is new.
func (r *Reconciler) absent(cluster *fleet.Cluster) time.Duration {
	key, now := client.ObjectKeyFromObject(cluster), r.Clock.Now()
	if known, ok := r.missing.Load(key); ok && known.(absence).uid == cluster.UID {
		return now.Sub(known.(absence).since)
	}
	r.missing.Store(key, absence{cluster.UID, now})
	return 0
}

// report puts the label on and records the Event.
func (r *Reconciler) report(ctx context.Context, cached *fleet.Cluster) error {
	cluster, err := r.confirm(ctx, cached)
	if err != nil || cluster == nil {
		return err
	}
	if err := r.Upstream.LabelOrphan(ctx, cluster); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(cluster)
	r.missing.Delete(key)
	ctrl.LoggerFrom(ctx).Info("The registration of a Fleet Cluster is gone", "FleetCluster", key)
	r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, orphanedReason, "Report",
		"The FleetRegistration of this Fleet Cluster is gone. Nothing was removed, and its agent may still be at work. "+
			"What to do is described in docs/operations/orphans.md; to remove it: clusterctl fleet orphans --delete %s --namespace %s", key.Name, key.Namespace)
	return nil
}

// confirm reads the Fleet Cluster live. It returns nil where the cache was behind; the
// event that brings it up to date brings another reconcile.
func (r *Reconciler) confirm(ctx context.Context, cached *fleet.Cluster) (*fleet.Cluster, error) {
	key := client.ObjectKeyFromObject(cached)
	cluster := &fleet.Cluster{}
	if err := r.APIReader.Get(ctx, key, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Fleet Cluster %s: %w", key, err)
	}
	if cluster.UID != cached.UID || !upstream.MadeForRegistration(cluster) || labelled(cluster) {
		return nil, nil
	}
	// A registration can be in another namespace than its Fleet Cluster.
	registered, err := hasRegistration(ctx, r.APIReader, cluster)
	if err != nil || registered {
		return nil, err
	}
	return cluster, nil
}
