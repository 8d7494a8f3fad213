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

// Package uninstall tests what becomes of agents and of what they deployed when
package uninstall

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// fleetImports does what Fleet's import does of a Fleet Cluster, with what that says and
// nothing else: it deletes the agent in the workload cluster, and registers a new one, with
// an account of its own. It says whether there was anything to do.
func fleetImports(t *testing.T, key client.ObjectKey) bool {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(fleet.GroupVersion.WithKind("Cluster"))
	g.Expect(lab.Client.Get(ctx, key, cluster)).To(Succeed())
	name, _, _ := unstructured.NestedString(cluster.Object, "spec", "kubeConfigSecret")
	wanted, _, _ := unstructured.NestedInt64(cluster.Object, "spec", "redeployAgentGeneration")
	is, deployed, _ := unstructured.NestedInt64(cluster.Object, "status", "agentDeployedGeneration")
	if cluster.GetLabels()[fleet.ClusterManagementLabel] != "" || name == "" || deployed && is == wanted {
		return false
	}
	namespace, _, _ := unstructured.NestedString(cluster.Object, "spec", "kubeConfigSecretNamespace")
	if namespace == "" {
		namespace = key.Namespace
	}
	secret := &corev1.Secret{}
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)).To(Succeed())
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	g.Expect(err).NotTo(HaveOccurred())
	workload, err := client.New(config, client.Options{Scheme: env.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())

	meta := metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}
	for _, old := range []client.Object{&appsv1.Deployment{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}} {
		g.Expect(workload.Delete(ctx, old)).To(Succeed())
	}
	clusterNamespace, _, _ := unstructured.NestedString(cluster.Object, "status", "namespace")
	newSecret, newDeployment := suite.StockAgent(g, ctx, lab, key, clusterNamespace)
	for _, obj := range []client.Object{newSecret, newDeployment} {
		g.Expect(workload.Create(ctx, obj)).To(Succeed())
	}
	g.Expect(unstructured.SetNestedField(cluster.Object, wanted, "status", "agentDeployedGeneration")).To(Succeed())
	g.Expect(lab.Client.Status().Update(ctx, cluster)).To(Succeed())
	return true
}
