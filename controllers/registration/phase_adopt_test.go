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
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

const (
	stockNamespace = "cluster-of-stock"
	stockToken     = "token-of-stock"
)

// adoptableLife is a registration that is to adopt a Fleet Cluster of its name, whose agent
// has just reported and has the token stockToken. The workload cluster has nothing yet.
func adoptableLife(t *testing.T) *life {
	t.Helper()
	g := NewWithT(t)
	l := newLife(t)
	l.reconciler.Upstream.Clock = l.clock
	reg := l.registration(t)
	adopt(reg)
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	cluster := fleetClusterOf(reg)
	cluster.UID, cluster.Spec.ClientID = "uid-of-stock", "known"
	g.Expect(l.WithWatch.Create(t.Context(), cluster)).To(Succeed())
	cluster.Status.Namespace, cluster.Status.Agent.LastSeen = stockNamespace, metav1.NewTime(l.clock.Now())
	g.Expect(l.Status().Update(t.Context(), cluster)).To(Succeed())
	g.Expect(l.WithWatch.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stockNamespace, Annotations: map[string]string{
		fleet.ClusterNamespaceAnnotation: cluster.Namespace, fleet.ClusterAnnotation: cluster.Name,
	}}})).To(Succeed())
	g.Expect(l.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}})).To(Succeed())
	l.writes = nil
	l.reconciler.TryToken = func(ctx context.Context, value, namespace string) error {
		switch {
		case value != stockToken:
			return l.try(ctx, value, namespace)
		case namespace != stockNamespace:
			return apierrors.NewForbidden(schema.GroupResource{Resource: "bundledeployments"}, "", nil)
		}
		return nil
	}
	return l
}

// stockSecret is the agent's Secret that Fleet's own registration of the Fleet Cluster
// team-a/edge-1 made.
func stockSecret(change ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name},
		Data: map[string][]byte{
			"clusterNamespace": []byte("team-a"), "clusterName": []byte("edge-1"), "deploymentNamespace": []byte(stockNamespace),
			"kubeconfig": kubeconfigWith(stockToken),
		},
	}
	for _, c := range change {
		c(secret)
	}
	return secret
}

func kubeconfigWith(token string) []byte {
	return agent.WorkloadCluster{Server: "https://management.example"}.Kubeconfig(token, "")
}

// expectUntouched fails where anything was written in either cluster.
func (l *life) expectUntouched(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(l.writes).To(Or(BeEmpty(), Equal([]string{"create *fleet.Cluster"})), "that one exists already")
	g.Expect(l.tokens).To(BeZero())
	for _, request := range l.workload.Writes() {
		g.Expect(request.UserAgent).NotTo(ContainSubstring("cluster.x-k8s.io/"), "%s %s", request.Method, request.Path)
	}
	cluster := &fleet.Cluster{}
	g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	g.Expect(cluster.Labels).To(BeEmpty())
	g.Expect(cluster.Annotations).To(BeEmpty())
	g.Expect(cluster.Spec.ClientID).To(Equal("known"))
}

func TestAWorkloadClusterThatDoesNotProveToBeTheOneIsNotAdopted(t *testing.T) {
	data := func(key, value string) func(*corev1.Secret) {
		return func(secret *corev1.Secret) { secret.Data[key] = []byte(value) }
	}
	token := func(value string) func(*corev1.Secret) { return data("kubeconfig", string(kubeconfigWith(value))) }
	for _, tt := range []struct {
		name    string
		secret  *corev1.Secret // nil means none
		message string
	}{
		{name: "no agent", message: "has no Secret cattle-fleet-system/fleet-agent"},
		{name: "another Fleet Cluster's", secret: stockSecret(data("clusterName", "look-at-me")), message: "for this Fleet Cluster"},
		{name: "of another namespace", secret: stockSecret(data("clusterNamespace", "look-at-me")), message: "for this Fleet Cluster"},
		{name: "another registration's", secret: stockSecret(func(s *corev1.Secret) {
			s.Annotations = map[string]string{fleetv1.RegistrationIDAnnotation: "look-at-me"}
		}), message: "for this Fleet Cluster"},
		{name: "no kubeconfig", secret: stockSecret(func(s *corev1.Secret) { delete(s.Data, "kubeconfig") }), message: "has no token"},
		{name: "no token", secret: stockSecret(token("")), message: "has no token"},
		{name: "what cannot be sent", secret: stockSecret(token("look-at-me\nHost: x")), message: "has no token"},
		{name: "what is too long to be sent", secret: stockSecret(token(strings.Repeat("x", 20<<10))), message: "has no token"},
		{name: "a token that nobody issued", secret: stockSecret(token("look-at-me")), message: "does not accept the token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := adoptableLife(t)
			if tt.secret != nil {
				g.Expect(l.client.Create(t.Context(), tt.secret)).To(Succeed())
			}
			for range 3 {
				g.Expect(l.step(t)).To(BeNumerically(">", 0), "it looks again")
				l.pass(5 * time.Minute)
			}
			l.expect(t, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.AdoptionUnprovenReason)
			l.expect(t, fleetv1.WorkloadReachableCondition, metav1.ConditionTrue, fleetv1.WorkloadReachableReason)
			message := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.FleetClusterReadyCondition).Message
			g.Expect(message).To(And(ContainSubstring(tt.message), Not(ContainSubstring("look-at-me"))))
			l.expectUntouched(t)
		})
	}
}

// The token of another Fleet Cluster's agent is live, and proves nothing.
func TestATokenForAnotherClusterNamespaceIsNoProof(t *testing.T) {
	l := adoptableLife(t)
	NewWithT(t).Expect(l.client.Create(t.Context(), stockSecret())).To(Succeed())
	try := l.reconciler.TryToken
	l.reconciler.TryToken = func(ctx context.Context, value, namespace string) error {
		return try(ctx, value, "of another, not "+namespace)
	}
	l.step(t)
	l.expect(t, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.AdoptionUnprovenReason)
	l.expectUntouched(t)
}

func TestAnAdoptionWaitsForAWorkloadClusterThatCannotBeReached(t *testing.T) {
	g := NewWithT(t)
	l := adoptableLife(t)
	g.Expect(l.client.Create(t.Context(), stockSecret())).To(Succeed())
	g.Expect(l.workload.Stop()).To(Succeed())
	before, _ := l.workload.Connections()
	for range 3 {
		l.step(t)
	}
	l.expect(t, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.WaitingForWorkloadReason)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionFalse, fleetv1.ConnectionFailedReason)
	l.expectUntouched(t)

	g.Expect(l.workload.Start()).To(Succeed())
	for range 20 {
		l.step(t)
	}
	after, _ := l.workload.Connections()
	g.Expect(after).To(Equal(before), "events alone lead to no dial")
	l.pass(time.Minute)
	l.step(t)
	l.expect(t, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.WaitingForAdoptionReason)
}

// The heartbeat of the agent before it says nothing of ours, which may never start.
func TestAnAdoptedClusterIsReadyOnceOurAgentHasCheckedIn(t *testing.T) {
	g := NewWithT(t)
	l := adoptableLife(t)
	g.Expect(l.client.Create(t.Context(), stockSecret())).To(Succeed())
	labels := map[string]string{"app": agent.Name}
	g.Expect(l.client.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: agent.Name, Image: "rancher/fleet-agent:v0.14.0"}},
			}},
		},
	})).To(Succeed())
	for range 3 {
		l.step(t)
		l.pass(time.Second)
		l.heartbeat(t)
	}
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
	g.Expect(l.registration(t).Status.Namespace).To(Equal(stockNamespace))

	l.pass(10 * time.Second)
	l.heartbeat(t)
	l.step(t)
	l.expect(t, fleetv1.AgentConnectedCondition, metav1.ConditionFalse, fleetv1.WaitingForHeartbeatReason)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionFalse, fleetv1.WaitingForHeartbeatReason)

	l.deploymentSays(t, 1)
	l.pass(time.Minute)
	l.heartbeat(t)
	l.step(t)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionTrue, fleetv1.ReadyReason)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
}

// Nothing tells the agent that was replaced from a new one that never came up but time.
func TestAnAdoptedClusterWhoseNewAgentNeverChecksInSaysSo(t *testing.T) {
	s := newScope()
	s.registration.Status.Agent.PushedTime = metav1.NewTime(epoch)
	s.registration.Status.Agent.UpdatedTime = metav1.NewTime(epoch)
	s.heartbeat = decide.Heartbeat{Seen: epoch, Heard: epoch}
	for _, tt := range []struct {
		after  time.Duration
		reason string
	}{{time.Minute, fleetv1.WaitingForHeartbeatReason}, {time.Hour, fleetv1.AgentSilentReason}} {
		s.now = epoch.Add(tt.after)
		found, _ := agentConnected(s)
		NewWithT(t).Expect([]string{fmt.Sprint(found.ok), found.reason}).To(Equal([]string{"false", tt.reason}))
	}
}
