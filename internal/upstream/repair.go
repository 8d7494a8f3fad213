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
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// object is one in a merge patch.
type object = map[string]any

// Look tells from the cache alone how the objects of a registration stand that was
// placed: it asks the API server for nothing. amiss names the first one that is
// missing or differs, empty where all is as it should be; then account is the UID of
// the agent's service account. cluster is the Fleet Cluster in the cache, nil where it
// has none. The cache can be behind, so nothing but a call of Ensure follows from what
// is amiss.
func (w *Writer) Look(ctx context.Context, r Registration, cluster *fleet.Cluster) (account types.UID, amiss string, err error) {
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() || cluster.Status.Namespace != r.Namespace || r.differs(cluster, r.fleetCluster("")) {
		return "", fmt.Sprintf("Fleet Cluster %s", r.FleetCluster), nil
	}
	namespace, serviceAccount := cachedMetadata("Namespace"), cachedMetadata("ServiceAccount")
	rights := r.rights(w.ManagerNamespace)
	for _, look := range []struct{ cached, want client.Object }{
		{namespace, r.namespace(r.Namespace)},
		{serviceAccount, r.serviceAccount(w.ManagerNamespace)},
		{&rbacv1.Role{}, rights[0]},
		{&rbacv1.RoleBinding{}, rights[1]},
		{&rbacv1.RoleBinding{}, rights[2]},
	} {
		key := client.ObjectKeyFromObject(look.want)
		err := w.Cache.Get(ctx, key, look.cached)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return "", "", fmt.Errorf("reading %s %s from the cache: %w", kind(look.want), key, err)
		}
		if missing || r.differs(look.cached, look.want) {
			return "", fmt.Sprintf("%s %s", kind(look.want), key), nil
		}
	}
	if namespace.UID != r.NamespaceUID || !namespace.DeletionTimestamp.IsZero() {
		return "", "namespace " + r.Namespace, nil
	}
	return serviceAccount.UID, "", nil
}

// Account returns from the cache alone the UID of the agent's service account, empty where
// that or the cluster namespace is not what was placed.
func (w *Writer) Account(ctx context.Context, r Registration) (types.UID, error) {
	namespace, account := cachedMetadata("Namespace"), cachedMetadata("ServiceAccount")
	for _, look := range []struct{ cached, want client.Object }{
		{namespace, r.namespace(r.Namespace)},
		{account, r.serviceAccount(w.ManagerNamespace)},
	} {
		key := client.ObjectKeyFromObject(look.want)
		err := w.Cache.Get(ctx, key, look.cached)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return "", fmt.Errorf("reading %s %s from the cache: %w", kind(look.want), key, err)
		}
		if missing || !look.cached.GetDeletionTimestamp().IsZero() {
			return "", nil
		}
	}
	if namespace.UID != r.NamespaceUID || !r.ours(account) {
		return "", nil
	}
	return account.UID, nil
}

// cachedMetadata returns an empty object of a core kind that is cached as metadata.
func cachedMetadata(kind string) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return obj
}

// differs tells whether an object lacks something of what we want, which is of the
// kind that live is, or is the metadata of. What others added to its labels and
// annotations stays.
func (r Registration) differs(live, want client.Object) bool {
	marked := contains(live.GetLabels(), want.GetLabels()) && contains(live.GetAnnotations(), want.GetAnnotations())
	switch want := want.(type) {
	case *fleet.Cluster:
		spec := live.(*fleet.Cluster).Spec
		elsewhere := cmp.Or(spec.AgentNamespace, fleet.DefaultAgentNamespace) != want.Spec.AgentNamespace
		return !marked || orphaned(live) || spec.ClientID == "" || elsewhere
	case *corev1.Namespace:
		// One that Fleet made bears only Fleet's marks. Those are not ours to write.
		byFleet := !r.ours(live) && r.OwnsNamespace(live)
		return !marked && !byFleet || orphaned(live)
	case *rbacv1.Role:
		return !marked || !equality.Semantic.DeepEqual(live.(*rbacv1.Role).Rules, want.Rules)
	case *rbacv1.RoleBinding:
		live := live.(*rbacv1.RoleBinding)
		return !marked || live.RoleRef != want.RoleRef || !equality.Semantic.DeepEqual(live.Subjects, want.Subjects)
	}
	return !marked
}

// orphaned tells whether an object is labelled as one that has no registration.
func orphaned(obj client.Object) bool {
	_, ok := obj.GetLabels()[fleetv1.OrphanLabel]
	return ok
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// putRight writes to an object that was judged to be ours, if it differs from what we
// want.
func (w *Writer) putRight(ctx context.Context, r Registration, live, want client.Object) error {
	if !r.differs(live, want) {
		return nil
	}
	switch want := want.(type) {
	case *fleet.Cluster:
		return w.merge(ctx, live, clusterPatch(live.(*fleet.Cluster), want))
	case *corev1.Namespace:
		return w.merge(ctx, live, r.namespacePatch(live, want))
	case *rbacv1.RoleBinding:
		if live.(*rbacv1.RoleBinding).RoleRef != want.RoleRef {
			// That cannot be changed.
			return w.replace(ctx, live, want)
		}
	}
	return w.apply(ctx, live, want)
}

func clusterPatch(live, want *fleet.Cluster) object {
	spec := object{"agentNamespace": want.Spec.AgentNamespace}
	if live.Spec.ClientID == "" {
		spec["clientID"] = want.Spec.ClientID
	}
	// Not the management label: whoever takes that off takes the Fleet Cluster over, be
	// it at this very moment.
	return object{
		"metadata": object{"labels": object{fleetv1.OrphanLabel: nil}, "annotations": want.Annotations},
		"spec":     spec,
	}
}

func (r Registration) namespacePatch(live client.Object, want *corev1.Namespace) object {
	labels := object{fleetv1.OrphanLabel: nil}
	if !r.ours(live) {
		return object{"metadata": object{"labels": labels}}
	}
	for key, value := range want.Labels {
		labels[key] = value
	}
	return object{"metadata": object{"labels": labels, "annotations": want.Annotations}}
}

// merge merges a patch into an object that was read and judged; one that was made
// anew since is not touched.
func (w *Writer) merge(ctx context.Context, obj client.Object, patch object) error {
	patch["metadata"].(object)["uid"] = obj.GetUID()
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch of %s %s: %w", kind(obj), client.ObjectKeyFromObject(obj), err)
	}
	if err := w.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data), client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("patching %s %s: %w", kind(obj), client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

func (w *Writer) patchMeta(ctx context.Context, obj client.Object, metadata object) error {
	return w.merge(ctx, obj, object{"metadata": metadata})
}

// replace deletes an object and creates it anew.
func (w *Writer) replace(ctx context.Context, live, want client.Object) error {
	if err := w.deleteLive(ctx, live); err != nil {
		return err
	}
	if err := w.Client.Create(ctx, want, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("creating %s %s: %w", kind(want), client.ObjectKeyFromObject(want), err)
	}
	return nil
}

// apply applies an object over the one that was judged, and over no other.
func (w *Writer) apply(ctx context.Context, live, want client.Object) error {
	key := client.ObjectKeyFromObject(want)
	gvk, err := w.Client.GroupVersionKindFor(want)
	if err != nil {
		return fmt.Errorf("finding the kind of %s %s: %w", kind(want), key, err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("converting %s %s: %w", kind(want), key, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetUID(live.GetUID())
	if err := w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldOwner), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", kind(want), key, err)
	}
	return nil
}
