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
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// ownRole is the manager's Role in its own namespace.
const ownRole = "capi-fleet-manager-role"

// hostedCreations are rights that no request shows: an apply that creates is a patch.
var hostedCreations = []permission{
	{ownRole, env.ManagerNamespace, "", "secrets", "", "create"},
	{ownRole, env.ManagerNamespace, "apps", "deployments", "", "create"},
	{ownRole, env.ManagerNamespace, "networking.k8s.io", "networkpolicies", "", "create"},
}

// hosted has an agent run on the management cluster, and its Cluster leave Fleet.
func hosted(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	selector := map[string]string{"placement": "management"}
	policy := &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "hosted"},
		Spec: fleetv1.FleetRegistrationPolicySpec{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: selector},
			Agent:           fleetv1.AgentSettings{Placement: fleetv1.PlacementManagement},
		},
	}
	g.Expect(lab.Client.Create(t.Context(), policy)).To(Succeed())
	w := light(t, "hosted", env.ClusterOptions{Labels: selector})
	suite.EventuallyReady(t, lab, w)
	setLabel(g, t.Context(), w, "false")
	suite.EventuallyGone(t, lab, w)
	g.Expect(lab.Client.Delete(t.Context(), policy)).To(Succeed())
}

// withoutCreating takes the permission away: the manager cannot apply an object that is not
// there. Given back, it can.
func withoutCreating(t *testing.T, log *auditLog, p permission) {
	t.Helper()
	g := NewWithT(t)
	manager, err := lab.AsManager(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	obj, err := agent.ToUnstructured(hostedObject(p.resource))
	g.Expect(err).NotTo(HaveOccurred())
	apply := func() error {
		return manager.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj.DeepCopy()), client.FieldOwner("rbac"))
	}
	role := &rbacv1.Role{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: p.role}, role)).To(Succeed())
	shipped := role.DeepCopy()
	role.Rules = nil
	for _, rest := range split(p.role, p.namespace, shipped.Rules) {
		if rest != p {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{rest.group}, Resources: []string{rest.resource}, Verbs: []string{rest.verb}})
		}
	}
	g.Expect(lab.Client.Update(t.Context(), role)).To(Succeed())
	g.Eventually(apply).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsForbidden))

	role.Rules = shipped.Rules
	g.Expect(lab.Client.Update(t.Context(), role)).To(Succeed())
	g.Eventually(apply).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(lab.Client.Delete(t.Context(), obj)).To(Succeed())
	log.next(t)
}

// hostedObject returns an object of a hosted agent that belongs to no registration.
func hostedObject(resource string) client.Object {
	in := agent.Input{
		ClusterNamespace: "nobody",
		Agent:            fleetv1.AgentSpec{Placement: fleetv1.PlacementManagement, Image: "agent"},
	}
	hosting := agent.Hosting{Namespace: env.ManagerNamespace, Registration: types.NamespacedName{Namespace: namespace, Name: "nobody"}}
	switch resource {
	case "secrets":
		return agent.HostedSecret(in, hosting, "")
	case "networkpolicies":
		return agent.HostedNetworkPolicy(in, hosting, nil)
	}
	return agent.HostedDeployment(in, hosting)
}
