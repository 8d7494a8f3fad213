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

package env

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespacedKinds are the kinds that deleted namespaces of workload clusters are
// emptied of: those which Fleet's agent and its Deployment use. Pods come first, so
// that none is left without its Secret.
var namespacedKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Pod"),
	appsv1.SchemeGroupVersion.WithKind("Deployment"),
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
	corev1.SchemeGroupVersion.WithKind("Secret"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	corev1.SchemeGroupVersion.WithKind("Service"),
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("Event"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
	coordinationv1.SchemeGroupVersion.WithKind("Lease"),
}

// errNotEmpty means that a deleted namespace still holds something, for example an
// object with a finalizer.
var errNotEmpty = errors.New("the namespace is not empty yet")

// keepNamespaces gives each namespace its default service account and finishes those
// that are deleted.
func keepNamespaces(ctx context.Context, c client.Client) error {
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces); err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	var errs []error
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		var err error
		if namespace.DeletionTimestamp.IsZero() {
			err = keepDefaultAccount(ctx, c, namespace.Name)
		} else {
			err = finishNamespace(ctx, c, namespace)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("namespace %s: %w", namespace.Name, err))
		}
	}
	return errors.Join(errs...)
}

func keepDefaultAccount(ctx context.Context, c client.Client, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(account), account); client.IgnoreNotFound(err) != nil || err == nil {
		return err
	}
	return client.IgnoreAlreadyExists(c.Create(ctx, account))
}

func finishNamespace(ctx context.Context, c client.Client, namespace *corev1.Namespace) error {
	for _, kind := range namespacedKinds {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		if err := c.DeleteAllOf(ctx, object, client.InNamespace(namespace.Name), client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting every %s: %w", kind.Kind, err)
		}
	}
	for _, kind := range namespacedKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, list, client.InNamespace(namespace.Name)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("listing every %s: %w", kind.Kind, err)
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%w: %s %s", errNotEmpty, kind.Kind, list.Items[0].Name)
		}
	}
	namespace.Spec.Finalizers = nil
	return client.IgnoreNotFound(c.SubResource("finalize").Update(ctx, namespace))
}
