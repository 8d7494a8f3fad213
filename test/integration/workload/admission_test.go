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

package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// gate is something in a workload cluster whose admission refuses one of the agent's objects.
type gate struct {
	name string
	// refuses is what it refuses.
	refuses kind
	// objects are what refuses it.
	objects func(t *testing.T) []client.Object
	// status is the HTTP status of the refusal.
	status int
}

// kind is one of the kinds of the agent's objects.
type kind struct{ name, group, resource string }

var (
	secrets     = kind{"Secret", "", "secrets"}
	deployments = kind{"Deployment", "apps", "deployments"}
)

var gates = []gate{
	{"a policy about Secrets", secrets, policyGate(secrets), 422},
	{"a policy", deployments, policyGate(deployments), 422},
	{"a webhook that is dead", deployments, webhookGate, 500},
	{"a quota", deployments, quotaGate, 403},
}

func (k kind) written() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{k.group}, APIVersions: []string{"v1"}, Resources: []string{k.resource}},
	}
}

func policyGate(k kind) func(*testing.T) []client.Object {
	return func(*testing.T) []client.Object {
		named := metav1.ObjectMeta{Name: "gate-" + k.resource}
		return []client.Object{
			&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: k.written()}}},
				Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: canary}},
			}},
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: named.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			}},
		}
	}
}

func webhookGate(t *testing.T) []client.Object {
	t.Helper()
	return []client.Object{&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gate"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    canary + ".example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://" + deadAddress(t))},
			Rules:                   []admissionregistrationv1.RuleWithOperations{deployments.written()},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}}
}

func quotaGate(*testing.T) []client.Object {
	none := corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")}
	return []client.Object{&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: canary},
		Spec:       corev1.ResourceQuotaSpec{Hard: none},
		Status:     corev1.ResourceQuotaStatus{Hard: none, Used: none},
	}}
}

// refused tells whether the workload cluster's admission refuses an object of a kind.
func refused(t *testing.T, w *env.Workload, k kind) bool {
	t.Helper()
	named := metav1.ObjectMeta{Namespace: agent.Namespace, Name: "try"}
	if k == secrets {
		return w.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: named}, client.DryRunAll) != nil
	}
	labels := map[string]string{"a": "b"}
	return w.Client.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: named,
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
			},
		},
	}, client.DryRunAll) != nil
}

func (gate gate) shut(t *testing.T, w *env.Workload) []client.Object {
	t.Helper()
	g := NewWithT(t)
	objects := gate.objects(t)
	for _, obj := range objects {
		status := obj.DeepCopyObject().(client.Object)
		g.Expect(w.Client.Create(t.Context(), obj)).To(Succeed())
		if quota, ok := status.(*corev1.ResourceQuota); ok {
			// What the controller of quotas does.
			quota.ResourceVersion = obj.GetResourceVersion()
			g.Expect(w.Client.Status().Update(t.Context(), quota)).To(Succeed())
		}
	}
	g.Eventually(func() bool { return refused(t, w, gate.refuses) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeTrue())
	return objects
}

// tries counts how often the manager tried to write the agent's object of a kind, by the
// workload cluster's own log.
func tries(t *testing.T, w *env.Workload, since kube.Mark, k kind) int {
	t.Helper()
	events, err := w.ControlPlane().AuditLog().Since(t.Context(), since)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	count := 0
	for _, event := range kube.Writes(events) {
		if event.Resource == k.resource && event.Name == agent.Name && strings.Contains(event.UserAgent, managerUserAgent) {
			count++
		}
	}
	return count
}

// tokens counts how often the manager asked for a token for the agent, by the management
// cluster's own log.
func tokens(t *testing.T, w *env.Workload) int {
	t.Helper()
	registration := &fleetv1.FleetRegistration{}
	NewWithT(t).Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
	count := 0
	for _, event := range suite.ManagerEvents(t, lab, kube.Mark{}) {
		if event.Resource == "serviceaccounts" && event.Subresource == "token" && event.Name == registration.Status.Namespace {
			count++
		}
	}
	return count
}

func TestAWorkloadClusterThatRefusesAnObjectHasItsReasonWithoutALoop(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	// That its control plane is said to be initialized would be a reason to try at once.
	w := suite.AddCluster(t, lab, "refuses", env.ClusterOptions{Namespace: "refuses", InitializedAfter: -1})
	g.Expect(w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}})).To(Succeed())
	audit := w.ControlPlane().AuditLog()
	shut := gates[0].shut(t, w)
	begin, since := time.Now(), kube.Mark{}
	label := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, fleetv1.RegisterLabel))
	g.Expect(lab.Client.Patch(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}, label)).To(Succeed())

	for i, gate := range gates {
		g.Eventually(func(g Gomega) {
			registration := &fleetv1.FleetRegistration{}
			g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
			g.Expect(registration.Status.Conditions).To(ContainElement(And(HaveField("Type", fleetv1.AgentDeployedCondition), HaveField("Reason", fleetv1.ObjectRejectedReason))), gate.name)
			message := meta.FindStatusCondition(registration.Status.Conditions, fleetv1.AgentDeployedCondition).Message
			g.Expect(message).To(And(ContainSubstring(gate.refuses.name+" fleet-agent"), ContainSubstring(fmt.Sprintf("HTTP status %d", gate.status)), Not(ContainSubstring(canary))), gate.name)
			g.Expect(meta.IsStatusConditionTrue(registration.Status.Conditions, fleetv1.WorkloadReachableCondition)).To(BeTrue())
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
		g.Eventually(func() int { return tries(t, w, since, gate.refuses) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeNumerically(">=", 2), gate.name)
		if gate.refuses == secrets {
			g.Expect(tokens(t, w)).To(Equal(1), "no other token is issued for as long as none can be delivered")
		}
		var err error
		since, err = audit.Mark(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		var next []client.Object
		if i+1 < len(gates) {
			next = gates[i+1].shut(t, w)
		}
		for _, obj := range shut {
			g.Expect(w.Client.Delete(t.Context(), obj)).To(Succeed())
		}
		shut = next
	}
	// Half a second at first, twice as long each time, and from 4 seconds on hardly longer.
	most := 6 + int(time.Since(begin)/(4*time.Second))
	g.Expect(tries(t, w, kube.Mark{}, deployments)).To(BeNumerically("<=", most))
	g.Expect(tries(t, w, kube.Mark{}, secrets)).To(BeNumerically("<=", most))
	suite.EventuallyReady(t, lab, w)
	g.Expect(tokens(t, w)).To(Equal(2), "the one that was delivered is kept")
	t.Run("repeating nothing", repeatsNothing)
}
