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

package howto

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/docs"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// elsewhere are the pages whose blocks another package of tests runs.
var elsewhere = map[string]string{
	"quick-start.md":          "test/integration/clusterctl",
	"operations/move.md":      "test/integration/clusterctl",
	"operations/uninstall.md": "test/integration/clusterctl",
	"operations/namespace.md": "test/integration/clusterctl",
	"development/lab.md":      "test/integration/clusterctl",
	"../README.md":            "test/integration/clusterctl",
}

// aboutOne are the pages that say what to type for one registered Cluster, in an order in
// which one after another can be typed. The last one ends the registration.
var aboutOne = []string{
	"reference/conditions.md",
	"operations/monitoring.md",
	"concepts/registration.md",
	"concepts/credentials.md",
	"concepts/safety.md",
	"concepts/security.md",
	"concepts/leaving.md",
}

// here are the tests of this package by their pages.
var here = map[string]func(*testing.T){
	"how-to/opt-in.md":                   optIn,
	"how-to/leave.md":                    leave,
	"how-to/policies.md":                 policies,
	"how-to/groups.md":                   groups,
	"how-to/rotation.md":                 rotation,
	"how-to/staged-upgrades.md":          stagedUpgrades,
	"how-to/air-gap.md":                  airGap,
	"how-to/from-stock.md":               fromStock,
	"how-to/from-deprecated-provider.md": fromDeprecatedProvider,
	"operations/by-hand.md":              byHand,
	"operations/orphans.md":              orphans,
}

func TestHowTosWorkAsTheyAreWritten(t *testing.T) {
	for page, test := range here {
		t.Run(page, func(t *testing.T) {
			t.Parallel() // each has namespaces of its own
			test(t)
		})
	}
}

func TestWhatPagesSayOfARegistrationCanBeTyped(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "concepts"
	w := add(t, namespace, "edge-1", map[string]string{fleetv1.RegisterLabel: "true"})
	suite.EventuallyReady(t, lab, w)
	registration := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
	annotated := func(key, value string) step {
		return func(t *testing.T) {
			t.Helper()
			g := NewWithT(t)
			live := &fleetv1.FleetRegistration{}
			g.Expect(lab.Client.Get(t.Context(), w.Key(), live)).To(Succeed())
			g.Expect(live.Annotations).To(HaveKeyWithValue(key, value))
		}
	}
	steps := map[string]map[string]step{
		"concepts/safety.md": {
			"uid=": func(t *testing.T) {
				t.Helper()
				annotated(fleetv1.StartWithoutBundlesAnnotation, string(registration.Status.NamespaceUID))(t)
			},
		},
		"concepts/security.md": {
			"account=": func(t *testing.T) {
				t.Helper()
				g := NewWithT(t)
				account := &corev1.ServiceAccount{}
				key := client.ObjectKey{Namespace: env.ManagerNamespace, Name: registration.Status.Namespace}
				g.Expect(lab.Client.Get(t.Context(), key, account)).To(Satisfy(apierrors.IsNotFound), "paused, it is not made anew")
				live := &fleetv1.FleetRegistration{}
				g.Expect(lab.Client.Get(t.Context(), w.Key(), live)).To(Succeed())
				resumed := client.MergeFrom(live.DeepCopy())
				delete(live.Annotations, clusterv1.PausedAnnotation)
				g.Expect(lab.Client.Patch(t.Context(), live, resumed)).To(Succeed())
				g.Eventually(lab.Client.Get).WithContext(t.Context()).WithArguments(key, account).
					WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed(), "when the pause ends")
			},
		},
	}
	for _, page := range aboutOne {
		runPageIn(t, namespace, page, steps[page])
	}
	suite.EventuallyGone(t, lab, w)
}

func TestEveryBlockIsTypedOrSaysWhyNot(t *testing.T) {
	g := NewWithT(t)
	typed := map[string]bool{}
	for page := range here {
		typed[page] = true
	}
	for _, page := range aboutOne {
		typed[page] = true
	}
	for page, pkg := range elsewhere {
		typed[page] = true
		g.Expect(sources(g, pkg)).To(MatchRegexp(`\b(commandBlocks|typePage)\([^)\n]*"`+regexp.QuoteMeta(page)+`"`), "%s does not type %s", pkg, page)
	}
	pages, err := docs.Pages(root)
	g.Expect(err).NotTo(HaveOccurred())
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		for _, block := range commandBlocks(t, page) {
			if block.NotRun == "" && !typed[page] {
				t.Errorf("%s: no test types this page, and it does not say why: <!-- not run: why -->", block)
			}
		}
	}
}

// sources are the files of a package of tests.
func sources(g *WithT, pkg string) string {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*_test.go"))
	g.Expect(err).NotTo(HaveOccurred())
	var all []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, content...)
	}
	return string(all)
}

func optIn(t *testing.T) {
	add(t, "default", "edge-1", nil)
	other := add(t, "team-a", "edge-1", nil)
	out := add(t, "team-a", "edge-2", nil)
	runPage(t, "how-to/opt-in.md", nil)
	suite.EventuallyReady(t, lab, other)
	registrations := &fleetv1.FleetRegistrationList{}
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.List(t.Context(), registrations, client.InNamespace(out.Namespace))).To(Succeed())
		g.Expect(registrations.Items).To(HaveLen(1))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

func leave(t *testing.T) {
	g := NewWithT(t)
	w := add(t, "team-b", "edge-1", map[string]string{fleetv1.RegisterLabel: "true"})
	g.Expect(lab.Client.Create(t.Context(), suite.Bundle(w.Namespace, "web"))).To(Succeed())
	suite.EventuallyReady(t, lab, w)
	object := suite.EventuallyDeployed(t, w, "web")
	runPage(t, "how-to/leave.md", map[string]step{
		"kubectl label clusters.cluster.x-k8s.io --namespace team-b edge-1 --overwrite fleet.addons.cluster.x-k8s.io/register=false": func(t *testing.T) {
			suite.ExpectKept(t, w, "web", object)
		},
	})
	suite.ExpectKept(t, w, "web", object)
}

func policies(t *testing.T) {
	add(t, "retail", "edge-1", nil)
	runPage(t, "how-to/policies.md", nil)
}

func groups(t *testing.T) {
	g := NewWithT(t)
	template := clusterv1.ClusterClassTemplateReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevClusterTemplate", Name: "line"}
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-classes", Name: "line"}}
	class.Spec.Infrastructure.TemplateRef = template
	class.Spec.ControlPlane.TemplateRef = template
	g.Expect(lab.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: class.Namespace}})).To(Succeed())
	g.Expect(lab.Client.Create(t.Context(), class)).To(Succeed())
	suite.AddCluster(t, lab, "edge-1", env.ClusterOptions{Namespace: "factory", Light: &lightapi.Options{}, Modify: func(c *clusterv1.Cluster) {
		c.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: class.Namespace, Name: class.Name}
		c.Spec.Topology.Version = "v1.36.0"
	}})
	runPage(t, "how-to/groups.md", nil)
}

func rotation(t *testing.T) {
	g := NewWithT(t)
	w := add(t, "bank", "edge-1", map[string]string{fleetv1.RegisterLabel: "true"})
	suite.EventuallyReady(t, lab, w)
	token := func() string { return string(suite.AgentSecret(g, t.Context(), w).Data["token"]) }
	last := token()
	renewed := func(t *testing.T) {
		t.Helper()
		NewWithT(t).Eventually(token).WithTimeout(2 * suite.Patience).WithPolling(suite.Poll).ShouldNot(Equal(last))
		last = token()
	}
	runPage(t, "how-to/rotation.md", map[string]step{"clusterctl fleet rotate": renewed, "account=": renewed})
	suite.EventuallyReady(t, lab, w)
}

func stagedUpgrades(t *testing.T) {
	canary := add(t, "stores", "edge-1", map[string]string{"stage": "canary"})
	store := add(t, "stores", "edge-2", map[string]string{"stage": "store"})
	const image = "rancher/fleet-agent:v0.99.0"
	runs := func(t *testing.T, w *env.Workload, image string) {
		t.Helper()
		NewWithT(t).Eventually(func(g Gomega) {
			registration := &fleetv1.FleetRegistration{}
			g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
			g.Expect(registration.Spec.Agent.Image).To(Equal(image))
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	}
	var before string
	runPage(t, "how-to/staged-upgrades.md", map[string]step{
		"kubectl apply": func(t *testing.T) {
			before = suite.EventuallyReady(t, lab, store).Spec.Agent.Image
			suite.EventuallyReady(t, lab, canary)
		},
		"helm upgrade": func(t *testing.T) {
			setFleetImage(t, image)
			runs(t, canary, image)
		},
		"kubectl wait fleetregpolicy canary": func(t *testing.T) { runs(t, store, before) },
	})
	runs(t, store, image)
}

func airGap(t *testing.T) {
	g := NewWithT(t)
	pulls := add(t, "islands", "edge-1", nil)
	hosted := add(t, "islands", "edge-2", nil)
	runPage(t, "how-to/air-gap.md", nil)
	registration := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(t.Context(), hosted.Key(), registration)).To(Succeed())
	g.Expect(registration.Status.Agent.Placement).To(Equal(fleetv1.PlacementManagement))
	g.Expect(hosted.AgentStarts()).To(BeEmpty())
	g.Expect(lab.Client.Get(t.Context(), pulls.Key(), registration)).To(Succeed())
	g.Expect(registration.Spec.Agent.Image).To(HavePrefix("registry.example.org/"))
	secrets := &corev1.SecretList{}
	g.Expect(pulls.Client.List(t.Context(), secrets, client.InNamespace(suite.AgentKey.Namespace))).To(Succeed())
	g.Expect(secrets.Items).To(ContainElement(HaveField("Name", "capi-fleet-pull-mirror")))
}

func fromStock(t *testing.T) {
	w := add(t, "legacy", "edge-1", nil)
	before := registerWithFleet(t, w, nil)
	runPage(t, "how-to/from-stock.md", nil)
	expectTakenOver(t, before)
}

func fromDeprecatedProvider(t *testing.T) {
	g := NewWithT(t)
	const finalizer = "fleet.addons.cluster.x-k8s.io"
	w := add(t, "former", "edge-1", nil)
	cluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
	owned := client.MergeFrom(cluster.DeepCopy())
	cluster.Finalizers = append(cluster.Finalizers, finalizer, "example.org/keep")
	g.Expect(lab.Client.Patch(t.Context(), cluster, owned)).To(Succeed())
	before := registerWithFleet(t, w, []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID},
	})
	runPage(t, "how-to/from-deprecated-provider.md", nil)
	expectTakenOver(t, before)
	g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
	g.Expect(cluster.Finalizers).To(ConsistOf("example.org/keep"))
}

func byHand(t *testing.T) {
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "edge-1", env.ClusterOptions{Namespace: "remote", NoKubelet: true})
	runPage(t, "operations/by-hand.md", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- agentsim.New(agentsim.Options{Workload: w.Config(), InitialHeartbeat: time.Millisecond}).Run(ctx)
	}()
	defer func() {
		cancel()
		g.Expect(<-ended).To(Or(Succeed(), MatchError(context.Canceled)))
	}()
	g.Eventually(func(g Gomega) {
		cluster := &fleet.Cluster{}
		g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
		g.Expect(cluster.Status.Agent.LastSeen.IsZero()).To(BeFalse(), "no heartbeat arrived")
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// orphans has an orphan whose agent's account ended a while ago, as when an earlier run of
// the command broke off: the page says that nothing is waited for anew then.
func orphans(t *testing.T) {
	g := NewWithT(t)
	cluster := &fleet.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "my-namespace",
			Name:        "edge-1",
			Labels:      map[string]string{fleet.ClusterManagementLabel: upstream.ManagementLabelValue, fleetv1.OrphanLabel: "true"},
			Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: upstream.NewID(), fleetv1.AccessEndedAnnotation: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)},
		},
		Spec: fleet.ClusterSpec{ClientID: "of-nobody"},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace:   env.ManagerNamespace,
		Name:        "cluster-of-nobody",
		Labels:      map[string]string{upstream.ManagedByLabel: upstream.FieldOwner},
		Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: upstream.NewID()},
	}}
	for _, obj := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}, cluster, account} {
		g.Expect(lab.Client.Create(t.Context(), obj)).To(Succeed())
	}
	gone := func(obj client.Object) step {
		return func(t *testing.T) {
			t.Helper()
			NewWithT(t).Eventually(func() error {
				return lab.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
			}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
		}
	}
	runPage(t, "operations/orphans.md", map[string]step{
		"clusterctl fleet orphans --delete edge-1": gone(cluster),
		"clusterctl fleet orphans --delete --all":  gone(account),
	})
}

// add adds a Cluster with a light API server.
func add(t *testing.T, namespace, name string, labels map[string]string) *env.Workload {
	t.Helper()
	return suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Labels: labels, Light: &lightapi.Options{}})
}

// setFleetImage changes the agents' image in Fleet's configuration, as its upgrade does.
func setFleetImage(t *testing.T, image string) {
	t.Helper()
	g := NewWithT(t)
	configMap := &corev1.ConfigMap{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: fleet.DefaultAgentNamespace, Name: "fleet-controller"}, configMap)).To(Succeed())
	config := map[string]any{}
	g.Expect(json.NewDecoder(bytes.NewBufferString(configMap.Data["config"])).Decode(&config)).To(Succeed())
	config["agentImage"] = image
	content, err := json.Marshal(config)
	g.Expect(err).NotTo(HaveOccurred())
	configMap.Data["config"] = string(content)
	g.Expect(lab.Client.Update(t.Context(), configMap)).To(Succeed())
}

// registerWithFleet registers a cluster with Fleet and returns its Fleet Cluster.
func registerWithFleet(t *testing.T, w *env.Workload, owners []metav1.OwnerReference) *fleet.Cluster {
	t.Helper()
	suite.RegisterWithFleet(t, lab, w, func(cluster *unstructured.Unstructured) { cluster.SetOwnerReferences(owners) })
	cluster := &fleet.Cluster{}
	NewWithT(t).Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
	return cluster
}

// expectTakenOver fails unless the Fleet Cluster of before belongs to a registration.
func expectTakenOver(t *testing.T, before *fleet.Cluster) {
	t.Helper()
	g := NewWithT(t)
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), types.NamespacedName{Namespace: before.Namespace, Name: before.Name}, cluster)).To(Succeed())
	g.Expect(cluster.UID).To(Equal(before.UID))
	g.Expect(cluster.Labels).To(HaveKeyWithValue("env", "prod"))
	g.Expect(cluster.Labels).To(HaveKeyWithValue(fleet.ClusterManagementLabel, "capi-fleet"))
	g.Expect(cluster.Annotations).To(HaveKey(fleetv1.RegistrationIDAnnotation))
}
