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

package capi

import (
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

func TestAClusterOfTheTemplatesJoins(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	key := client.ObjectKey{Namespace: "joins", Name: "edge-1"}
	g.Expect(lab.InstallClusterClass(t.Context(), key.Namespace)).To(Succeed())
	g.Expect(lab.Client.Create(t.Context(), generateCluster(t, key))).To(Succeed())
	w, err := lab.AdoptCluster(t.Context(), key, env.ClusterOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	j := finishJoin(t, w)
	j.expectOneCalmAgent(t)

	// All of the cluster is Cluster API's own.
	cluster := clusterOf(g, t, j.Key())
	controlPlane := controlPlaneOf(g, t, cluster)
	g.Expect(controlPlane.Labels).To(HaveKey(clusterv1.ClusterTopologyOwnedLabel))
	machines := &clusterv1.MachineList{}
	g.Expect(lab.Client.List(t.Context(), machines, client.InNamespace(j.Namespace))).To(Succeed())
	g.Expect(machines.Items).To(HaveLen(1))
	g.Expect(machines.Items[0].Status.Phase).To(BeEquivalentTo(clusterv1.MachinePhaseRunning))
	kubeconfig := &corev1.Secret{}
	g.Expect(lab.Client.Get(t.Context(), kubeconfigKey(j.Workload), kubeconfig)).To(Succeed())
	g.Expect(metav1.IsControlledBy(kubeconfig, controlPlane)).To(BeTrue())
	g.Expect(cluster.Finalizers).To(ConsistOf(clusterv1.ClusterFinalizer), "none of ours")

	status := suite.Status(t, lab, j.Workload)
	registered, _ := status.Between(env.APIAnswers, env.Registered)
	t.Logf("API answers ► Ready %s; initialized %s, registered %s", registered,
		meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition).LastTransitionTime.UTC(),
		meta.FindStatusCondition(cluster.Status.Conditions, fleetv1.FleetRegisteredCondition).LastTransitionTime.UTC())
}

// generateCluster has clusterctl make a Cluster of the template, as the docs say.
func generateCluster(t *testing.T, key client.ObjectKey) *unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	clusterctl, err := kube.FindClusterctl(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(t.Context(), clusterctl, "generate", "cluster", key.Name, "--target-namespace", key.Namespace,
		"--kubernetes-version", "v1.35.0", "--from", filepath.Join("..", "..", "templates", "cluster-template-in-memory.yaml"))
	command.Env = []string{"HOME=" + t.TempDir()}
	content, err := command.Output()
	g.Expect(err).NotTo(HaveOccurred())
	cluster := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal(content, cluster)).To(Succeed())
	return cluster
}

func TestAClusterIsAvailableOnlyOnceItIsInFleet(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "gated", env.ClusterOptions{Namespace: "gated"})
	cluster := eventuallyTrue(t, w.Key(), clusterv1.ClusterControlPlaneAvailableCondition)
	g.Expect(cluster.Spec.AvailabilityGates).To(BeEmpty(), "the gate is that of the ClusterClass")

	// All but the gate is right.
	g.Eventually(func(g Gomega) {
		cluster := clusterOf(g, t, w.Key())
		available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterAvailableCondition)
		g.Expect(available).NotTo(BeNil())
		g.Expect(available.Status).To(Equal(metav1.ConditionUnknown))
		g.Expect(available.Message).To(Equal("* " + fleetv1.FleetRegisteredCondition + ": Condition not yet reported"))
	}).WithTimeout(patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(lab.Client.Get(t.Context(), w.Key(), &fleetv1.FleetRegistration{})).To(Satisfy(apierrors.IsNotFound))

	label(t, w.Key(), "true")
	suite.EventuallyReady(t, lab, w)
	eventuallyTrue(t, w.Key(), clusterv1.ClusterAvailableCondition)
}

// The conversion here is for the user, who writes and reads the old version. Clusters are
// stored in the new one, so the manager's reads need none: see joinsFromTheOldVersion.
func TestAClusterMadeInTheOldVersionOfTheAPIJoins(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	key := client.ObjectKey{Namespace: "v1beta1", Name: "v1beta1"}
	g.Expect(lab.InstallClusterClass(t.Context(), key.Namespace)).To(Succeed())
	old := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta1",
		"kind":       "Cluster",
		"metadata": map[string]any{
			"namespace": key.Namespace, "name": key.Name,
			"labels": map[string]any{fleetv1.RegisterLabel: "true"},
		},
		"spec": map[string]any{"topology": map[string]any{
			"class": "in-memory", "version": "v1.35.0", "controlPlane": map[string]any{"replicas": int64(1)},
		}},
	}}
	g.Expect(lab.Client.Create(t.Context(), old)).To(Succeed())
	w, err := lab.AdoptCluster(t.Context(), key, env.ClusterOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	finishJoin(t, w).expectOneCalmAgent(t)

	// Who reads the old version sees the condition in the place that it has for new ones.
	g.Expect(lab.Client.Get(t.Context(), key, old)).To(Succeed())
	conditions, _, err := unstructured.NestedSlice(old.Object, "status", "v1beta2", "conditions")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conditions).To(ContainElement(SatisfyAll(
		HaveKeyWithValue("type", fleetv1.FleetRegisteredCondition), HaveKeyWithValue("status", "True"))))
}

func kubeconfigKey(w *env.Workload) client.ObjectKey {
	return client.ObjectKey{Namespace: w.Namespace, Name: w.Name + "-kubeconfig"}
}
