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

package move

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// A bootstrap cluster makes the management cluster, registers it like any other, and
// moves it into itself.
func TestAfterAPivotTheManagementClusterHasNoAgentOfItsOwn(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "pivot"
	home := addTargetToSource(t, namespace)
	suite.EventuallyCondition(t, source, home, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	running := runAgentAtTarget(t)
	makeBundles(t, source, namespace, "web")
	suite.EventuallyReady(t, source, home)
	eventuallyDeployed(t, source, home, "web")
	before := deployed(g, ctx, target.Client, "web")

	clusterctlMove(t, source, target, namespace)

	suite.EventuallyCondition(t, target, home, fleetv1.ReadyCondition, metav1.ConditionFalse, fleetv1.SelfManagedReason)
	for _, object := range agent.Leftovers() {
		g.Eventually(func() error {
			return target.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound), "%T", object)
	}
	g.Eventually(running.ended).WithTimeout(suite.Patience).Should(BeClosed())
	g.Expect(running.agent.Report().Uninstalled).To(BeEmpty())
	g.Expect(deployed(g, ctx, target.Client, "web")).To(Equal(before))
	g.Expect(target.Client.Get(ctx, types.NamespacedName{Name: agent.Namespace}, &corev1.Namespace{})).To(Succeed(), "Fleet itself is there")
}

// addTargetToSource makes a Cluster whose workload cluster is target.
func addTargetToSource(t *testing.T, namespace string) *env.Workload {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	ensureNamespace(t, source, namespace)
	home := &env.Workload{Namespace: namespace, Name: "home"}
	plane := target.Management()
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: home.Name, Labels: map[string]string{fleetv1.RegisterLabel: "true"}},
		Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{
			Host: plane.Host(), Port: int32(plane.Port()),
		}},
	}
	g.Expect(source.Client.Create(ctx, cluster)).To(Succeed())
	provision(t, source, home.Key())
	g.Expect(source.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: secret.Name(home.Name, secret.Kubeconfig),
			Labels: map[string]string{clusterv1.ClusterNameLabel: home.Name},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{secret.KubeconfigDataName: plane.AdminKubeconfig()},
	})).To(Succeed())
	return home
}

// agentAtTarget is an agent that runs in a management cluster.
type agentAtTarget struct {
	agent *agentsim.Agent
	ended chan struct{}
}

// runAgentAtTarget runs an agent for as long as target has its Deployment.
func runAgentAtTarget(t *testing.T) agentAtTarget {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	running := agentAtTarget{
		agent: agentsim.New(agentsim.Options{Workload: target.Config(), InitialHeartbeat: suite.Poll, CheckinInterval: time.Second}),
		ended: make(chan struct{}),
	}
	deployments, err := target.Client.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(agent.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	go func() {
		defer stop()
		defer deployments.Stop()
		for event := range deployments.ResultChan() {
			if event.Type == watch.Deleted {
				return
			}
		}
	}()
	go func() {
		defer close(running.ended)
		if err := running.agent.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return running
}
