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

// Package capi tests registration on clusters that Cluster API itself makes: its core, the
// kubeadm providers and the in-memory infrastructure of v1.14, as processes, from the
// templates that users are given.
package capi

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// patience is how long a test waits for Cluster API, which takes half a minute for the
// simplest of clusters and here makes many at once.
const patience = 5 * time.Minute

// lab is shared by the tests. Each has a namespace and a cluster of its own, and they run
// side by side: most of the time they wait for Cluster API.
var lab *env.Lab

func TestMain(m *testing.M) {
	ctrl.SetLogger(log.Log.WithSink(log.NullLogSink{}))
	os.Exit(suite.Main(m, &lab, env.Options{ClusterAPI: env.ClusterAPIInMemory}))
}

// bundle is the bundle of each namespace.
const bundle = "app"

// joined is a cluster that has joined, with a deployed bundle.
type joined struct {
	*env.Workload
	registration *fleetv1.FleetRegistration
	fleetCluster *fleet.Cluster
	object       client.Object // of the bundle
}

// join makes a cluster from the templates and waits until it is in Fleet and Cluster API
// has done its part too.
func join(t *testing.T, name string) *joined {
	t.Helper()
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: name, Register: true})
	return finishJoin(t, w)
}

func finishJoin(t *testing.T, w *env.Workload) *joined {
	t.Helper()
	g := NewWithT(t)
	j := &joined{Workload: w, registration: suite.EventuallyReady(t, lab, w), fleetCluster: &fleet.Cluster{}}
	g.Expect(lab.Client.Get(t.Context(), j.fleetKey(), j.fleetCluster)).To(Succeed())
	g.Expect(lab.Client.Create(t.Context(), suite.Bundle(w.Namespace, bundle))).To(Succeed())
	deployed := suite.EventuallyDeployed(t, w, bundle)
	j.object = deployed
	eventuallyTrue(t, w.Key(), clusterv1.ClusterAvailableCondition)
	return j
}

func (j *joined) fleetKey() client.ObjectKey {
	return client.ObjectKey{Namespace: j.registration.Spec.FleetCluster.Namespace, Name: j.registration.Spec.FleetCluster.Name}
}

// expectUntouched fails unless the cluster is in Fleet as it was when it had joined: the same
// registration, Fleet Cluster and agent, and nothing was uninstalled.
func (j *joined) expectUntouched(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	registration := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(t.Context(), j.Key(), registration)).To(Succeed())
	g.Expect(registration.UID).To(Equal(j.registration.UID))
	g.Expect(registration.Spec).To(Equal(j.registration.Spec))
	g.Expect(meta.IsStatusConditionTrue(registration.Status.Conditions, fleetv1.ReadyCondition)).To(BeTrue())
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), j.fleetKey(), cluster)).To(Succeed())
	g.Expect(cluster.UID).To(Equal(j.fleetCluster.UID))
	j.expectKept(t)
}

// expectKept fails unless what the bundle deployed is there, and its agent is the first one.
func (j *joined) expectKept(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	object := j.object.DeepCopyObject().(client.Object)
	g.Expect(j.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
	// The in-memory API server gives no UIDs.
	g.Expect(object.GetCreationTimestamp()).To(Equal(j.object.GetCreationTimestamp()))
	j.expectOneCalmAgent(t)
}

// expectOneCalmAgent fails unless one agent was started, uninstalled nothing and was refused
// nothing.
func (j *joined) expectOneCalmAgent(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(j.AgentStarts()).To(HaveLen(1))
	for _, report := range j.AgentReports() {
		g.Expect(report.Uninstalled).To(BeEmpty())
		g.Expect(report.Refused).To(BeEmpty())
	}
}

// writesFor returns what managers wrote for the cluster since the mark.
func (j *joined) writesFor(t *testing.T, since kube.Mark) []kube.Event {
	t.Helper()
	var writes []kube.Event
	own := j.registration.Status.Namespace // also the name of the agent's account
	for _, event := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
		ofAccount := event.Namespace == env.ManagerNamespace && event.Name == own
		if event.Namespace == j.Namespace || event.Namespace == own || ofAccount {
			writes = append(writes, event)
		}
	}
	return writes
}

// clusterOf reads a Cluster.
func clusterOf(g Gomega, t *testing.T, key client.ObjectKey) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), key, cluster)).To(Succeed())
	return cluster
}

// eventuallyTrue waits until a condition of a Cluster is true for its present generation and
// returns the Cluster.
func eventuallyTrue(t *testing.T, key client.ObjectKey, condition string) *clusterv1.Cluster {
	t.Helper()
	var cluster *clusterv1.Cluster
	NewWithT(t).Eventually(func(g Gomega) {
		cluster = clusterOf(g, t, key)
		found := meta.FindStatusCondition(cluster.Status.Conditions, condition)
		g.Expect(found).NotTo(BeNil(), "no condition %s", condition)
		g.Expect(found.Status).To(Equal(metav1.ConditionTrue), "%s: %s", found.Reason, found.Message)
		g.Expect(found.ObservedGeneration).To(Equal(cluster.Generation))
	}).WithTimeout(patience).WithPolling(suite.Poll).Should(Succeed())
	return cluster
}

// controlPlaneOf reads the KubeadmControlPlane of a Cluster.
func controlPlaneOf(g Gomega, t *testing.T, cluster *clusterv1.Cluster) *controlplanev1.KubeadmControlPlane {
	g.Expect(cluster.Spec.ControlPlaneRef.Kind).To(Equal("KubeadmControlPlane"))
	controlPlane := &controlplanev1.KubeadmControlPlane{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}
	g.Expect(lab.Client.Get(t.Context(), key, controlPlane)).To(Succeed())
	return controlPlane
}

// patchSpec changes fields of a Cluster's spec as a user does.
func patchSpec(t *testing.T, key client.ObjectKey, fields map[string]any) {
	t.Helper()
	patch(t, key, map[string]any{"spec": fields})
}

// label gives a Cluster the opt-in label.
func label(t *testing.T, key client.ObjectKey, value string) {
	t.Helper()
	patch(t, key, map[string]any{"metadata": map[string]any{"labels": map[string]string{fleetv1.RegisterLabel: value}}})
}

func patch(t *testing.T, key client.ObjectKey, change map[string]any) {
	t.Helper()
	content, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := lab.Client.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, content)); err != nil {
		t.Fatalf("patching Cluster %s: %v", key, err)
	}
}
