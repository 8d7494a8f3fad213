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
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// Cluster API's core runs over workload clusters of the lab, which are real API servers.
func TestClustersOfTheLabJoinUnderTheCoreOfClusterAPI(t *testing.T) {
	t.Parallel()
	core := startCore(t)
	// One after the other: the last one changes what all Clusters are stored as.
	t.Run("from the beginning to the end", func(t *testing.T) { joinsAndGoes(t, core) })
	t.Run("stored in the old version of the API", func(t *testing.T) { joinsFromTheOldVersion(t, core) })
}

// startCore starts a lab whose Cluster API is its core alone.
func startCore(t *testing.T) *env.Lab {
	t.Helper()
	opts := env.Options{ClusterAPI: env.ClusterAPICore, Race: true}
	if testing.Verbose() {
		opts.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "core: "+format+"\n", args...) }
	}
	core, err := env.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := core.Close(); err != nil {
			t.Error(err)
		}
	})
	return core
}

func joinsAndGoes(t *testing.T, core *env.Lab) {
	g := NewWithT(t)
	ctx := t.Context()
	w := suite.AddCluster(t, core, "edge", env.ClusterOptions{Namespace: "core", Register: true, InitializedAfter: time.Millisecond})
	suite.EventuallyReady(t, core, w)

	// The lab says what it has done on its own kinds, and core does all of this.
	var cluster *clusterv1.Cluster
	g.Eventually(func(g Gomega) {
		cluster = &clusterv1.Cluster{}
		g.Expect(core.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
		g.Expect(cluster.Finalizers).To(ConsistOf(clusterv1.ClusterFinalizer), "none of ours")
		g.Expect(cluster.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
		g.Expect(cluster.Status.Initialization.ControlPlaneInitialized).To(HaveValue(BeTrue()))
		g.Expect(meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)).To(BeTrue())
	}).WithTimeout(patience).WithPolling(suite.Poll).Should(Succeed())
	parts := labParts()
	for _, part := range parts {
		g.Expect(core.Client.Get(ctx, w.Key(), part)).To(Succeed())
		g.Expect(part.GetOwnerReferences()).To(ConsistOf(HaveField("UID", cluster.UID)), "%s", part.GetKind())
	}

	// A real API server knows server-side apply, and the manager uses it.
	deployment := &appsv1.Deployment{}
	g.Expect(w.Client.Get(ctx, suite.AgentKey, deployment)).To(Succeed())
	var ours []metav1.ManagedFieldsOperationType
	for _, entry := range deployment.ManagedFields {
		if entry.Manager == upstream.FieldOwner {
			ours = append(ours, entry.Operation)
		}
	}
	g.Expect(ours).To(ConsistOf(metav1.ManagedFieldsOperationApply))

	g.Expect(core.RemoveCluster(ctx, w)).To(Succeed())
	for _, object := range append([]*unstructured.Unstructured{objectOf(clusterv1.GroupVersion.WithKind("Cluster"))}, parts...) {
		g.Eventually(func() error { return core.Client.Get(ctx, w.Key(), object) }).
			WithTimeout(patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound), "%s", object.GetKind())
	}
}

// labParts returns the objects that the Cluster refers to, not yet read.
func labParts() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		objectOf(clusterv1.GroupVersionInfrastructure.WithKind("LabCluster")),
		objectOf(clusterv1.GroupVersionControlPlane.WithKind("LabControlPlane")),
	}
}

func objectOf(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// oldVersion is the one before the one that the manager reads.
const oldVersion = "v1beta1"

// A management cluster that has come a long way may have Clusters stored in the old
// version. Then whatever the manager sees of them is what Cluster API's webhook made.
func joinsFromTheOldVersion(t *testing.T, core *env.Lab) {
	g := NewWithT(t)
	ctx := t.Context()
	storeClustersInTheOldVersion(t, core)
	w := suite.AddCluster(t, core, "old", env.ClusterOptions{Namespace: "core", InitializedAfter: time.Millisecond})
	cluster := &clusterv1.Cluster{}
	g.Eventually(func(g Gomega) {
		// The API server stores in the new way a little later. Who writes has it stored anew.
		g.Expect(core.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
		before := cluster.DeepCopy()
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, "example.com/written", time.Now().String())
		g.Expect(core.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		g.Expect(stored(g, t, core, w)).To(HaveKeyWithValue("apiVersion", "cluster.x-k8s.io/"+oldVersion))
	}).WithTimeout(patience).WithPolling(suite.Poll).Should(Succeed())

	before := cluster.DeepCopy()
	metav1.SetMetaDataLabel(&cluster.ObjectMeta, fleetv1.RegisterLabel, "true")
	g.Expect(core.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
	suite.EventuallyReady(t, core, w)

	// What the manager writes is stored in the old version too.
	object := stored(g, t, core, w)
	g.Expect(object).To(HaveKeyWithValue("apiVersion", "cluster.x-k8s.io/"+oldVersion))
	conditions, _, err := unstructured.NestedSlice(object, "status", "v1beta2", "conditions")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conditions).To(ContainElement(SatisfyAll(
		HaveKeyWithValue("type", fleetv1.FleetRegisteredCondition), HaveKeyWithValue("status", "True"))))
}

// storeClustersInTheOldVersion has the API server store Clusters as Cluster API of some
// time ago did.
func storeClustersInTheOldVersion(t *testing.T, core *env.Lab) {
	t.Helper()
	g := NewWithT(t)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	g.Expect(core.Client.Get(t.Context(), client.ObjectKey{Name: "clusters.cluster.x-k8s.io"}, crd)).To(Succeed())
	before := crd.DeepCopy()
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == oldVersion
	}
	g.Expect(core.Client.Patch(t.Context(), crd, client.MergeFrom(before))).To(Succeed())
}

// stored returns the Cluster as it is in etcd.
func stored(g Gomega, t *testing.T, core *env.Lab, w *env.Workload) map[string]any {
	content, err := core.Management().Stored(t.Context(), strings.Join([]string{clusterv1.GroupVersion.Group, "clusters", w.Namespace, w.Name}, "/"))
	g.Expect(err).NotTo(HaveOccurred())
	object := map[string]any{}
	g.Expect(json.Unmarshal(content, &object)).To(Succeed())
	return object
}
