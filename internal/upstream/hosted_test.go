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
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
)

var hostedFor = types.NamespacedName{Namespace: "team-a", Name: "edge-1"}

// hostedObjects are those of a hosted agent that runs, with its pod.
func hostedObjects(name string) (deployment *appsv1.Deployment, pod *corev1.Pod, others []client.Object) {
	in := agent.Input{
		RegistrationID: registration.ID, ClusterNamespace: name,
		Agent: fleetv1.AgentSpec{Placement: fleetv1.PlacementManagement, Image: "agent"},
	}
	hosting := agent.Hosting{Namespace: managerNamespace, Registration: hostedFor}
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "pod", Labels: agent.HostedPodLabels(name)}}
	return agent.HostedDeployment(in, hosting), pod, []client.Object{agent.HostedNetworkPolicy(in, hosting, nil), agent.HostedSecret(in, hosting, "")}
}

// The kubelet would give the pod a token of the account that is made next, and what runs
// in the pod would uninstall what the new namespace lacks.
func TestAnotherClusterNamespaceWaitsForTheHostedAgentToStop(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	deployment, pod, _ := hostedObjects(first)
	a := newAPI(t, append(everything(), deployment, pod)...)
	r := placedAt(first)
	r.NamespaceUID = "of-before"

	_, err := a.writer().Ensure(t.Context(), r, free)
	g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAgentToStopReason)))
	g.Expect(a.deletes()).To(BeEmpty())
	g.Expect(a.snapshot(t, deployment).(*appsv1.Deployment).Spec.Replicas).To(HaveValue(BeZero()))

	g.Expect(a.WithWatch.Delete(t.Context(), pod)).To(Succeed())
	a.requests = nil
	placed, err := a.writer().Ensure(t.Context(), r, free)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed.AccountUID).To(BeEmpty())
	g.Expect(a.deletes()).To(Equal([]string{"service account capi-fleet-system/" + first}))
}

func TestAHostedAgentHasStoppedWhenItsPodsAreGone(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	deployment, pod, _ := hostedObjects(first)
	a := newAPI(t, deployment, pod)

	there, stopped, err := a.writer().StopHosted(t.Context(), placedAt(first))
	g.Expect([]any{there, stopped, err}).To(Equal([]any{true, false, nil}))

	g.Expect(a.WithWatch.Delete(t.Context(), pod)).To(Succeed())
	there, stopped, err = a.writer().StopHosted(t.Context(), placedAt(first))
	g.Expect([]any{there, stopped, err}).To(Equal([]any{true, true, nil}))

	// Pods can outlive a Deployment that somebody deleted.
	g.Expect(a.WithWatch.Delete(t.Context(), deployment)).To(Succeed())
	pod.ResourceVersion = ""
	g.Expect(a.WithWatch.Create(t.Context(), pod)).To(Succeed())
	there, stopped, err = a.writer().StopHosted(t.Context(), placedAt(first))
	g.Expect([]any{there, stopped, err}).To(Equal([]any{false, false, nil}))
}

func TestOnlyOurHostedObjectsAreRemoved(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	deployment, _, others := hostedObjects(first)
	foreign(others[1])
	a := newAPI(t, append(others, deployment)...)
	// Also where nothing is recorded.
	g.Expect(a.writer().RemoveHosted(t.Context(), registration, false)).To(BeTrue())
	g.Expect(a.has(t, deployment)).To(BeFalse())
	g.Expect(a.has(t, others[0])).To(BeFalse())
	g.Expect(a.has(t, others[1])).To(BeTrue())
}

// Without it a pod that is about to end could connect to anything.
func TestTheNetworkPolicyOfAHostedAgentStaysUntilItsPodHasEnded(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	deployment, pod, others := hostedObjects(first)
	a := newAPI(t, append(others, deployment, pod)...)
	for range 2 {
		g.Expect(a.writer().RemoveHosted(t.Context(), placedAt(first), false)).To(BeFalse())
		g.Expect(a.has(t, deployment)).To(BeFalse())
		g.Expect(a.has(t, others[0])).To(BeTrue())
	}
	g.Expect(a.WithWatch.Delete(t.Context(), pod)).To(Succeed())
	g.Expect(a.writer().RemoveHosted(t.Context(), placedAt(first), false)).To(BeTrue())
	g.Expect(a.has(t, others[0])).To(BeFalse())
	g.Expect(a.has(t, others[1])).To(BeFalse())
}

func TestAPodThatDoesNotEndDoesNotHoldARemovalAtOnce(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	deployment, pod, others := hostedObjects(first)
	a := newAPI(t, append(others, deployment, pod)...)
	g.Expect(a.writer().RemoveHosted(t.Context(), placedAt(first), true)).To(BeTrue())
	g.Expect(a.has(t, others[0])).To(BeFalse())
}

func TestOnlyTheAgentsOfThatRegistrationAreParked(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	deployment, _, _ := hostedObjects(first)
	another, _, _ := hostedObjects("cluster-another")
	another.Annotations[fleetv1.HostedForAnnotation] = "team-a/edge-2"
	a := newAPI(t, deployment, another)
	for range 2 {
		g.Expect(a.writer().HostedOf(t.Context(), hostedFor)).To(ConsistOf(deployment.Name))
		for _, name := range []string{deployment.Name, another.Name, "none"} {
			g.Expect(a.writer().ParkHosted(t.Context(), hostedFor, name)).To(Succeed())
		}
	}
	g.Expect(a.requests).To(ContainElement("patch Deployment " + client.ObjectKeyFromObject(deployment).String()))
	g.Expect(a.snapshot(t, deployment).(*appsv1.Deployment).Spec.Replicas).To(HaveValue(BeZero()))
	g.Expect(a.snapshot(t, another).(*appsv1.Deployment).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
}

func TestTheManagementClustersAPIServersAreItsEndpoints(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t)
	found, err := a.writer().APIServers(t.Context())
	g.Expect(found, err).To(BeEmpty())
	g.Expect(a.WithWatch.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Ports:      []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"2001:db8::1"}}},
	})).To(Succeed())
	g.Expect(a.writer().APIServers(t.Context())).To(Equal([]agent.Destination{{
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, Port: 6443,
	}}))
}
