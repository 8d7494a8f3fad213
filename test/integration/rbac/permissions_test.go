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

package rbac

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// permission is the smallest part of a rule: one verb on one resource, and on one
// name where the rule names some.
type permission struct {
	role      string
	namespace string // empty for a ClusterRole that is bound in the whole cluster
	group     string
	resource  string // with a subresource behind a slash
	name      string // empty for all names
	verb      string
}

func (p permission) String() string {
	return fmt.Sprintf("%s: %s %s.%s %q", p.role, p.verb, p.resource, p.group, p.name)
}

// allows says whether the request is one of those that p is for.
func (p permission) allows(e kube.Event) bool {
	resource := e.Resource
	if e.Subresource != "" {
		resource += "/" + e.Subresource
	}
	verb := p.verb == e.Verb
	if p.verb == "list" {
		// A watch that begins with what is there stands in for a list. Where an API
		// server has no such watches, client-go lists.
		verb = verb || e.Verb == "watch" && strings.Contains(e.RequestURI, "sendInitialEvents=true")
	}
	return verb && p.group == e.Group && p.resource == resource &&
		(p.namespace == "" || p.namespace == e.Namespace) && (p.name == "" || p.name == e.Name)
}

// grants returns what the Roles and ClusterRoles that are bound to the manager's
// service account itself allow.
func grants(ctx context.Context, c client.Client) ([]permission, error) {
	var permissions []permission
	var clusterBindings rbacv1.ClusterRoleBindingList
	if err := c.List(ctx, &clusterBindings); err != nil {
		return nil, err
	}
	for _, binding := range clusterBindings.Items {
		if !bindsManager(binding.Subjects) {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := c.Get(ctx, client.ObjectKey{Name: binding.RoleRef.Name}, role); err != nil {
			return nil, err
		}
		permissions = append(permissions, split(role.Name, "", role.Rules)...)
	}
	var bindings rbacv1.RoleBindingList
	if err := c.List(ctx, &bindings); err != nil {
		return nil, err
	}
	for _, binding := range bindings.Items {
		if !bindsManager(binding.Subjects) {
			continue
		}
		if binding.RoleRef.Kind != "Role" {
			return nil, fmt.Errorf("RoleBinding %s binds a %s, which is not expected", binding.Name, binding.RoleRef.Kind)
		}
		role := &rbacv1.Role{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: binding.Namespace, Name: binding.RoleRef.Name}, role); err != nil {
			return nil, err
		}
		permissions = append(permissions, split(role.Name, role.Namespace, role.Rules)...)
	}
	return permissions, nil
}

func bindsManager(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == env.ManagerNamespace && s.Name == env.ManagerAccount
	})
}

func split(role, namespace string, rules []rbacv1.PolicyRule) []permission {
	var permissions []permission
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						permissions = append(permissions, permission{role, namespace, group, resource, name, verb})
					}
				}
			}
		}
		for _, url := range rule.NonResourceURLs {
			permissions = append(permissions, permission{role: role, resource: url})
		}
	}
	slices.SortFunc(permissions, func(a, b permission) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(permissions)
}

// unused returns the permissions that no event needed.
func unused(permissions []permission, events []kube.Event) []permission {
	return slices.DeleteFunc(slices.Clone(permissions), func(p permission) bool {
		return slices.ContainsFunc(events, func(e kube.Event) bool { return e.Code != http.StatusForbidden && p.allows(e) })
	})
}

// forbidden returns the requests that were refused for want of a right.
func forbidden(events []kube.Event) []string {
	var refused []string
	for _, e := range events {
		if e.Code == http.StatusForbidden {
			refused = append(refused, strings.TrimSpace(e.Verb+" "+e.RequestURI))
		}
	}
	return refused
}

func TestAMissingAndASurplusRightAreNoticed(t *testing.T) {
	g := NewWithT(t)
	permissions := split("manager", "", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}, ResourceNames: []string{"a", "b"}},
		{APIGroups: []string{"x"}, Resources: []string{"things/status"}, Verbs: []string{"patch"}},
	})
	permissions = append(permissions, split("own", "system", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}},
	})...)
	events := []kube.Event{
		{Verb: "get", Resource: "secrets", Namespace: "edge", Name: "one", Code: http.StatusOK},
		{Verb: "watch", Resource: "secrets", Code: http.StatusOK, RequestURI: "/api/v1/secrets?watch=true"},
		{Verb: "list", Resource: "secrets", Code: http.StatusForbidden, RequestURI: "/api/v1/secrets"},
		{Verb: "get", Resource: "configmaps", Name: "b", Code: http.StatusNotFound},
		{Verb: "patch", Group: "x", Resource: "things", Name: "one", Code: http.StatusOK},
		{Verb: "get", Resource: "serviceaccounts", Namespace: "other", Name: "one", Code: http.StatusOK},
	}
	g.Expect(unused(permissions, events)).To(ConsistOf(
		permission{"manager", "", "", "secrets", "", "list"},
		permission{"manager", "", "", "configmaps", "a", "get"},
		permission{"manager", "", "x", "things/status", "", "patch"},
		permission{"own", "system", "", "serviceaccounts", "", "get"},
	))
	g.Expect(forbidden(events)).To(ConsistOf("list /api/v1/secrets"))
}
