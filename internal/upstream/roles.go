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
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// contentsSuffix follows AgentClusterRole, and the manager's namespace, in the names of
// what lets agents get Contents.
const contentsSuffix = "-contents"

// SharedObjects returns what the agents of all clusters share, for a management cluster
// on which capi-fleet is not installed: the ClusterRoles that its manifests bring along,
// and the binding that its manager makes.
func SharedObjects(managerNamespace string) []client.Object {
	return append(agentRoles(AgentClusterRole), ContentsBinding(managerNamespace))
}

// agentRoles returns the rights of every agent: in its cluster namespace, under that name,
// and to Contents.
func agentRoles(name string) []client.Object {
	group := []string{fleet.GroupVersion.Group}
	return []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: group, Resources: []string{"bundledeployments"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: group, Resources: []string{"bundledeployments/status"}, Verbs: []string{"patch"}},
				{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"get"}},
			},
		},
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name + contentsSuffix},
			Rules:      []rbacv1.PolicyRule{{APIGroups: group, Resources: []string{"contents"}, Verbs: []string{"get"}}},
		},
	}
}

// ContentsBinding returns what lets every agent get Contents: a binding to the group of all
// service accounts in the manager's namespace, which spares one for each cluster.
func ContentsBinding(managerNamespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: managerNamespace + "-agent" + contentsSuffix},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: AgentClusterRole + contentsSuffix},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: serviceaccount.MakeNamespaceGroupName(managerNamespace)}},
	}
}
