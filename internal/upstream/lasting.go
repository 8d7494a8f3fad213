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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

const (
	// lasting begins the names of what is left for agents that are to work without
	// capi-fleet. clusterctl takes away what begins with the manager's namespace.
	lasting = "capi-fleet-left"

	// LastingTokenSecret is the name of the Secret with the token of such an agent, in its
	// cluster namespace. Whoever deletes it ends the token.
	LastingTokenSecret = lasting + "-token"

	// ShippedStatusPolicy is the name of the admission policy of our manifests that holds
	// agents to their heartbeat, and LastingStatusPolicy that of its copy.
	ShippedStatusPolicy = AgentClusterRole + "-status"
	// LastingStatusPolicy is the copy of ShippedStatusPolicy.
	LastingStatusPolicy = lasting + "-agent-status"
)

// LastingRoles returns the ClusterRoles of all agents that are to work without capi-fleet.
func LastingRoles() []client.Object { return agentRoles(lasting + "-agent") }

// Lasting returns what gives an agent a token that does not end, and with it the rights
// that it has. All of it ends with the Fleet Cluster, since nobody is there any more to
// clean up: the account is in the cluster namespace, and the rest is owned by that or by
// the Fleet Cluster. It bears no label of ours, by which people may delete what capi-fleet
// leaves behind.
func (r Registration) Lasting(fleetCluster types.UID) []client.Object {
	// The admission policy knows agents by names that begin with "cluster-".
	account := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: r.Namespace, Name: r.Namespace}}
	objects := []client.Object{
		&corev1.ServiceAccount{
			ObjectMeta:                   metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Namespace},
			AutomountServiceAccountToken: ptr.To(false),
		},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.Namespace, Name: LastingTokenSecret,
				Annotations: map[string]string{corev1.ServiceAccountNameKey: r.Namespace},
			},
			Type: corev1.SecretTypeServiceAccountToken,
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: lasting + "-agent"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: lasting + "-agent"},
			Subjects:   account,
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Name: lasting + "-" + r.Namespace,
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Namespace", Name: r.Namespace, UID: r.NamespaceUID,
				}},
			},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: lasting + "-agent" + contentsSuffix},
			Subjects: account,
		},
	}
	role, binding := r.statusRole(), r.statusRoleBinding(r.Namespace)
	role.ObjectMeta = metav1.ObjectMeta{
		Namespace: r.FleetCluster.Namespace, Name: lasting + "-" + r.Namespace,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: fleet.GroupVersion.String(), Kind: "Cluster", Name: r.FleetCluster.Name, UID: fleetCluster,
		}},
	}
	binding.ObjectMeta, binding.RoleRef.Name = *role.ObjectMeta.DeepCopy(), role.Name
	objects = append(objects, role, binding)
	for _, obj := range objects {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[fleetv1.RegistrationIDAnnotation] = r.ID
		obj.SetAnnotations(annotations)
	}
	return objects
}

// Made returns the objects of a registration on the management cluster that serve the agent
// with the credential of the manager, Fleet Cluster and cluster namespace aside.
func (r Registration) Made(managerNamespace string) []client.Object {
	return append([]client.Object{r.serviceAccount(managerNamespace)}, r.rights(managerNamespace)...)
}
