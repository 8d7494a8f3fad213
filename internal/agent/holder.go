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

package agent

import (
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Holder says whose the agent in a workload cluster is.
type Holder string

const (
	// HeldByNobody means that there is no agent.
	HeldByNobody Holder = "Nobody"
	// HeldByUs means that the agent is this registration's.
	HeldByUs Holder = "Us"
	// HeldByOther means that the agent is another registration's, or that Fleet
	// itself or a person put it there.
	HeldByOther Holder = "Other"
)

// JudgeHolder says whose the agent is, from the live Secret and Deployment named
// Name; nil means that the object is not there, and nothing else. The Secret
// decides, since it is written first and says where the agent goes. A Deployment
// without it is judged by its own annotation; one that a registration left behind
// stopped is nobody's.
func JudgeHolder(secret *corev1.Secret, deployment *appsv1.Deployment, registrationID string) Holder {
	var decides metav1.Object
	switch {
	case secret != nil:
		decides = secret
	case deployment != nil:
		decides = deployment
	default:
		return HeldByNobody
	}
	switch {
	case Ours(decides, registrationID):
		return HeldByUs
	case secret == nil && RegistrationID(deployment) != "" && ptr.Deref(deployment.Spec.Replicas, 1) == 0:
		return HeldByNobody
	}
	return HeldByOther
}

// RegistrationID returns the ID of the registration that made obj, empty where none did.
func RegistrationID(obj metav1.Object) string {
	return obj.GetAnnotations()[fleetv1.RegistrationIDAnnotation]
}

// Registered tells whether the Secret is one that Fleet's own registration of the Fleet
// Cluster left (Fleet 0.13 to 0.16, the agent's "register" command).
func Registered(secret *corev1.Secret, fleetCluster types.NamespacedName) bool {
	return RegistrationID(secret) == "" &&
		string(secret.Data[clusterNamespaceKey]) == fleetCluster.Namespace &&
		string(secret.Data[clusterNameKey]) == fleetCluster.Name
}

// Stopped tells whether a Deployment, nil where there is none, has no pod any more and
// makes no new one. A pod that it made can still be about to end.
func Stopped(deployment *appsv1.Deployment) bool {
	return deployment == nil || ptr.Deref(deployment.Spec.Replicas, 1) == 0 &&
		deployment.Status.ObservedGeneration >= deployment.Generation && deployment.Status.Replicas == 0
}

// PodLabels are the labels of the agent's pods.
func PodLabels() map[string]string { return map[string]string{"app": Name} }

// Ours says whether obj carries the ID of this registration. An empty ID is
// nobody's.
func Ours(obj metav1.Object, registrationID string) bool {
	return registrationID != "" && RegistrationID(obj) == registrationID
}

// Leftovers returns what a removal of the agent deletes, with kinds and names
// only. The Namespace and its ServiceAccount "default" are not among them.
//
// The Deployment comes first, which stops the agent, and the Secret last: it shows
// that the rest is ours, should the removal break off in between.
func Leftovers() []client.Object {
	here := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	return []client.Object{
		&appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
			ObjectMeta: here,
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: clusterRoleBindingName()},
		},
		&rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: clusterRoleName()},
		},
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: here,
		},
		&networkingv1.NetworkPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: networkPolicyName},
		},
		&corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: here,
		},
		&coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
			ObjectMeta: here,
		},
		&corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: here,
		},
	}
}
