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

package uninstall

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/cli"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// TestClustersLiveOnWithoutCapiFleet is one story, since capi-fleet can be removed
// only once.
func TestClustersLiveOnWithoutCapiFleet(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	manager := suite.StartManager(t, lab)
	kept := join(t, "kept", nil)
	given := join(t, "given", &lightapi.Options{})
	dark := join(t, "dark", &lightapi.Options{})
	hostile := join(t, "hostile", &lightapi.Options{})
	foreign := join(t, "foreign", &lightapi.Options{})
	forgotten := join(t, "forgotten", &lightapi.Options{})
	all := []*env.Workload{kept, given, dark, hostile, foreign, forgotten}
	hosted := joinHosted(t, "hosted")

	deployBundle(t, "a: b")
	before := map[string]types.UID{}
	for _, w := range append(all, hosted) {
		suite.EventuallyReady(t, lab, w)
		g.Eventually(func(g Gomega) { before[w.Name] = deployed(g, ctx, w).UID }).
			WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	}
	registrationsGoAlone(t, manager, all)
	suite.EventuallyReady(t, lab, hosted) // its agent was stopped, and is started again
	g.Expect(manager.Stop()).To(Succeed())

	t.Run("a dry run writes nothing", func(t *testing.T) { dryRunWritesNothing(t, kept, given) })
	t.Run("an agent is left a token", func(t *testing.T) { agentIsLeftAToken(t, kept) })
	t.Run("without an address Fleet is given no cluster", func(t *testing.T) { fleetNeedsAnAddress(t, given) })
	t.Run("clusters that cannot be handed over stay as they are", func(t *testing.T) { othersStay(t, dark, hostile, foreign) })
	t.Run("an agent on the management cluster stays as it is", func(t *testing.T) { hostedStays(t, hosted) })
	t.Run("Fleet is given a cluster", func(t *testing.T) { fleetIsGiven(t, given) })
	t.Run("the agent takes the token up", func(t *testing.T) { agentTakesTheTokenUp(t, kept) })

	uninstall(t)

	t.Run("the agent that was left a token goes on", func(t *testing.T) { agentGoesOn(t, kept) })
	t.Run("Fleet's own agent goes on", func(t *testing.T) { fleetGoesOn(t, given) })
	t.Run("an agent on the management cluster has ended", func(t *testing.T) { hostedHasEnded(t, hosted) })
	for _, w := range append(all, hosted) {
		g.Expect(deployed(g, ctx, w).UID).To(Equal(before[w.Name]), "what was deployed to %s stays", w.Name)
		for _, report := range w.AgentReports() {
			g.Expect(report.Uninstalled).To(BeEmpty(), "agent of %s", w.Name)
		}
		g.Expect(fleetClusterOf(g, ctx, w).DeletionTimestamp.IsZero()).To(BeTrue())
	}
	g.Eventually(func(g Gomega) {
		// Those that were left as they are still have their finalizers.
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(fleetv1.GroupVersion.WithKind("FleetRegistrationList"))
		g.Expect(lab.Client.List(ctx, list)).To(Succeed())
		names := []string{}
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		g.Expect(names).To(ConsistOf(dark.Name, hostile.Name, foreign.Name, forgotten.Name, hosted.Name))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	t.Run("the account ends with the Fleet Cluster", func(t *testing.T) { nothingIsLeftOf(t, kept) })
}

// registrationsGoAlone deletes the CRD while the manager still runs, as it does for some
// time where all is deleted at once, and then makes it anew: a manager that is installed
// again takes up what the first one left.
func registrationsGoAlone(t *testing.T, manager *env.Manager, all []*env.Workload) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	registrations, clusters, tokens := map[string]*fleetv1.FleetRegistration{}, map[string]types.UID{}, map[string][]byte{}
	for _, w := range all {
		tokens[w.Name] = suite.AgentSecret(g, ctx, w).Data["token"]
		registrations[w.Name], clusters[w.Name] = registrationOf(g, ctx, w), fleetClusterOf(g, ctx, w).UID
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	key := client.ObjectKey{Name: "fleetregistrations." + fleetv1.GroupVersion.Group}
	g.Expect(lab.Client.Get(ctx, key, crd)).To(Succeed())
	again := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name, Labels: crd.Labels, Annotations: crd.Annotations}, Spec: crd.Spec,
	}

	g.Expect(lab.Client.Delete(ctx, crd)).To(Succeed())
	g.Eventually(func() error { return lab.Client.Get(ctx, key, crd) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound), "no finalizer holds the CRD")
	g.Expect(manager.Stop()).To(Succeed())
	for _, w := range all {
		cluster := fleetClusterOf(g, ctx, w)
		g.Expect(cluster.UID).To(Equal(clusters[w.Name]))
		g.Expect(cluster.DeletionTimestamp.IsZero()).To(BeTrue(), "Fleet Cluster %s", w.Name)
	}

	g.Expect(lab.Client.Create(ctx, again)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(ctx, key, crd)).To(Succeed())
		g.Expect(crd.Status.Conditions).To(ContainElement(And(
			HaveField("Type", apiextensionsv1.Established), HaveField("Status", apiextensionsv1.ConditionTrue))))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(manager.Start(ctx)).To(Succeed())
	for _, w := range all {
		registration := suite.EventuallyReady(t, lab, w)
		g.Expect(registration.UID).NotTo(Equal(registrations[w.Name].UID))
		g.Expect(registration.Spec.RegistrationID).To(Equal(registrations[w.Name].Spec.RegistrationID))
		g.Expect(suite.AgentSecret(g, ctx, w).Data["token"]).To(Equal(tokens[w.Name]), "its agent's token was found again")
		g.Expect(fleetClusterOf(g, ctx, w).UID).To(Equal(clusters[w.Name]))
		for _, report := range w.AgentReports() {
			g.Expect(report.Uninstalled).To(BeEmpty(), "agent of %s", w.Name)
		}
	}
}

func dryRunWritesNothing(t *testing.T, kept, given *env.Workload) {
	g := NewWithT(t)
	start := suite.Mark(t, lab)
	for _, mode := range []string{"token", "fleet"} {
		output, code := handback(t, "--mode", mode, "--dry-run", kept.Name, given.Name)
		g.Expect(code).To(BeZero())
		g.Expect(output).To(And(ContainSubstring(kept.Key().String()), ContainSubstring(given.Key().String())))
	}
	g.Expect(commandWrites(t, start)).To(BeEmpty())
	for _, request := range given.Light().Writes() {
		g.Expect(request.UserAgent).NotTo(HavePrefix("clusterctl-fleet"))
	}
}

// commandWrites are the writes of the command on the management cluster.
func commandWrites(t *testing.T, since kube.Mark) []kube.Event {
	t.Helper()
	events, err := lab.Management().AuditLog().Since(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	return kube.Writes(kube.By(admin, events))
}

func fleetNeedsAnAddress(t *testing.T, given *env.Workload) {
	g := NewWithT(t)
	config := &corev1.ConfigMap{}
	g.Expect(lab.Client.Get(t.Context(), types.NamespacedName{Namespace: "cattle-fleet-system", Name: "fleet-controller"}, config)).To(Succeed())
	without := config.DeepCopy()
	without.Data["config"] = `{"apiServerURL": "", "agentTLSMode": "strict"}`
	g.Expect(lab.Client.Update(t.Context(), without)).To(Succeed())
	start := suite.Mark(t, lab)
	output, code := handback(t, "--mode", "fleet", given.Name)
	g.Expect(code).To(Equal(cli.ExitFailed))
	g.Expect(output).To(ContainSubstring("apiServerURL"))
	g.Expect(commandWrites(t, start)).To(BeEmpty())
	without.Data = config.Data
	g.Expect(lab.Client.Update(t.Context(), without)).To(Succeed())
}

func othersStay(t *testing.T, dark, hostile, foreign *env.Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	g.Expect(dark.StopAPI()).To(Succeed())
	proof := filepath.Join(t.TempDir(), "run")
	g.Expect(hostile.WriteKubeconfig(ctx, withProgram(g, hostile.Kubeconfig(), proof))).To(Succeed())
	secret := suite.AgentSecret(g, ctx, foreign)
	secret.Annotations[fleetv1.RegistrationIDAnnotation] = "someone-else"
	g.Expect(foreign.Client.Update(ctx, secret)).To(Succeed())

	start := suite.Mark(t, lab)
	output, code := handback(t, "--mode", "token", dark.Name, hostile.Name, foreign.Name)
	g.Expect(code).To(Equal(cli.ExitFinding))
	g.Expect(output).To(And(
		MatchRegexp(dark.Key().String()+": NOT DONE: .* cannot be reached"),
		MatchRegexp(hostile.Key().String()+": NOT DONE: KubeconfigExecRefused"),
		MatchRegexp(foreign.Key().String()+": NOT DONE: .* not this registration's"),
		ContainSubstring("3 of 3 clusters"),
	))

	secret.Annotations[fleetv1.RegistrationIDAnnotation] = registrationOf(g, ctx, foreign).Spec.RegistrationID
	secret.Annotations[fleetv1.NamespaceUIDAnnotation] = "that-of-an-earlier-namespace"
	g.Expect(foreign.Client.Update(ctx, secret)).To(Succeed())
	output, code = handback(t, "--mode", "fleet", dark.Name, foreign.Name)
	g.Expect(code).To(Equal(cli.ExitFinding))
	g.Expect(output).To(MatchRegexp(foreign.Key().String() + ": NOT DONE: .* has not been given the present namespace"))
	for _, write := range commandWrites(t, start) {
		g.Expect(write.Namespace).To(BeEmpty(), "%s %s", write.Verb, write.RequestURI)
	}
	_, err := os.Stat(proof)
	g.Expect(err).To(MatchError(os.ErrNotExist), "the program in the kubeconfig has not run")
	g.Expect(suite.AgentSecret(g, ctx, foreign).ResourceVersion).To(Equal(secret.ResourceVersion))
	g.Expect(dark.StartAPI(ctx)).To(Succeed())
}

// withProgram makes a kubeconfig whose user is to be had from a program, which
// leaves a file as proof.
func withProgram(g Gomega, kubeconfig []byte, proof string) []byte {
	config, err := clientcmd.Load(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	for _, user := range config.AuthInfos {
		*user = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "touch", Args: []string{proof},
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	}
	content, err := clientcmd.Write(*config)
	g.Expect(err).NotTo(HaveOccurred())
	return content
}

func fleetIsGiven(t *testing.T, given *env.Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	startDeployment(t)
	// As where the cluster was taken over from Fleet's own registration.
	g.Expect(lab.Client.Status().Patch(ctx, fleetClusterOf(g, ctx, given),
		client.RawPatch(types.MergePatchType, []byte(`{"status":{"agentDeployedGeneration":0}}`)))).To(Succeed())
	before := fleetClusterOf(g, ctx, given)

	start := suite.Mark(t, lab)
	output, code := handback(t, "--mode", "fleet", given.Name)
	g.Expect(code).To(BeZero())
	g.Expect(output).To(And(ContainSubstring("Scaled"), ContainSubstring("stays: ServiceAccount "+env.ManagerNamespace+"/"+before.Status.Namespace)))

	after := &unstructured.Unstructured{}
	after.SetGroupVersionKind(fleet.GroupVersion.WithKind("Cluster"))
	g.Expect(lab.Client.Get(ctx, given.Key(), after)).To(Succeed())
	g.Expect(after.GetLabels()).NotTo(HaveKey(fleet.ClusterManagementLabel))
	g.Expect(after.GetLabels()).NotTo(BeEmpty(), "Fleet fills in no templates for a cluster without labels")
	g.Expect(after.Object["spec"]).To(And(
		HaveKeyWithValue("clientID", before.Spec.ClientID),
		HaveKeyWithValue("kubeConfigSecret", given.Name+"-kubeconfig"),
		HaveKeyWithValue("redeployAgentGeneration", BeEquivalentTo(1)),
	))
	g.Expect(registrationOf(g, ctx, given).Finalizers).To(BeEmpty())

	g.Expect(commandWrites(t, start)).To(HaveExactElements(
		HaveField("Resource", "deployments"),
		HaveField("Resource", "clusters"), HaveField("Resource", "clusters"),
		HaveField("Resource", "fleetregistrations")))
	g.Expect(managerPods(t)).To(BeZero())

	again := suite.Mark(t, lab)
	_, code = handback(t, "--mode", "fleet", given.Name)
	g.Expect(code).To(BeZero())
	g.Expect(commandWrites(t, again)).To(BeEmpty())
	expectHeartbeats(t, given)
	g.Expect(given.AgentStarts()).To(HaveLen(1))

	g.Expect(fleetImports(t, given.Key())).To(BeTrue())
	g.Eventually(given.AgentStarts).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(HaveLen(2))
	expectHeartbeats(t, given)
}

// startDeployment makes the Deployment of the manager, which has pods here though
// nothing runs them.
func startDeployment(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	labels := managerPodLabels
	g.Expect(lab.Client.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: "capi-fleet-manager", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: "manager", Image: "manager",
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	})).To(Succeed())
	g.Eventually(managerPods).WithArguments(t).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Equal(1))
}

// managerPodLabels tell the manager's pods from those of hosted agents.
var managerPodLabels = client.MatchingLabels{"control-plane": "capi-fleet-manager"}

func managerPods(t *testing.T) int {
	t.Helper()
	pods := &corev1.PodList{}
	NewWithT(t).Expect(lab.Client.List(t.Context(), pods, client.InNamespace(env.ManagerNamespace), managerPodLabels)).To(Succeed())
	return len(pods.Items)
}

func agentIsLeftAToken(t *testing.T, kept *env.Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	before := suite.AgentSecret(g, ctx, kept)
	output, code := handback(t, "--mode", "token", kept.Name)
	g.Expect(code).To(BeZero())
	registration := registrationOf(g, ctx, kept)
	g.Expect(output).To(ContainSubstring("stays: ServiceAccount " + registration.Status.Namespace + "/" + registration.Status.Namespace))
	g.Expect(registration.Finalizers).To(BeEmpty())

	pushed := suite.AgentSecret(g, ctx, kept)
	token := string(pushed.Data["token"])
	g.Expect(claims(g, token)).NotTo(ContainSubstring(`"exp"`), "the token does not end")
	g.Expect(string(pushed.Data["kubeconfig"])).To(Equal(
		strings.ReplaceAll(string(before.Data["kubeconfig"]), string(before.Data["token"]), token)))
	g.Expect(fleetClusterOf(g, ctx, kept).Labels).To(HaveKeyWithValue(fleet.ClusterManagementLabel, "capi-fleet"))

	_, code = handback(t, "--mode", "token", kept.Name)
	g.Expect(code).To(BeZero())
	g.Expect(suite.AgentSecret(g, ctx, kept).ResourceVersion).To(Equal(pushed.ResourceVersion))
}

func agentTakesTheTokenUp(t *testing.T, kept *env.Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	user := account(registrationOf(g, ctx, kept).Status.Namespace)
	// It reads the file with the token about once a minute.
	start := suite.Mark(t, lab)
	g.Eventually(func() ([]kube.Event, error) {
		events, err := lab.Management().AuditLog().Since(ctx, start)
		return kube.By(user, events), err
	}).WithTimeout(2*suite.Patience).WithPolling(suite.Poll).Should(ContainElement(And(
		HaveField("Subresource", "status"), HaveField("Code", http.StatusOK))), "a heartbeat with the new token")
}

// account is the user of the account that an agent is left.
func account(namespace string) string { return "system:serviceaccount:" + namespace + ":" + namespace }

// claims is what a token says, as JSON.
func claims(g Gomega, token string) string {
	parts := strings.Split(token, ".")
	g.Expect(parts).To(HaveLen(3))
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	g.Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func agentGoesOn(t *testing.T, kept *env.Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	seen := fleetClusterOf(g, ctx, kept).Status.Agent.LastSeen
	expectHeartbeats(t, kept)
	g.Eventually(func(g Gomega) {
		g.Expect(fleetClusterOf(g, ctx, kept).Status.Agent.LastSeen.After(seen.Time)).To(BeTrue())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())

	was := deployed(g, ctx, kept)
	deployBundle(t, "a: c")
	g.Eventually(func(g Gomega) { g.Expect(deployed(g, ctx, kept).BinaryData).NotTo(Equal(was.BinaryData)) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed(), "a change of the bundle arrives")
	g.Expect(deployed(g, ctx, kept).UID).To(Equal(was.UID))
	g.Expect(kept.AgentStarts()).To(HaveLen(1))
	g.Expect(kept.AgentReports()).To(ConsistOf(And(HaveField("Refused", BeEmpty()), HaveField("Restarts", 0))))

	// An agent that starts anew has no more than the Secret.
	config, err := clientcmd.RESTConfigFromKubeConfig(suite.AgentSecret(g, ctx, kept).Data["kubeconfig"])
	g.Expect(err).NotTo(HaveOccurred())
	config.BearerTokenFile = ""
	agent, err := client.New(config, client.Options{Scheme: env.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	cluster := fleetClusterOf(g, ctx, kept)
	g.Expect(agent.List(ctx, &fleet.BundleDeploymentList{}, client.InNamespace(cluster.Status.Namespace))).To(Succeed())
	takeOver := client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespace":"kube-system"}}`))
	g.Expect(agent.Status().Patch(ctx, cluster, takeOver)).To(Satisfy(apierrors.IsForbidden), "the admission policy has stayed")
}

// fleetGoesOn is about a cluster that Fleet has registered anew.
func fleetGoesOn(t *testing.T, given *env.Workload) {
	g := NewWithT(t)
	expectHeartbeats(t, given)
	was := deployed(g, t.Context(), given)
	deployBundle(t, "a: d")
	g.Eventually(func(g Gomega) { g.Expect(deployed(g, t.Context(), given).BinaryData).NotTo(Equal(was.BinaryData)) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed(), "a change of the bundle arrives")
	g.Expect(given.AgentStarts()).To(HaveLen(2))
	g.Expect(fleetImports(t, given.Key())).To(BeFalse(), "Fleet has nothing more to do")
}

func hostedStays(t *testing.T, hosted *env.Workload) {
	g := NewWithT(t)
	start := suite.Mark(t, lab)
	for _, mode := range []string{"token", "fleet"} {
		output, code := handback(t, "--mode", mode, hosted.Name)
		g.Expect(code).To(Equal(cli.ExitFinding))
		g.Expect(output).To(MatchRegexp(hosted.Key().String() + ": NOT DONE: its agent runs on the management cluster"))
	}
	for _, write := range commandWrites(t, start) {
		g.Expect(write.Namespace).To(BeEmpty(), "%s %s", write.Verb, write.RequestURI)
	}
	expectHeartbeats(t, hosted)
}

// hostedHasEnded is about an agent whose pod was in the manager's namespace.
func hostedHasEnded(t *testing.T, hosted *env.Workload) {
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(lab.Client.List(t.Context(), pods, client.InNamespace(env.ManagerNamespace))).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	bundleDeployments := &fleet.BundleDeploymentList{}
	g.Expect(lab.Client.List(t.Context(), bundleDeployments, client.InNamespace(fleetClusterOf(g, t.Context(), hosted).Status.Namespace))).To(Succeed())
	g.Expect(bundleDeployments.Items).To(HaveLen(1))
}

func nothingIsLeftOf(t *testing.T, kept *env.Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	cluster := fleetClusterOf(g, ctx, kept)
	name := cluster.Status.Namespace
	left := metav1.ObjectMeta{Namespace: kept.Namespace, Name: "capi-fleet-left-" + name}
	objects := []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: left.Name}},
		&rbacv1.Role{ObjectMeta: left},
		&rbacv1.RoleBinding{ObjectMeta: left},
	}
	for _, object := range objects {
		g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
	}
	g.Expect(lab.Client.Delete(ctx, cluster)).To(Succeed())
	for _, object := range objects {
		g.Eventually(func() error { return lab.Client.Get(ctx, client.ObjectKeyFromObject(object), object) }).
			WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound), "%T", object)
	}
}
