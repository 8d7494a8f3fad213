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

// Package selection decides which Clusters join Fleet, by labels and policies, and
// records it: it makes the FleetRegistrations and keeps their spec, and reports on
// the policies. The manager sets it up.
//
// It deletes a registration only where the Cluster itself opts out, and touches nothing
// else.
package selection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	capilabels "sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/labels/format"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/endpoint"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/internal/written"
)

// fieldOwner owns the condition Selected; the registration controller owns the
// rest of a registration's status.
const fieldOwner = upstream.FieldOwner + "-selection"

// namespaceGVK is watched as metadata only.
var namespaceGVK = corev1.SchemeGroupVersion.WithKind("Namespace")

//+kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
//+kubebuilder:rbac:groups=core,resources=namespaces,verbs=get;list;watch
//+kubebuilder:rbac:groups=core,resources=configmaps,verbs=list;watch,resourceNames=fleet-controller;cluster-info
//+kubebuilder:rbac:groups=core,namespace=capi-fleet-system,resources=configmaps,verbs=get
//+kubebuilder:rbac:groups=core,resources=secrets,verbs=get
//+kubebuilder:rbac:groups=fleet.addons.cluster.x-k8s.io,resources=fleetregistrations,verbs=get;list;watch;create;patch;delete
//+kubebuilder:rbac:groups=fleet.addons.cluster.x-k8s.io,resources=fleetregistrations/status,verbs=patch
//+kubebuilder:rbac:groups=fleet.addons.cluster.x-k8s.io,resources=fleetregistrationpolicies,verbs=get;list;watch;update
//+kubebuilder:rbac:groups=fleet.addons.cluster.x-k8s.io,resources=fleetregistrationpolicies/status,verbs=patch
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Clusters, and policies.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads without a cache: FleetRegistrations, Fleet Clusters, and what a
	// Cluster is selected by before it is taken out of Fleet.
	APIReader client.Reader
	// Endpoint finds what the agents are made from.
	Endpoint *endpoint.Resolver
	// Recorder records events on Clusters.
	Recorder events.EventRecorder
	// Clock is the time.
	Clock clock.PassiveClock
	// BuiltInPolicy says whether labelled Clusters join without a policy.
	BuiltInPolicy bool
	// Namespace is the only one that Clusters are looked for in. Empty means all.
	Namespace string
	// WatchFilter is the value that the watch label must have. Empty takes all.
	WatchFilter string

	badLabels sync.Map // UID of a Cluster ► what was reported about its label
	created   sync.Map // key of a registration that the cache may not show yet
	written   written.Versions
	turns     turns
}

// SetupWithManager adds the controllers of Clusters and of policies to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	for field, index := range map[string]client.IndexerFunc{policyIndex: policyNameOf, changingIndex: changingOf} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &fleetv1.FleetRegistration{}, field, index); err != nil {
			return fmt.Errorf("indexing FleetRegistrations by %s: %w", field, err)
		}
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceGVK)
	if err := ctrl.NewControllerManagedBy(mgr).
		Named("selection").
		For(&clusterv1.Cluster{}, builder.WithPredicates(notOnlyStatus())).
		Watches(namespace, handler.EnqueueRequestsFromMapFunc(r.namespaceToClusters)).
		Watches(&fleetv1.FleetRegistrationPolicy{}, handler.EnqueueRequestsFromMapFunc(r.allClusters), builder.WithPredicates(concernsClusters())).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.allClusters)).
		// A registration has the name of its Cluster.
		Watches(&fleetv1.FleetRegistration{}, &handler.EnqueueRequestForObject{}).
		Watches(&fleetv1.FleetRegistration{}, r.passTurn()).
		WithOptions(options).
		Complete(r); err != nil {
		return fmt.Errorf("setting up the selection controller: %w", err)
	}
	return r.setupPolicies(mgr)
}

func (r *Reconciler) namespaceToClusters(ctx context.Context, obj client.Object) []reconcile.Request {
	if r.Namespace != "" && obj.GetName() != r.Namespace {
		return nil
	}
	return r.clusters(ctx, client.InNamespace(obj.GetName()))
}

// notOnlyStatus lets through what may change whether and how a Cluster is selected: another
// Cluster of that name, a deletion, and changes of spec, labels and annotations. Cluster API
// writes the status all the time.
func notOnlyStatus() predicate.Predicate {
	another := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}
	return predicate.Or(another,
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// concernsClusters lets through what may change a Cluster's registration: the spec of a
// policy, and what of its status says that there are other settings for agents.
func concernsClusters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*fleetv1.FleetRegistrationPolicy), e.ObjectNew.(*fleetv1.FleetRegistrationPolicy)
		return before.Generation != after.Generation || before.Status.Revision != after.Status.Revision ||
			readyReason(before) != readyReason(after)
	}}
}

func readyReason(policy *fleetv1.FleetRegistrationPolicy) string {
	if ready := meta.FindStatusCondition(policy.Status.Conditions, fleetv1.ReadyCondition); ready != nil {
		return ready.Reason
	}
	return ""
}

func (r *Reconciler) allClusters(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.clusters(ctx)
}

func (r *Reconciler) clusters(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	list := &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list Clusters")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile decides about one Cluster and records it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cluster.DeletionTimestamp.IsZero() {
		r.badLabels.Delete(cluster.UID)
		return ctrl.Result{}, nil
	}
	if r.WatchFilter != "" && !capilabels.HasWatchLabel(cluster, r.WatchFilter) {
		return ctrl.Result{}, nil
	}
	if annotations.IsPaused(cluster, cluster) || decide.Moving(cluster) {
		return ctrl.Result{}, nil
	}
	reg, err := r.registration(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	selection, err := r.decide(ctx, r.Client, cluster, reg)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.reportLabel(cluster, selection)

	switch {
	case reg == nil && selection.By == nil:
		return ctrl.Result{}, nil
	case reg == nil:
		return ctrl.Result{}, r.create(ctx, cluster, selection)
	case !reg.DeletionTimestamp.IsZero(), annotations.HasPaused(reg), decide.Moving(reg), !decide.Owns(cluster, reg):
		// It is about to go, or must not be written to; its end brings us back.
		return ctrl.Result{}, nil
	case r.written.NewerThan(reg, r.Clock.Now()):
		return ctrl.Result{RequeueAfter: written.Lag}, nil
	}
	result := ctrl.Result{}
	if selection.By != nil || decide.Moved(cluster, reg) {
		waits, err := r.update(ctx, cluster, reg, selection)
		if err != nil {
			return ctrl.Result{}, err
		}
		if waits {
			result.RequeueAfter = turnInterval
		}
	}
	if err := r.reportSelected(ctx, reg, selection); err != nil || !selection.OptsOut {
		return result, err
	}
	return ctrl.Result{}, r.optOut(ctx, cluster, reg)
}

// optOut takes a Cluster out of Fleet that asks for it, by deleting its registration. It
// asks the API server whether it still does: what follows cannot be taken back, and the
// cache may know of a label that went, and not yet of the one that came in its place.
func (r *Reconciler) optOut(ctx context.Context, cluster *clusterv1.Cluster, reg *fleetv1.FleetRegistration) error {
	key := client.ObjectKeyFromObject(cluster)
	live := &clusterv1.Cluster{}
	switch err := r.APIReader.Get(ctx, key, live); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	if live.UID != cluster.UID || annotations.IsPaused(live, live) || decide.Moving(live) {
		return nil
	}
	selection, err := r.decide(ctx, r.APIReader, live, reg)
	if err != nil || !selection.OptsOut {
		return err
	}
	if err := r.takeDeletion(ctx, reg); err != nil {
		return err
	}
	uid := reg.UID
	if err := r.Client.Delete(ctx, reg, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting FleetRegistration %s: %w", key, err)
	}
	ctrl.LoggerFrom(ctx).Info("Cluster opts out of Fleet", "reason", selection.Reason)
	return nil
}

// takeDeletion brings what the registration says of its end in line with its policy, as
// that is right now: a Cluster that opts out is selected by none any more. Where the
// policy is gone, what it last said stays.
func (r *Reconciler) takeDeletion(ctx context.Context, reg *fleetv1.FleetRegistration) error {
	name := reg.Spec.SelectedBy.Policy
	if name == "" {
		return nil
	}
	policy := &fleetv1.FleetRegistrationPolicy{}
	switch err := r.APIReader.Get(ctx, types.NamespacedName{Name: name}, policy); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading FleetRegistrationPolicy %s: %w", name, err)
	}
	if reg.Spec.Deletion == policy.Spec.Deletion {
		return nil
	}
	before := reg.DeepCopy()
	reg.Spec.Deletion = policy.Spec.Deletion
	if err := r.Client.Patch(ctx, reg, client.MergeFrom(before), client.FieldOwner(upstream.FieldOwner)); err != nil {
		return fmt.Errorf("updating FleetRegistration %s: %w", client.ObjectKeyFromObject(reg), err)
	}
	r.written.Note(reg, r.Clock.Now())
	return nil
}

// registration returns the Cluster's registration, or nil. One that was created
// here a moment ago counts although the cache does not show it yet.
func (r *Reconciler) registration(ctx context.Context, key types.NamespacedName) (*fleetv1.FleetRegistration, error) {
	reg := &fleetv1.FleetRegistration{}
	err := r.Client.Get(ctx, key, reg)
	if err == nil {
		r.created.Delete(key)
		return reg, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading FleetRegistration %s: %w", key, err)
	}
	r.written.Forget(key)
	r.turns.forget(key)
	if _, ok := r.created.Load(key); !ok {
		return nil, nil
	}
	if err := r.APIReader.Get(ctx, key, reg); err != nil {
		if apierrors.IsNotFound(err) {
			r.created.Delete(key)
			return nil, nil
		}
		return nil, fmt.Errorf("reading FleetRegistration %s: %w", key, err)
	}
	return reg, nil
}

// decide reads what the decision stands on.
func (r *Reconciler) decide(ctx context.Context, from client.Reader, cluster *clusterv1.Cluster, reg *fleetv1.FleetRegistration) (decide.Selection, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceGVK)
	if err := from.Get(ctx, types.NamespacedName{Name: cluster.Namespace}, namespace); err != nil {
		return decide.Selection{}, fmt.Errorf("reading namespace %s: %w", cluster.Namespace, err)
	}
	policies := &fleetv1.FleetRegistrationPolicyList{}
	if err := from.List(ctx, policies, client.UnsafeDisableDeepCopy); err != nil {
		return decide.Selection{}, fmt.Errorf("listing FleetRegistrationPolicies: %w", err)
	}
	in := decide.SelectionInput{
		ClusterLabels:   cluster.Labels,
		NamespaceLabels: namespace.Labels,
		Policies:        policies.Items,
		BuiltInPolicy:   r.BuiltInPolicy,
	}
	if reg != nil {
		in.Current, in.Targeting = &reg.Spec.SelectedBy, reg.Spec.Targeting
	}
	selection := decide.Select(in)
	// It is the cache's, and what is written is made from it.
	selection.Policy = selection.Policy.DeepCopy()
	return selection, nil
}

// reportLabel tells the Cluster's owner about a label that cannot be read, once
// for as long as it lasts.
func (r *Reconciler) reportLabel(cluster *clusterv1.Cluster, selection decide.Selection) {
	if selection.Reason != fleetv1.LabelInvalidReason {
		r.badLabels.Delete(cluster.UID)
		return
	}
	if last, ok := r.badLabels.Swap(cluster.UID, selection.Message); ok && last == selection.Message {
		return
	}
	r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, selection.Reason, "Select", "%s", selection.Message)
}

func (r *Reconciler) create(ctx context.Context, cluster *clusterv1.Cluster, selection decide.Selection) error {
	agent, _, err := r.agent(ctx, selection)
	if err != nil {
		return err
	}
	key := fleetClusterOf(selection, cluster)
	id, err := r.registrationID(ctx, key, cluster)
	if err != nil {
		return err
	}
	reg := &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       cluster.Namespace,
			Name:            cluster.Name,
			Finalizers:      []string{fleetv1.FleetRegistrationFinalizer},
			Labels:          map[string]string{clusterv1.ClusterNameLabel: format.MustFormatValue(cluster.Name)},
			OwnerReferences: []metav1.OwnerReference{decide.OwnerReference(cluster)},
		},
		Spec: fleetv1.FleetRegistrationSpec{
			RegistrationID: id,
			ClusterUID:     cluster.UID,
			FleetCluster:   fleetv1.FleetClusterReference(key),
			SelectedBy:     *selection.By,
			Agent:          agent,
		},
	}
	takePolicy(&reg.Spec, selection)
	if filter, ok := cluster.Labels[clusterv1.WatchLabel]; ok {
		reg.Labels[clusterv1.WatchLabel] = filter
	}
	regKey := client.ObjectKeyFromObject(reg)
	r.created.Store(regKey, struct{}{})
	err = r.Client.Create(ctx, reg, client.FieldOwner(upstream.FieldOwner))
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Selected Cluster", "policy", selection.By.Policy)
		return nil
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The cache is behind, or everything here is about to go.
		return nil
	}
	return fmt.Errorf("creating FleetRegistration %s: %w", regKey, err)
}

// registrationID returns the ID of the Fleet Cluster that was made for this very
// Cluster, where our object was deleted and is made anew, or else a new one. Whoever can
// make Fleet Clusters could put there the ID of another registration, and with it take
// what that one holds.
func (r *Reconciler) registrationID(ctx context.Context, key types.NamespacedName, cluster *clusterv1.Cluster) (string, error) {
	// Read live: the cache has none that was handed over or made a moment ago, and an
	// ID is for ever.
	existing := &fleet.Cluster{}
	err := r.APIReader.Get(ctx, key, existing)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("reading Fleet Cluster %s: %w", key, err)
	}
	id := existing.Annotations[fleetv1.RegistrationIDAnnotation]
	if !upstream.ValidID(id) || existing.Annotations[fleetv1.ClusterUIDAnnotation] != string(cluster.UID) {
		return upstream.NewID(), nil
	}
	switch held, err := r.held(ctx, id); {
	case err != nil:
		return "", err
	case held:
		return upstream.NewID(), nil
	}
	return id, nil
}

// held tells whether a registration has that ID. The one that is made at the moment has
// not been in the cache.
func (r *Reconciler) held(ctx context.Context, id string) (bool, error) {
	list := &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing FleetRegistrations: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(reg fleetv1.FleetRegistration) bool { return reg.Spec.RegistrationID == id }), nil
}

// update brings the spec in line with the selection, as far as it is the registration's
// turn, and with this management cluster where it comes from another one, selected or not.
// It tells whether its turn is still to come.
func (r *Reconciler) update(ctx context.Context, cluster *clusterv1.Cluster, reg *fleetv1.FleetRegistration, selection decide.Selection) (waits bool, err error) {
	wanted, complete, err := r.agent(ctx, selection)
	if err != nil {
		return false, err
	}
	moved := decide.Moved(cluster, reg)
	if !complete && !moved {
		found := wanted
		wanted = *reg.Spec.Agent.DeepCopy()
		fillIn(&wanted, found)
	}
	// It shares all that it has with reg: fields are replaced as a whole, and what they hold
	// is not changed.
	desired := ptr.To(*reg)
	desired.Spec.ClusterUID = cluster.UID
	if selection.By != nil {
		desired.Spec.SelectedBy = *selection.By
		takePolicy(&desired.Spec, selection)
		desired.Spec.PolicyFleetCluster = fleetv1.FleetClusterReference{}
		if wanted := fleetv1.FleetClusterReference(fleetClusterOf(selection, cluster)); wanted != reg.Spec.FleetCluster {
			desired.Spec.PolicyFleetCluster = wanted
		}
	}

	r.turns.mu.Lock()
	defer r.turns.mu.Unlock()
	if moved {
		desired.Spec.Agent = wanted
	} else {
		waits, err = r.takeAgent(ctx, reg, desired, wanted, selection)
	}
	if err != nil || equality.Semantic.DeepEqual(reg.Spec, desired.Spec) {
		return waits, err
	}
	patch := client.MergeFromWithOptions(reg, client.MergeFromWithOptimisticLock{})
	given := !equality.Semantic.DeepEqual(reg.Spec.Agent, desired.Spec.Agent)
	if err := r.Client.Patch(ctx, desired, patch, client.FieldOwner(upstream.FieldOwner)); err != nil {
		return waits, fmt.Errorf("updating FleetRegistration %s: %w", client.ObjectKeyFromObject(reg), err)
	}
	desired.DeepCopyInto(reg)
	r.written.Note(reg, r.Clock.Now())
	if given {
		r.turns.give(reg)
	}
	return waits, nil
}

// fillIn takes what was found while something is missing, if the agent lacks anything
// itself: what was found once is better than what cannot be found now.
func fillIn(agent *fleetv1.AgentSpec, found fleetv1.AgentSpec) {
	if agent.ManagementCluster.Server != "" && agent.Image != "" {
		return
	}
	if found.ManagementCluster.Server == "" {
		found.ManagementCluster, found.AdditionalCAData = agent.ManagementCluster, agent.AdditionalCAData
	}
	if found.Image == "" {
		found.Image, found.ImagePullPolicy, found.ImagePullSecrets = agent.Image, agent.ImagePullPolicy, agent.ImagePullSecrets
	}
	*agent = found
}

// agent resolves what the agent is made from, and tells whether all that it needs
// was found. What was not is left out: the registration goes as far as it can and
// says what is missing, the policy says why.
func (r *Reconciler) agent(ctx context.Context, selection decide.Selection) (agent fleetv1.AgentSpec, complete bool, err error) {
	agent, err = r.Endpoint.Resolve(ctx, specOf(selection))
	if problem := (*endpoint.Error)(nil); errors.As(err, &problem) {
		return agent, false, nil
	}
	return agent, err == nil && agent.Image != "", err
}

// specOf returns the spec of the policy that selects, which is empty for the built-in
// one.
func specOf(selection decide.Selection) fleetv1.FleetRegistrationPolicySpec {
	if selection.Policy == nil {
		return fleetv1.FleetRegistrationPolicySpec{}
	}
	return selection.Policy.Spec
}

// takePolicy takes from the policy what needs no new pod.
func takePolicy(spec *fleetv1.FleetRegistrationSpec, selection decide.Selection) {
	policy := specOf(selection)
	spec.Credentials, spec.Adoption, spec.Deletion = policy.Credentials, policy.Adoption, policy.Deletion
	spec.Targeting = *policy.FleetCluster.TargetingSettings.DeepCopy()
}

// fleetClusterOf names the Fleet Cluster as the policy would have it.
func fleetClusterOf(selection decide.Selection, cluster *clusterv1.Cluster) types.NamespacedName {
	settings := specOf(selection).FleetCluster
	key := types.NamespacedName{Namespace: cmp.Or(settings.Workspace, cluster.Namespace), Name: fleet.ClusterName(cluster.Name)}
	if settings.NameFormat == fleetv1.FormatNamespaceName {
		key.Name = fleet.NamespacedClusterName(cluster.Namespace, cluster.Name)
	}
	return key
}

// reportSelected writes the condition Selected where it changes. A new
// registration gets its first one from the registration controller.
func (r *Reconciler) reportSelected(ctx context.Context, reg *fleetv1.FleetRegistration, selection decide.Selection) error {
	status := metav1.ConditionFalse
	if selection.By != nil {
		status = metav1.ConditionTrue
	}
	current := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.SelectedCondition)
	if current == nil && status == metav1.ConditionTrue ||
		current != nil && current.Status == status && current.Reason == selection.Reason && current.Message == selection.Message {
		return nil
	}
	condition := metav1.Condition{
		Type: fleetv1.SelectedCondition, Status: status, Reason: selection.Reason, Message: selection.Message,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	if current != nil && current.Status == status {
		condition.LastTransitionTime = current.LastTransitionTime
	}
	err := written.ApplyStatus(ctx, r.Client, reg, &fleetv1.FleetRegistrationStatus{Conditions: []metav1.Condition{condition}},
		fieldOwner, client.ForceOwnership)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.written.Note(reg, r.Clock.Now())
	return nil
}
