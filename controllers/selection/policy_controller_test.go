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
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func gold(change ...func(*fleetv1.FleetRegistrationPolicy)) *fleetv1.FleetRegistrationPolicy {
	policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}}
	for _, c := range change {
		c(policy)
	}
	return policy
}

// member is a registration of the policy gold.
func member(i int, ready metav1.ConditionStatus) *fleetv1.FleetRegistration {
	return registered(by("gold", ""), with(condition(fleetv1.ReadyCondition, ready, "Some")), func(reg *fleetv1.FleetRegistration) {
		reg.Name, reg.UID = fmt.Sprintf("edge-%d", i), types.UID(fmt.Sprint(i))
	})
}

func (e *env) policies() *policyReconciler {
	return &policyReconciler{client: e.Client, endpoint: e.Endpoint, clock: e.clock}
}

func (e *env) policyNow(t *testing.T) *fleetv1.FleetRegistrationPolicy {
	t.Helper()
	policy := &fleetv1.FleetRegistrationPolicy{}
	NewWithT(t).Expect(e.api.Get(t.Context(), client.ObjectKey{Name: "gold"}, policy)).To(Succeed())
	return policy
}

var goldRequest = ctrl.Request{NamespacedName: types.NamespacedName{Name: "gold"}}

func TestAPolicyCountsItsRegistrations(t *testing.T) {
	g := NewWithT(t)
	other := registered(by("silver", ""))
	e := newEnv(t, gold(), fleetConfig(goodConfig), member(2, metav1.ConditionTrue), member(3, metav1.ConditionFalse), member(4, metav1.ConditionTrue), other)

	_, err := e.policies().Reconcile(t.Context(), goldRequest)

	g.Expect(err).NotTo(HaveOccurred())
	status := e.policyNow(t).Status
	g.Expect(status.Matched).To(HaveValue(BeEquivalentTo(3)))
	g.Expect(status.Ready).To(HaveValue(BeEquivalentTo(2)))
	g.Expect(meta.IsStatusConditionTrue(status.Conditions, fleetv1.ReadyCondition)).To(BeTrue())
}

func TestAPolicySaysWhatKeepsItFromBeingCarriedOut(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy *fleetv1.FleetRegistrationPolicy
		config string
		reason string
	}{
		{"nothing", gold(), goodConfig, fleetv1.ReadyReason},
		{"its selector", gold(func(p *fleetv1.FleetRegistrationPolicy) {
			p.Spec.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}}
		}), goodConfig, fleetv1.PolicyInvalidReason},
		{"its CA", gold(func(p *fleetv1.FleetRegistrationPolicy) {
			p.Spec.ManagementCluster = fleetv1.ManagementClusterSource{Server: "https://gold.example", CA: fleetv1.CASource{Secret: fleetv1.KeyReference{Name: "missing"}}}
		}), goodConfig, fleetv1.CAUnavailableReason},
		{"no address", gold(), `{"agentImage": "registry.example/agent:v1"}`, fleetv1.ManagementClusterUnknownReason},
		{"no image", gold(), `{"apiServerURL": "https://fleet.example"}`, fleetv1.AgentImageUnknownReason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, tt.policy, fleetConfig(tt.config))

			result, err := e.policies().Reconcile(t.Context(), goldRequest)

			g.Expect(err).NotTo(HaveOccurred())
			again := BeZero()
			if tt.reason == fleetv1.CAUnavailableReason {
				again = BeNumerically(">", 0)
			}
			g.Expect(result.RequeueAfter).To(again, "only what is not watched is looked for again")
			ready := meta.FindStatusCondition(e.policyNow(t).Status.Conditions, fleetv1.ReadyCondition)
			g.Expect(ready.Reason).To(Equal(tt.reason))
			status, message := metav1.ConditionTrue, BeEmpty()
			if tt.reason != fleetv1.ReadyReason {
				status, message = metav1.ConditionFalse, Not(BeEmpty())
			}
			g.Expect(ready.Status).To(Equal(status))
			g.Expect(ready.Message).To(message)
		})
	}
}

func TestACAThatIsNotWatchedIsLookedAtAgain(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	inManagersNamespace := fleetv1.CASource{ConfigMap: fleetv1.KeyReference{Name: "ca"}}
	for name, change := range map[string]func(*fleetv1.FleetRegistrationPolicy){
		"of the management cluster": func(p *fleetv1.FleetRegistrationPolicy) {
			p.Spec.ManagementCluster = fleetv1.ManagementClusterSource{Server: "https://gold.example", CA: inManagersNamespace}
		},
		"additional": func(p *fleetv1.FleetRegistrationPolicy) { p.Spec.Agent.AdditionalCA = inManagersNamespace },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "capi-fleet-system", Name: "ca"}, Data: map[string]string{"ca.crt": bundle}}
			e := newEnv(t, gold(change), fleetConfig(goodConfig), ca)
			result, err := e.policies().Reconcile(t.Context(), goldRequest)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(meta.FindStatusCondition(e.policyNow(t).Status.Conditions, fleetv1.ReadyCondition)).To(HaveField("Reason", fleetv1.ReadyReason))
			g.Expect(result.RequeueAfter).To(Equal(changeInterval))
		})
	}
}

func TestAPolicysStatusIsWrittenOnChangeAndAtMostOnceInFiveSeconds(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, gold(), fleetConfig(goodConfig))
	r := e.policies()
	reconcile := func() time.Duration {
		result, err := r.Reconcile(t.Context(), goldRequest)
		g.Expect(err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}

	g.Expect(reconcile()).To(BeZero())
	g.Expect(e.writes).To(HaveLen(1))

	g.Expect(e.api.Create(t.Context(), member(2, metav1.ConditionTrue))).To(Succeed())
	e.clock.SetTime(epoch.Add(2 * time.Second))
	g.Expect(reconcile()).To(Equal(3 * time.Second))
	g.Expect(e.writes).To(HaveLen(1))

	e.clock.SetTime(epoch.Add(5 * time.Second))
	g.Expect(reconcile()).To(BeZero())
	g.Expect(e.writes).To(HaveLen(2))
	g.Expect(e.policyNow(t).Status.Matched).To(HaveValue(BeEquivalentTo(1)))

	e.clock.SetTime(epoch.Add(time.Hour))
	g.Expect(reconcile()).To(BeZero())
	g.Expect(e.writes).To(HaveLen(2), "nothing changed")

	g.Expect(e.api.Create(t.Context(), member(3, metav1.ConditionTrue))).To(Succeed())
	e.clock.SetTime(epoch.Add(time.Hour + time.Second))
	g.Expect(reconcile()).To(Equal(4*time.Second), "a look that finds nothing new counts too")
	g.Expect(e.writes).To(HaveLen(2))

	changed := e.policyNow(t)
	changed.Generation++
	g.Expect(e.api.Update(t.Context(), changed)).To(Succeed())
	g.Expect(reconcile()).To(BeZero(), "who changes a policy sees at once what comes of it")
	g.Expect(e.policyNow(t).Status.Matched).To(HaveValue(BeEquivalentTo(2)))
}

func TestAPolicyThatIsGoneIsNoError(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	result, err := e.policies().Reconcile(t.Context(), goldRequest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.IsZero()).To(BeTrue())
	g.Expect(e.writes).To(BeEmpty())
}

func TestEventsOfOthersLeadToThePolicies(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, gold())
	g.Expect(policyOf(t.Context(), member(1, metav1.ConditionTrue))).To(ConsistOf(goldRequest))
	g.Expect(policyOf(t.Context(), registered())).To(BeEmpty())
	g.Expect(e.policies().all(t.Context(), fleetConfig(""))).To(ConsistOf(goldRequest))
}
