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

// Package registration carries a FleetRegistration through: it makes the objects
// on the management cluster, waits for the workload cluster's API server, puts
// the agent and its credential there and reports. The manager sets it up.
//
// It never decides which Clusters register; that is the selection controller's.
package registration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	capilabels "sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
	"github.com/capi-fleet/capi-fleet/internal/token"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/internal/written"
)

const (
	// workTimeout bounds the work of one reconcile; the report comes after it.
	workTimeout = 30 * time.Second
	// reportTimeout bounds the report.
	reportTimeout = 10 * time.Second
)

// Names of the cache's indexes on FleetRegistrations.
const (
	fleetClusterIndex     = "spec.fleetCluster"
	systemNamespaceIndex  = "status.workload.systemNamespaceUID"
	clusterNamespaceIndex = "status.namespace"
)

//+kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
//+kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters/status,verbs=patch
//+kubebuilder:rbac:groups=fleet.addons.cluster.x-k8s.io,resources=fleetregistrations,verbs=list;watch;delete;patch
//+kubebuilder:rbac:groups=fleet.addons.cluster.x-k8s.io,resources=fleetregistrations/status,verbs=patch
//+kubebuilder:rbac:groups=fleet.cattle.io,resources=clusters,verbs=get;list;watch;create;delete;patch
//+kubebuilder:rbac:groups=fleet.cattle.io,resources=clusters/status,verbs=patch
//+kubebuilder:rbac:groups=fleet.cattle.io,resources=clustergroups;bundlenamespacemappings,verbs=list;watch;create;patch
//+kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusterclasses,verbs=list;watch
//+kubebuilder:rbac:groups=fleet.cattle.io,resources=bundledeployments,verbs=get;list
//+kubebuilder:rbac:groups=fleet.cattle.io,resources=bundles,verbs=get
//+kubebuilder:rbac:groups=core,resources=namespaces,verbs=get;list;watch;create;patch
//+kubebuilder:rbac:groups=core,resources=secrets,verbs=get
//+kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch;delete
//+kubebuilder:rbac:groups=core,namespace=capi-fleet-system,resources=serviceaccounts,verbs=get;list;watch;create;patch;delete
//+kubebuilder:rbac:groups=core,namespace=capi-fleet-system,resources=serviceaccounts/token,verbs=create

// Reconciler reconciles FleetRegistrations.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads without a cache: Secrets, and what a first write met.
	APIReader client.Reader
	// Upstream writes to the management cluster.
	Upstream *upstream.Writer
	// Tokens issues credentials.
	Tokens *token.Issuer
	// Dialer reaches workload clusters.
	Dialer *remote.Dialer
	// Recorder records events on Clusters.
	Recorder events.EventRecorder
	// Clock is the time.
	Clock clock.PassiveClock
	// TryToken tries a token as the agent would, see token.Trial.
	TryToken func(ctx context.Context, token, namespace string) error
	// ResyncInterval is the time after which the agent's objects are looked at although
	// nothing calls for it. Zero means never.
	ResyncInterval time.Duration
	// TokenDir is the folder of the agent's token file, as the agent sees it.
	// "{namespace}" in it stands for the cluster namespace.
	TokenDir string
	// Manifests is the version of the agent's manifests that this manager builds, see
	// agent.Manifests.
	Manifests string
	// WatchFilter is the value that the watch label must have. Empty takes all.
	WatchFilter string
	// Namespace is the only one whose registrations are looked after. Empty means all.
	Namespace string

	attempts attempts
	written  written.Versions
	clusters written.Versions // whose status was written

	managementUID lazyUID
	pulls         pullSecretWatch
}

// SetupWithManager adds the controller and the indexes that it needs to the
// manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	for field, value := range map[string]func(*fleetv1.FleetRegistration) string{
		fleetClusterIndex: func(reg *fleetv1.FleetRegistration) string {
			return reg.Spec.FleetCluster.Namespace + "/" + reg.Spec.FleetCluster.Name
		},
		systemNamespaceIndex:  func(reg *fleetv1.FleetRegistration) string { return string(reg.Status.Workload.SystemNamespaceUID) },
		clusterNamespaceIndex: func(reg *fleetv1.FleetRegistration) string { return reg.Status.Namespace },
	} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &fleetv1.FleetRegistration{}, field, func(obj client.Object) []string {
			if v := value(obj.(*fleetv1.FleetRegistration)); v != "" {
				return []string{v}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("indexing FleetRegistrations by %s: %w", field, err)
		}
	}
	r.pulls.changed = make(chan event.GenericEvent)
	if err := mgr.Add(manager.RunnableFunc(r.watchPullSecrets)); err != nil {
		return fmt.Errorf("adding the watch on pull secrets: %w", err)
	}
	placed := handler.EnqueueRequestsFromMapFunc(r.placedToRegistrations)
	if err := ctrl.NewControllerManagedBy(mgr).
		Named("registration").
		For(&fleetv1.FleetRegistration{}).
		// A registration has the name of its Cluster.
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}).
		Watches(&fleet.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.fleetClusterToRegistrations)).
		Watches(&fleet.ClusterGroup{}, handler.EnqueueRequestsFromMapFunc(r.classObjectToRegistrations), builder.WithPredicates(notOnlyStatus())).
		Watches(&fleet.BundleNamespaceMapping{}, handler.EnqueueRequestsFromMapFunc(r.classObjectToRegistrations), builder.WithPredicates(notOnlyStatus())).
		WatchesMetadata(&corev1.Namespace{}, placed).
		WatchesMetadata(&corev1.ServiceAccount{}, placed).
		WatchesMetadata(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.hostedToRegistrations)).
		Watches(&rbacv1.Role{}, placed).
		Watches(&rbacv1.RoleBinding{}, placed).
		WatchesRawSource(source.Channel(r.pulls.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(options).
		Complete(r); err != nil {
		return fmt.Errorf("setting up the registration controller: %w", err)
	}
	return nil
}

func (r *Reconciler) fleetClusterToRegistrations(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.registrations(ctx, fleetClusterIndex, client.ObjectKeyFromObject(obj).String())
}

// placedToRegistrations finds the registration of an object by its cluster namespace,
// whose name it has or which it is in. So whatever was taken off the object, it is found.
func (r *Reconciler) placedToRegistrations(ctx context.Context, obj client.Object) []reconcile.Request {
	requests := r.registrations(ctx, clusterNamespaceIndex, obj.GetName())
	if namespace := obj.GetNamespace(); namespace != "" {
		requests = append(requests, r.registrations(ctx, clusterNamespaceIndex, namespace)...)
	}
	return requests
}

func (r *Reconciler) registrations(ctx context.Context, index, value string) []reconcile.Request {
	list := &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.MatchingFields{index: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to find the registrations of an object", index, value)
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// scope is what one reconcile knows.
type scope struct {
	// registration is as the cache has it; phases change its status.
	registration *fleetv1.FleetRegistration
	// cluster owns the registration. It is nil when it is gone, or when a Cluster
	// of that name is another one.
	cluster *clusterv1.Cluster
	// namesake is a Cluster of that name which does not own the registration: another
	// one with another UID. It is nil where there is none, and where cluster is set.
	namesake *clusterv1.Cluster
	// fleetCluster is nil when the cache has none.
	fleetCluster *fleet.Cluster
	// accountUID is the UID of the agent's service account; empty while it is not known.
	accountUID types.UID
	// target is what should be on the Fleet Cluster for Fleet to select and template by, and
	// unmet what of it cannot be had. Both are set once the Cluster is known to live.
	target targeting.Target
	unmet  []targeting.Problem
	// targetErr is what kept the Fleet Cluster from getting it.
	targetErr error
	// heartbeat is what is known of the agent's heartbeats.
	heartbeat decide.Heartbeat
	// now is the time at which the reconcile began.
	now time.Time
	// attempt is what is remembered of earlier tries to reach the workload cluster.
	attempt *attempt

	// The findings of the phases. Nil means that the phase had no cause to look, so
	// that what was found before still counts.
	fleetClusterReady, workloadReachable, agentDeployed, credentialsValid *finding
	// deleting is nil while the registration stays.
	deleting *finding
}

// finding becomes a condition.
type finding struct {
	ok              bool
	reason, message string
}

func (s *scope) upstreamInput() upstream.Registration {
	reg := s.registration
	in := upstream.Registration{
		ID:           reg.Spec.RegistrationID,
		FleetCluster: types.NamespacedName(reg.Spec.FleetCluster),
		Namespace:    reg.Status.Namespace,
		Target:       s.target,
		NamespaceUID: reg.Status.NamespaceUID,
		LookFirst:    meta.IsStatusConditionFalse(reg.Status.Conditions, fleetv1.FleetClusterReadyCondition),
		Home:         reg.Namespace,
	}
	if s.cluster != nil {
		in.ClusterUID = s.cluster.UID
	}
	return in
}

// lives tells whether the Cluster is there to stay.
func (s *scope) lives() bool { return s.cluster != nil && s.cluster.DeletionTimestamp.IsZero() }

// restored tells whether a backup brought the registration back for a Cluster that has
// another UID now. One whose Cluster was deleted and made anew under its name is older
// than that Cluster, and has a status.
func (s *scope) restored() bool {
	return s.namesake != nil && s.namesake.DeletionTimestamp.IsZero() && s.registration.Status.Namespace == "" &&
		!s.registration.CreationTimestamp.Before(&s.namesake.CreationTimestamp)
}

// restoreTime is how long a registration waits for a Cluster to come after it. Backup tools
// bring back the objects of one kind after those of another.
const restoreTime = time.Minute

// awaitsCluster returns how long to wait yet for a Cluster that a backup may bring back after
// the registration, zero where there is nothing to wait for. One that made something says so.
func (s *scope) awaitsCluster() time.Duration {
	if s.cluster != nil || s.namesake != nil || s.registration.Status.Namespace != "" {
		return 0
	}
	return max(0, s.registration.CreationTimestamp.Add(restoreTime).Sub(s.now))
}

// Reconcile carries one registration a step on.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	if r.written.NewerThan(s.registration, s.now) {
		// The event that brings the cache up to date brings the next reconcile.
		return ctrl.Result{RequeueAfter: written.Lag}, nil
	}
	log := ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KRef(req.Namespace, req.Name))
	ctx = ctrl.LoggerInto(ctx, log)

	if pause := paused(s.cluster, s.registration); pause != nil {
		s.attempt.leavingSince = time.Time{}
		before := s.registration.DeepCopy()
		setCondition(s, fleetv1.PausedCondition, pause)
		return ctrl.Result{}, r.write(ctx, s, before)
	}

	before := s.registration.DeepCopy()
	work, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	result, err := r.act(work, s)
	if !controllerutil.ContainsFinalizer(s.registration, fleetv1.FleetRegistrationFinalizer) {
		// It ended just now; there is nothing left to report on.
		return result, err
	}

	next := report(s)
	if err == nil && !next.IsZero() {
		result = sooner(result, next.Sub(s.now))
	}
	reportCtx, cancelReport := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancelReport()
	if writeErr := r.write(reportCtx, s, before); writeErr != nil {
		return ctrl.Result{}, writeErr
	}
	if announceErr := r.announce(reportCtx, s, before); announceErr != nil {
		return ctrl.Result{}, announceErr
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}

// gather reads what the reconcile stands on, from the cache. It returns nil where
// there is nothing to do.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName) (*scope, error) {
	s := &scope{registration: &fleetv1.FleetRegistration{}, now: r.Clock.Now()}
	if err := r.Client.Get(ctx, key, s.registration); err != nil {
		if apierrors.IsNotFound(err) {
			r.attempts.forget(key)
			r.written.Forget(key)
			r.clusters.Forget(key)
			return nil, r.park(ctx, key)
		}
		return nil, fmt.Errorf("reading FleetRegistration %s: %w", key, err)
	}
	if r.WatchFilter != "" && !capilabels.HasWatchLabel(s.registration, r.WatchFilter) {
		return nil, nil
	}
	s.attempt = r.attempts.get(key)
	if s.registration.DeletionTimestamp.IsZero() {
		s.attempt.leavingSince = time.Time{}
	}

	if err := r.findCluster(ctx, s); err != nil {
		return nil, err
	}

	fleetCluster := &fleet.Cluster{}
	fleetKey := types.NamespacedName(s.registration.Spec.FleetCluster)
	switch err := r.Client.Get(ctx, fleetKey, fleetCluster); {
	case err == nil:
		s.fleetCluster = fleetCluster
		s.attempt.listen(s.registration, fleetCluster, s.now)
		s.heartbeat = s.attempt.heartbeat
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Fleet Cluster %s: %w", fleetKey, err)
	}
	return s, nil
}

// findCluster finds the Cluster that owns the registration. That it is gone is believed
// only when the API server says so, since a deletion follows from it.
func (r *Reconciler) findCluster(ctx context.Context, s *scope) error {
	key := client.ObjectKeyFromObject(s.registration)
	for _, reader := range []client.Reader{r.Client, r.APIReader} {
		cluster := &clusterv1.Cluster{}
		err := reader.Get(ctx, key, cluster)
		if err != nil && !upstream.Gone(err) {
			return fmt.Errorf("reading Cluster %s: %w", key, err)
		}
		s.namesake = nil
		switch {
		case err != nil:
		case decide.Owns(cluster, s.registration):
			s.cluster = cluster
			return nil
		default:
			s.namesake = cluster
		}
	}
	return nil
}

// paused returns why the registration is paused, or nil.
func paused(cluster *clusterv1.Cluster, reg *fleetv1.FleetRegistration) *finding {
	switch {
	case decide.Moving(reg), cluster != nil && decide.Moving(cluster):
		return &finding{true, fleetv1.MovingReason, "clusterctl is moving the Cluster to another management cluster"}
	case cluster != nil && annotations.IsPaused(cluster, cluster):
		return &finding{true, fleetv1.PausedReason, "The Cluster is paused"}
	case annotations.HasPaused(reg):
		return &finding{true, fleetv1.PausedReason, "The FleetRegistration has the annotation " + clusterv1.PausedAnnotation}
	}
	return nil
}

// act runs the phases.
func (r *Reconciler) act(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.registration.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, s)
	}
	if s.restored() {
		return ctrl.Result{}, r.reown(ctx, s)
	}
	if wait := s.awaitsCluster(); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if !s.lives() {
		// The owner reference would do this once the Cluster is gone; its
		// infrastructure would be gone as well by then.
		uid := s.registration.UID
		err := r.Client.Delete(ctx, s.registration, client.Preconditions{UID: &uid})
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.mend(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	result, err := r.reconcileUpstream(ctx, s)
	switch {
	case err != nil:
		return ctrl.Result{}, errors.Join(err, r.keepAgent(ctx, s))
	case !result.IsZero() && !s.onlyRightsForeign():
		return result, nil
	}
	r.reconcileTarget(ctx, s)
	agent, err := r.reconcileAgent(ctx, s)
	if result.RequeueAfter > 0 {
		agent = sooner(agent, result.RequeueAfter)
	}
	if s.targetErr != nil {
		// Targeted tells of it. An error would take the place of when to try the workload
		// cluster next.
		ctrl.LoggerFrom(ctx).Error(s.targetErr, "Failed to bring the Fleet Cluster in line with its policy")
	}
	if s.targetErr != nil || s.awaitsClass() {
		agent = sooner(agent, refusedRetry)
	}
	return agent, err
}

// keepAgent goes on with an agent that is in place although what it has on the management
// cluster cannot be put right: it must not go dark for that. Its account and its cluster
// namespace have to be there as they were.
func (r *Reconciler) keepAgent(ctx context.Context, s *scope) error {
	if s.registration.Status.Agent.Revision == "" {
		return nil
	}
	account, err := r.Upstream.Account(ctx, s.upstreamInput())
	if err != nil || account == "" {
		return err
	}
	s.accountUID = account
	_, err = r.reconcileAgent(ctx, s)
	return err
}

// onlyRightsForeign tells whether nothing but the agent's rights is in someone else's
// hands. An agent that is in place may still have them, and must not go dark for it.
func (s *scope) onlyRightsForeign() bool {
	return s.fleetClusterReady != nil && s.fleetClusterReady.reason == fleetv1.RBACForeignReason &&
		s.registration.Status.Agent.Revision != ""
}

// mend puts back what others may take off our object: without the owner reference it
// would outlive its Cluster, without the finalizer what it made would.
func (r *Reconciler) mend(ctx context.Context, s *scope) error {
	reg := s.registration
	before := reg.DeepCopy()
	changed := controllerutil.AddFinalizer(reg, fleetv1.FleetRegistrationFinalizer)
	if !decide.HasOwner(reg) {
		reg.OwnerReferences = append(reg.OwnerReferences, decide.OwnerReference(s.cluster))
		changed = true
	}
	if !changed {
		return nil
	}
	return r.patch(ctx, reg, before)
}

// patch writes what was changed of a registration since before, its status aside, unless
// somebody else has written it since. Errors are the API server's, wrapped.
func (r *Reconciler) patch(ctx context.Context, reg, before *fleetv1.FleetRegistration) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, reg, patch, client.FieldOwner(upstream.FieldOwner)); err != nil {
		return fmt.Errorf("patching FleetRegistration %s: %w", client.ObjectKeyFromObject(reg), err)
	}
	r.written.Note(reg, r.Clock.Now())
	return nil
}

// reown gives a registration that a backup brought back to the Cluster of its name. What
// the owner was before is gone, and the garbage collector would take this for a reason.
func (r *Reconciler) reown(ctx context.Context, s *scope) error {
	in := s.upstreamInput()
	in.ClusterUID = s.namesake.UID
	if err := r.Upstream.SetClusterUID(ctx, in); err != nil {
		return err
	}
	reg := s.registration
	before := reg.DeepCopy()
	reg.OwnerReferences = []metav1.OwnerReference{decide.OwnerReference(s.namesake)}
	return r.patch(ctx, reg, before)
}

// sooner returns the result with the earlier of two requeues. A delay of less than
// a second, also of less than nothing, counts as a second.
func sooner(result ctrl.Result, delay time.Duration) ctrl.Result {
	delay = max(delay, time.Second)
	if result.RequeueAfter == 0 || delay < result.RequeueAfter {
		result.RequeueAfter = delay
	}
	return result
}

// lazyUID reads a UID once.
type lazyUID struct {
	mu  sync.Mutex
	uid types.UID
}

// systemNamespaceUID returns the UID of the management cluster's kube-system.
func (r *Reconciler) systemNamespaceUID(ctx context.Context) (types.UID, error) {
	r.managementUID.mu.Lock()
	defer r.managementUID.mu.Unlock()
	if r.managementUID.uid == "" {
		namespace := &corev1.Namespace{}
		if err := r.APIReader.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, namespace); err != nil {
			return "", fmt.Errorf("reading namespace %s of the management cluster: %w", metav1.NamespaceSystem, err)
		}
		r.managementUID.uid = namespace.UID
	}
	return r.managementUID.uid, nil
}
