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
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestTheControlPlaneIsUpgradedAndItsKubeconfigRotated(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const newVersion = "v1.36.0"
	j := join(t, "upgrade")
	oldMachine := controlPlaneMachines(g, t, j)[0].Name
	expiring := expireKubeconfig(t, j)

	patchSpec(t, j.Key(), map[string]any{"topology": map[string]any{"version": newVersion}})

	g.Eventually(func(g Gomega) {
		machines := controlPlaneMachines(g, t, j)
		g.Expect(machines).To(HaveLen(1))
		g.Expect(machines[0].Name).NotTo(Equal(oldMachine))
		g.Expect(machines[0].Spec.Version).To(Equal(newVersion))
		g.Expect(controlPlaneOf(g, t, clusterOf(g, t, j.Key())).Status.Versions).To(ConsistOf(HaveField("Version", newVersion)))
	}).WithTimeout(patience).WithPolling(suite.Poll).Should(Succeed())
	rotated := clientCertificate(g, t, j)
	g.Expect(rotated).NotTo(Equal(expiring), "Cluster API has made a new one")
	eventuallyTrue(t, j.Key(), clusterv1.ClusterAvailableCondition)
	j.expectUntouched(t)

	// The manager gets in by the new one: it reads it, takes the agent away, and the workloads
	// stay. This API server would let it in with the old one too, or with none: see
	// test/integration/rotation for those that ask.
	start := suite.Mark(t, lab)
	label(t, j.Key(), "false")
	suite.EventuallyGone(t, lab, j.Workload)
	g.Expect(j.Client.Get(t.Context(), suite.AgentKey, &appsv1.Deployment{})).To(Satisfy(apierrors.IsNotFound))
	g.Expect(suite.ManagerEvents(t, lab, start)).To(ContainElement(SatisfyAll(HaveField("Verb", "get"), HaveField("Resource", "secrets"),
		HaveField("Namespace", j.Namespace), HaveField("Name", kubeconfigKey(j.Workload).Name))))
	j.expectKept(t)
}

// controlPlaneMachines reads the machines of the control plane.
func controlPlaneMachines(g Gomega, t *testing.T, j *joined) []clusterv1.Machine {
	machines := &clusterv1.MachineList{}
	g.Expect(lab.Client.List(t.Context(), machines,
		client.InNamespace(j.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel})).To(Succeed())
	return machines.Items
}

// expireKubeconfig gives the kubeconfig a certificate that Cluster API finds too near its
// end, and returns it.
func expireKubeconfig(t *testing.T, j *joined) []byte {
	t.Helper()
	g := NewWithT(t)
	found := &corev1.Secret{}
	g.Expect(lab.Client.Get(t.Context(), kubeconfigKey(j.Workload), found)).To(Succeed())
	config, err := clientcmd.Load(found.Data[secret.KubeconfigDataName])
	g.Expect(err).NotTo(HaveOccurred())
	certificate, key := shortLivedCertificate(g)
	for _, user := range config.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData = certificate, key
	}
	found.Data[secret.KubeconfigDataName], err = clientcmd.Write(*config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lab.Client.Update(t.Context(), found)).To(Succeed())
	return certificate
}

// shortLivedCertificate makes a certificate of nobody's, and its key.
func shortLivedCertificate(g Gomega) (certificatePEM, keyPEM []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	keyContent, err := x509.MarshalECPrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyContent})
}

// clientCertificate reads the certificate in the kubeconfig.
func clientCertificate(g Gomega, t *testing.T, j *joined) []byte {
	found := &corev1.Secret{}
	g.Expect(lab.Client.Get(t.Context(), kubeconfigKey(j.Workload), found)).To(Succeed())
	config, err := clientcmd.RESTConfigFromKubeConfig(found.Data[secret.KubeconfigDataName])
	g.Expect(err).NotTo(HaveOccurred())
	return bytes.Clone(config.CertData)
}

func TestScalingIsNoBusinessOfARegistration(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	j := join(t, "scale")
	start := suite.Mark(t, lab)

	patchSpec(t, j.Key(), map[string]any{"topology": map[string]any{
		"controlPlane": map[string]any{"replicas": 3},
		"workers": map[string]any{"machineDeployments": []any{
			map[string]any{"class": "default-worker", "name": "md-0", "replicas": 2},
		}},
	}})
	g.Eventually(func(g Gomega) {
		nodes := &corev1.NodeList{}
		g.Expect(j.Client.List(t.Context(), nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(5))
		g.Expect(clusterOf(g, t, j.Key()).Status.ControlPlane.AvailableReplicas).To(HaveValue(BeEquivalentTo(3)))
	}).WithTimeout(patience).WithPolling(suite.Poll).Should(Succeed())

	patchSpec(t, j.Key(), map[string]any{"topology": map[string]any{
		"controlPlane": map[string]any{"replicas": 1},
		"workers": map[string]any{"machineDeployments": []any{
			map[string]any{"class": "default-worker", "name": "md-0", "replicas": 0},
		}},
	}})
	g.Eventually(func(g Gomega) {
		machines := &clusterv1.MachineList{}
		g.Expect(lab.Client.List(t.Context(), machines, client.InNamespace(j.Namespace))).To(Succeed())
		g.Expect(machines.Items).To(HaveLen(1))
	}).WithTimeout(patience).WithPolling(suite.Poll).Should(Succeed())

	j.expectUntouched(t)
	g.Expect(j.writesFor(t, start)).To(BeEmpty())
}

func TestAPausedClusterIsLeftAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	j := join(t, "paused")

	patchSpec(t, j.Key(), map[string]any{"paused": true})
	eventuallyTrue(t, j.Key(), clusterv1.PausedCondition) // says Cluster API
	suite.EventuallyCondition(t, lab, j.Workload, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
	paused := suite.Mark(t, lab)

	label(t, j.Key(), "false")
	g.Consistently(func() error { return lab.Client.Get(t.Context(), j.Key(), &fleetv1.FleetRegistration{}) }).
		WithTimeout(5 * time.Second).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(j.writesFor(t, paused)).To(BeEmpty())
	g.Expect(j.Client.Get(t.Context(), suite.AgentKey, &appsv1.Deployment{})).To(Succeed())

	patchSpec(t, j.Key(), map[string]any{"paused": false})
	suite.EventuallyGone(t, lab, j.Workload)
	g.Expect(j.Client.Get(t.Context(), suite.AgentKey, &appsv1.Deployment{})).To(Satisfy(apierrors.IsNotFound))
	j.expectKept(t)
}

func TestClusterAPIDeletesAClusterInItsOwnOrder(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	j := join(t, "deletion")
	parts := j.upstreamParts()
	for object, key := range parts {
		g.Expect(lab.Client.Get(t.Context(), key, object)).To(Succeed(), "%T %s", object, key)
	}
	deleted := watchDeletions(t, j.Namespace)

	suite.DeleteCluster(t, lab, j.Workload)

	g.Eventually(deleted.kinds).WithTimeout(patience).WithPolling(suite.Poll).Should(
		Equal([]string{"Machine", "KubeadmControlPlane", "DevCluster", "Cluster"}))
	suite.EventuallyGone(t, lab, j.Workload)
	for object, key := range parts {
		g.Eventually(func() error { return lab.Client.Get(t.Context(), key, object) }).
			WithTimeout(patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound), "%T %s", object, key)
	}
	for _, report := range j.AgentReports() {
		g.Expect(report.Uninstalled).To(BeEmpty(), "what goes with its cluster is not uninstalled before")
	}
}

// upstreamParts are the objects on the management cluster that the registration is made of,
// each with its key, not yet read.
func (j *joined) upstreamParts() map[client.Object]client.ObjectKey {
	name := j.registration.Status.Namespace
	return map[client.Object]client.ObjectKey{
		&fleet.Cluster{}:         j.fleetKey(),
		&corev1.Namespace{}:      {Name: name},
		&corev1.ServiceAccount{}: {Namespace: env.ManagerNamespace, Name: name},
		&rbacv1.Role{}:           {Namespace: j.fleetKey().Namespace, Name: name},
		&rbacv1.RoleBinding{}:    {Namespace: j.fleetKey().Namespace, Name: name},
	}
}

// deletions are the parts of a cluster that have gone.
type deletions struct {
	mu   sync.Mutex
	seen []deletion
}

// deletion is the end of an object.
type deletion struct {
	kind string
	// revision is the place among all changes of the management cluster.
	revision uint64
}

func (d *deletions) add(object client.Object) {
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return // and a kind is missing
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, deletion{object.GetObjectKind().GroupVersionKind().Kind, revision})
}

// kinds returns the kinds, in the order in which they went.
func (d *deletions) kinds() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.seen, func(a, b deletion) int { return cmp.Compare(a.revision, b.revision) })
	kinds := make([]string, 0, len(d.seen))
	for _, seen := range d.seen {
		kinds = append(kinds, seen.kind)
	}
	return kinds
}

// watchDeletions notes when the parts of a cluster go.
func watchDeletions(t *testing.T, namespace string) *deletions {
	t.Helper()
	d := &deletions{}
	for _, kind := range []schema.GroupVersionKind{
		clusterv1.GroupVersion.WithKind("Cluster"),
		clusterv1.GroupVersion.WithKind("Machine"),
		clusterv1.GroupVersionInfrastructure.WithKind("DevCluster"),
		clusterv1.GroupVersionControlPlane.WithKind("KubeadmControlPlane"),
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		w, err := lab.Client.Watch(t.Context(), list, client.InNamespace(namespace))
		if err != nil {
			t.Fatalf("watching every %s: %v", kind.Kind, err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for event := range w.ResultChan() {
				if event.Type == watch.Deleted {
					d.add(event.Object.(client.Object))
				}
			}
		}()
		t.Cleanup(func() {
			w.Stop()
			<-done
		})
	}
	return d
}

func TestAClusterChangesItsClass(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	j := join(t, "rebase")
	class := &clusterv1.ClusterClass{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: j.Namespace, Name: "in-memory"}, class)).To(Succeed())
	other := &clusterv1.ClusterClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: "in-memory-2"},
		Spec:       *class.Spec.DeepCopy(),
	}
	other.Spec.ControlPlane.Metadata.Labels = map[string]string{"class": "in-memory-2"}
	g.Expect(lab.Client.Create(t.Context(), other)).To(Succeed())
	start := suite.Mark(t, lab)

	patchSpec(t, j.Key(), map[string]any{"topology": map[string]any{"classRef": map[string]any{"name": other.Name}}})

	g.Eventually(func(g Gomega) {
		cluster := clusterOf(g, t, j.Key())
		g.Expect(controlPlaneOf(g, t, cluster).Labels).To(HaveKeyWithValue("class", other.Name))
		g.Expect(meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)).To(BeTrue())
	}).WithTimeout(patience).WithPolling(suite.Poll).Should(Succeed())
	eventuallyTrue(t, j.Key(), clusterv1.ClusterAvailableCondition)
	j.expectUntouched(t)
	moved := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), j.Key(), moved)).To(Succeed())
	g.Expect(moved.Labels).To(HaveKeyWithValue(fleetv1.ClassNameLabel, other.Name))
	g.Expect(j.writesFor(t, start)).To(ConsistOf(SatisfyAll(HaveField("Verb", "patch"), HaveField("Group", fleet.GroupVersion.Group),
		HaveField("Resource", "clusters"))), "the labels of the class, in one write")
}
