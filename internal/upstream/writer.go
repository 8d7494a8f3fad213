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

package upstream

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// Refusal says why the objects of a registration cannot be made. Reason is one of
// the FleetClusterReady condition, Message names the object in the way.
type Refusal struct {
	Reason  string
	Message string
}

func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// Writer writes to the management cluster.
type Writer struct {
	// Client writes.
	Client client.Client
	// Reader reads without a cache: what a first write meets is judged by what is there
	// now.
	Reader client.Reader
	// Cache reads what is watched: metadata of Namespaces, ServiceAccounts and Deployments,
	// Roles and RoleBindings. Nothing is made by what it shows.
	Cache client.Reader
	// ManagerNamespace holds the agents' service accounts.
	ManagerNamespace string
	// Clock is the time. Only an adoption needs it.
	Clock clock.PassiveClock

	touches touches
	// shared is held by those who put Fleet Clusters into groups, and alone by who deletes
	// a group.
	shared sync.RWMutex
}

// Placed is where a registration's objects are.
type Placed struct {
	Namespace    string
	NamespaceUID types.UID
	// AccountUID is the UID of the agent's service account. It is empty where the
	// cluster namespace is another one than before.
	AccountUID types.UID
}

// Ensure makes what is missing of the registration's objects and puts right what
// differs. Every first write is a create, so that nothing that exists already is
// touched before it was judged, and nothing is written where nothing differs. taken
// tells whether another registration holds a name for its cluster namespace; it is
// asked only while the registration has none.
//
// A cluster namespace that is another one than NamespaceUID says is empty, or has only
// what somebody put there: an agent with the token that it had would uninstall the rest.
// Then the service account is taken away, and no right is given: the next call does
// that, once the new UID was recorded.
//
// It returns a *Refusal where something that is not ours is in the way, and
// otherwise the API server's error, wrapped.
func (w *Writer) Ensure(ctx context.Context, r Registration, taken func(namespace string) bool) (Placed, error) {
	cluster, err := w.ensureFleetCluster(ctx, r)
	if err != nil {
		return Placed{}, err
	}
	if r.Namespace == "" {
		// Chosen before, by Fleet or for a registration that was made anew since: at
		// another name the Fleet Cluster would lose its BundleDeployments.
		if r.Namespace, err = w.chosenNamespace(ctx, r, cluster, taken); err != nil {
			return Placed{}, err
		}
	}
	namespace, err := w.ensureNamespace(ctx, r, taken)
	if err != nil {
		return Placed{}, err
	}
	r.Namespace = namespace.Name
	if r.NamespaceUID != "" && r.NamespaceUID != namespace.UID {
		return Placed{Namespace: namespace.Name, NamespaceUID: namespace.UID}, w.endTokens(ctx, r)
	}
	account, err := w.ensure(ctx, r, r.serviceAccount(w.ManagerNamespace), fleetv1.ServiceAccountForeignReason)
	if err != nil {
		return Placed{}, err
	}
	for _, obj := range r.rights(w.ManagerNamespace) {
		if _, err := w.ensure(ctx, r, obj, fleetv1.RBACForeignReason); err != nil {
			return Placed{}, err
		}
	}
	// Last, so that a Fleet Cluster never names a namespace that was not found to
	// be ours: Fleet deletes the namespace together with the Cluster.
	if cluster.Status.Namespace != namespace.Name {
		if err := w.setStatusNamespace(ctx, cluster, namespace.Name); err != nil {
			return Placed{}, err
		}
	}
	return Placed{Namespace: namespace.Name, NamespaceUID: namespace.UID, AccountUID: account.GetUID()}, nil
}

// endTokens takes the agent's service account away, and with it every token. It returns
// a *Refusal where the account is not ours: its tokens would live on.
//
// The kubelet would give a pod that runs a token of the next account. So an agent on the
// management cluster has to stop first, for which a *Refusal waits.
func (w *Writer) endTokens(ctx context.Context, r Registration) error {
	switch _, stopped, err := w.StopHosted(ctx, r); {
	case err != nil:
		return err
	case !stopped:
		return &Refusal{fleetv1.WaitingForAgentToStopReason, "The cluster namespace is another one than before, and the agent on the management cluster has not stopped yet"}
	}
	account := r.serviceAccount(w.ManagerNamespace)
	kept, err := w.delete(ctx, r, account)
	if kept {
		err = notOurs(fleetv1.ServiceAccountForeignReason, account)
	}
	return err
}

func (w *Writer) ensureFleetCluster(ctx context.Context, r Registration) (*fleet.Cluster, error) {
	cluster := r.fleetCluster(newClientID())
	targeted := cluster.DeepCopy()
	r.Target.Put(targeted)
	there, err := w.create(ctx, r, targeted)
	switch {
	case namespaceMissing(err):
		return nil, &Refusal{fleetv1.WorkspaceMissingReason,
			fmt.Sprintf("Namespace %s, which the Fleet Cluster has to be in, does not exist; make it", r.FleetCluster.Namespace)}
	case err != nil || there == nil:
		return targeted, err
	}
	live := there.(*fleet.Cluster)
	if err := w.judge(ctx, r, live); err != nil {
		return nil, err
	}
	if err := w.putRight(ctx, r, live, cluster); err != nil {
		return nil, err
	}
	return live, nil
}

// judge returns a *Refusal where a Fleet Cluster is not ours to write.
func (w *Writer) judge(ctx context.Context, r Registration, live *fleet.Cluster) error {
	switch {
	case !live.DeletionTimestamp.IsZero():
		return &Refusal{fleetv1.FleetClusterTerminatingReason,
			fmt.Sprintf("Waiting for Fleet Cluster %s to be gone", r.FleetCluster)}
	case r.mayAdopt(live):
		return w.beginAdoption(ctx, r, live)
	case r.lostID(live):
		return idRemoved(r)
	case !r.ours(live):
		return &Refusal{fleetv1.FleetClusterForeignReason,
			fmt.Sprintf("Fleet Cluster %s exists and is not ours. If it stands for this cluster, adopt it by a policy with adoption: Adopt; deleting it makes its agent uninstall everything", r.FleetCluster)}
	case handedOver(live):
		return labelRemoved(r)
	case live.Annotations[fleetv1.AdoptingAnnotation] != "":
		return w.finishAdoption(ctx, r, live)
	}
	return nil
}

// readFleetCluster reads the Fleet Cluster of that name, whosever it is. It returns
// nil where there is none.
func (w *Writer) readFleetCluster(ctx context.Context, r Registration) (*fleet.Cluster, error) {
	live, err := w.read(ctx, &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.FleetCluster.Namespace, Name: r.FleetCluster.Name}})
	if err != nil || live == nil {
		return nil, err
	}
	return live.(*fleet.Cluster), nil
}

// handedOver tells whether a Fleet Cluster does not carry our value of Fleet's
// management label: whoever took it off took the Fleet Cluster over.
func handedOver(cluster client.Object) bool {
	return cluster.GetLabels()[fleet.ClusterManagementLabel] != ManagementLabelValue
}

func labelRemoved(r Registration) *Refusal {
	return &Refusal{fleetv1.ManagementLabelRemovedReason,
		fmt.Sprintf("Fleet Cluster %s no longer carries the label %s=%s and is left alone", r.FleetCluster, fleet.ClusterManagementLabel, ManagementLabelValue)}
}

// lostID tells whether a Fleet Cluster that was made for the CAPI Cluster bears no ID any
// more: somebody took it off, and an agent may still work for it.
func (r Registration) lostID(cluster client.Object) bool {
	annotations := cluster.GetAnnotations()
	return r.ClusterUID != "" && annotations[fleetv1.ClusterUIDAnnotation] == string(r.ClusterUID) &&
		annotations[fleetv1.RegistrationIDAnnotation] == ""
}

func idRemoved(r Registration) *Refusal {
	return &Refusal{fleetv1.FleetClusterForeignReason,
		fmt.Sprintf("Fleet Cluster %s no longer carries the annotation %s and is left alone with its agent; put it back, as the agent's Secret in the workload cluster has it", r.FleetCluster, fleetv1.RegistrationIDAnnotation)}
}

// NamespaceNames returns the names that the cluster namespace can have, in the order of
// preference.
func (r Registration) NamespaceNames() []string {
	if r.Namespace != "" {
		return []string{r.Namespace}
	}
	return []string{
		fleet.ClusterNamespace(r.FleetCluster.Namespace, r.FleetCluster.Name),
		fleet.FallbackClusterNamespace(r.FleetCluster.Namespace, r.FleetCluster.Name),
	}
}

// placedNames returns the names that the cluster namespace of a registration can have which
// is there: also those of its service accounts, which the cache shows, where none was
// recorded. The namespace of a Fleet Cluster that was adopted may have any name.
func (w *Writer) placedNames(ctx context.Context, r Registration) ([]string, error) {
	names := r.NamespaceNames()
	if r.Namespace != "" {
		return names, nil
	}
	accounts := &metav1.PartialObjectMetadataList{}
	accounts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	if err := w.Cache.List(ctx, accounts, client.InNamespace(w.ManagerNamespace), client.MatchingLabels{ManagedByLabel: FieldOwner}); err != nil {
		return nil, fmt.Errorf("listing the service accounts of agents: %w", err)
	}
	for i := range accounts.Items {
		if name := accounts.Items[i].Name; r.ours(&accounts.Items[i]) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// chosenNamespace returns the cluster namespace that a Fleet Cluster of ours names,
// empty where it names none that is its own: agents, and whoever made the Fleet Cluster,
// can write anything there. A Fleet Cluster that was adopted may have
// one of another name than ours.
func (w *Writer) chosenNamespace(ctx context.Context, r Registration, cluster *fleet.Cluster, taken func(string) bool) (string, error) {
	name := cluster.Status.Namespace
	if name == "" || taken(name) {
		return "", nil
	}
	if slices.Contains(r.NamespaceNames(), name) {
		return name, nil
	}
	if !IsClusterNamespace(name) {
		return "", nil
	}
	namespace, err := w.readNamespace(ctx, r, name)
	if err != nil || namespace == nil {
		return "", err
	}
	return name, nil
}

func (w *Writer) ensureNamespace(ctx context.Context, r Registration, taken func(string) bool) (*corev1.Namespace, error) {
	for _, name := range r.NamespaceNames() {
		if r.Namespace == "" && taken(name) {
			continue
		}
		namespace := r.namespace(name)
		there, err := w.create(ctx, r, namespace)
		if err != nil || there == nil {
			return namespace, err
		}
		live := there.(*corev1.Namespace)
		if !r.mayUse(live) {
			continue
		}
		if !live.DeletionTimestamp.IsZero() {
			return nil, &Refusal{fleetv1.NamespaceTerminatingReason, fmt.Sprintf("Waiting for namespace %s to be gone", name)}
		}
		return live, w.putRight(ctx, r, live, namespace)
	}
	return nil, &Refusal{fleetv1.NamespaceForeignReason,
		fmt.Sprintf("No name is free for the cluster namespace of Fleet Cluster %s: %v exist and are not its own", r.FleetCluster, r.NamespaceNames())}
}

// ensure makes an object, or puts right what there is of it, and returns it.
func (w *Writer) ensure(ctx context.Context, r Registration, obj client.Object, foreign string) (client.Object, error) {
	live, err := w.create(ctx, r, obj)
	if err != nil || live == nil {
		return obj, err
	}
	if !r.ours(live) {
		return nil, notOurs(foreign, obj)
	}
	return live, w.putRight(ctx, r, live, obj)
}

func notOurs(reason string, obj client.Object) *Refusal {
	return &Refusal{reason, fmt.Sprintf("%s %s exists and is not ours; delete it", kind(obj), client.ObjectKeyFromObject(obj))}
}

// create creates an object, unless one of its name is there: that is returned.
func (w *Writer) create(ctx context.Context, r Registration, obj client.Object) (there client.Object, err error) {
	if r.LookFirst {
		if there, err := w.read(ctx, obj); err != nil || there != nil {
			return there, err
		}
	}
	err = w.Client.Create(ctx, obj, client.FieldOwner(FieldOwner))
	switch {
	case err == nil:
		return nil, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, &Refusal{fleetv1.NamespaceTerminatingReason,
			fmt.Sprintf("Namespace %s is being deleted", obj.GetNamespace())}
	case apierrors.IsAlreadyExists(err):
		there, err := w.read(ctx, obj)
		if err == nil && there == nil {
			// The next try creates it.
			err = fmt.Errorf("creating %s %s: it was there and is gone", kind(obj), client.ObjectKeyFromObject(obj))
		}
		return there, err
	default:
		return nil, fmt.Errorf("creating %s %s: %w", kind(obj), client.ObjectKeyFromObject(obj), err)
	}
}

// read returns the object of that kind and name, nil where there is none.
func (w *Writer) read(ctx context.Context, obj client.Object) (client.Object, error) {
	// An object that holds something already would keep what the answer leaves out.
	live := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	key := client.ObjectKeyFromObject(obj)
	if err := w.Reader.Get(ctx, key, live); err != nil {
		if Gone(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s %s: %w", kind(obj), key, err)
	}
	return live, nil
}

func (w *Writer) setStatusNamespace(ctx context.Context, cluster *fleet.Cluster, namespace string) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"namespace":%q}}`, cluster.UID, namespace))
	if err := w.Client.Status().Patch(ctx, cluster, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("setting status.namespace of Fleet Cluster %s: %w", client.ObjectKeyFromObject(cluster), err)
	}
	return nil
}

// Gone tells whether the error says that there is no such object. A server that does not
// serve the API at the moment says "not found" as well.
func Gone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Exists tells whether our Fleet Cluster is there, read without a cache. It
// returns a *Refusal where one is there that is no longer ours to write.
func (w *Writer) Exists(ctx context.Context, r Registration) (bool, error) {
	live, err := w.readFleetCluster(ctx, r)
	if err != nil || live == nil {
		return false, err
	}
	switch {
	case r.ours(live) && handedOver(live):
		return true, labelRemoved(r)
	case r.lostID(live) && live.DeletionTimestamp.IsZero():
		return true, idRemoved(r)
	}
	return r.ours(live) && live.DeletionTimestamp.IsZero(), nil
}

// SetClusterUID makes our Fleet Cluster, where there is one, that of another CAPI
// Cluster: one that a backup brought back with a new UID.
func (w *Writer) SetClusterUID(ctx context.Context, r Registration) error {
	live, err := w.readFleetCluster(ctx, r)
	if err != nil || live == nil || !r.ours(live) || handedOver(live) {
		return err
	}
	if live.Annotations[fleetv1.ClusterUIDAnnotation] == string(r.ClusterUID) {
		return nil
	}
	return w.patchMeta(ctx, live, object{"annotations": object{fleetv1.ClusterUIDAnnotation: r.ClusterUID}})
}

// DeleteOptions say how far a deletion goes.
type DeleteOptions struct {
	// Abandon gives up waiting for Fleet to delete the cluster namespace.
	Abandon bool
	// KeepAccount leaves the service account to a later call.
	KeepAccount bool
	// FoundGone says that our Fleet Cluster was seen to be gone, and that nothing was done
	// about its agent. If it is there all the same, nothing is deleted.
	FoundGone bool
}

// Delete takes the registration's objects away, the Fleet Cluster first and the
// agent's service account last. It returns the cluster namespace for as long as
// Fleet has not deleted it, which it does after the Fleet Cluster; unless the
// deletion is abandoned the service account stays until then. What is returned of one
// that is abandoned stays. It leaves alone what is not ours, and a Fleet Cluster that was
// handed to someone else.
func (w *Writer) Delete(ctx context.Context, r Registration, opts DeleteOptions) (namespace string, err error) {
	left, err := w.deleteFleetCluster(ctx, r, opts.FoundGone)
	if opts.Abandon && !opts.FoundGone && apierrors.IsNotFound(err) {
		// Fleet's API is not served, perhaps for good. What comes back with it is an orphan.
		err = nil
	}
	if err != nil {
		return "", err
	}
	names, err := w.placedNames(ctx, r)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if err := w.deleteRights(ctx, r, name, left || opts.Abandon); err != nil {
			return "", err
		}
		if !left {
			live, err := w.readNamespace(ctx, r, name)
			if err != nil {
				return "", err
			}
			if live != nil {
				namespace = name
			}
			if live != nil && !opts.Abandon {
				return namespace, nil
			}
		}
		if opts.KeepAccount {
			continue
		}
		if err := w.deleteAccount(ctx, r, name); err != nil {
			return "", err
		}
	}
	return namespace, nil
}

// deleteFleetCluster deletes our Fleet Cluster and tells whether it left one that is
// there. Fleet deletes the namespace that it names, so it has to name the right one at
// that very moment: the agent can write there.
func (w *Writer) deleteFleetCluster(ctx context.Context, r Registration, foundGone bool) (left bool, err error) {
	live, err := w.readFleetCluster(ctx, r)
	switch {
	case err != nil || live == nil:
		return false, err
	case foundGone && r.ours(live) && live.DeletionTimestamp.IsZero():
		return false, fmt.Errorf("deleting what is left of Fleet Cluster %s: it was gone and is there", r.FleetCluster)
	case !r.ours(live), handedOver(live):
		return true, nil
	case !live.DeletionTimestamp.IsZero():
		return false, nil
	}
	if err := w.nameNamespace(ctx, r, live); err != nil {
		return false, err
	}
	err = w.deleteIf(ctx, live, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion})
	if apierrors.IsConflict(err) {
		// An agent that reports all the time could keep us from it for ever. Without the
		// right to report it uninstalls nothing that it would not anyway.
		err = errors.Join(err, w.endReports(ctx, r))
	}
	return false, err
}

// endReports takes from the agent the right to write to its Fleet Cluster.
func (w *Writer) endReports(ctx context.Context, r Registration) error {
	names, err := w.placedNames(ctx, r)
	if err != nil {
		return err
	}
	for _, name := range names {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: r.FleetCluster.Namespace, Name: name}}
		if _, err := w.delete(ctx, r, binding); err != nil {
			return err
		}
	}
	return nil
}

// Orphan leaves the Fleet Cluster and the cluster namespace, labelled as orphans, and
// takes only the agent's rights and, last, its service account.
func (w *Writer) Orphan(ctx context.Context, r Registration) error {
	if err := w.keepAsOrphan(ctx, r); err != nil {
		return err
	}
	names, err := w.placedNames(ctx, r)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.deleteRights(ctx, r, name, true); err != nil {
			return err
		}
		if err := w.deleteAccount(ctx, r, name); err != nil {
			return err
		}
	}
	return nil
}

// deleteRights deletes the agent's Roles and RoleBindings, whose cluster namespace has
// that name. Where the namespace goes, it takes the one in it along.
func (w *Writer) deleteRights(ctx context.Context, r Registration, name string, namespaceStays bool) error {
	rights := []client.Object{
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: r.FleetCluster.Namespace, Name: name}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: r.FleetCluster.Namespace, Name: name}},
	}
	if namespaceStays {
		rights = append(rights, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: bundlesBinding}})
	}
	for _, obj := range rights {
		if _, err := w.delete(ctx, r, obj); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) deleteAccount(ctx context.Context, r Registration, name string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ManagerNamespace, Name: name}}
	_, err := w.delete(ctx, r, account)
	return err
}

// keepAsOrphan labels our Fleet Cluster, which nobody will look after from now on. One
// that is not ours to write, or about to go, is no orphan.
func (w *Writer) keepAsOrphan(ctx context.Context, r Registration) error {
	cluster, err := w.ourFleetCluster(ctx, r)
	if err != nil || cluster == nil {
		return err
	}
	if err := w.nameNamespace(ctx, r, cluster); err != nil {
		return err
	}
	return w.LabelOrphan(ctx, cluster)
}

// ourFleetCluster reads the Fleet Cluster. It returns nil where there is none that is ours
// to write and there to stay.
func (w *Writer) ourFleetCluster(ctx context.Context, r Registration) (*fleet.Cluster, error) {
	live, err := w.readFleetCluster(ctx, r)
	if err != nil || live == nil || !r.ours(live) || handedOver(live) || !live.DeletionTimestamp.IsZero() {
		return nil, err
	}
	return live, nil
}

// LabelOrphan labels a Fleet Cluster that was judged to be ours, as it was read, as one
// that has no registration, and before it the namespace that it names. That only gets
// the label if it bears the same ID and is marked as this Fleet Cluster's: whoever can
// write to a Fleet Cluster can let it name any namespace, and one that Fleet made before
// an adoption is not ours. What broke off is done again by the next call.
func (w *Writer) LabelOrphan(ctx context.Context, cluster *fleet.Cluster) error {
	r := Registration{ID: cluster.Annotations[fleetv1.RegistrationIDAnnotation], FleetCluster: client.ObjectKeyFromObject(cluster)}
	if name := cluster.Status.Namespace; name != "" {
		namespace, err := w.readNamespace(ctx, r, name)
		if err != nil {
			return err
		}
		if namespace != nil && r.ours(namespace) {
			if err := w.labelOrphan(ctx, namespace); err != nil {
				return err
			}
		}
	}
	return w.labelOrphan(ctx, cluster)
}

func (w *Writer) labelOrphan(ctx context.Context, obj client.Object) error {
	if obj.GetLabels()[fleetv1.OrphanLabel] == "true" {
		return nil
	}
	return client.IgnoreNotFound(w.patchMeta(ctx, obj, object{"labels": object{fleetv1.OrphanLabel: "true"}}))
}

// nameNamespace lets our Fleet Cluster name its own cluster namespace, so that Fleet
// deletes both, and no other: the registration may have broken off before it was named,
// and the agent may have named another one. We may not delete any.
func (w *Writer) nameNamespace(ctx context.Context, r Registration, cluster *fleet.Cluster) error {
	named := cluster.Status.Namespace
	own, err := w.ownNamespace(ctx, r, named)
	if err != nil || own == named {
		return err
	}
	if own == "" {
		// There is none. One that is gone can stay named.
		other, err := w.read(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: named}})
		if err != nil || other == nil {
			return err
		}
	}
	return w.setStatusNamespace(ctx, cluster, own)
}

// ownNamespace returns the name of the Fleet Cluster's own namespace, empty where there
// is none. Of a registration that has none recorded it is the one that is named, or one
// that we made.
func (w *Writer) ownNamespace(ctx context.Context, r Registration, named string) (string, error) {
	names := r.NamespaceNames()
	if r.Namespace == "" && named != "" {
		names = append([]string{named}, names...)
	}
	for _, name := range names {
		namespace, err := w.read(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil {
			return "", err
		}
		if namespace != nil && r.mayUse(namespace) && (r.ours(namespace) || name == r.Namespace || name == named) {
			return name, nil
		}
	}
	return "", nil
}

// Find returns the cluster namespace of a registration that does not know it any more, by
// what its Fleet Cluster names. It is empty where there is none.
func (w *Writer) Find(ctx context.Context, r Registration) (Placed, error) {
	cluster, err := w.readFleetCluster(ctx, r)
	if err != nil || cluster == nil || !r.ours(cluster) {
		return Placed{}, err
	}
	name, err := w.ownNamespace(ctx, r, cluster.Status.Namespace)
	if err != nil || name == "" {
		return Placed{}, err
	}
	namespace, err := w.read(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil || namespace == nil {
		return Placed{}, err
	}
	return Placed{Namespace: name, NamespaceUID: namespace.GetUID()}, nil
}

// readNamespace reads the namespace of that name. It returns nil where there is none,
// or where it is not the Fleet Cluster's.
func (w *Writer) readNamespace(ctx context.Context, r Registration, name string) (*corev1.Namespace, error) {
	live, err := w.read(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil || live == nil || !r.OwnsNamespace(live) {
		return nil, err
	}
	return live.(*corev1.Namespace), nil
}

// delete deletes an object that is ours, and tells whether it left one that is there.
func (w *Writer) delete(ctx context.Context, r Registration, obj client.Object) (kept bool, err error) {
	live, err := w.read(ctx, obj)
	switch {
	case err != nil || live == nil:
		return false, err
	case !r.ours(live):
		return true, nil
	case !live.GetDeletionTimestamp().IsZero():
		return false, nil
	}
	return false, w.deleteLive(ctx, live)
}

// deleteLive deletes an object that was judged, and no other of its name.
func (w *Writer) deleteLive(ctx context.Context, live client.Object) error {
	uid := live.GetUID()
	return w.deleteIf(ctx, live, client.Preconditions{UID: &uid})
}

func (w *Writer) deleteIf(ctx context.Context, live client.Object, same client.Preconditions) error {
	if err := w.Client.Delete(ctx, live, same); err != nil && !Gone(err) {
		return fmt.Errorf("deleting %s %s: %w", kind(live), client.ObjectKeyFromObject(live), err)
	}
	return nil
}

// kind names an object's kind in messages.
func kind(obj client.Object) string {
	switch obj.(type) {
	case *fleet.Cluster:
		return "Fleet Cluster"
	case *corev1.Namespace:
		return "namespace"
	case *corev1.ServiceAccount:
		return "service account"
	case *rbacv1.Role:
		return "Role"
	case *rbacv1.RoleBinding:
		return "RoleBinding"
	case *appsv1.Deployment:
		return "Deployment"
	case *networkingv1.NetworkPolicy:
		return "NetworkPolicy"
	case *corev1.Secret:
		return "Secret"
	case *fleet.ClusterGroup:
		return "ClusterGroup"
	case *fleet.BundleNamespaceMapping:
		return "BundleNamespaceMapping"
	}
	return "object"
}
