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

package adopt

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// stock is what Fleet's own registration makes of one cluster and goes on doing for it,
// as far as an adoption meets it: the agent's Bundle is pruned only when the namespace
// of the Fleet Cluster changes, and while it is there the agent puts back what it
// brought (Fleet 0.13 to 0.16).
type stock struct {
	t        *testing.T
	workload *env.Workload
	// namespace is the cluster namespace.
	namespace string
	// holds keeps the Bundle from being pruned.
	holds atomic.Bool
	// fights counts how often the agent put something back.
	fights atomic.Int32
}

// registerWithFleet registers the cluster, with an agent, and returns once that has
// deployed its own Bundle. modify changes the Fleet Cluster before it is made; nil
// means no change.
func registerWithFleet(t *testing.T, w *env.Workload, modify func(*unstructured.Unstructured)) *stock {
	t.Helper()
	registered := suite.RegisterWithFleet(t, lab, w, modify)
	s := &stock{t: t, workload: w, namespace: registered.Namespace}
	deploy(t, w, s.bundle().Name)

	var group sync.WaitGroup
	background, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	group.Go(func() { s.prune(background) })
	group.Go(func() { s.correctDrift(background, registered.Secret, registered.Deployment) })
	return s
}

// bundle is what Fleet deploys its agent with.
func (s *stock) bundle() *fleet.Bundle {
	return &fleet.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: s.workload.Namespace, Name: "fleet-agent-" + s.workload.Name}}
}

// prune deletes the agent's Bundle when the namespace changes and the Fleet Cluster is
// managed by someone else.
func (s *stock) prune(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := lab.Client.Watch(ctx, &corev1.NamespaceList{}, client.MatchingFields{metav1.ObjectNameField: s.workload.Namespace})
		if err != nil {
			continue
		}
		for event := range events.ResultChan() {
			if event.Type != watch.Modified || s.holds.Load() {
				continue
			}
			cluster := &fleet.Cluster{}
			if err := lab.Client.Get(ctx, s.workload.Key(), cluster); err != nil || cluster.Labels[fleet.ClusterManagementLabel] == "" {
				continue
			}
			if err := lab.Client.Delete(ctx, s.bundle()); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				s.t.Errorf("pruning the agent's Bundle: %v", err)
			}
		}
	}
}

// correctDrift puts the agent's objects back for as long as the agent has a Bundle that
// they come from.
func (s *stock) correctDrift(ctx context.Context, secret *corev1.Secret, deployment *appsv1.Deployment) {
	tick := time.NewTicker(suite.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		key := client.ObjectKey{Namespace: s.namespace, Name: s.bundle().Name}
		if err := lab.Client.Get(ctx, key, &fleet.BundleDeployment{}); err != nil {
			continue
		}
		liveSecret, liveDeployment := &corev1.Secret{}, &appsv1.Deployment{}
		if s.workload.Client.Get(ctx, suite.AgentKey, liveSecret) != nil || s.workload.Client.Get(ctx, suite.AgentKey, liveDeployment) != nil {
			continue
		}
		image := func(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }
		if equality.Semantic.DeepEqual(liveSecret.Data, secret.Data) && image(liveDeployment) == image(deployment) {
			continue
		}
		s.fights.Add(1)
		_ = s.workload.Client.Update(ctx, secret.DeepCopy())
		_ = s.workload.Client.Update(ctx, deployment.DeepCopy())
	}
}

// deploy makes a Bundle for the cluster and waits until the agent has deployed it. It
// returns what was deployed.
func deploy(t *testing.T, w *env.Workload, name string) *corev1.ConfigMap {
	t.Helper()
	bundle := suite.Bundle(w.Namespace, name, fleet.BundleTarget{ClusterName: w.Name})
	NewWithT(t).Expect(lab.Client.Create(t.Context(), bundle)).To(Succeed())
	return suite.EventuallyDeployed(t, w, name)
}

// watchFor returns how often an object was deleted since.
func watchFor(t *testing.T, w *env.Workload, deployed *corev1.ConfigMap) func() int32 {
	t.Helper()
	list := &corev1.ConfigMapList{}
	NewWithT(t).Expect(w.Client.List(t.Context(), list, client.InNamespace(deployed.Namespace))).To(Succeed())
	events, err := w.Client.Watch(t.Context(), list, client.InNamespace(deployed.Namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var deletions atomic.Int32
	go func() {
		for event := range events.ResultChan() {
			if configMap, ok := event.Object.(*corev1.ConfigMap); ok && event.Type == watch.Deleted && configMap.Name == deployed.Name {
				deletions.Add(1)
			}
		}
	}()
	return deletions.Load
}

// labelsWith returns labels and one more.
func labelsWith(labels map[string]string, key, value string) map[string]string {
	all := maps.Clone(labels)
	all[key] = value
	return all
}
