//go:build unix

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

package clusterctl

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/cli"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	namespace = "fleet-of-one"
	bundle    = "web"
)

// The cluster of an installation lives through all that clusterctl does to that.
func TestClusterctlTakesAnInstallationFromBeginningToEnd(t *testing.T) {
	g := NewWithT(t)
	before := inventory(g, t.Context(), target)

	initialize(t, source, firstVersion)
	expectInstalled(t, source, firstVersion)
	manager := startManager(t, source, "first")
	w := join(t)
	object := suite.EventuallyDeployed(t, w, bundle)
	registration := suite.EventuallyReady(t, source, w)
	g.Expect(manager.Stop()).To(Succeed())

	upgrade(t)
	startManager(t, source, "next")
	g.Expect(suite.EventuallyReady(t, source, w).UID).To(Equal(registration.UID))
	expectHeartbeats(t, w)
	g.Expect(w.AgentStarts()).To(HaveLen(1), "an upgrade restarts no agent")
	suite.ExpectKept(t, w, bundle, object)

	initialize(t, target, nextVersion)
	manager = startManager(t, target, "target")
	move(t)
	moved := suite.EventuallyReady(t, target, w)
	g.Expect(moved.Spec.RegistrationID).To(Equal(registration.Spec.RegistrationID))
	g.Expect(w.AgentStarts()).To(HaveLen(2))
	suite.ExpectKept(t, w, bundle, object)
	g.Expect(manager.Stop()).To(Succeed())

	said := handBack(t, w)
	remove(t)
	expectLeft(t, w, before, said)
	expectHeartbeats(t, w)
	suite.ExpectKept(t, w, bundle, object)
}

func upgrade(t *testing.T) {
	t.Helper()
	plan := mustClusterctl(t, source, "upgrade", "plan")
	NewWithT(t).Expect(plan).To(MatchRegexp(`addon-fleet\s+capi-fleet-system\s+AddonProvider\s+` + firstVersion + `\s+` + nextVersion))
	mustClusterctl(t, source, "upgrade", "apply", "--addon", "fleet:"+nextVersion)
	expectInstalled(t, source, nextVersion)
}

func move(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	g.Expect(target.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	g.Expect(target.Client.Create(ctx, suite.Bundle(namespace, bundle))).To(Succeed())
	g.Expect(target.Client.Create(ctx, &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}})).To(Succeed())
	typePage(t, source, "operations/move.md")
}

// typePage types what a page says, for our namespace.
func typePage(t *testing.T, lab *env.Lab, page string) {
	t.Helper()
	run := typist(t, lab)
	for _, block := range commandBlocks(t, page) {
		run(strings.ReplaceAll(block, "--namespace default", "--namespace "+namespace))
	}
}

// typist returns what types a block where clusterctl knows the releases.
func typist(t *testing.T, lab *env.Lab) func(block string) {
	t.Helper()
	g := NewWithT(t)
	dir, home := t.TempDir(), t.TempDir()
	config := filepath.Join(home, ".config", "cluster-api")
	g.Expect(os.MkdirAll(config, 0o700)).To(Succeed())
	g.Expect(os.Symlink(release.config, filepath.Join(config, "clusterctl.yaml"))).To(Succeed())
	g.Expect(os.Symlink(target.Management().AdminKubeconfigPath(), filepath.Join(dir, "target.kubeconfig"))).To(Succeed())
	return func(block string) {
		t.Helper()
		runBlock(t, lab, dir, home, block)
	}
}

// remove takes capi-fleet away from target as the page on uninstalling says.
func remove(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	command := []string{"delete", "--addon", "fleet", "--include-crd", "--include-namespace", "--kubeconfig", target.Management().AdminKubeconfigPath()}
	_, err := clusterctl(t, nil, command...)
	g.Expect(err).To(MatchError(ContainSubstring("found existing objects")), "the registrations have to be deleted first")
	typePage(t, target, "operations/uninstall.md")
}

// expectLeft waits until nothing of ours is on target but what was said to stay.
func expectLeft(t *testing.T, w *env.Workload, before, said []string) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		unsaid := slices.DeleteFunc(inventory(g, t.Context(), target), func(name string) bool {
			return slices.Contains(before, name) || slices.Contains(said, name) || isOfOthers(name, w)
		})
		g.Expect(unsaid).To(BeEmpty(), "said to stay: %q", said)
		g.Expect(isInstalled(g, t, target)).To(BeFalse())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// handBack leaves the agent a token and returns what is said to stay.
func handBack(t *testing.T, w *env.Workload) []string {
	t.Helper()
	code, output, _ := suite.Fleetctl(t, target.Management().AdminKubeconfigPath(), "handback", "--mode", "token", "--all", "--all-namespaces", "--denied-ranges", "")
	NewWithT(t).Expect(code).To(Equal(cli.ExitOK))
	var said []string
	for _, line := range regexp.MustCompile(`(?m)^  stays: (?:Fleet )?(\S+) (\S+)`).FindAllStringSubmatch(output, -1) {
		said = append(said, line[1]+" "+line[2])
	}
	NewWithT(t).Expect(said).To(ContainElement("Cluster "+w.Key().String()), "%s", output)
	return said
}

// isOfOthers says whether an object of target is one that a person, Kubernetes, Fleet
// or clusterctl made while capi-fleet was there.
func isOfOthers(name string, w *env.Workload) bool {
	if slices.Contains([]string{
		"Namespace " + namespace,
		"Bundle " + namespace + "/" + bundle,
		"Secret " + w.Key().String() + "-kubeconfig",
		"Namespace capi-system",
		"Provider capi-system/cluster-api",
		"CustomResourceDefinition providers.clusterctl.cluster.x-k8s.io",
		"APIService v1alpha3.clusterctl.cluster.x-k8s.io",
	}, name) {
		return true
	}
	// The account and the bundle of certificates that each namespace is given, and
	// what Fleet makes for its Clusters.
	return strings.HasSuffix(name, "/default") || strings.HasSuffix(name, "/kube-root-ca.crt") ||
		strings.HasPrefix(name, "BundleDeployment ") || strings.HasPrefix(name, "Content ")
}

func TestNothingIsLeftOfAnotherNamespace(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	lab := startLab(t)
	installCore(t, lab)
	before := inventory(g, ctx, lab)
	blocks := commandBlocks(t, "operations/namespace.md")
	g.Expect(blocks).To(HaveLen(2))
	install, remove := blocks[0], blocks[1]
	other := regexp.MustCompile(`--target-namespace (\S+)`).FindStringSubmatch(install)
	g.Expect(other).NotTo(BeNil())

	run := typist(t, lab)
	run(install)
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Namespace: other[1], Name: "capi-fleet-manager"}, &appsv1.Deployment{})).To(Succeed())
	binding := &rbacv1.ClusterRoleBinding{}
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Name: env.ManagerNamespace + "-manager"}, binding)).To(Succeed())
	g.Expect(binding.Subjects).To(ConsistOf(HaveField("Namespace", other[1])))

	run(remove)
	g.Eventually(func(g Gomega) { g.Expect(inventory(g, ctx, lab)).To(Equal(before)) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

func TestProviderIsGeneratedAsClusterctlDemands(t *testing.T) {
	g := NewWithT(t)
	output, err := clusterctl(t, []string{"FLEET_ADDON_LOG_LEVEL=4"}, "generate", "provider", "--addon", "fleet:"+firstVersion)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(output).NotTo(ContainSubstring("${"), "every variable has a default")
	kinds := map[string]int{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(output), 4096)
	for {
		object := &unstructured.Unstructured{}
		if decoder.Decode(object) != nil {
			break
		}
		kinds[object.GetKind()]++
		g.Expect(object.GetLabels()).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, "addon-fleet"), "%s %s", object.GetKind(), object.GetName())
		switch object.GetKind() {
		case "Deployment":
			containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(containers).To(ConsistOf(And(
				HaveKeyWithValue("name", "manager"),
				HaveKeyWithValue("image", image+":"+firstVersion),
				HaveKeyWithValue("args", ContainElements("--v=4", "--fleet-namespace=cattle-fleet-system")),
			)))
		case "CustomResourceDefinition", "Namespace":
		default:
			if object.GetNamespace() == "" {
				g.Expect(object.GetName()).To(HavePrefix(env.ManagerNamespace+"-"), "clusterctl deletes no other %s", object.GetKind())
			}
		}
	}
	g.Expect(kinds).To(And(HaveKeyWithValue("Namespace", 1), HaveKeyWithValue("Deployment", 1), HaveKeyWithValue("CustomResourceDefinition", 2)))
}

func TestAReleaseHasAllItsFiles(t *testing.T) {
	g := NewWithT(t)
	templates, err := filepath.Glob(filepath.Join("..", "..", "..", "templates", "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(templates).NotTo(BeEmpty())
	wanted := []string{"addon-components.yaml", "metadata.yaml"}
	for _, template := range templates {
		wanted = append(wanted, filepath.Base(template))
	}
	files, err := os.ReadDir(filepath.Join(release.dir, "addon-fleet", firstVersion))
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
	}
	g.Expect(names).To(ConsistOf(wanted))
}

func TestVariablesAreDocumented(t *testing.T) {
	g := NewWithT(t)
	output, err := clusterctl(t, nil, "generate", "provider", "--addon", "fleet:"+firstVersion, "--describe")
	g.Expect(err).NotTo(HaveOccurred())
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "flags.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, row[1])
	}
	_, variables, found := strings.Cut(output, "Variables:")
	g.Expect(found).To(BeTrue(), "%s", output)
	variables, _, _ = strings.Cut(variables, "Images:")
	g.Expect(strings.Fields(strings.ReplaceAll(variables, "-", " "))).To(ConsistOf(documented))
	for _, name := range documented {
		g.Expect(name).To(HavePrefix("FLEET_ADDON_"))
	}
}

// expectInstalled fails unless clusterctl knows the version, and the kinds are such that
// it moves them.
func expectInstalled(t *testing.T, lab *env.Lab, version string) {
	t.Helper()
	g := NewWithT(t)
	provider := &unstructured.Unstructured{}
	provider.SetAPIVersion("clusterctl.cluster.x-k8s.io/v1alpha3")
	provider.SetKind("Provider")
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: env.ManagerNamespace, Name: "addon-fleet"}, provider)).To(Succeed())
	g.Expect(provider.Object).To(And(HaveKeyWithValue("version", version), HaveKeyWithValue("type", "AddonProvider")))
	deployment := &appsv1.Deployment{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: env.ManagerNamespace, Name: "capi-fleet-manager"}, deployment)).To(Succeed())
	g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal(image + ":" + version))
	g.Expect(isInstalled(g, t, lab)).To(BeTrue())
}

func isInstalled(g Gomega, t *testing.T, lab *env.Lab) bool {
	t.Helper()
	crds := &metav1.PartialObjectMetadataList{}
	crds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	g.Expect(lab.Client.List(t.Context(), crds, client.MatchingLabels{clusterv1.ProviderNameLabel: "addon-fleet"}, client.HasLabels{"clusterctl.cluster.x-k8s.io"})).To(Succeed())
	return len(crds.Items) == 2
}

// join adds a cluster to source that clusterctl would move, with a bundle for it.
func join(t *testing.T) *env.Workload {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	w := suite.AddCluster(t, source, "edge", env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}, InitializedAfter: -1})
	cluster := &clusterv1.Cluster{}
	g.Expect(source.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ClusterControlPlaneInitializedReason,
	})
	g.Expect(source.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
	g.Expect(source.Client.Create(ctx, suite.Bundle(namespace, bundle))).To(Succeed())
	return w
}

// expectHeartbeats waits for two heartbeats of the cluster's agent from now on.
func expectHeartbeats(t *testing.T, w *env.Workload) {
	t.Helper()
	sent := heartbeats(w)
	NewWithT(t).Eventually(func() int { return heartbeats(w) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).
		Should(BeNumerically(">=", sent+2))
}

func heartbeats(w *env.Workload) int {
	total := 0
	for _, report := range w.AgentReports() {
		total += report.Heartbeats
	}
	return total
}
