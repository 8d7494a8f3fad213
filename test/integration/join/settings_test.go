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

package join

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// allSettings has every setting of an agent, some in another form than an API server
// writes them.
const allSettings = `{
	"image": "rancher/fleet-agent:v9", "registry": "mirror.example.com", "imagePullPolicy": "Always", "imagePullSecrets": ["registry-a"],
	"env": [{"name": "PRICE", "value": "$(NAMESPACE)"}, {"name": "EMPTY"}],
	"proxy": {"httpProxy": "http://proxy-a:3128", "httpsProxy": "http://proxy-a:3128", "noProxy": "10.0.0.0/8"},
	"resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": 2, "memory": "1.5Gi"}},
	"nodeSelector": {"pool": "infra"}, "tolerations": [{"operator": "Exists"}, {"key": "spot", "effect": "NoExecute", "tolerationSeconds": 60}],
	"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}}]},
		"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]}},
	"priorityClassName": "system-cluster-critical", "checkinInterval": "1h", "garbageCollectionInterval": "90m", "workers": {"drift": 3, "bundleDeployment": 4}
}`

// settingsPolicy is a policy that takes the Clusters of the namespace of its name.
func settingsPolicy(t *testing.T, namespace, settings string) *unstructured.Unstructured {
	t.Helper()
	policy := &unstructured.Unstructured{}
	NewWithT(t).Expect(policy.UnmarshalJSON([]byte(`{"apiVersion": "` + fleetv1.GroupVersion.String() + `", "kind": "FleetRegistrationPolicy",
		"metadata": {"name": "` + namespace + `"},
		"spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "` + namespace + `"}}, "agent": ` + settings + `}}`))).To(Succeed())
	return policy
}

func apply(t *testing.T, policy *unstructured.Unstructured) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(policy), client.FieldOwner("test"), client.ForceOwnership)).To(Succeed())
}

func pullSecret(t *testing.T, name, content string) {
	t.Helper()
	NewWithT(t).Expect(lab.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: name},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(content)},
	})).To(Succeed())
}

// lookAgain has the manager visit a workload cluster although no setting has changed:
// the agent's account on the management cluster is another one. It returns what the
// manager wrote there.
func lookAgain(t *testing.T, w *env.Workload) []string {
	t.Helper()
	g := NewWithT(t)
	mark, err := w.ControlPlane().AuditLog().Mark(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	before := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), before)).To(Succeed())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: before.Status.Namespace}}
	g.Expect(lab.Client.Delete(t.Context(), account)).To(Succeed())

	g.Eventually(func(g Gomega) {
		now := &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(t.Context(), w.Key(), now)).To(Succeed())
		g.Expect(now.Status.Credential.ServiceAccountUID).NotTo(Equal(before.Status.Credential.ServiceAccountUID), "the visit is over")
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	events, err := w.ControlPlane().AuditLog().Since(t.Context(), mark)
	g.Expect(err).NotTo(HaveOccurred())
	writes := []string{}
	for _, write := range kube.Writes(events) {
		if write.Namespace == agent.Namespace {
			writes = append(writes, write.Verb+" "+write.Resource+" "+write.Name)
		}
	}
	return writes
}

// eventuallyDeployed waits until the Deployment that a registration asks for is there,
// and returns it.
func eventuallyDeployed(t *testing.T, w *env.Workload, of func(*fleetv1.AgentSpec) bool) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	NewWithT(t).Eventually(func(g Gomega) {
		registration := &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
		g.Expect(of(&registration.Spec.Agent)).To(BeTrue(), "not told yet")
		g.Expect(w.Client.Get(t.Context(), suite.AgentKey, deployment)).To(Succeed())
		g.Expect(deployment.Annotations).To(HaveKeyWithValue(fleetv1.RevisionAnnotation, registration.Status.Agent.Revision))
		deployed := meta.FindStatusCondition(registration.Status.Conditions, fleetv1.AgentDeployedCondition)
		g.Expect(deployment.Spec.Template.Spec.HostNetwork).To(Equal(registration.Spec.Agent.Network == fleetv1.NetworkHost), "%+v", deployed)
		g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal(registration.Spec.Agent.Image))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	return deployment
}

func TestAgentSettingsOnARealAPIServer(t *testing.T) {
	pullSecret(t, "registry-a", `{"auths":{"a":{}}}`)
	t.Run("as it is", func(t *testing.T) {
		testSettings(t, "settings", (*env.Workload).Kubeconfig)
	})
	t.Run("without server-side apply", func(t *testing.T) {
		testSettings(t, "settings-merged", func(w *env.Workload) []byte { return withoutApply(t, w) })
	})
}

// testSettings sets and withdraws settings of the agent in a workload cluster that the
// kubeconfig leads to.
func testSettings(t *testing.T, namespace string, kubeconfig func(*env.Workload) []byte) {
	t.Helper()
	g := NewWithT(t)
	apply(t, settingsPolicy(t, namespace, allSettings))
	// No agent reports, so that it takes what is new at once.
	w := suite.AddCluster(t, lab, "edge", env.ClusterOptions{Namespace: namespace, Register: true, NoKubelet: true, NoKubeconfig: true})
	g.Expect(w.WriteKubeconfig(t.Context(), kubeconfig(w))).To(Succeed())
	all := eventuallyDeployed(t, w, func(a *fleetv1.AgentSpec) bool { return a.Image != "" })
	g.Expect(all.Spec.Template.Spec.Containers[0].Image).To(Equal("mirror.example.com/rancher/fleet-agent:v9"))
	g.Expect(all.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String()).To(Equal("1536Mi"))
	g.Expect(lookAgain(t, w)).To(Equal([]string{"patch secrets fleet-agent"}), "nothing but the credential that was asked for")

	// The network of the node and back: the API server's own fields must not stay.
	apply(t, settingsPolicy(t, namespace, `{"network": "Host", "env": [{"name": "FIRST"}, {"name": "PRICE", "value": "5"}]}`))
	host := eventuallyDeployed(t, w, func(a *fleetv1.AgentSpec) bool { return a.Network == fleetv1.NetworkHost })
	g.Expect(host.Spec.Strategy).To(Equal(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}))
	g.Expect(host.Spec.Template.Spec.Affinity).To(BeNil())
	g.Expect(host.Spec.Template.Spec.NodeSelector).To(Equal(map[string]string{"kubernetes.io/os": "linux"}))
	container := host.Spec.Template.Spec.Containers[0]
	g.Expect(container.Resources).To(BeZero())
	g.Expect(container.Env).To(And(ContainElement(corev1.EnvVar{Name: "PRICE", Value: "5"}), Not(ContainElement(corev1.EnvVar{Name: "CHECKIN_INTERVAL", Value: "1h0m0s"}))))
	g.Expect(w.Client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: "capi-fleet-pull-registry-a"}, &corev1.Secret{})).NotTo(Succeed())

	apply(t, settingsPolicy(t, namespace, allSettings))
	back := eventuallyDeployed(t, w, func(a *fleetv1.AgentSpec) bool { return a.Network == "" })
	g.Expect(back.Spec).To(Equal(all.Spec), "the old settings make the old Deployment")
	g.Expect(lookAgain(t, w)).To(Equal([]string{"patch secrets fleet-agent"}))
}

// withoutApply returns a kubeconfig that leads to the workload cluster through a proxy which
// lets no server-side apply pass.
func withoutApply(t *testing.T, w *env.Workload) []byte {
	t.Helper()
	g := NewWithT(t)
	target, err := url.Parse(w.ControlPlane().URL())
	g.Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(w.Config())
	g.Expect(err).NotTo(HaveOccurred())
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if strings.HasPrefix(request.Header.Get("Content-Type"), "application/apply-patch") {
			http.Error(response, "unsupported", http.StatusUnsupportedMediaType)
			return
		}
		pass.ServeHTTP(response, request)
	}))
	t.Cleanup(proxy.Close)
	config, err := clientcmd.Load(w.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	for _, cluster := range config.Clusters {
		cluster.Server = proxy.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	}
	content, err := clientcmd.Write(*config)
	g.Expect(err).NotTo(HaveOccurred())
	return content
}

// What one policy names reaches the clusters of that policy alone, while Clusters come
// and go between policies.
func TestPullSecretsAndProxiesReachNoOtherCluster(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespaces := []string{"tenant-0", "tenant-1", "tenant-2"}
	var clusters []*env.Workload
	settings := func(of string) string {
		return `{"imagePullSecrets": ["pull-` + of + `"], "proxy": {"httpsProxy": "http://proxy-` + of + `:3128"}}`
	}
	for _, namespace := range namespaces {
		pullSecret(t, "pull-"+namespace, `{"auths":{"`+namespace+`":{}}}`)
		apply(t, settingsPolicy(t, namespace, settings(namespace)))
		clusters = append(clusters, suite.AddCluster(t, lab, "edge", env.ClusterOptions{
			Namespace: namespace, Register: true, NoKubelet: true, Light: &lightapi.Options{},
		}))
	}
	expect := func(w *env.Workload, of string) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			deployment := &appsv1.Deployment{}
			g.Expect(w.Client.Get(t.Context(), suite.AgentKey, deployment)).To(Succeed())
			proxies := slices.DeleteFunc(slices.Clone(deployment.Spec.Template.Spec.Containers[0].Env), func(v corev1.EnvVar) bool { return v.Name != "HTTPS_PROXY" })
			g.Expect(proxies).To(Equal([]corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy-" + of + ":3128"}}))
			g.Expect(deployment.Spec.Template.Spec.ImagePullSecrets).To(Equal([]corev1.LocalObjectReference{{Name: "capi-fleet-pull-pull-" + of}}))
			secrets := &corev1.SecretList{}
			g.Expect(w.Client.List(t.Context(), secrets)).To(Succeed())
			contents := []string{}
			for _, secret := range secrets.Items {
				if content, ok := secret.Data[corev1.DockerConfigJsonKey]; ok {
					contents = append(contents, string(content))
				}
			}
			g.Expect(contents).To(Equal([]string{`{"auths":{"` + of + `":{}}}`}))
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	}
	for round := range 2 * len(namespaces) {
		for i, w := range clusters {
			expect(w, namespaces[(i+round)%len(namespaces)])
		}
		// Each policy gets the next one's settings.
		for i, namespace := range namespaces {
			apply(t, settingsPolicy(t, namespace, settings(namespaces[(i+round+1)%len(namespaces)])))
		}
	}
}
