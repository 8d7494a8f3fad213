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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// Pod Security levels and most quotas are about pods: the Deployment itself is taken, and its
// own condition says what became of it.
func TestAWorkloadClusterThatRefusesTheAgentsPodHasItsReasonWithoutALoop(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "refuses-pods"
	policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	g.Expect(lab.Client.Create(t.Context(), policy)).To(Succeed())
	// No agent reports, so that it takes what is new at once.
	w := suite.AddCluster(t, lab, "edge", env.ClusterOptions{Namespace: namespace, Register: true, NoKubelet: true, ControllerManager: true})
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)

	set := func(settings string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"agent":`+settings+`}}`))
		g.Expect(lab.Client.Patch(t.Context(), policy, patch)).To(Succeed())
	}

	enforce(t, w, "restricted")
	set(`{"network":"Host"}`)
	expectPodRefused(t, w)
	upstream := suite.Mark(t, lab)
	since, err := w.ControlPlane().AuditLog().Mark(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() int { return looks(t, w, since) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeNumerically(">=", 1))
	g.Expect(kube.Writes(managersEvents(t, w, since))).To(BeEmpty(), "a look writes nothing")
	for _, write := range kube.Writes(suite.ManagerEvents(t, lab, upstream)) {
		g.Expect(write.Namespace).NotTo(Equal(namespace), "%s %s", write.Verb, write.RequestURI)
	}

	// Its pod fits the level again.
	set(`{"network":null,"checkinInterval":"1h"}`)
	g.Eventually(func(g Gomega) {
		runPods(g, t, w)
		registration := &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
		g.Expect(registration.Spec.Agent.CheckinInterval.Duration).To(Equal(time.Hour))
		g.Expect(meta.IsStatusConditionTrue(registration.Status.Conditions, fleetv1.AgentDeployedCondition)).To(BeTrue())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())

	allowNoPods(t, w)
	set(`{"checkinInterval":"2h"}`)
	expectPodRefused(t, w)
	t.Run("repeating nothing", repeatsNothing)
}

// expectPodRefused waits until the registration says that the agent's pod is refused, and
// what that can be.
func expectPodRefused(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	refused := suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentPodRejectedReason)
	message := meta.FindStatusCondition(refused.Status.Conditions, fleetv1.AgentDeployedCondition).Message
	g.Expect(message).To(And(ContainSubstring("Pod Security"), ContainSubstring("quotas")))
	g.Expect(meta.IsStatusConditionTrue(refused.Status.Conditions, fleetv1.WorkloadReachableCondition)).To(BeTrue())
}

// enforce sets the Pod Security level of the agent's namespace.
func enforce(t *testing.T, w *env.Workload, level string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%q}}}`, level))
	NewWithT(t).Expect(w.Client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}}, patch)).To(Succeed())
	eventuallyTakesNoPods(t, w)
}

// allowNoPods makes a quota.
func allowNoPods(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	none := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: canary}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	g.Expect(w.Client.Create(t.Context(), quota)).To(Succeed())
	// What the controller of quotas does.
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	g.Expect(w.Client.Status().Update(t.Context(), quota)).To(Succeed())
	eventuallyTakesNoPods(t, w)
}

// eventuallyTakesNoPods waits until the workload cluster refuses a pod with the network of
// its node in the agent's namespace.
func eventuallyTakesNoPods(t *testing.T, w *env.Workload) {
	t.Helper()
	NewWithT(t).Eventually(func() error {
		return w.Client.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: "try"},
			Spec:       corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "a", Image: "b"}}},
		}, client.DryRunAll)
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).ShouldNot(Succeed())
}

// runPods does what a node does for the agent's pods.
func runPods(g Gomega, t *testing.T, w *env.Workload) {
	t.Helper()
	list := &corev1.PodList{}
	g.Expect(w.Client.List(t.Context(), list, client.InNamespace(agent.Namespace))).To(Succeed())
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodRunning {
			continue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		g.Expect(client.IgnoreNotFound(w.Client.Status().Update(t.Context(), pod))).To(Succeed())
	}
}

// managersEvents returns what the manager asked the workload cluster for.
func managersEvents(t *testing.T, w *env.Workload, since kube.Mark) []kube.Event {
	t.Helper()
	events, err := w.ControlPlane().AuditLog().Since(t.Context(), since)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var own []kube.Event
	for _, event := range events {
		if strings.Contains(event.UserAgent, managerUserAgent) {
			own = append(own, event)
		}
	}
	return own
}

// looks counts how often the manager looked at the agent's Deployment.
func looks(t *testing.T, w *env.Workload, since kube.Mark) int {
	t.Helper()
	count := 0
	for _, event := range managersEvents(t, w, since) {
		if event.Resource == "deployments" && event.Verb == "get" {
			count++
		}
	}
	return count
}
