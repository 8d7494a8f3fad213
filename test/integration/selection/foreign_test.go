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

package selection

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const otherID = "anotherregistrationanotherregistrationanotherregistr"

// expectRefused expects the condition to say why, Ready to repeat it, and the message
// to name all of names.
func expectRefused(t *testing.T, w *env.Workload, condition, reason string, names ...string) {
	t.Helper()
	suite.EventuallyCondition(t, lab, w, condition, metav1.ConditionFalse, reason)
	registration := suite.EventuallyCondition(t, lab, w, fleetv1.ReadyCondition, metav1.ConditionFalse, reason)
	for _, name := range names {
		for _, c := range []string{condition, fleetv1.ReadyCondition} {
			NewWithT(t).Expect(meta.FindStatusCondition(registration.Status.Conditions, c).Message).To(ContainSubstring(name), "%s of %s", c, w.Key())
		}
	}
}

func TestForeignObjectsOnTheManagementClusterAreLeftAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	other := map[string]string{fleetv1.RegistrationIDAnnotation: otherID}
	cases := []struct {
		namespace string
		// foreign are the objects in the way. All but the first stay to the end.
		foreign []client.Object
		reason  string
	}{{
		namespace: "foreign-cluster",
		foreign: []client.Object{&fleet.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: "foreign-cluster", Name: "edge", Labels: map[string]string{"team": "theirs"}}}},
		reason: fleetv1.FleetClusterForeignReason,
	}, {
		namespace: "foreign-cluster-id",
		foreign: []client.Object{&fleet.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: "foreign-cluster-id", Name: "edge", Annotations: other, Labels: map[string]string{fleet.ClusterManagementLabel: "capi-fleet"}}}},
		reason: fleetv1.FleetClusterForeignReason,
	}, {
		namespace: "foreign-namespaces",
		foreign: []client.Object{
			namespace(fleet.FallbackClusterNamespace("foreign-namespaces", "edge"), nil),
			namespace(fleet.ClusterNamespace("foreign-namespaces", "edge"), nil),
		},
		reason: fleetv1.NamespaceForeignReason,
	}, {
		namespace: "foreign-account",
		foreign: []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: env.ManagerNamespace, Name: fleet.ClusterNamespace("foreign-account", "edge")}}},
		reason: fleetv1.ServiceAccountForeignReason,
	}, {
		namespace: "foreign-role",
		foreign: []client.Object{&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{
			Namespace: "foreign-role", Name: fleet.ClusterNamespace("foreign-role", "edge")}}},
		reason: fleetv1.RBACForeignReason,
	}, {
		namespace: "foreign-binding",
		foreign: []client.Object{&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "foreign-binding", Name: fleet.ClusterNamespace("foreign-binding", "edge"), Annotations: other},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "theirs"}}},
		reason: fleetv1.RBACForeignReason,
	}}
	var plans []planned
	for _, c := range cases {
		create(t, namespace(c.namespace, nil))
		create(t, c.foreign...)
		plans = append(plans, plan(c.namespace, "edge", labelled))
	}
	occupied := map[client.Object]string{}
	for _, c := range cases {
		for _, obj := range c.foreign {
			occupied[obj] = versionOf(t, obj)
		}
	}
	workloads := add(t, plans...)
	for i, c := range cases {
		var names []string
		for _, obj := range c.foreign {
			names = append(names, obj.GetName())
		}
		expectRefused(t, workloads[i], fleetv1.FleetClusterReadyCondition, c.reason, names...)
	}
	fence(t, "foreign")
	for obj, version := range occupied {
		g.Expect(versionOf(t, obj)).To(Equal(version), "%T %s", obj, obj.GetName())
	}
	for i, c := range cases {
		g.Expect(visits(workloads[i])).To(BeEmpty(), "%s: no agent without a place", c.namespace)
	}

	for _, c := range cases {
		g.Expect(lab.Client.Delete(t.Context(), c.foreign[0])).To(Succeed())
	}
	for i, c := range cases {
		registration := suite.EventuallyReady(t, lab, workloads[i])
		expectOwnObjects(t, workloads[i], registration)
		for _, obj := range c.foreign[1:] {
			g.Expect(versionOf(t, obj)).To(Equal(occupied[obj]), c.namespace)
		}
	}
}

func TestAForeignAgentIsLeftAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	holder := add(t, plan("foreign-agent-holder", "holder", labelled, noKubelet))[0]
	suite.EventuallyCondition(t, lab, holder, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	object := func(id string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: suite.AgentKey.Namespace, Name: suite.AgentKey.Name}
		if id != "" {
			m.Annotations = map[string]string{fleetv1.RegistrationIDAnnotation: id}
		}
		return m
	}
	secret := func(id string) client.Object { return &corev1.Secret{ObjectMeta: object(id)} }
	deployment := func(id string) client.Object { return &appsv1.Deployment{ObjectMeta: object(id)} }
	cases := []struct {
		name    string
		foreign []client.Object
		names   string
	}{
		{"secret", []client.Object{secret("")}, suite.AgentKey.String()},
		{"secret-other", []client.Object{secret(otherID)}, suite.AgentKey.String()},
		{"deployment", []client.Object{deployment("")}, suite.AgentKey.String()},
		{"deployment-other", []client.Object{deployment(otherID)}, suite.AgentKey.String()},
		{"both", []client.Object{secret(""), deployment("")}, suite.AgentKey.String()},
		{"both-registered", []client.Object{secret(registrationOf(t, holder).Spec.RegistrationID), deployment("")}, "FleetRegistration foreign-agent-holder/holder"},
	}
	var plans []planned
	for _, c := range cases {
		plans = append(plans, plan("foreign-agent", c.name, noKubelet))
	}
	workloads := add(t, plans...)
	for i, c := range cases {
		for _, obj := range c.foreign {
			g.Expect(workloads[i].Client.Create(t.Context(), obj)).To(Succeed())
		}
		setLabel(t, clusterOf(workloads[i]), fleetv1.RegisterLabel, "true")
	}
	for i, c := range cases {
		expectRefused(t, workloads[i], fleetv1.AgentDeployedCondition, fleetv1.ForeignAgentReason, c.names)
	}
	fence(t, "foreign-agent")
	for i, c := range cases {
		g.Expect(writing(visits(workloads[i]))).To(BeEmpty(), c.name)
		for _, obj := range c.foreign {
			live := obj.DeepCopyObject().(client.Object)
			g.Expect(workloads[i].Client.Get(t.Context(), suite.AgentKey, live)).To(Succeed(), c.name)
			g.Expect(live.GetResourceVersion()).To(Equal(obj.GetResourceVersion()), c.name)
		}
	}

	for i, c := range cases {
		for _, obj := range c.foreign {
			g.Expect(workloads[i].Client.Delete(t.Context(), obj)).To(Succeed(), c.name)
		}
	}
	for _, w := range workloads {
		suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	}
}

// writing returns those requests that ask for a change.
func writing(requests []lightapi.Request) []string {
	var writes []string
	for _, r := range requests {
		if r.IsWrite() {
			writes = append(writes, r.Method+" "+r.Path)
		}
	}
	return writes
}

func TestAFleetClusterThatWasHandedOverIsLeftAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "handed-over"
	w := add(t, plan(namespace, "edge", labelled))[0]
	suite.EventuallyReady(t, lab, w)
	cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge"}}
	before := suite.Mark(t, lab)
	setLabel(t, cluster, fleet.ClusterManagementLabel, "")
	seen := len(visits(w))

	expectRefused(t, w, fleetv1.FleetClusterReadyCondition, fleetv1.ManagementLabelRemovedReason, namespace+"/edge", fleet.ClusterManagementLabel)
	setLabel(t, cluster, "example.com/owner", "theirs")
	fence(t, namespace)
	g.Expect(managerWrites(t, before, namespace)).To(HaveEach(BeElementOf(
		"patch fleetregistrations/status", "tell the Cluster", "create clusters (409)", // the latter is a look
	)))
	g.Expect(visits(w)).To(HaveLen(seen))
	labels := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), labels)).To(Succeed())
	g.Expect(labels.Labels).To(Equal(map[string]string{"example.com/owner": "theirs"}))

	setLabel(t, cluster, fleet.ClusterManagementLabel, "capi-fleet")
	suite.EventuallyReady(t, lab, w)
	g.Expect(managerWrites(t, before, namespace)).To(HaveEach(Or(BeElementOf("patch fleetregistrations/status", "tell the Cluster"), HaveSuffix("(409)"))))
}
