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
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// withSettings is a policy that has settings of the agent.
func withSettings(settings fleetv1.AgentSettings) *fleetv1.FleetRegistrationPolicy {
	return gold(func(p *fleetv1.FleetRegistrationPolicy) { p.Spec.Agent = settings })
}

func TestARegistrationHasTheAgentSettingsOfItsPolicy(t *testing.T) {
	g := NewWithT(t)
	settings := fleetv1.AgentSettings{
		Registry:        "mirror.example",
		Image:           "rancher/fleet-agent:v9",
		Env:             []fleetv1.EnvVar{{Name: "A", Value: "b"}},
		Resources:       fleetv1.AgentResources{Limits: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.5")}},
		Affinity:        &corev1.Affinity{},
		CheckinInterval: metav1.Duration{Duration: time.Minute},
	}
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig), withSettings(settings))
	e.reconcile(t)

	agent := e.registrationNow(t).Spec.Agent
	g.Expect(agent.ManagementCluster).To(Equal(goodAgent.ManagementCluster))
	g.Expect(agent.Image).To(Equal("mirror.example/rancher/fleet-agent:v9"))
	g.Expect(agent.Env).To(Equal(settings.Env))
	g.Expect(agent.CheckinInterval).To(Equal(settings.CheckinInterval))
	cpu := agent.Resources.Limits["cpu"]
	g.Expect(cpu.String()).To(Equal("500m"))

	e.reconcile(t)
	g.Expect(e.writes).To(HaveLen(1), "the same in other words is no change")
}

func TestAPolicyWithoutAgentSettingsChangesNothing(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig), gold())
	e.reconcile(t)
	g.Expect(e.registrationNow(t).Spec.Agent).To(Equal(goodAgent))
}

func TestAPolicySaysThatItsAdditionalCAIsMissing(t *testing.T) {
	g := NewWithT(t)
	policy := withSettings(fleetv1.AgentSettings{AdditionalCA: fleetv1.CASource{ConfigMap: fleetv1.KeyReference{Name: "missing"}}})
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig), policy)
	_, err := e.policies().Reconcile(t.Context(), goldRequest)
	g.Expect(err).NotTo(HaveOccurred())
	ready := meta.FindStatusCondition(e.policyNow(t).Status.Conditions, fleetv1.ReadyCondition)
	g.Expect(ready.Reason).To(Equal(fleetv1.CAUnavailableReason))
	g.Expect(ready.Message).To(ContainSubstring("missing"))

	e.reconcile(t)
	agent := e.registrationNow(t).Spec.Agent
	g.Expect(agent.ManagementCluster).To(BeZero(), "the agent waits")
	g.Expect(agent.Image).To(Equal(goodAgent.Image))
}

func TestFillInNeverStartsAnAgentWithoutItsSettings(t *testing.T) {
	g := NewWithT(t)
	env := []fleetv1.EnvVar{{Name: "A", Value: "b"}}
	onlyImage := fleetv1.AgentSpec{Image: "old", ImagePullSecrets: []string{"old"}}
	fillIn(&onlyImage, fleetv1.AgentSpec{ManagementCluster: goodAgent.ManagementCluster, AdditionalCAData: []byte("ca"), Env: env})
	g.Expect(onlyImage).To(Equal(fleetv1.AgentSpec{
		ManagementCluster: goodAgent.ManagementCluster, AdditionalCAData: []byte("ca"), Env: env, Image: "old", ImagePullSecrets: []string{"old"},
	}))

	complete := *goodAgent.DeepCopy()
	fillIn(&complete, fleetv1.AgentSpec{Image: "new", Env: env})
	g.Expect(complete).To(Equal(goodAgent), "it has all that it needs")
}
