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

package agent

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	testToken          = "first-token"
	testRegistrationID = "0123456789abcdef0123456789abcdef"
)

func minimal() Input {
	return Input{
		RegistrationID:      testRegistrationID,
		FleetCluster:        types.NamespacedName{Namespace: "fleet-default", Name: "foo"},
		ClusterNamespace:    "cluster-fleet-default-foo-323c0d367acd",
		ClusterNamespaceUID: "5d1a7a8e-6a58-4a4e-9a5e-0a8c7d4f3b21",
		Agent: fleetv1.AgentSpec{
			ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: "https://management.example.com:6443"},
			Image:             "rancher/fleet-agent:v0.16.0",
		},
	}
}

func full() Input {
	in := minimal()
	in.Agent = fleetv1.AgentSpec{
		ManagementCluster: fleetv1.ManagementClusterEndpoint{
			Server:                   "https://[2001:db8::1]:6443/k8s/clusters/local",
			CertificateAuthorityData: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		},
		Image:                     "registry.example.com/rancher/fleet-agent:v0.16.0",
		ImagePullPolicy:           "IfNotPresent",
		CheckinInterval:           metav1.Duration{Duration: time.Minute},
		GarbageCollectionInterval: metav1.Duration{Duration: time.Hour},
		Workers:                   fleetv1.AgentWorkers{BundleDeployment: 20, Drift: 5},
	}
	in.TokenDir = "/somewhere/else/"
	return in
}

// everything has every setting of an agent on the network of pods, some of them written
// in an odd way.
func everything() Input {
	in := full()
	in.TokenDir = ""
	agent := &in.Agent
	agent.ImagePullSecrets = []string{"registry", "mirror"}
	agent.Env = []fleetv1.EnvVar{{Name: "GODEBUG", Value: "netdns=go"}, {Name: "PRICE", Value: "$5 or $(NAMESPACE)"}, {Name: "EMPTY"}}
	agent.Proxy = fleetv1.ProxySettings{
		HTTPProxy: "http://proxy.example.com:3128", HTTPSProxy: "http://user:pa$$word@proxy.example.com:3128", NoProxy: "10.0.0.0/8,.internal.example.com",
	}
	agent.Resources = fleetv1.AgentResources{
		Requests: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.5"), "memory": resource.MustParse("1024Mi")},
		Limits:   map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("2000m"), "memory": resource.MustParse("1.5Gi")},
	}
	agent.NodeSelector = map[string]fleetv1.LabelValue{"pool": "infra"}
	agent.Tolerations = []corev1.Toleration{
		{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		{Key: "spot", Value: "yes", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))},
	}
	agent.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight:     1,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "fleet.cattle.io/agent", Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}}}},
		}},
	}}
	agent.PriorityClassName = "system-cluster-critical"
	agent.AdditionalCAData = []byte("-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n")
	return in
}

func onTheHost() Input {
	in := minimal()
	in.Agent.Network = fleetv1.NetworkHost
	return in
}

func bootstrap() Input {
	in := minimal()
	in.Agent.Preset = fleetv1.PresetBootstrap
	in.Agent.Tolerations = []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}}
	return in
}

func goldenInputs() map[string]Input {
	return map[string]Input{
		"minimal": minimal(), "full": full(), "everything": everything(), "host": onTheHost(), "bootstrap": bootstrap(),
		"hosted": hostedMinimal(), "hosted-everything": hostedEverything(),
	}
}

// pullSecret is a Secret in the manager's namespace.
func pullSecret(name string) corev1.Secret {
	return corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "capi-fleet-system", Name: name, UID: "uid", Labels: map[string]string{"team": "platform"}},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"` + name + `":{}}}`), "more": []byte("private")},
	}
}

// written returns all that is written for in.
func written(in Input) []client.Object {
	if in.Agent.Hosted() {
		return writtenHosted(in)
	}
	all := append(Objects(in, Revision(in)), Secret(in, testToken))
	copies, _ := PullSecrets(in, []corev1.Secret{pullSecret("mirror"), pullSecret("registry"), pullSecret("another")})
	for _, secret := range copies {
		all = append(all, secret)
	}
	return all
}

func TestObjectsMatchTheirGoldenFiles(t *testing.T) {
	for name, in := range goldenInputs() {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			for _, obj := range written(in) {
				content, err := ToUnstructured(obj)
				if err != nil {
					t.Fatal(err)
				}
				document, err := yaml.Marshal(content.Object)
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString("---\n")
				got.Write(document)
			}
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("differs from %s; run the test with -update if that is meant (-want +got):\n%s", golden, diff)
			}
		})
	}
}

func TestNamespaceComesFirstAndDeploymentLast(t *testing.T) {
	g := NewWithT(t)
	kinds := []string{}
	for _, obj := range Objects(full(), Revision(full())) {
		kinds = append(kinds, obj.GetObjectKind().GroupVersionKind().Kind)
	}
	g.Expect(kinds).To(Equal([]string{
		"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding",
		"ServiceAccount", "NetworkPolicy", "ConfigMap", "Deployment",
	}))
}

func TestNewTokenChangesNothingButTheSecret(t *testing.T) {
	g := NewWithT(t)
	in := full()
	before, after := Secret(in, "first-token"), Secret(in, "second-token")
	g.Expect(after.Data).NotTo(Equal(before.Data))
	g.Expect(after.ObjectMeta).To(Equal(before.ObjectMeta))
	// The rest is not told the token at all. Nor does the other thing that is new
	// with a recreated cluster namespace reach it.
	recreated := in
	recreated.ClusterNamespaceUID = "other"
	g.Expect(Revision(recreated)).To(Equal(Revision(in)))
	g.Expect(Objects(recreated, Revision(recreated))).To(Equal(Objects(in, Revision(in))))
	g.Expect(Secret(recreated, testToken).Annotations).To(HaveKeyWithValue(fleetv1.NamespaceUIDAnnotation, "other"))

	rendered, err := json.Marshal(Objects(in, Revision(in)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(rendered)).NotTo(ContainSubstring("-token\""))
}

func TestEveryAgentSettingNeedsANewPod(t *testing.T) {
	base := everything()
	changes := map[string]func(*fleetv1.AgentSpec){
		"ManagementCluster.Server":                   func(a *fleetv1.AgentSpec) { a.ManagementCluster.Server = "https://other" },
		"ManagementCluster.CertificateAuthorityData": func(a *fleetv1.AgentSpec) { a.ManagementCluster.CertificateAuthorityData = nil },
		"Image":                     func(a *fleetv1.AgentSpec) { a.Image = "other" },
		"ImagePullPolicy":           func(a *fleetv1.AgentSpec) { a.ImagePullPolicy = "Always" },
		"CheckinInterval":           func(a *fleetv1.AgentSpec) { a.CheckinInterval.Duration = time.Hour },
		"GarbageCollectionInterval": func(a *fleetv1.AgentSpec) { a.GarbageCollectionInterval.Duration = time.Minute },
		"Workers.BundleDeployment":  func(a *fleetv1.AgentSpec) { a.Workers.BundleDeployment = 21 },
		"Workers.Drift":             func(a *fleetv1.AgentSpec) { a.Workers.Drift = 6 },
		"ImagePullSecrets":          func(a *fleetv1.AgentSpec) { a.ImagePullSecrets = []string{"other"} },
		"Env":                       func(a *fleetv1.AgentSpec) { a.Env = []fleetv1.EnvVar{{Name: "A", Value: "b"}} },
		"Proxy.HTTPProxy":           func(a *fleetv1.AgentSpec) { a.Proxy.HTTPProxy = "http://other" },
		"Proxy.HTTPSProxy":          func(a *fleetv1.AgentSpec) { a.Proxy.HTTPSProxy = "http://other" },
		"Proxy.NoProxy":             func(a *fleetv1.AgentSpec) { a.Proxy.NoProxy = "other" },
		"Resources.Requests":        func(a *fleetv1.AgentSpec) { a.Resources.Requests = a.Resources.Limits },
		"Resources.Limits":          func(a *fleetv1.AgentSpec) { a.Resources.Limits = nil },
		"NodeSelector":              func(a *fleetv1.AgentSpec) { a.NodeSelector = map[string]fleetv1.LabelValue{"a": "b"} },
		"Tolerations":               func(a *fleetv1.AgentSpec) { a.Tolerations = a.Tolerations[:1] },
		"Affinity":                  func(a *fleetv1.AgentSpec) { a.Affinity = nil },
		"Network":                   func(a *fleetv1.AgentSpec) { a.Network = fleetv1.NetworkHost },
		"PriorityClassName":         func(a *fleetv1.AgentSpec) { a.PriorityClassName = "" },
		"AdditionalCAData":          func(a *fleetv1.AgentSpec) { a.AdditionalCAData = []byte("other") },
		"Placement":                 func(a *fleetv1.AgentSpec) { a.Placement = fleetv1.PlacementManagement },
		"Preset":                    func(a *fleetv1.AgentSpec) { a.Preset = fleetv1.PresetBootstrap },
	}
	for _, field := range leaves("", reflect.TypeFor[fleetv1.AgentSpec]()) {
		if field == "Manifests" {
			continue // The builder's own version, which shows in what it builds.
		}
		t.Run(field, func(t *testing.T) {
			g := NewWithT(t)
			change, known := changes[field]
			g.Expect(known).To(BeTrue(), "the field is new: say here how to change it")
			changed := everything()
			change(&changed.Agent)
			g.Expect(Revision(changed)).NotTo(Equal(Revision(base)))
			g.Expect(template(changed)).NotTo(Equal(template(base)))
		})
	}
}

// template is that of the agent's pod, wherever it runs.
func template(in Input) corev1.PodTemplateSpec {
	if in.Agent.Hosted() {
		return hostedDeployment(in, Hosting{}).Spec.Template
	}
	return deployment(in).Spec.Template
}

func TestManifestsDifferWhereTheBuilderBuildsOtherObjects(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Manifests("/a")).To(Equal(Manifests("/a")))
	g.Expect(Manifests("/a")).NotTo(Equal(Manifests("/b")))
}

// A builder that makes something else for some agents only is another version all the
// same: else it would change all of them at once, whatever their policy says.
func TestManifestsDifferWhereTheBuilderChangesForSomeAgentsOnly(t *testing.T) {
	pushed := func(a fleetv1.AgentSpec) bool { return !a.Hosted() }
	for name, concerns := range map[string]func(fleetv1.AgentSpec) bool{
		"without settings":        func(a fleetv1.AgentSpec) bool { return pushed(a) && !onHost(a) && a.Image == "" },
		"on the network of pods":  func(a fleetv1.AgentSpec) bool { return pushed(a) && !onHost(a) && a.Image != "" },
		"on the network of nodes": func(a fleetv1.AgentSpec) bool { return a.Network == fleetv1.NetworkHost },
		"of the bootstrap preset": func(a fleetv1.AgentSpec) bool { return a.Preset == fleetv1.PresetBootstrap },
		"hosted":                  func(a fleetv1.AgentSpec) bool { return a.Hosted() && a.Image == "" },
		"hosted with settings":    func(a fleetv1.AgentSpec) bool { return a.Hosted() && a.Image != "" },
		"hosted, without a CA":    func(a fleetv1.AgentSpec) bool { return a.Hosted() && len(a.AdditionalCAData) == 0 },
		"hosted, with a CA":       func(a fleetv1.AgentSpec) bool { return a.Hosted() && len(a.AdditionalCAData) > 0 },
		"on nodes, without a CA":  func(a fleetv1.AgentSpec) bool { return onHost(a) && len(a.AdditionalCAData) == 0 },
		"on nodes, with a proxy":  func(a fleetv1.AgentSpec) bool { return onHost(a) && a.Proxy.HTTPSProxy != "" },
		"on nodes, no proxy":      func(a fleetv1.AgentSpec) bool { return onHost(a) && a.Proxy.HTTPSProxy == "" },
		"that trust the system CA": func(a fleetv1.AgentSpec) bool {
			return pushed(a) && len(a.ManagementCluster.CertificateAuthorityData) == 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := func(in Input) string {
				if concerns(in.Agent) {
					return "of another builder"
				}
				return Revision(in)
			}
			NewWithT(t).Expect(manifests("/a", changed)).NotTo(Equal(Manifests("/a")))
		})
	}
}

func TestManifestsAreMadeFromEverySetting(t *testing.T) {
	for _, field := range leaves("", reflect.TypeFor[fleetv1.AgentSpec]()) {
		switch field {
		case "Manifests", "Network", "Preset", "Placement":
			continue // The builder's own version, and what the kinds of agents differ by.
		}
		value := reflect.ValueOf(everySetting())
		for name := range strings.SplitSeq(field, ".") {
			value = value.FieldByName(name)
		}
		if value.IsZero() {
			t.Errorf("%s is not set", field)
		}
	}
}

func TestARenewedSecretChangesNothingButTheToken(t *testing.T) {
	g := NewWithT(t)
	in := full()
	live := Secret(in, "the-first-token")
	in.TokenDir = "/of/another/version"
	renewed := &corev1.Secret{Data: Renewed(live, "another")}
	g.Expect(renewed.Data).To(Equal(Secret(full(), "another").Data))
	g.Expect(Token(live)).To(Equal("the-first-token"), "what was read stays as it is")

	g.Expect(Renewed(&corev1.Secret{}, "another")).To(Equal(map[string][]byte{"token": []byte("another"), "kubeconfig": nil}))
}

func TestEverySettingIsInAGoldenFile(t *testing.T) {
	for _, field := range leaves("", reflect.TypeFor[fleetv1.AgentSpec]()) {
		if field == "Manifests" {
			continue // The builder's own version, which shows in what it builds.
		}
		set := false
		for _, in := range goldenInputs() {
			value := reflect.ValueOf(in.Agent)
			for name := range strings.SplitSeq(field, ".") {
				value = value.FieldByName(name)
			}
			set = set || !value.IsZero()
		}
		if !set {
			t.Errorf("no input of a golden file sets %s", field)
		}
	}
}

// leaves returns the paths of the fields of a struct that hold a value.
func leaves(prefix string, typ reflect.Type) []string {
	var paths []string
	for field := range typ.Fields() {
		path := prefix + field.Name
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[metav1.Duration]() {
			paths = append(paths, leaves(path+".", field.Type)...)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

func TestRevisionCoversTheRestOfTheInput(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"registration ID":   func(in *Input) { in.RegistrationID = "other" },
		"Fleet Cluster":     func(in *Input) { in.FleetCluster.Name = "other" },
		"workspace":         func(in *Input) { in.FleetCluster.Namespace = "other" },
		"cluster namespace": func(in *Input) { in.ClusterNamespace = "other" },
		"token folder":      func(in *Input) { in.TokenDir = "/other" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			changed := full()
			change(&changed)
			g.Expect(Revision(changed)).NotTo(Equal(Revision(full())))
		})
	}
}

func TestRevisionIsDeterministicAndOnTheDeployment(t *testing.T) {
	g := NewWithT(t)
	revision := Revision(full())
	g.Expect(revision).To(MatchRegexp(`^[0-9a-f]{32}$`))
	for range 20 {
		g.Expect(Revision(full())).To(Equal(revision))
	}
	objects := Objects(full(), Revision(full()))
	g.Expect(objects[len(objects)-1].GetAnnotations()).To(HaveKeyWithValue(fleetv1.RevisionAnnotation, revision))
}

func TestOnlyOurOwnObjectsCarryOurMarks(t *testing.T) {
	for _, obj := range written(everything()) {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		t.Run(kind+" "+obj.GetName(), func(t *testing.T) {
			g := NewWithT(t)
			if kind == "Namespace" || obj.GetName() == "default" {
				g.Expect(obj.GetLabels()).To(BeEmpty())
				g.Expect(obj.GetAnnotations()).To(BeEmpty())
				return
			}
			g.Expect(obj.GetLabels()).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "capi-fleet"))
			g.Expect(Ours(obj, testRegistrationID)).To(BeTrue())
		})
	}
}

func TestApplyOwnsNoFieldThatNobodySet(t *testing.T) {
	for name, in := range goldenInputs() {
		for _, obj := range written(in) {
			content, err := ToUnstructured(obj)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(name+" "+content.GetKind()+" "+content.GetName(), func(t *testing.T) {
				g := NewWithT(t)
				g.Expect(content.GetAPIVersion()).NotTo(BeEmpty())
				g.Expect(content.GetKind()).NotTo(BeEmpty())
				for _, path := range emptyFields("", content.Object) {
					g.Expect(path).To(BeElementOf(
						".spec.template.spec.volumes.emptyDir", // the volume's type
						".spec.podSelector",                    // all pods
						".spec.ingress", ".spec.egress",        // everything
						".data.token", // none, where there was one
					))
				}
			})
		}
	}
}

// emptyFields returns the paths of null, "", {} and [] in content.
func emptyFields(path string, content any) []string {
	var empty []string
	switch value := content.(type) {
	case nil:
		return []string{path}
	case string:
		if value == "" {
			return []string{path}
		}
	case map[string]any:
		if len(value) == 0 {
			return []string{path}
		}
		for key, field := range value {
			empty = append(empty, emptyFields(path+"."+key, field)...)
		}
	case []any:
		if len(value) == 0 {
			return []string{path}
		}
		for _, item := range value {
			empty = append(empty, emptyFields(path, item)...)
		}
	}
	return empty
}

func TestToUnstructuredKeepsWhatHasAMeaning(t *testing.T) {
	g := NewWithT(t)
	content, err := ToUnstructured(networkPolicy(minimal()))
	g.Expect(err).NotTo(HaveOccurred())
	selector, found, err := unstructured.NestedMap(content.Object, "spec", "podSelector")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeTrue())
	g.Expect(selector).To(BeEmpty())
}

func TestKubeconfigLeadsToTheClusterNamespaceWithTokenAndTokenFile(t *testing.T) {
	for name, tc := range map[string]struct {
		in        Input
		tokenFile string
	}{
		"minimal": {minimal(), "/var/run/secrets/capi-fleet/token"},
		"full":    {full(), "/somewhere/else/token"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			loaded, err := clientcmd.NewClientConfigFromBytes(Secret(tc.in, testToken).Data["kubeconfig"])
			g.Expect(err).NotTo(HaveOccurred())
			namespace, _, err := loaded.Namespace()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(namespace).To(Equal(tc.in.ClusterNamespace))

			config, err := loaded.ClientConfig()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(config.BearerToken).To(Equal(testToken))
			g.Expect(config.BearerTokenFile).To(Equal(tc.tokenFile))
			g.Expect(config.Host).To(Equal(tc.in.Agent.ManagementCluster.Server))
			g.Expect(config.CAData).To(Equal(tc.in.Agent.ManagementCluster.CertificateAuthorityData))
			g.Expect(config.Insecure).To(BeFalse())
			g.Expect(config.ExecProvider).To(BeNil())
		})
	}
}

func TestTokenFileOfTheKubeconfigIsMounted(t *testing.T) {
	for name, in := range map[string]Input{"minimal": minimal(), "full": full()} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			secret := Secret(in, testToken)
			kubeconfig, err := clientcmd.Load(secret.Data["kubeconfig"])
			g.Expect(err).NotTo(HaveOccurred())
			wanted := kubeconfig.AuthInfos[kubeconfig.Contexts[kubeconfig.CurrentContext].AuthInfo].TokenFile

			pod := deployment(in).Spec.Template.Spec
			var files []string
			for _, volume := range pod.Volumes {
				if volume.Secret == nil {
					continue
				}
				g.Expect(volume.Secret.SecretName).To(Equal(secret.Name))
				g.Expect(*volume.Secret.DefaultMode&0o004).NotTo(BeZero(), "the agent's user must be able to read the file")
				for _, mount := range pod.Containers[0].VolumeMounts {
					if mount.Name != volume.Name {
						continue
					}
					g.Expect(mount.ReadOnly).To(BeTrue())
					g.Expect(mount.SubPath).To(BeEmpty(), "the kubelet does not renew a sub-path")
					for _, item := range volume.Secret.Items {
						g.Expect(secret.Data).To(HaveKeyWithValue(item.Key, []byte(testToken)))
						files = append(files, mount.MountPath+"/"+item.Path)
					}
				}
			}
			g.Expect(files).To(ConsistOf(wanted))
		})
	}
}

// The checks of the Pod Security standard "restricted" that concern a Linux pod.
func TestPodMeetsTheRestrictedPodSecurityStandard(t *testing.T) {
	g := NewWithT(t)
	pod := deployment(everything()).Spec.Template.Spec

	g.Expect(pod.HostNetwork || pod.HostPID || pod.HostIPC).To(BeFalse())
	g.Expect(pod.SecurityContext.RunAsNonRoot).To(Equal(new(true)))
	g.Expect(pod.SecurityContext.RunAsUser).To(HaveValue(BeNumerically(">", 0)))
	g.Expect(pod.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))
	g.Expect(pod.SecurityContext.Sysctls).To(BeEmpty())
	for _, volume := range pod.Volumes {
		allowed := volume.EmptyDir != nil || volume.Secret != nil || volume.ConfigMap != nil
		g.Expect(allowed).To(BeTrue(), "volume %s", volume.Name)
	}
	g.Expect(pod.InitContainers).To(BeEmpty())
	g.Expect(pod.EphemeralContainers).To(BeEmpty())
	g.Expect(pod.Containers).To(HaveLen(1))
	for _, container := range pod.Containers {
		g.Expect(container.SecurityContext.AllowPrivilegeEscalation).To(Equal(new(false)))
		g.Expect(container.SecurityContext.Privileged).To(Equal(new(false)))
		g.Expect(container.SecurityContext.ReadOnlyRootFilesystem).To(Equal(new(true)))
		g.Expect(container.SecurityContext.Capabilities.Drop).To(ConsistOf(corev1.Capability("ALL")))
		g.Expect(container.SecurityContext.Capabilities.Add).To(BeEmpty())
		g.Expect(container.SecurityContext.SeccompProfile).To(BeNil())
		g.Expect(container.SecurityContext.RunAsUser).To(BeNil())
		g.Expect(container.SecurityContext.ProcMount).To(BeNil())
		for _, port := range container.Ports {
			g.Expect(port.HostPort).To(BeZero())
		}
	}
}

func TestAgentFindsTheSettingsThatItDemands(t *testing.T) {
	for name, tc := range map[string]struct {
		in     Input
		env    map[string]string
		config string
	}{
		"minimal": {
			in:     minimal(),
			env:    map[string]string{"CHECKIN_INTERVAL": ""},
			config: `{}`,
		},
		"full": {
			in: full(),
			env: map[string]string{
				"CHECKIN_INTERVAL":                    "1m0s",
				"BUNDLEDEPLOYMENT_RECONCILER_WORKERS": "20",
				"DRIFT_RECONCILER_WORKERS":            "5",
			},
			config: `{"garbageCollectionInterval":"1h0m0s"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tc.env["NAMESPACE"] = "metadata.namespace"
			tc.env["AGENT_SCOPE"] = ""
			tc.env["CATTLE_ELECTION_LEASE_DURATION"] = "30s"
			tc.env["CATTLE_ELECTION_RETRY_PERIOD"] = "10s"
			tc.env["CATTLE_ELECTION_RENEW_DEADLINE"] = "25s"

			got := map[string]string{}
			for _, env := range deployment(tc.in).Spec.Template.Spec.Containers[0].Env {
				got[env.Name] = env.Value
				if env.ValueFrom != nil {
					got[env.Name] = env.ValueFrom.FieldRef.FieldPath
				}
			}
			g.Expect(got).To(Equal(tc.env))
			g.Expect(configMap(tc.in).(*corev1.ConfigMap).Data).To(Equal(map[string]string{"config": tc.config}))
		})
	}
}

// A probe that is too quick would restart an agent that only waits, and the kubelet
// holds a container back that it restarts again and again within ten minutes.
func TestProbeNeverEndsInABackOff(t *testing.T) {
	g := NewWithT(t)
	probe := deployment(minimal()).Spec.Template.Spec.Containers[0].LivenessProbe
	g.Expect(probe.HTTPGet.Path).To(Equal("/healthz"))
	g.Expect(probe.HTTPGet.Port.IntValue()).To(Equal(8081))
	alive := time.Duration(probe.InitialDelaySeconds+probe.PeriodSeconds*(probe.FailureThreshold-1)) * time.Second
	g.Expect(alive).To(BeNumerically(">", 10*time.Minute))
	g.Expect(alive).To(BeNumerically("<", 20*time.Minute))
}

func TestNetworkPolicyAloneIsOptional(t *testing.T) {
	for _, obj := range append(Objects(full(), Revision(full())), Secret(full(), testToken)) {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		t.Run(kind+" "+obj.GetName(), func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Optional(obj)).To(Equal(kind == "NetworkPolicy"))
			content, err := ToUnstructured(obj)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(Optional(content)).To(Equal(kind == "NetworkPolicy"))
		})
	}
	// Decoding an answer into a typed object empties its kind.
	if !Optional(&networkingv1.NetworkPolicy{}) {
		t.Error("a NetworkPolicy without its kind is not optional")
	}
}

func TestJudgeHolder(t *testing.T) {
	const mine, other = testRegistrationID, "fedcba9876543210fedcba9876543210"
	secret := func(id string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: id}}}
	}
	deployment := func(id string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: id}}}
	}
	stopped := func(id string) *appsv1.Deployment {
		d := deployment(id)
		d.Spec.Replicas = new(int32)
		return d
	}
	for name, tc := range map[string]struct {
		secret     *corev1.Secret
		deployment *appsv1.Deployment
		id         string
		want       Holder
	}{
		"nothing there":                 {nil, nil, mine, HeldByNobody},
		"our Secret, no Deployment yet": {secret(mine), nil, mine, HeldByUs},
		"both ours":                     {secret(mine), deployment(mine), mine, HeldByUs},
		"our Secret, Deployment lost its annotation":       {secret(mine), &appsv1.Deployment{}, mine, HeldByUs},
		"another's Secret":                                 {secret(other), nil, mine, HeldByOther},
		"another's Secret, our Deployment not yet renewed": {secret(other), deployment(mine), mine, HeldByOther},
		"Secret without an annotation":                     {&corev1.Secret{}, nil, mine, HeldByOther},
		"our Deployment lost its Secret":                   {nil, deployment(mine), mine, HeldByUs},
		"another's Deployment":                             {nil, deployment(other), mine, HeldByOther},
		"Fleet's own Deployment":                           {nil, &appsv1.Deployment{}, mine, HeldByOther},
		"no ID to compare with":                            {secret(""), nil, "", HeldByOther},
		"a Deployment that was left behind stopped":        {nil, stopped(other), mine, HeldByNobody},
		"the same, but with a Secret":                      {secret(other), stopped(other), mine, HeldByOther},
		"our own Deployment, stopped":                      {nil, stopped(mine), mine, HeldByUs},
		"Fleet's own Deployment, stopped":                  {nil, stopped(""), mine, HeldByOther},
	} {
		t.Run(name, func(t *testing.T) {
			if got := JudgeHolder(tc.secret, tc.deployment, tc.id); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestLeftoversAreWhatWasPutThere(t *testing.T) {
	g := NewWithT(t)
	key := func(obj client.Object) string {
		return strings.Join([]string{obj.GetObjectKind().GroupVersionKind().Kind, obj.GetNamespace(), obj.GetName()}, "/")
	}
	// The agent makes its Lease itself. The namespace stays, and with it what
	// Kubernetes would make anew.
	want := []string{"Lease/cattle-fleet-system/fleet-agent"}
	for _, obj := range append(Objects(full(), Revision(full())), Secret(full(), testToken)) {
		if obj.GetName() != "default" && obj.GetName() != Namespace {
			want = append(want, key(obj))
		}
	}
	var got []string
	for _, obj := range Leftovers() {
		got = append(got, key(obj))
	}
	g.Expect(got).To(ConsistOf(want))
	g.Expect(got[0]).To(HavePrefix("Deployment/"), "the agent stops first")
	g.Expect(got[len(got)-1]).To(HavePrefix("Secret/"), "what shows that the rest is ours goes last")
}
