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
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// adopt makes a policy that selects the Cluster and adopts it.
func adopt(t *testing.T, w *env.Workload) {
	t.Helper()
	policy := &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
		Spec: fleetv1.FleetRegistrationPolicySpec{
			ClusterSelector: &metav1.LabelSelector{},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace},
			},
			Adoption: fleetv1.AdoptionAdopt,
		},
	}
	NewWithT(t).Expect(lab.Client.Create(t.Context(), policy)).To(Succeed())
}

// before is what must outlive an adoption.
type before struct {
	stock     *stock
	cluster   *fleet.Cluster
	namespace *corev1.Namespace
	deployed  *corev1.ConfigMap
	deletions func() int32
}

// deployedByFleet adds a cluster that is registered by Fleet itself, with a bundle
// deployed.
func deployedByFleet(t *testing.T, namespace string, opts env.ClusterOptions, modify func(*unstructured.Unstructured)) before {
	t.Helper()
	g := NewWithT(t)
	opts.Namespace = namespace
	w := suite.AddCluster(t, lab, "edge", opts)
	b := before{stock: registerWithFleet(t, w, modify), cluster: &fleet.Cluster{}, namespace: &corev1.Namespace{}}
	b.deployed = deploy(t, w, "shop")
	b.deletions = watchFor(t, w, b.deployed)
	g.Expect(lab.Client.Get(t.Context(), w.Key(), b.cluster)).To(Succeed())
	g.Expect(lab.Client.Get(t.Context(), types.NamespacedName{Name: b.stock.namespace}, b.namespace)).To(Succeed())
	return b
}

// expectAdopted waits until the registration is Ready and our agent reports, and fails
// where anything was lost on the way.
func (b before) expectAdopted(t *testing.T, since kube.Mark) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	w := b.stock.workload
	reg := suite.EventuallyReady(t, lab, w)
	g.Eventually(func(g Gomega) {
		events, err := lab.Management().AuditLog().Since(ctx, since)
		g.Expect(err).NotTo(HaveOccurred())
		account := "system:serviceaccount:" + env.ManagerNamespace + ":" + b.stock.namespace
		g.Expect(kube.By(account, events)).To(ContainElement(SatisfyAll(
			HaveField("Resource", "clusters"), HaveField("Subresource", "status"), HaveField("Verb", "patch"), HaveField("Code", 200))))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed(), "our agent reports")

	cluster, namespace := &fleet.Cluster{}, &corev1.Namespace{}
	g.Expect(lab.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
	g.Expect(cluster.UID).To(Equal(b.cluster.UID))
	g.Expect(cluster.Labels).To(Equal(labelsWith(b.cluster.Labels, fleet.ClusterManagementLabel, "capi-fleet")))
	g.Expect(cluster.Annotations).To(Equal(map[string]string{
		fleetv1.RegistrationIDAnnotation: reg.Spec.RegistrationID, fleetv1.ClusterUIDAnnotation: string(reg.OwnerReferences[0].UID),
	}))
	g.Expect(cluster.Spec.ClientID).NotTo(Or(BeEmpty(), Equal(suite.StockClientID)))
	g.Expect(cluster.Status.Namespace).To(Equal(b.stock.namespace))
	g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(b.namespace), namespace)).To(Succeed())
	g.Expect(namespace.UID).To(Equal(b.namespace.UID))
	g.Expect(reg.Status.NamespaceUID).To(Equal(b.namespace.UID))

	deployed := &corev1.ConfigMap{}
	g.Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(b.deployed), deployed)).To(Succeed())
	g.Expect(deployed.UID).To(Equal(b.deployed.UID))
	g.Expect(b.deletions()).To(BeZero(), "the workload was gone in between")
	g.Expect(b.stock.fights.Load()).To(BeZero(), "Fleet's agent had to put back what was changed too early")
	for _, run := range w.AgentReports() {
		g.Expect(run.Uninstalled).To(BeEmpty())
	}

	g.Expect(suite.AgentSecret(g, ctx, w).Annotations).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, reg.Spec.RegistrationID))
	pods := &corev1.PodList{}
	g.Expect(w.Client.List(ctx, pods, client.MatchingLabels{"app": "fleet-agent"})).To(Succeed())
	g.Expect(pods.Items).To(HaveLen(1), "one agent")
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Namespace: b.stock.namespace, Name: suite.StockAccount}, &corev1.ServiceAccount{})).
		To(Succeed(), "Fleet's old account is left to a person")
	deploy(t, w, "later")
}

func TestAClusterThatFleetRegisteredIsTakenOver(t *testing.T) {
	g := NewWithT(t)
	b := deployedByFleet(t, "stock", env.ClusterOptions{}, nil)
	start := suite.Mark(t, lab)

	adopt(t, b.stock.workload)

	b.expectAdopted(t, start)
	events := &eventsv1.EventList{}
	g.Expect(lab.Client.List(t.Context(), events, client.InNamespace(b.stock.workload.Namespace))).To(Succeed())
	g.Expect(events.Items).To(ContainElement(SatisfyAll(
		HaveField("Reason", "Adopted"), HaveField("Regarding.Kind", "Cluster"), HaveField("Regarding.Name", "edge"))))
}

// expectUntouched fails where the Fleet Cluster, or what belongs to it, was changed since.
func (b before) expectUntouched(t *testing.T, since kube.Mark) {
	t.Helper()
	g := NewWithT(t)
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), b.stock.workload.Key(), cluster)).To(Succeed())
	g.Expect(cluster.Labels).To(Equal(b.cluster.Labels))
	g.Expect(cluster.Annotations).To(Equal(b.cluster.Annotations))
	g.Expect(cluster.Spec).To(Equal(b.cluster.Spec))
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
		if e.Code < 400 && (e.Group == fleet.GroupVersion.Group || e.Namespace == b.stock.namespace) {
			t.Errorf("written: %s %s", e.Verb, e.RequestURI)
		}
	}
	g.Expect(b.stock.workload.AgentStarts()).To(HaveLen(1))
}

// A Cluster can have any name, and its workload cluster a Secret that says anything.
func TestAnotherWorkloadClusterUnderTheNameIsNotAdopted(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	b := deployedByFleet(t, "impostor", env.ClusterOptions{Light: &lightapi.Options{}}, nil)
	w := b.stock.workload
	other := suite.AddCluster(t, lab, "other", env.ClusterOptions{Namespace: w.Namespace + "-other", Light: &lightapi.Options{}})
	lying := suite.RegisterWithFleet(t, lab, other, nil).Secret
	lying.Data["clusterNamespace"], lying.Data["clusterName"] = []byte(w.Namespace), []byte(w.Name)
	g.Expect(other.Client.Update(ctx, lying)).To(Succeed())
	own := w.Kubeconfig()
	g.Expect(w.WriteKubeconfig(ctx, other.Kubeconfig())).To(Succeed())
	start, written := suite.Mark(t, lab), len(other.Light().Writes())

	adopt(t, w)
	reg := suite.EventuallyCondition(t, lab, w, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.AdoptionUnprovenReason)
	g.Expect(reg.Status.Conditions).To(ContainElement(SatisfyAll(
		HaveField("Type", fleetv1.FleetClusterReadyCondition), HaveField("Message", ContainSubstring("does not accept the token")))))
	b.expectUntouched(t, start)
	for _, request := range other.Light().Writes()[written:] {
		g.Expect(request.UserAgent).NotTo(ContainSubstring("cluster.x-k8s.io/"), "%s %s", request.Method, request.Path)
	}

	g.Expect(w.WriteKubeconfig(ctx, own)).To(Succeed())
	b.expectAdopted(t, start)
}

// The deprecated provider owns its Fleet Clusters: it has to let go of one first.
func TestAClusterIsLeftToWhoManagesIt(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	var owner *clusterv1.Cluster
	b := deployedByFleet(t, "owned", env.ClusterOptions{Light: &lightapi.Options{}}, func(cluster *unstructured.Unstructured) {
		owner = &clusterv1.Cluster{}
		g.Expect(lab.Client.Get(ctx, client.ObjectKey{Namespace: "owned", Name: "edge"}, owner)).To(Succeed())
		cluster.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: owner.Name, UID: owner.UID,
		}})
	})
	w := b.stock.workload
	start := suite.Mark(t, lab)

	patch(g, ctx, owner, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, fleetv1.RegisterLabel))
	suite.EventuallyCondition(t, lab, w, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.FleetClusterForeignReason)
	b.expectUntouched(t, start)

	adopt(t, w)
	reg := suite.EventuallyCondition(t, lab, w, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.AdoptionBlockedReason)
	g.Expect(reg.Status.Conditions).To(ContainElement(SatisfyAll(
		HaveField("Type", fleetv1.FleetClusterReadyCondition), HaveField("Message", ContainSubstring("an owner reference to Cluster edge")))))
	b.expectUntouched(t, start)

	patch(g, ctx, &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}, `{"metadata":{"ownerReferences":null}}`)
	// It would be looked at again within half a minute.
	patch(g, ctx, owner, `{"metadata":{"annotations":{"look":"again"}}}`)
	b.expectAdopted(t, start)
}

func patch(g Gomega, ctx context.Context, obj client.Object, data string) {
	g.Expect(lab.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(data)))).To(Succeed())
}

// steps tells of each step of an adoption whether it was reached.
func (b before) steps(ctx context.Context) []adoptionStep {
	cluster := func(g Gomega) *fleet.Cluster {
		live := &fleet.Cluster{}
		g.Expect(lab.Client.Get(ctx, b.stock.workload.Key(), live)).To(Succeed())
		return live
	}
	return []adoptionStep{
		{"marked", func(g Gomega) { g.Expect(cluster(g).Annotations).To(HaveKey(fleetv1.AdoptingAnnotation)) }},
		{"pruned", func(g Gomega) {
			g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(b.stock.bundle()), b.stock.bundle())).To(Satisfy(apierrors.IsNotFound))
		}},
		{"taken", func(g Gomega) { g.Expect(cluster(g).Spec.ClientID).NotTo(Equal(suite.StockClientID)) }},
	}
}

type adoptionStep struct {
	name    string
	reached func(Gomega)
}

func TestAnAdoptionSurvivesCrashesAtEachStep(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	b := deployedByFleet(t, "crashes", env.ClusterOptions{Light: &lightapi.Options{}}, nil)
	start := suite.Mark(t, lab)
	b.stock.holds.Store(true)
	adopt(t, b.stock.workload)

	for i, step := range b.steps(ctx) {
		g.Eventually(step.reached).WithTimeout(suite.Patience).WithPolling(suite.Poll/5).Should(Succeed(), step.name)
		g.Expect(lab.Manager().Kill()).To(Succeed(), fmt.Sprint("crash ", i+1))
		b.stock.holds.Store(false)
		g.Expect(lab.Manager().Start(ctx)).To(Succeed())
	}

	b.expectAdopted(t, start)
}

func TestAnAdoptionIsPausedAtEachStep(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	b := deployedByFleet(t, "pauses", env.ClusterOptions{Light: &lightapi.Options{}}, nil)
	w := b.stock.workload
	start := suite.Mark(t, lab)
	b.stock.holds.Store(true)
	adopt(t, w)

	owner := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	for _, step := range b.steps(ctx) {
		g.Eventually(step.reached).WithTimeout(suite.Patience).WithPolling(suite.Poll/5).Should(Succeed(), step.name)
		patch(g, ctx, owner, `{"spec":{"paused":true}}`)
		suite.EventuallyCondition(t, lab, w, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
		b.expectAtRest(t, step.name)
		b.stock.holds.Store(false)
		patch(g, ctx, owner, `{"spec":{"paused":false}}`)
		suite.EventuallyCondition(t, lab, w, fleetv1.PausedCondition, metav1.ConditionFalse, fleetv1.NotPausedReason)
	}

	b.expectAdopted(t, start)
}

// expectAtRest fails where the manager writes to either cluster, also after a restart.
func (b before) expectAtRest(t *testing.T, when string) {
	t.Helper()
	g := NewWithT(t)
	w := b.stock.workload
	ours := func() []string {
		var paths []string
		for _, request := range w.Light().Writes() {
			if strings.Contains(request.UserAgent, "cluster.x-k8s.io/") {
				paths = append(paths, request.Method+" "+request.Path)
			}
		}
		return paths
	}
	since, visited := suite.Mark(t, lab), ours()
	g.Expect(lab.Manager().Restart(t.Context())).To(Succeed())
	g.Consistently(func() (written []string) {
		for _, e := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
			if e.Namespace == w.Namespace || e.Namespace == b.stock.namespace || e.Name == b.stock.namespace || e.Name == w.Namespace {
				written = append(written, e.Verb+" "+e.RequestURI)
			}
		}
		return written
	}).WithTimeout(3*time.Second).WithPolling(suite.Poll).Should(BeEmpty(), when)
	g.Expect(ours()).To(Equal(visited), when)
}
