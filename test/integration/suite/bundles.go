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

package suite

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// Bundle returns a bundle with one object. Without targets it is for all Fleet Clusters
// of its namespace.
func Bundle(namespace, name string, targets ...fleet.BundleTarget) *fleet.Bundle {
	if len(targets) == 0 {
		targets = []fleet.BundleTarget{{ClusterSelector: &metav1.LabelSelector{}}}
	}
	return &fleet.Bundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: fleet.BundleSpec{
			Resources: []fleet.BundleResource{{Name: name + ".yaml", Content: "of " + name}},
			Targets:   targets,
		},
	}
}

// EventuallyDeployed waits until the agent has deployed a bundle and returns its object
// in the workload cluster, see agentsim.
func EventuallyDeployed(t *testing.T, workload *env.Workload, bundle string) *corev1.ConfigMap {
	t.Helper()
	var object *corev1.ConfigMap
	NewWithT(t).Eventually(func(g Gomega) {
		object = deployed(g, t.Context(), workload, bundle)
	}).WithTimeout(Patience).WithPolling(Poll).Should(Succeed())
	return object
}

// ExpectKept fails unless the object of a deployed bundle is there, the same one, and no
// agent of the cluster has uninstalled anything.
func ExpectKept(t *testing.T, workload *env.Workload, bundle string, object *corev1.ConfigMap) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(deployed(g, t.Context(), workload, bundle).UID).To(Equal(object.UID))
	for _, report := range workload.AgentReports() {
		g.Expect(report.Uninstalled).To(BeEmpty())
	}
}

func deployed(g Gomega, ctx context.Context, workload *env.Workload, bundle string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{}
	key := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "bundle-" + bundle}
	g.Expect(workload.Client.Get(ctx, key, object)).To(Succeed())
	return object
}
