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

// Package upstream makes and removes what a registration needs on the management
// cluster: the Fleet Cluster, its namespace, and the agent's account with the
// least rights that it can do its work with. The registration controller calls
// it. It touches nothing that is not the registration's own.
package upstream

import (
	"context"
	"crypto/rand"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
)

const (
	// FieldOwner is the field manager of everything that capi-fleet writes.
	FieldOwner = "capi-fleet"

	// ManagementLabelValue is our value of Fleet's management label.
	ManagementLabelValue = "capi-fleet"

	// AgentClusterRole holds an agent's rights in its cluster namespace.
	AgentClusterRole = "capi-fleet-system-agent"

	// bundlesBinding is the RoleBinding in the cluster namespace.
	bundlesBinding = "capi-fleet-agent"

	// ManagedByLabel is on all that a registration makes but the Fleet Cluster. Its
	// value is FieldOwner.
	ManagedByLabel = "app.kubernetes.io/managed-by"
)

// Registration is what the objects of one registration are made from.
type Registration struct {
	// ID is the registration's random ID. It marks every object as ours.
	ID string
	// ClusterUID is the UID of the CAPI Cluster, empty where there is none.
	ClusterUID types.UID
	// FleetCluster is the key of the Fleet Cluster.
	FleetCluster types.NamespacedName
	// Namespace is the cluster namespace, once one was chosen. The agent's service
	// account, Role and RoleBinding have its name.
	Namespace string
	// Target is what should be on the Fleet Cluster for Fleet to select and template by. It
	// is made with that; what is there needs a call of Retarget.
	Target targeting.Target
	// NamespaceUID is the UID that the cluster namespace had, empty where it is not known.
	NamespaceUID types.UID
	// LookFirst says that an earlier try failed, or that most of it is there. Then each
	// object is looked for before it is created: what is there would refuse the create
	// each time.
	LookFirst bool
	// Adopt lets a Fleet Cluster which Fleet registered by itself be taken over, once the
	// workload cluster has proved to be the one behind it: that has a live token for the
	// cluster namespace. It returns a *Refusal where it has not. Nil means that none is
	// taken over.
	Adopt func(ctx context.Context, clusterNamespace string) error
	// Home is the namespace of the CAPI Cluster. Only a Fleet Cluster in it is taken over.
	Home string
}

// NewID returns the ID of a registration that nobody made before: 256 random bits, in
// letters and digits.
func NewID() string { return (rand.Text() + rand.Text())[:52] }

var idForm = regexp.MustCompile(`^[A-Za-z0-9]{52}$`)

// ValidID tells whether NewID could have returned id.
func ValidID(id string) bool { return idForm.MatchString(id) }

func (r Registration) meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Labels:      map[string]string{ManagedByLabel: FieldOwner},
		Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: r.ID},
	}
}

// fleetCluster returns the Fleet Cluster for its creation. Nobody but Fleet and
// us may know clientID.
func (r Registration) fleetCluster(clientID string) *fleet.Cluster {
	cluster := &fleet.Cluster{
		ObjectMeta: r.meta(r.FleetCluster.Namespace, r.FleetCluster.Name),
		Spec:       fleet.ClusterSpec{ClientID: clientID, AgentNamespace: fleet.DefaultAgentNamespace},
	}
	// Another tool's ownership label would serve nobody on an object that users see.
	cluster.Labels = map[string]string{fleet.ClusterManagementLabel: ManagementLabelValue}
	if r.ClusterUID != "" {
		cluster.Annotations[fleetv1.ClusterUIDAnnotation] = string(r.ClusterUID)
	}
	return cluster
}

func (r Registration) namespace(name string) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: r.meta("", name)}
	namespace.Labels[fleet.ManagedLabel] = "true"
	namespace.Annotations[fleet.ClusterNamespaceAnnotation] = r.FleetCluster.Namespace
	namespace.Annotations[fleet.ClusterAnnotation] = r.FleetCluster.Name
	return namespace
}

func (r Registration) serviceAccount(managerNamespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta:                   r.meta(managerNamespace, r.Namespace),
		AutomountServiceAccountToken: ptr.To(false),
	}
}

// statusRole allows the heartbeat and nothing else in the Fleet Cluster's
// namespace.
func (r Registration) statusRole() *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: r.meta(r.FleetCluster.Namespace, r.Namespace),
		Rules: []rbacv1.PolicyRule{{
			APIGroups:     []string{fleet.GroupVersion.Group},
			Resources:     []string{"clusters/status"},
			ResourceNames: []string{r.FleetCluster.Name},
			Verbs:         []string{"patch"},
		}},
	}
}

func (r Registration) statusRoleBinding(managerNamespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: r.meta(r.FleetCluster.Namespace, r.Namespace),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.Namespace},
		Subjects:   r.subjects(managerNamespace),
	}
}

func (r Registration) bundlesRoleBinding(managerNamespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: r.meta(r.Namespace, bundlesBinding),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: AgentClusterRole},
		Subjects:   r.subjects(managerNamespace),
	}
}

// Objects returns all objects of a registration whose cluster namespace is chosen, in the
// order in which they are to be made, for those who make them by hand. A clientID that is
// empty is made up. Fleet does not look at the cluster namespace before the Fleet Cluster's
// status.namespace names it.
func (r Registration) Objects(managerNamespace, clientID string) []client.Object {
	if clientID == "" {
		clientID = newClientID()
	}
	cluster := r.fleetCluster(clientID)
	r.Target.Put(cluster)
	objects := []client.Object{cluster, r.namespace(r.Namespace), r.serviceAccount(managerNamespace)}
	return append(objects, r.rights(managerNamespace)...)
}

// rights returns the Role and the RoleBindings, in the order in which they are made.
func (r Registration) rights(managerNamespace string) []client.Object {
	return []client.Object{r.statusRole(), r.statusRoleBinding(managerNamespace), r.bundlesRoleBinding(managerNamespace)}
}

func (r Registration) subjects(managerNamespace string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: managerNamespace, Name: r.Namespace}}
}

// ours tells whether an object bears the registration's ID.
func (r Registration) ours(obj metav1.Object) bool {
	return r.ID != "" && obj.GetAnnotations()[fleetv1.RegistrationIDAnnotation] == r.ID
}

// mayUse tells whether a namespace can be the registration's: it is marked as the Fleet
// Cluster's, or bears our ID and is marked as nobody else's. The one that was recorded
// is known to be ours, whatever was done to its marks for Fleet.
func (r Registration) mayUse(namespace metav1.Object) bool {
	if r.OwnsNamespace(namespace) {
		return true
	}
	annotations := namespace.GetAnnotations()
	unmarked := annotations[fleet.ClusterNamespaceAnnotation] == "" || annotations[fleet.ClusterAnnotation] == ""
	return r.ours(namespace) && (unmarked || r.NamespaceUID != "" && namespace.GetUID() == r.NamespaceUID)
}

// OwnsNamespace tells whether a namespace is the cluster namespace of the Fleet
// Cluster, by the annotations that Fleet reads.
func (r Registration) OwnsNamespace(namespace metav1.Object) bool {
	annotations := namespace.GetAnnotations()
	return annotations[fleet.ClusterNamespaceAnnotation] == r.FleetCluster.Namespace &&
		annotations[fleet.ClusterAnnotation] == r.FleetCluster.Name
}
