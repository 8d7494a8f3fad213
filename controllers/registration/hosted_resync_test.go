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

package registration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
)

func (l *life) networkPolicy(t *testing.T) *networkingv1.NetworkPolicy {
	t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	NewWithT(t).Expect(l.Get(t.Context(), l.hostedKey(t), policy)).To(Succeed())
	return policy
}

// reaches returns the blocks of addresses that the hosted agent may connect to.
func (l *life) reaches(t *testing.T) []string {
	t.Helper()
	var blocks []string
	for _, rule := range l.networkPolicy(t).Spec.Egress {
		for _, peer := range rule.To {
			if peer.IPBlock != nil {
				blocks = append(blocks, peer.IPBlock.CIDR)
			}
		}
	}
	return blocks
}

// apiServerIs has the management cluster's API server answer at an address.
func (l *life) apiServerIs(t *testing.T, address string) {
	t.Helper()
	g := NewWithT(t)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}}
	g.Expect(client.IgnoreNotFound(l.WithWatch.Delete(t.Context(), slice))).To(Succeed())
	slice.ResourceVersion, slice.AddressType = "", discoveryv1.AddressTypeIPv4
	slice.Endpoints, slice.Ports = []discoveryv1.Endpoint{{Addresses: []string{address}}}, []discoveryv1.EndpointPort{{Port: new(int32(6443))}}
	g.Expect(l.WithWatch.Create(t.Context(), slice)).To(Succeed())
}

func TestTheNetworkPolicyOfAHostedAgentFollowsAddressesAtTheResync(t *testing.T) {
	g := NewWithT(t)
	const resync = 10 * time.Hour
	l := newHosted(t)
	l.reconciler.ResyncInterval = resync
	l.apiServerIs(t, "192.0.2.1")
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	before := l.reaches(t)
	g.Expect(before).To(ConsistOf("192.0.2.1/32", "192.0.2.10/32", "127.0.0.1/32"))
	template := l.hosted(t).Spec.Template

	l.apiServerIs(t, "192.0.2.2")
	l.pass(resync / 2)
	l.heartbeat(t)
	l.step(t)
	g.Expect(l.reaches(t)).To(Equal(before), "nobody looks between two of them")

	l.pass(resync)
	l.heartbeat(t)
	l.step(t)
	g.Expect(l.reaches(t)).To(ConsistOf("192.0.2.2/32", "192.0.2.10/32", "127.0.0.1/32"))
	g.Expect(l.hosted(t).Spec.Template).To(Equal(template), "the pod goes on")
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionTrue, fleetv1.ReadyReason)

	version := l.networkPolicy(t).ResourceVersion
	l.pass(2 * resync)
	l.heartbeat(t)
	l.step(t)
	g.Expect(l.networkPolicy(t).ResourceVersion).To(Equal(version), "the same addresses are no reason to write")
}

// A rollout stands still where its agents fail, and may for as long as nobody comes.
func TestAnAgentWhoseChangeFailedIsPutRightAllTheSame(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	reg := l.registration(t)
	reg.Spec.Agent.Image = "agent:broken"
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.step(t)
	l.deploymentSays(t, 0)
	l.podWaits(t, "ImagePullBackOff")
	l.runFor(t, updateDeadline+time.Minute)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdateFailedReason)

	g.Expect(l.client.Delete(t.Context(), agent.Leftovers()[0])).To(Succeed())
	g.Expect(l.has(t, &corev1.ConfigMap{})).To(BeTrue())
	g.Expect(l.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}})).To(Succeed())
	l.runFor(t, 2*time.Hour)
	g.Expect(l.deployment(t).Spec.Template.Spec.Containers[0].Image).To(Equal("agent:broken"))
	g.Expect(l.has(t, &corev1.ConfigMap{})).To(BeTrue())
}
