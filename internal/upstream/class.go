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
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
)

// clusterGroup returns the group of a ClusterClass, as the provider that came before this
// one made it.
func clusterGroup(class targeting.Class, labels map[string]string) *fleet.ClusterGroup {
	all := class.GroupLabels(labels)
	record := targeting.Record{Class: class.ID(), Shared: class.Shared}
	for key := range all {
		record.Labels = append(record.Labels, key)
	}
	slices.Sort(record.Labels)
	return &fleet.ClusterGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   class.Namespace,
			Name:        fleet.ClassGroupName(class.Namespace, class.ClassNamespace, class.Name),
			Labels:      all,
			Annotations: map[string]string{fleetv1.PropagatedAnnotation: record.String()},
		},
		Spec: fleet.ClusterGroupSpec{Selector: &metav1.LabelSelector{MatchLabels: class.Labels()}},
	}
}

// bundleNamespaceMapping returns what lets the bundles of a ClusterClass's namespace reach
// the Fleet Clusters of another one.
func bundleNamespaceMapping(class targeting.Class) *fleet.BundleNamespaceMapping {
	return &fleet.BundleNamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   class.ClassNamespace,
			Name:        class.Namespace,
			Annotations: map[string]string{fleetv1.PropagatedAnnotation: targeting.Record{}.String()},
		},
		BundleSelector:    &metav1.LabelSelector{},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: class.Namespace}},
	}
}

// LookClass tells from the cache whether there can be a group of a ClusterClass. It returns a
// *Refusal where the class is not there, or where the group, or what lets bundles reach it,
// is someone else's and another.
func (w *Writer) LookClass(ctx context.Context, class targeting.Class) error {
	if _, err := w.classLabels(ctx, class); err != nil {
		return err
	}
	if _, err := w.asMade(ctx, class); err != nil {
		return err
	}
	for _, want := range classObjects(class, nil) {
		live, err := w.cached(ctx, want)
		if err == nil && live != nil {
			err = judgeClassObject(live, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func classObjects(class targeting.Class, labels map[string]string) []client.Object {
	objects := []client.Object{clusterGroup(class, labels)}
	if class.Namespace != class.ClassNamespace {
		objects = append(objects, bundleNamespaceMapping(class))
	}
	return objects
}

// EnsureClass makes the ClusterGroup of a ClusterClass and, where the class is in another
// namespace than the Fleet Clusters, the BundleNamespaceMapping, and puts right what
// differs. It goes by the cache. One that is not ours but selects the same will do; else it
// returns a *Refusal, once the other object is in place. So it does, with another reason,
// where the labels of the class are too large for the group, and where there is no class:
// then it changes nothing.
func (w *Writer) EnsureClass(ctx context.Context, class targeting.Class) error {
	return w.forClass(ctx, class, w.ensureClassObject)
}

// JoinClass does the same for a Fleet Cluster that is about to get into the group, and then
// calls join, which puts it there. It does not go by the cache alone, which may show a group
// that was deleted with its last Fleet Cluster just now, and DeleteUnused deletes none
// meanwhile. Where the group is not there to stay, or is not the right one, it returns an
// error: the event of the group brings the next try.
//
// It returns a *Refusal without a call of join, unless the group is there nevertheless, with
// fewer labels.
func (w *Writer) JoinClass(ctx context.Context, class targeting.Class, join func() error) error {
	w.shared.RLock()
	defer w.shared.RUnlock()
	err := w.forClass(ctx, class, w.joinClassObject)
	var refusal *Refusal
	if err != nil && (!errors.As(err, &refusal) || refusal.Reason != fleetv1.LabelsTooLargeReason) {
		return err
	}
	return join()
}

func (w *Writer) joinClassObject(ctx context.Context, want client.Object) error {
	if made, err := w.createClassObject(ctx, want.DeepCopyObject().(client.Object)); err != nil || made {
		return err
	}
	live, err := w.cached(ctx, want)
	if err == nil && live == nil {
		// Most likely the class controller has just made it.
		live, err = w.listed(ctx, want)
	}
	switch {
	case err != nil:
		return err
	case live == nil, !live.GetDeletionTimestamp().IsZero():
		return fmt.Errorf("joining %s %s: %w", kind(want), client.ObjectKeyFromObject(want), errNotSettled)
	}
	return w.bringInLine(ctx, live, want)
}

// errNotSettled says that an object of a class comes or goes at the moment, or another one
// was made in its place. What comes next is seen to with its event.
var errNotSettled = errors.New("it is about to be another one")

// listed returns an object of a class as the API server has it, nil where there is none. The
// manager may list them and not get one.
func (w *Writer) listed(ctx context.Context, want client.Object) (client.Object, error) {
	var list client.ObjectList = &fleet.ClusterGroupList{}
	if _, ok := want.(*fleet.BundleNamespaceMapping); ok {
		list = &fleet.BundleNamespaceMappingList{}
	}
	if err := w.Reader.List(ctx, list, client.InNamespace(want.GetNamespace())); err != nil {
		return nil, fmt.Errorf("listing the %ss of namespace %s: %w", kind(want), want.GetNamespace(), err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("reading the %ss of namespace %s: %w", kind(want), want.GetNamespace(), err)
	}
	for _, item := range items {
		if live := item.(client.Object); live.GetName() == want.GetName() {
			return live, nil
		}
	}
	return nil, nil
}

func (w *Writer) forClass(ctx context.Context, class targeting.Class, ensure func(context.Context, client.Object) error) error {
	labels, err := w.classLabels(ctx, class)
	if err != nil {
		return err
	}
	var refused *Refusal
	if targeting.TooLarge(labels) {
		refused = &Refusal{fleetv1.LabelsTooLargeReason, fmt.Sprintf(
			"The labels of ClusterClass %s/%s are too large together; its group keeps those that it has", class.ClassNamespace, class.Name)}
		if labels, err = w.groupLabels(ctx, class); err != nil {
			return err
		}
	}
	class, err = w.asMade(ctx, class)
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	for _, want := range classObjects(class, labels) {
		if err := ensure(ctx, want); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	if refused != nil {
		return refused
	}
	return nil
}

// asMade returns the class with its group as it was made, for Clusters of other namespaces
// or not: labels put on or taken off it later would let bundles reach clusters that are in
// it, or have them uninstalled. It returns a *Refusal where the group has labels and so is
// none for Clusters of other namespaces.
func (w *Writer) asMade(ctx context.Context, class targeting.Class) (targeting.Class, error) {
	group := clusterGroup(class, nil)
	live, err := w.cached(ctx, group)
	if err != nil || live == nil {
		return class, err
	}
	wanted := class.Shared
	class.Shared = shared(live)
	if wanted && !class.Shared {
		return class, &Refusal{fleetv1.ClassGroupForeignReason, fmt.Sprintf(
			"ClusterGroup %s is for Clusters of its own namespace: it has labels by which bundles select it", client.ObjectKeyFromObject(group))}
	}
	return class, nil
}

// classLabels returns the labels of a ClusterClass. It returns a *Refusal where that is not
// there.
func (w *Writer) classLabels(ctx context.Context, class targeting.Class) (map[string]string, error) {
	key := types.NamespacedName{Namespace: class.ClassNamespace, Name: class.Name}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ClusterClass"))
	if err := w.Cache.Get(ctx, key, obj); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &Refusal{fleetv1.ClassMissingReason, fmt.Sprintf("ClusterClass %s does not exist", key)}
		}
		return nil, fmt.Errorf("reading ClusterClass %s: %w", key, err)
	}
	return obj.Labels, nil
}

// groupLabels returns the labels that we put on the group of a class.
func (w *Writer) groupLabels(ctx context.Context, class targeting.Class) (map[string]string, error) {
	live, err := w.cached(ctx, clusterGroup(class, nil))
	if err != nil || live == nil {
		return nil, err
	}
	record, _ := targeting.ReadRecord(live.GetAnnotations())
	labels := live.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return !slices.Contains(record.Labels, key) })
	return labels, nil
}

// IsOf tells whether an object has the name and the kind of one for a class, whosever it is.
func IsOf(class targeting.Class, obj client.Object) bool {
	return slices.ContainsFunc(classObjects(class, nil), func(want client.Object) bool {
		return kind(want) == kind(obj) && client.ObjectKeyFromObject(want) == client.ObjectKeyFromObject(obj)
	})
}

func (w *Writer) cached(ctx context.Context, want client.Object) (client.Object, error) {
	live := reflect.New(reflect.TypeOf(want).Elem()).Interface().(client.Object)
	key := client.ObjectKeyFromObject(want)
	if err := w.Cache.Get(ctx, key, live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s %s from the cache: %w", kind(want), key, err)
	}
	return live, nil
}

func (w *Writer) ensureClassObject(ctx context.Context, want client.Object) error {
	live, err := w.cached(ctx, want)
	if err != nil {
		return err
	}
	if live == nil {
		_, err := w.createClassObject(ctx, want)
		return err
	}
	return w.bringInLine(ctx, live, want)
}

// bringInLine writes to an object of a class that is there, if it is ours and differs.
func (w *Writer) bringInLine(ctx context.Context, live, want client.Object) error {
	if err := judgeClassObject(live, want); err != nil {
		return err
	}
	// Made since asMade looked, for other Clusters than this one would be.
	if shared(live) != shared(want) {
		return fmt.Errorf("writing %s %s: %w", kind(want), client.ObjectKeyFromObject(want), errNotSettled)
	}
	patch := classPatch(live, want)
	if patch == nil || !OurClassObject(live) || !live.GetDeletionTimestamp().IsZero() {
		return nil
	}
	// One that was deleted meanwhile comes again with its event.
	return client.IgnoreNotFound(w.merge(ctx, live.DeepCopyObject().(client.Object), patch))
}

// createClassObject creates an object and tells whether it did. One that is there and not
// in the cache is judged when the cache shows it.
func (w *Writer) createClassObject(ctx context.Context, want client.Object) (made bool, err error) {
	err = w.Client.Create(ctx, want, client.FieldOwner(FieldOwner))
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case namespaceMissing(err):
		// No class can be in it, and no Fleet Cluster.
		return false, nil
	}
	return false, fmt.Errorf("creating %s %s: %w", kind(want), client.ObjectKeyFromObject(want), err)
}

// OurClassObject tells whether capi-fleet made a ClusterGroup or a BundleNamespaceMapping.
func OurClassObject(obj client.Object) bool {
	_, ok := targeting.ReadRecord(obj.GetAnnotations())
	return ok
}

// GroupClass returns the ID of the class that a ClusterGroup of ours is for, see
// targeting.Class, and empty where it is none. Others can write the record, so what it says
// has to go with the name.
func GroupClass(group *fleet.ClusterGroup) string {
	record, _ := targeting.ReadRecord(group.Annotations)
	classNamespace, label := targeting.SplitClass(record.Class)
	name, ok := group.Name, len(validation.IsDNS1123Label(classNamespace)) == 0
	if classNamespace != group.Namespace {
		var suffixed bool
		name, suffixed = strings.CutSuffix(name, "."+classNamespace)
		ok = ok && suffixed
	}
	if !ok || !fleet.IsLabelValue(label, name) {
		return ""
	}
	return record.Class
}

// MayDelete tells whether a ClusterGroup or a BundleNamespaceMapping is as capi-fleet made
// it. One that selects something else by now serves somebody else.
func MayDelete(obj client.Object) bool {
	if !OurClassObject(obj) || !obj.GetDeletionTimestamp().IsZero() {
		return false
	}
	switch obj := obj.(type) {
	case *fleet.ClusterGroup:
		namespace, name := targeting.SplitClass(GroupClass(obj))
		return sameSelectors(obj, clusterGroup(targeting.Class{ClassNamespace: namespace, Name: name}, nil))
	case *fleet.BundleNamespaceMapping:
		return sameSelectors(obj, bundleNamespaceMapping(targeting.Class{Namespace: obj.Name}))
	}
	return false
}

// judgeClassObject returns a *Refusal where an object is in the way of the one wanted: it
// is not ours, or made for another class whose group has the same name.
func judgeClassObject(live, want client.Object) error {
	record, ours := targeting.ReadRecord(live.GetAnnotations())
	wanted, _ := targeting.ReadRecord(want.GetAnnotations())
	if ours && record.Class == wanted.Class || !ours && sameSelectors(live, want) {
		return nil
	}
	return &Refusal{fleetv1.ClassGroupForeignReason, fmt.Sprintf("%s %s is there, is not the one for this ClusterClass and selects something else; delete it",
		kind(want), client.ObjectKeyFromObject(want))}
}

func sameSelectors(live, want client.Object) bool {
	switch want := want.(type) {
	case *fleet.ClusterGroup:
		return equality.Semantic.DeepEqual(live.(*fleet.ClusterGroup).Spec.Selector, want.Spec.Selector)
	case *fleet.BundleNamespaceMapping:
		live := live.(*fleet.BundleNamespaceMapping)
		return equality.Semantic.DeepEqual(live.BundleSelector, want.BundleSelector) &&
			equality.Semantic.DeepEqual(live.NamespaceSelector, want.NamespaceSelector)
	}
	return false
}

// shared tells whether a group is one for Clusters of other namespaces: ours says so, and
// another has no labels by which bundles select it but those of its class.
func shared(obj client.Object) bool {
	if record, ours := targeting.ReadRecord(obj.GetAnnotations()); ours {
		return record.Shared
	}
	group, ok := obj.(*fleet.ClusterGroup)
	return ok && group.Spec.Selector != nil && contains(group.Spec.Selector.MatchLabels, group.Labels)
}

// classPatch returns a merge patch that brings an object of ours in line, nil where it is.
func classPatch(live, want client.Object) object {
	record, _ := targeting.ReadRecord(live.GetAnnotations())
	metadata, patch := object{}, object{}
	if changes := targeting.Changes(live.GetLabels(), want.GetLabels(), record.Labels); len(changes) > 0 {
		metadata["labels"] = changes
	}
	if value := want.GetAnnotations()[fleetv1.PropagatedAnnotation]; live.GetAnnotations()[fleetv1.PropagatedAnnotation] != value {
		metadata["annotations"] = object{fleetv1.PropagatedAnnotation: value}
	}
	if !sameSelectors(live, want) {
		switch want := want.(type) {
		case *fleet.ClusterGroup:
			patch["spec"] = object{"selector": selectorPatch(live.(*fleet.ClusterGroup).Spec.Selector, want.Spec.Selector)}
		case *fleet.BundleNamespaceMapping:
			live := live.(*fleet.BundleNamespaceMapping)
			patch["bundleSelector"] = selectorPatch(live.BundleSelector, want.BundleSelector)
			patch["namespaceSelector"] = selectorPatch(live.NamespaceSelector, want.NamespaceSelector)
		}
	}
	if len(metadata) == 0 && len(patch) == 0 {
		return nil
	}
	patch["metadata"] = metadata
	return patch
}

// selectorPatch returns what of a merge patch makes one selector of another.
func selectorPatch(live, want *metav1.LabelSelector) object {
	labels := object{}
	if live != nil {
		for key := range live.MatchLabels {
			labels[key] = nil
		}
	}
	for key, value := range want.MatchLabels {
		labels[key] = value
	}
	return object{"matchLabels": labels, "matchExpressions": nil}
}

// DeleteUnused deletes a ClusterGroup or a BundleNamespaceMapping of ours, as the cache
// shows it, unless used says that somebody needs it. No Fleet Cluster joins it meanwhile, and
// one that was written to since is left: its event brings it again.
func (w *Writer) DeleteUnused(ctx context.Context, live client.Object, used func() (bool, error)) error {
	w.shared.Lock()
	defer w.shared.Unlock()
	if used, err := used(); err != nil || used {
		return err
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	err := w.deleteIf(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}
