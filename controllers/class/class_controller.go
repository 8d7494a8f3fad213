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

// Package class makes a ClusterGroup of Fleet for each ClusterClass in use, where a policy
// asks for it, and what lets the bundles of the class's namespace reach it. The manager
// sets it up.
//
// What it made is shared by all Fleet Clusters of the class in a namespace, and Fleet
// uninstalls what reached them through it once it is gone. So it goes only when the last
// of them is gone, whatever became of policies, and nothing that is not ours ever does.
package class

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	capilabels "sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// classIndex is the cache's index of Clusters by their ClusterClass: its ID, and its
	// namespace followed by a slash.
	classIndex = "spec.topology.classRef"

	// refusedRetry is how often an object in the way is looked at again although no event
	// calls for it.
	refusedRetry = time.Minute
)

//+kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
//+kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusterclasses,verbs=list;watch
//+kubebuilder:rbac:groups=fleet.addons.cluster.x-k8s.io,resources=fleetregistrations,verbs=list;watch
//+kubebuilder:rbac:groups=fleet.cattle.io,resources=clusters,verbs=list;watch
//+kubebuilder:rbac:groups=fleet.cattle.io,resources=clustergroups;bundlenamespacemappings,verbs=list;watch;create;patch;delete
//+kubebuilder:rbac:groups=fleet.cattle.io,resources=bundledeployments,verbs=list
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles ClusterClasses in use.
type Reconciler struct {
	// Client reads from the cache.
	Client client.Reader
	// APIReader reads without a cache: the Fleet Clusters that may still need a group, and
	// what is deployed to them.
	APIReader client.Reader
	// Upstream writes to the management cluster.
	Upstream *upstream.Writer
	// Recorder records events on Clusters.
	Recorder events.EventRecorder
	// WatchFilter is the value that the watch label must have. Empty takes all.
	WatchFilter string

	refused sync.Map // use ► what was reported about it
}

// use is a ClusterClass as the Fleet Clusters of a namespace use it.
type use struct {
	// namespace is that of the Fleet Clusters.
	namespace string
	// class is the ID of the ClusterClass, see targeting.Class. Of one that is only a
	// namespace and a slash, any class of the namespace is meant.
	class string
}

// SetupWithManager adds the controller and the index that it needs to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &clusterv1.Cluster{}, classIndex, classesOf); err != nil {
		return fmt.Errorf("indexing Clusters by their ClusterClass: %w", err)
	}
	if err := builder.TypedControllerManagedBy[use](mgr).
		Named("class").
		Watches(&fleetv1.FleetRegistration{}, enqueue(r.ofRegistration), builder.WithPredicates(newNeed())).
		Watches(&clusterv1.Cluster{}, enqueue(r.ofCluster), builder.WithPredicates(newNeed())).
		WatchesMetadata(&clusterv1.ClusterClass{}, enqueue(r.ofClass), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&fleet.Cluster{}, enqueue(r.ofFleetCluster), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&fleet.ClusterGroup{}, enqueue(ofGroup)).
		Watches(&fleet.BundleNamespaceMapping{}, enqueue(ofMapping)).
		Complete(r); err != nil {
		return fmt.Errorf("setting up the class controller: %w", err)
	}
	return nil
}

func enqueue(uses func(context.Context, client.Object) []use) handler.TypedEventHandler[client.Object, use] {
	return handler.TypedEnqueueRequestsFromMapFunc(uses)
}

// newNeed lets through what may change the need of a Cluster or its registration for a
// group. Status does not.
func newNeed() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return annotations.HasPaused(e.ObjectOld) != annotations.HasPaused(e.ObjectNew) ||
				decide.Moving(e.ObjectOld) != decide.Moving(e.ObjectNew) || !e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	})
}

// classesOf is the index.
func classesOf(obj client.Object) []string {
	id := targeting.ClassKey(obj.(*clusterv1.Cluster))
	if id == "" {
		return nil
	}
	namespace, _ := targeting.SplitClass(id)
	return []string{id, anyOf(namespace)}
}

func anyOf(namespace string) string { return namespace + "/" }

func (r *Reconciler) ofRegistration(ctx context.Context, obj client.Object) []use {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(obj), cluster); err != nil {
		// The Fleet Cluster goes after it, and brings its class.
		return nil
	}
	return usesOf(obj.(*fleetv1.FleetRegistration), cluster)
}

func (r *Reconciler) ofCluster(ctx context.Context, obj client.Object) []use {
	reg := &fleetv1.FleetRegistration{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(obj), reg); err != nil {
		return nil
	}
	return usesOf(reg, obj.(*clusterv1.Cluster))
}

func usesOf(reg *fleetv1.FleetRegistration, cluster *clusterv1.Cluster) []use {
	if id := targeting.ClassKey(cluster); id != "" {
		return []use{{reg.Spec.FleetCluster.Namespace, id}}
	}
	return nil
}

func (r *Reconciler) ofClass(ctx context.Context, obj client.Object) []use {
	users, err := r.users(ctx, targeting.Class{ClassNamespace: obj.GetNamespace(), Name: obj.GetName()}.ID())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to find the Clusters of a ClusterClass")
		return nil
	}
	var uses []use
	for _, user := range users {
		uses = append(uses, usesOf(user.registration, user.cluster)...)
	}
	return uses
}

// ofFleetCluster returns the class of a Fleet Cluster, and what lets bundles of other
// namespaces reach it: it may have been the last one that any reached.
func (r *Reconciler) ofFleetCluster(ctx context.Context, obj client.Object) []use {
	var uses []use
	if id := targeting.LabelledClass(obj.GetLabels()); id != "" {
		uses = append(uses, use{obj.GetNamespace(), id})
	}
	mappings := &fleet.BundleNamespaceMappingList{}
	if err := r.Client.List(ctx, mappings, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to find the BundleNamespaceMappings of a namespace")
		return uses
	}
	for i := range mappings.Items {
		if mapping := &mappings.Items[i]; mapping.Name == obj.GetNamespace() && upstream.OurClassObject(mapping) {
			uses = append(uses, ofMapping(ctx, mapping)...)
		}
	}
	return uses
}

// ofGroup goes by what the group says that it is for, and not by its labels, which others
// may have taken off.
func ofGroup(_ context.Context, obj client.Object) []use {
	id := cmp.Or(upstream.GroupClass(obj.(*fleet.ClusterGroup)), targeting.LabelledClass(obj.GetLabels()))
	if id == "" {
		return nil
	}
	return []use{{obj.GetNamespace(), id}}
}

func ofMapping(_ context.Context, obj client.Object) []use {
	return []use{{obj.GetName(), anyOf(obj.GetNamespace())}}
}

// user is a Cluster of a class, with its registration.
type user struct {
	cluster      *clusterv1.Cluster
	registration *fleetv1.FleetRegistration
}

// users returns the registered Clusters of a class.
func (r *Reconciler) users(ctx context.Context, class string) ([]user, error) {
	clusters := &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, clusters, client.MatchingFields{classIndex: class}); err != nil {
		return nil, fmt.Errorf("listing the Clusters of a ClusterClass: %w", err)
	}
	var users []user
	for i := range clusters.Items {
		cluster, reg := &clusters.Items[i], &fleetv1.FleetRegistration{}
		key := client.ObjectKeyFromObject(cluster)
		if err := r.Client.Get(ctx, key, reg); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading FleetRegistration %s: %w", key, err)
		}
		if reg.Name != "" && decide.Owns(cluster, reg) {
			users = append(users, user{cluster, reg})
		}
	}
	return users, nil
}

// need is who needs a group.
type need struct {
	// classes are those that a use stands for, none where nobody needs their groups.
	classes []targeting.Class
	// by are those Clusters for which this manager may write.
	by []*clusterv1.Cluster
}

// needOf finds who needs what a use stands for: registered Clusters that are there to stay,
// whose policy makes groups.
func (r *Reconciler) needOf(ctx context.Context, u use) (need, error) {
	users, err := r.users(ctx, u.class)
	if err != nil {
		return need{}, err
	}
	var n need
	for _, user := range users {
		cluster, reg := user.cluster, user.registration
		if reg.Spec.FleetCluster.Namespace != u.namespace || !cluster.DeletionTimestamp.IsZero() || !reg.DeletionTimestamp.IsZero() {
			continue
		}
		class, _ := targeting.ClassOf(reg.Spec.Targeting, cluster, u.namespace)
		if class == nil {
			continue
		}
		n.add(*class)
		if r.mayWriteFor(cluster, reg) {
			n.by = append(n.by, cluster)
		}
	}
	return n, nil
}

func (n *need) add(class targeting.Class) {
	for i := range n.classes {
		if n.classes[i].ID() == class.ID() {
			n.classes[i].Shared = n.classes[i].Shared || class.Shared
			return
		}
	}
	n.classes = append(n.classes, class)
}

func (r *Reconciler) mayWriteFor(cluster *clusterv1.Cluster, reg *fleetv1.FleetRegistration) bool {
	paused := annotations.IsPaused(cluster, cluster) || annotations.HasPaused(reg) || decide.Moving(cluster) || decide.Moving(reg)
	return !paused && (r.WatchFilter == "" || capilabels.HasWatchLabel(reg, r.WatchFilter))
}

// Reconcile makes what is needed for one use of a ClusterClass, and takes away what is
// needed no more.
func (r *Reconciler) Reconcile(ctx context.Context, u use) (ctrl.Result, error) {
	n, err := r.needOf(ctx, u)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case len(n.by) > 0:
		return r.ensure(ctx, u, n)
	case len(n.classes) > 0:
		return ctrl.Result{}, nil
	}
	r.refused.Delete(u)
	if err := r.removeGroups(ctx, u); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.removeMapping(ctx, u)
}

// ensure makes the group of a class. Of any class of a namespace, one is as good as the
// other, what lets bundles reach them is the same; but any Cluster can name one that does
// not exist, or cannot have a group.
func (r *Reconciler) ensure(ctx context.Context, u use, n need) (ctrl.Result, error) {
	var refusal *upstream.Refusal
	for _, class := range n.classes {
		err := r.Upstream.EnsureClass(ctx, class)
		if !errors.As(err, &refusal) {
			r.refused.Delete(u)
			return ctrl.Result{}, err
		}
	}
	if namespace, _ := targeting.SplitClass(u.class); u.class == anyOf(namespace) {
		// Each of the classes tells of itself.
		return ctrl.Result{RequeueAfter: refusedRetry}, nil
	}
	if last, ok := r.refused.Swap(u, refusal.Message); !ok || last != refusal.Message {
		for _, cluster := range n.by {
			r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, refusal.Reason, "Group", "%s", refusal.Message)
		}
	}
	return ctrl.Result{RequeueAfter: refusedRetry}, nil
}

// removeGroups deletes our group of a class, unless a Fleet Cluster is in it.
func (r *Reconciler) removeGroups(ctx context.Context, u use) error {
	groups := &fleet.ClusterGroupList{}
	if err := r.Client.List(ctx, groups, client.InNamespace(u.namespace)); err != nil {
		return fmt.Errorf("listing the ClusterGroups of namespace %s: %w", u.namespace, err)
	}
	for i := range groups.Items {
		group := &groups.Items[i]
		if upstream.GroupClass(group) != u.class || !upstream.MayDelete(group) {
			continue
		}
		namespace, name := targeting.SplitClass(u.class)
		if err := r.Upstream.DeleteUnused(ctx, group, func() (bool, error) {
			used, err := r.inUse(ctx, u.namespace, client.MatchingLabels{fleetv1.ClassNameLabel: name, fleetv1.ClassNamespaceLabel: namespace})
			if err != nil || used {
				return used, err
			}
			// A Cluster may have changed its class meanwhile.
			n, err := r.needOf(ctx, u)
			return len(n.classes) > 0, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// removeMapping deletes what lets the bundles of a class's namespace reach another one,
// unless a Fleet Cluster there is of any class of that namespace, or has one of them.
func (r *Reconciler) removeMapping(ctx context.Context, u use) error {
	namespace, _ := targeting.SplitClass(u.class)
	mapping := &fleet.BundleNamespaceMapping{}
	key := types.NamespacedName{Namespace: namespace, Name: u.namespace}
	if err := r.Client.Get(ctx, key, mapping); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !upstream.MayDelete(mapping) {
		return nil
	}
	return r.Upstream.DeleteUnused(ctx, mapping, func() (bool, error) {
		used, err := r.inUse(ctx, u.namespace, client.MatchingLabels{fleetv1.ClassNamespaceLabel: namespace})
		if err != nil || used {
			return used, err
		}
		reached, err := r.reached(ctx, u.namespace, namespace)
		if err != nil || reached {
			return reached, err
		}
		n, err := r.needOf(ctx, use{u.namespace, anyOf(namespace)})
		return len(n.classes) > 0, err
	})
}

// inUse tells whether there are Fleet Clusters with these labels, also such as are orphans,
// being deleted, or not ours any more. It asks the API server: what follows can uninstall
// workloads.
func (r *Reconciler) inUse(ctx context.Context, namespace string, labels client.MatchingLabels) (bool, error) {
	clusters, err := r.list(ctx, "Cluster", client.InNamespace(namespace), labels, client.Limit(1))
	return len(clusters) > 0, err
}

// reached tells whether a Fleet Cluster of a namespace has a bundle of another one. It may
// be of no class: a mapping lets bundles reach any of the namespace.
func (r *Reconciler) reached(ctx context.Context, namespace, bundles string) (bool, error) {
	deployments, err := r.list(ctx, "BundleDeployment",
		client.MatchingLabels{fleet.BundleNamespaceLabel: bundles, fleet.ClusterNamespaceLabel: namespace})
	if err != nil || len(deployments) == 0 {
		return false, err
	}
	clusters, err := r.list(ctx, "Cluster", client.InNamespace(namespace))
	for i := range clusters {
		// Those of a Fleet Cluster that is gone go after it.
		if slices.ContainsFunc(deployments, func(d metav1.PartialObjectMetadata) bool { return d.Labels[fleet.ClusterLabel] == clusters[i].Name }) {
			return true, nil
		}
	}
	return false, err
}

// list asks the API server for the metadata of Fleet's objects.
func (r *Reconciler) list(ctx context.Context, kind string, opts ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(fleet.GroupVersion.WithKind(kind + "List"))
	if err := r.APIReader.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("listing Fleet's %ss: %w", kind, err)
	}
	return list.Items, nil
}
