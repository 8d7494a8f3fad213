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

// Package agent builds what capi-fleet puts into a workload cluster: Fleet's
// agent, its settings and its credential, as Fleet 0.13 to 0.16 read them. The
// registration controller calls it and writes the result.
//
// It is pure: the same input gives the same objects. It has no client and no
// clock, and never decides whether an agent may be written.
package agent

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

const (
	// Namespace is where the agent runs in the workload cluster.
	Namespace = fleet.DefaultAgentNamespace

	// Name is the name of the agent's Deployment, ServiceAccount, ConfigMap,
	// Secret and Lease. The agent looks for the last three under this name.
	Name = "fleet-agent"

	// DefaultTokenDir is the folder in which the agent's pod sees its token.
	DefaultTokenDir = "/var/run/secrets/capi-fleet"

	// podRevisionAnnotation on the pod template is a hash of what the agent reads
	// once, at its start, from the Secret and the ConfigMap. A change of it makes a
	// new pod. The token is no part of it.
	podRevisionAnnotation = fleetv1.KeyPrefix + "pod-revision"
)

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "capi-fleet"

	networkPolicyName = "default-allow-all"
	configKey         = "config"
	additionalCAKey   = "ca.crt"
)

// Input is what the objects are made from.
type Input struct {
	// RegistrationID is the registration's spec.registrationID. It marks what is
	// ours.
	RegistrationID string

	// FleetCluster is the namespace and name of the Fleet Cluster: the agent
	// reports there.
	FleetCluster types.NamespacedName

	// ClusterNamespace is the namespace on the management cluster whose
	// BundleDeployments the agent deploys.
	ClusterNamespace string

	// ClusterNamespaceUID is the UID of that namespace. It goes into the Secret
	// alone and is no part of the revision.
	ClusterNamespaceUID types.UID

	// Agent holds the address of the management cluster, the image and the
	// settings. Address and image must be there; the caller waits while they are
	// not.
	Agent fleetv1.AgentSpec

	// TokenDir is the folder, an absolute path, in which the agent's pod sees the
	// file "token". Empty means DefaultTokenDir.
	TokenDir string
}

// Objects returns everything but the Secret, in the order in which it has to be
// written. The Deployment is the last: write the Secret before it, or the agent
// starts without an address.
//
// The typed objects marshal some empty fields. For a server-side apply turn them
// into what ToUnstructured returns.
//
// The Deployment bears revision, which is what Revision returns: to make that takes longer
// than to make the objects, and who writes them mostly has it.
//
// Of an agent that runs on the management cluster they are all that it reads in the
// workload cluster, and no Deployment.
func Objects(in Input, revision string) []client.Object {
	if in.Agent.Hosted() {
		return surroundings(in)
	}
	bearer := deployment(in)
	setRevision(bearer, revision)
	return append(surroundings(in), bearer)
}

// surroundings returns what has to be there before the Deployment.
func surroundings(in Input) []client.Object {
	all := []client.Object{
		namespace(),
		serviceAccount(in),
		clusterRole(in),
		clusterRoleBinding(in),
		defaultServiceAccount(),
	}
	if !in.Agent.Hosted() {
		all = append(all, networkPolicy(in))
	}
	return append(all, configMap(in))
}

// Optional says whether obj is of a kind that a cluster may not serve, so that a
// refusal to take it is no failure of the push.
func Optional(obj client.Object) bool {
	if _, ok := obj.(*networkingv1.NetworkPolicy); ok {
		return true
	}
	return obj.GetObjectKind().GroupVersionKind().GroupKind() ==
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy").GroupKind()
}

// namespace and defaultServiceAccount may have been there before and belong to
// someone else as well, so they carry none of our marks: a managed-by label would
// take a namespace away from the tool that made it.
func namespace() client.Object {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: Namespace},
	}
}

func defaultServiceAccount() client.Object {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   metav1.ObjectMeta{Namespace: Namespace, Name: "default"},
		AutomountServiceAccountToken: new(false),
	}
}

func serviceAccount(in Input) client.Object {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: ours(in, Namespace, Name),
	}
}

// clusterRole lets the agent deploy whatever is in a bundle, which can be
// anything.
func clusterRole(in Input) client.Object {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: ours(in, "", clusterRoleName()),
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}},
			{NonResourceURLs: []string{rbacv1.NonResourceAll}, Verbs: []string{rbacv1.VerbAll}},
		},
	}
}

func clusterRoleBinding(in Input) client.Object {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: ours(in, "", clusterRoleBindingName()),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRoleName()},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: Name}},
	}
}

func clusterRoleName() string        { return fleet.SafeConcatName(Namespace, Name, "role") }
func clusterRoleBindingName() string { return fleet.SafeConcatName(Namespace, Name, "role", "binding") }

// networkPolicy keeps the agent's way out open where another policy closes
// namespaces by default.
func networkPolicy(in Input) client.Object {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: ours(in, Namespace, networkPolicyName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{}},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{}},
		},
	}
}

func configMap(in Input) client.Object {
	data := map[string]string{configKey: config(in)}
	if ca := in.Agent.AdditionalCAData; len(ca) > 0 && !in.Agent.Hosted() {
		data[additionalCAKey] = string(ca)
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: ours(in, Namespace, Name),
		Data:       data,
	}
}

// config returns the agent's configuration, JSON. Without it an agent holds its
// lease and does nothing, so there always is one.
func config(in Input) string {
	settings := map[string]string{}
	if d := in.Agent.GarbageCollectionInterval.Duration; d > 0 {
		settings["garbageCollectionInterval"] = d.String()
	}
	return string(must(json.Marshal(settings)))
}

// Labels are on all objects that nobody but us has a say in.
func Labels() map[string]string { return map[string]string{managedByLabel: managedBy} }

// ours returns the metadata of an object that nobody but us has a say in.
func ours(in Input, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Labels:      Labels(),
		Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: in.RegistrationID},
	}
}

// must is for the encoding of plain values, which cannot fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
