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

// Package hosted tests agents that run on the management cluster.
package hosted

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

var lab *env.Lab

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, &lab, env.Options{CheckinInterval: time.Second, Placement: fleetv1.PlacementManagement}))
}

// bundle is deployed to every cluster here.
const bundle = "production"

// join adds a cluster in a namespace of its own, and returns it once its bundle is
// deployed.
func join(t *testing.T, opts env.ClusterOptions) (*env.Workload, *corev1.ConfigMap) {
	t.Helper()
	opts.Register = true
	namespace := opts.Namespace
	w := suite.AddCluster(t, lab, "edge", opts)
	NewWithT(t).Expect(lab.Client.Create(t.Context(), suite.Bundle(namespace, bundle))).To(Succeed())
	suite.EventuallyReady(t, lab, w)
	return w, suite.EventuallyDeployed(t, w, bundle)
}

// setAgent changes the settings of the policy that all clusters here have.
func setAgent(t *testing.T, content string) {
	t.Helper()
	list := &fleetv1.FleetRegistrationPolicyList{}
	g := NewWithT(t)
	g.Expect(lab.Client.List(t.Context(), list)).To(Succeed())
	g.Expect(list.Items).To(HaveLen(1))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"agent":`+content+`}}`))
	g.Expect(lab.Client.Patch(t.Context(), &list.Items[0], patch)).To(Succeed())
}

// eventuallyPlaced waits until the agent runs there and has checked in.
func eventuallyPlaced(t *testing.T, w *env.Workload, placement fleetv1.AgentPlacement) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		registration := registrationOf(g, t, w)
		g.Expect(registration.Spec.Agent.Placement).To(Equal(placement))
		g.Expect(registration.Status.Agent.Placement).To(Equal(placement))
		g.Expect(registration.Status.Agent.UpdatedTime.IsZero()).To(BeTrue())
	}).WithTimeout(2 * suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	suite.EventuallyReady(t, lab, w)
}

func registrationOf(g Gomega, t *testing.T, w *env.Workload) *fleetv1.FleetRegistration {
	t.Helper()
	registration := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
	return registration
}

// inManagerNamespace names what there is for a cluster namespace in the manager's.
func inManagerNamespace(g Gomega, t *testing.T, clusterNamespace string) []string {
	t.Helper()
	var kinds []string
	for kind, obj := range map[string]client.Object{
		"Deployment": &appsv1.Deployment{}, "NetworkPolicy": &networkingv1.NetworkPolicy{}, "Secret": &corev1.Secret{}, "ServiceAccount": &corev1.ServiceAccount{},
	} {
		err := lab.Client.Get(t.Context(), client.ObjectKey{Namespace: env.ManagerNamespace, Name: clusterNamespace}, obj)
		g.Expect(client.IgnoreNotFound(err)).To(Succeed())
		if err == nil {
			kinds = append(kinds, kind)
		}
	}
	pods := &corev1.PodList{}
	g.Expect(lab.Client.List(t.Context(), pods, client.InNamespace(env.ManagerNamespace), client.MatchingLabels(agent.HostedPodLabels(clusterNamespace)))).To(Succeed())
	for range pods.Items {
		kinds = append(kinds, "Pod")
	}
	return kinds
}
