//go:build e2e

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

package e2e

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

var _ = Describe("A labelled Cluster", func() {
	It("joins Fleet, gets its bundles, and leaves with its Cluster", func(ctx context.Context) {
		const name = "edge"
		namespace, stopWatching := framework.CreateNamespaceAndWatchEvents(ctx, framework.CreateNamespaceAndWatchEventsInput{
			Creator: management.GetClient(), ClientSet: management.GetClientSet(), Name: "joins",
			LogFolder: filepath.Join(artifacts, "joins"),
		})
		DeferCleanup(stopWatching)
		// A Namespace may have the label in place of each Cluster.
		labelled := namespace.DeepCopy()
		labelled.Labels[fleetv1.RegisterLabel] = "true"
		Expect(management.GetClient().Patch(ctx, labelled, client.MergeFrom(namespace))).To(Succeed())
		Expect(management.GetClient().Create(ctx, helloBundle(namespace.Name))).To(Succeed())

		result := &clusterctl.ApplyClusterTemplateAndWaitResult{}
		clusterctl.ApplyClusterTemplateAndWait(ctx, clusterctl.ApplyClusterTemplateAndWaitInput{
			ClusterProxy: management,
			ConfigCluster: clusterctl.ConfigClusterInput{
				LogFolder:                filepath.Join(artifacts, "joins"),
				ClusterctlConfigPath:     clusterctlConfig,
				KubeconfigPath:           management.GetKubeconfigPath(),
				InfrastructureProvider:   "docker",
				Flavor:                   "development",
				Namespace:                namespace.Name,
				ClusterName:              name,
				KubernetesVersion:        config.MustGetVariable("KUBERNETES_VERSION"),
				ControlPlaneMachineCount: ptr.To(int64(1)),
				WorkerMachineCount:       ptr.To(int64(1)),
			},
			CNIManifestPath:              writeCNI(ctx),
			WaitForClusterIntervals:      config.GetIntervals("default", "wait-cluster"),
			WaitForControlPlaneIntervals: config.GetIntervals("default", "wait-control-plane"),
			WaitForMachineDeployments:    config.GetIntervals("default", "wait-worker-nodes"),
		}, result)

		By("waiting for the registration")
		registration := &fleetv1.FleetRegistration{}
		Eventually(func(g Gomega) {
			g.Expect(management.GetClient().Get(ctx, client.ObjectKeyFromObject(result.Cluster), registration)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(registration.Status.Conditions, fleetv1.ReadyCondition)).To(BeTrue())
		}, config.GetIntervals("default", "wait-registration")...).Should(Succeed())

		By("waiting for the bundle in the workload cluster")
		workload := management.GetWorkloadCluster(ctx, namespace.Name, name).GetClient()
		Eventually(func() error {
			return workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "hello"}, &corev1.ConfigMap{})
		}, config.GetIntervals("default", "wait-registration")...).Should(Succeed())

		By("deleting the Cluster")
		framework.DeleteClusterAndWait(ctx, framework.DeleteClusterAndWaitInput{
			ClusterProxy: management, ClusterctlConfigPath: clusterctlConfig, Cluster: result.Cluster, ArtifactFolder: artifacts,
		}, config.GetIntervals("default", "wait-delete-cluster")...)
		Eventually(func(g Gomega) {
			for _, object := range []client.Object{&fleetv1.FleetRegistration{}, fleetCluster()} {
				g.Expect(management.GetClient().Get(ctx, client.ObjectKeyFromObject(result.Cluster), object)).To(Satisfy(apierrors.IsNotFound))
			}
		}, config.GetIntervals("default", "wait-delete-cluster")...).Should(Succeed())
	})
})

// writeCNI writes the manifest of the CNI, and returns the path.
func writeCNI(ctx context.Context) string {
	manifest, err := cniManifest(ctx)
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(artifacts, "kindnet.yaml")
	Expect(os.WriteFile(path, []byte(manifest), 0o600)).To(Succeed())
	return path
}

func fleetCluster() *unstructured.Unstructured {
	cluster := &unstructured.Unstructured{}
	cluster.SetAPIVersion("fleet.cattle.io/v1alpha1")
	cluster.SetKind(clusterv1.ClusterKind)
	return cluster
}

// helloBundle is a bundle with one ConfigMap for all Fleet Clusters of a namespace.
func helloBundle(namespace string) *unstructured.Unstructured {
	bundle := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"targets": []any{map[string]any{"clusterSelector": map[string]any{}}},
			"resources": []any{map[string]any{
				"name": "hello.yaml",
				"content": "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\"," +
					" \"metadata\": {\"namespace\": \"default\", \"name\": \"hello\"}}",
			}},
		},
	}}
	bundle.SetAPIVersion("fleet.cattle.io/v1alpha1")
	bundle.SetKind("Bundle")
	bundle.SetNamespace(namespace)
	bundle.SetName("hello")
	return bundle
}
