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
	"crypto/rand"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// Client writes, and reads by name without a cache: what a first write meets
	// is judged by what is there now.
	Client client.Client
	// Reader reads without a cache.
	Reader client.Reader
	// ManagerNamespace holds the agents' service accounts.
	ManagerNamespace string
}

// Placed is where a registration's objects are.
type Placed struct {
	Namespace    string
	NamespaceUID types.UID
}

// Ensure makes what is missing of the registration's objects. Every first write
// is a create, so that nothing that exists already is touched before it was
// judged. taken tells whether another registration holds a name for its cluster
// namespace; it is asked only while the registration has none.
//
// It returns a *Refusal where something that is not ours is in the way, and
// otherwise the API server's error, wrapped.
func (w *Writer) Ensure(ctx context.Context, r Registration, taken func(namespace string) bool) (Placed, error) {
	cluster, err := w.ensureFleetCluster(ctx, r)
	if err != nil {
		return Placed{}, err
	}
	if r.Namespace == "" && slices.Contains(r.names(), cluster.Status.Namespace) {
		// Chosen before, for a registration that was made anew since: at another
		// name the Fleet Cluster would lose its BundleDeployments.
		r.Namespace = cluster.Status.Namespace
	}
	namespace, err := w.ensureNamespace(ctx, r, taken)
	if err != nil {
		return Placed{}, err
	}
	r.Namespace = namespace.Name
	for _, step := range []struct {
		obj     client.Object
		foreign string
	}{
		{r.serviceAccount(w.ManagerNamespace), fleetv1.ServiceAccountForeignReason},
		{r.statusRole(), fleetv1.RBACForeignReason},
		{r.statusRoleBinding(w.ManagerNamespace), fleetv1.RBACForeignReason},
		{r.bundlesRoleBinding(w.ManagerNamespace), fleetv1.RBACForeignReason},
	} {
		if err := w.ensure(ctx, r, step.obj, step.foreign); err != nil {
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
	return Placed{Namespace: namespace.Name, NamespaceUID: namespace.UID}, nil
}

func (w *Writer) ensureFleetCluster(ctx context.Context, r Registration) (*fleet.Cluster, error) {
	// rand.Text holds at least 128 random bits.
	cluster := r.fleetCluster(rand.Text() + rand.Text())
	created, err := w.create(ctx, r, cluster)
	if err != nil || created {
		return cluster, err
	}
	live, err := w.fleetCluster(ctx, r)
	if err == nil && live == nil {
		// It went in between; the next try creates it.
		err = fmt.Errorf("creating Fleet Cluster %s: it was there and is gone", r.FleetCluster)
	}
	return live, err
}

// fleetCluster reads and judges the Fleet Cluster of that name. It returns nil where
// there is none, and a *Refusal where it is not ours to write.
func (w *Writer) fleetCluster(ctx context.Context, r Registration) (*fleet.Cluster, error) {
	live, err := w.readFleetCluster(ctx, r)
	if err != nil || live == nil {
		return nil, err
	}
	switch {
	case !live.DeletionTimestamp.IsZero():
		return nil, &Refusal{fleetv1.FleetClusterTerminatingReason,
			fmt.Sprintf("Waiting for Fleet Cluster %s to be gone", r.FleetCluster)}
	case !r.ours(live):
		return nil, &Refusal{fleetv1.FleetClusterForeignReason,
			fmt.Sprintf("Fleet Cluster %s exists and is not ours; delete or rename it", r.FleetCluster)}
	case handedOver(live):
		return nil, labelRemoved(r)
	}
	return live, nil
}

// readFleetCluster reads the Fleet Cluster of that name, whosever it is. It returns
// nil where there is none.
func (w *Writer) readFleetCluster(ctx context.Context, r Registration) (*fleet.Cluster, error) {
	live := &fleet.Cluster{}
	if err := w.Reader.Get(ctx, r.FleetCluster, live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Fleet Cluster %s: %w", r.FleetCluster, err)
	}
	return live, nil
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

// names returns the names that the cluster namespace can have, in the order of
// preference.
func (r Registration) names() []string {
	if r.Namespace != "" {
		return []string{r.Namespace}
	}
	return []string{
		fleet.ClusterNamespace(r.FleetCluster.Namespace, r.FleetCluster.Name),
		fleet.FallbackClusterNamespace(r.FleetCluster.Namespace, r.FleetCluster.Name),
	}
}

func (w *Writer) ensureNamespace(ctx context.Context, r Registration, taken func(string) bool) (*corev1.Namespace, error) {
	for _, name := range r.names() {
		if r.Namespace == "" && taken(name) {
			continue
		}
		namespace := r.namespace(name)
		created, err := w.create(ctx, r, namespace)
		if err != nil || created {
			return namespace, err
		}
		live := &corev1.Namespace{}
		if err := w.Reader.Get(ctx, client.ObjectKeyFromObject(namespace), live); err != nil {
			return nil, fmt.Errorf("reading namespace %s: %w", name, err)
		}
		if !r.oursNamespace(live) {
			continue
		}
		if !live.DeletionTimestamp.IsZero() {
			return nil, &Refusal{fleetv1.NamespaceTerminatingReason, fmt.Sprintf("Waiting for namespace %s to be gone", name)}
		}
		return live, nil
	}
	return nil, &Refusal{fleetv1.NamespaceForeignReason,
		fmt.Sprintf("No name is free for the cluster namespace of Fleet Cluster %s: %v exist and are not its own", r.FleetCluster, r.names())}
}

func (w *Writer) ensure(ctx context.Context, r Registration, obj client.Object, foreign string) error {
	created, err := w.create(ctx, r, obj)
	if err != nil || created {
		return err
	}
	key := client.ObjectKeyFromObject(obj)
	if err := w.Reader.Get(ctx, key, obj); err != nil {
		return fmt.Errorf("reading %s %s: %w", kind(obj), key, err)
	}
	if !r.ours(obj) {
		return &Refusal{foreign, fmt.Sprintf("%s %s exists and is not ours; delete it", kind(obj), key)}
	}
	return nil
}

// create creates an object and tells whether it did; false without an error
// means that one of this name is there.
func (w *Writer) create(ctx context.Context, r Registration, obj client.Object) (bool, error) {
	if r.LookFirst {
		key := client.ObjectKeyFromObject(obj)
		err := w.Reader.Get(ctx, key, obj.DeepCopyObject().(client.Object))
		if err == nil {
			return false, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("reading %s %s: %w", kind(obj), key, err)
		}
	}
	err := w.Client.Create(ctx, obj, client.FieldOwner(FieldOwner))
	switch {
	case err == nil:
		return true, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, &Refusal{fleetv1.NamespaceTerminatingReason,
			fmt.Sprintf("Namespace %s is being deleted", obj.GetNamespace())}
	case apierrors.IsAlreadyExists(err):
		return false, nil
	default:
		return false, fmt.Errorf("creating %s %s: %w", kind(obj), client.ObjectKeyFromObject(obj), err)
	}
}

func (w *Writer) setStatusNamespace(ctx context.Context, cluster *fleet.Cluster, namespace string) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"namespace":%q}}`, namespace))
	if err := w.Client.Status().Patch(ctx, cluster, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("setting status.namespace of Fleet Cluster %s: %w", client.ObjectKeyFromObject(cluster), err)
	}
	return nil
}

// Exists tells whether our Fleet Cluster is there, read without a cache. It
// returns a *Refusal where one is there that is no longer ours to write.
func (w *Writer) Exists(ctx context.Context, r Registration) (bool, error) {
	live, err := w.readFleetCluster(ctx, r)
	if err != nil || live == nil {
		return false, err
	}
	if r.ours(live) && handedOver(live) {
		return true, labelRemoved(r)
	}
	return r.ours(live) && live.DeletionTimestamp.IsZero(), nil
}

// Delete takes the registration's objects away, the Fleet Cluster first and the
// agent's service account last. It returns the cluster namespace for as long as
// Fleet has not deleted it, which it does after the Fleet Cluster; unless abandon
// is set the service account stays until then. It leaves alone what is not ours,
// and a Fleet Cluster that was handed to someone else.
func (w *Writer) Delete(ctx context.Context, r Registration, abandon bool) (waitingFor string, err error) {
	cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.FleetCluster.Namespace, Name: r.FleetCluster.Name}}
	if r.Namespace == "" {
		if err := w.nameNamespace(ctx, r); err != nil {
			return "", err
		}
	}
	left, err := w.delete(ctx, r, cluster, handedOver)
	if err != nil {
		return "", err
	}
	for _, name := range r.names() {
		rights := []client.Object{
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: r.FleetCluster.Namespace, Name: name}},
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: r.FleetCluster.Namespace, Name: name}},
		}
		if left {
			// The cluster namespace, which would take this one with it, stays too.
			rights = append(rights, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: bundlesBinding}})
		}
		for _, obj := range rights {
			if _, err := w.delete(ctx, r, obj, nil); err != nil {
				return "", err
			}
		}
		if !left && !abandon {
			gone, err := w.namespaceGone(ctx, r, name)
			if err != nil {
				return "", err
			}
			if !gone {
				return name, nil
			}
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ManagerNamespace, Name: name}}
		if _, err := w.delete(ctx, r, account, nil); err != nil {
			return "", err
		}
	}
	return "", nil
}

// nameNamespace lets Fleet find the cluster namespace of a registration that broke
// off before its Fleet Cluster named it, so that both go. We may not delete any.
func (w *Writer) nameNamespace(ctx context.Context, r Registration) error {
	cluster, err := w.readFleetCluster(ctx, r)
	if err != nil || cluster == nil {
		return err
	}
	if !r.ours(cluster) || handedOver(cluster) || !cluster.DeletionTimestamp.IsZero() || cluster.Status.Namespace != "" {
		return nil
	}
	for _, name := range r.names() {
		live := &corev1.Namespace{}
		switch err := w.Reader.Get(ctx, types.NamespacedName{Name: name}, live); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("reading namespace %s: %w", name, err)
		case r.ours(live) && r.oursNamespace(live):
			return w.setStatusNamespace(ctx, cluster, name)
		}
	}
	return nil
}

// delete deletes an object that is ours, unless keep says otherwise, and tells
// whether it left one that is there.
func (w *Writer) delete(ctx context.Context, r Registration, obj client.Object, keep func(client.Object) bool) (kept bool, err error) {
	key := client.ObjectKeyFromObject(obj)
	if err := w.Reader.Get(ctx, key, obj); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading %s %s: %w", kind(obj), key, err)
	}
	if !r.ours(obj) || keep != nil && keep(obj) {
		return true, nil
	}
	if !obj.GetDeletionTimestamp().IsZero() {
		return false, nil
	}
	uid := obj.GetUID()
	if err := w.Client.Delete(ctx, obj, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting %s %s: %w", kind(obj), key, err)
	}
	return false, nil
}

func (w *Writer) namespaceGone(ctx context.Context, r Registration, name string) (bool, error) {
	live := &corev1.Namespace{}
	if err := w.Reader.Get(ctx, types.NamespacedName{Name: name}, live); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return !r.oursNamespace(live), nil
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
	}
	return "object"
}
