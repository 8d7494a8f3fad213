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
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func variables(in Input) map[string]string {
	values := map[string]string{}
	for _, v := range container(in).Env {
		values[v.Name] = v.Value
	}
	return values
}

// An API server decodes what it is sent and encodes it again. A value that it would
// write in another way would differ for ever.
func TestValuesAreWrittenAsAnAPIServerWritesThem(t *testing.T) {
	for _, quantity := range []string{"0.5", ".5", "500m", "1", "1.0", "1000m", "1024Mi", "1536Mi", "1e3", "0.1Gi", "1.0000000000001", "+2"} {
		t.Run(quantity, func(t *testing.T) {
			g := NewWithT(t)
			in := everything()
			var fromPolicy resource.Quantity
			g.Expect(json.Unmarshal([]byte(`"`+quantity+`"`), &fromPolicy)).To(Succeed())
			in.Agent.Resources.Limits = map[corev1.ResourceName]resource.Quantity{"cpu": fromPolicy}
			desired, err := ToUnstructured(deployment(in))
			g.Expect(err).NotTo(HaveOccurred())

			sent, err := json.Marshal(desired)
			g.Expect(err).NotTo(HaveOccurred())
			decoded := &appsv1.Deployment{}
			g.Expect(json.Unmarshal(sent, decoded)).To(Succeed())
			live, err := ToUnstructured(decoded)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(Contains(live.Object, desired.Object)).To(BeTrue())
		})
	}
}

// The API server refuses Recreate beside what it filled in itself.
func TestHowADeploymentRollsIsOwnedBeforeItIsTakenAway(t *testing.T) {
	g := NewWithT(t)
	asApplied := func(in Input) *unstructured.Unstructured {
		desired, err := ToUnstructured(deployment(in))
		g.Expect(err).NotTo(HaveOccurred())
		return desired
	}
	filledIn := map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": "25%", "maxUnavailable": "25%"}}
	live := asApplied(minimal())
	g.Expect(unstructured.SetNestedMap(live.Object, filledIn, "spec", "strategy")).To(Succeed())

	g.Expect(Before(live, asApplied(minimal()))).To(BeNil())
	g.Expect(Before(asApplied(onTheHost()), asApplied(onTheHost()))).To(BeNil())
	g.Expect(Before(&unstructured.Unstructured{}, asApplied(onTheHost()))).To(BeNil(), "nothing is there")

	desired := asApplied(onTheHost())
	first := Before(live, desired)
	strategy, _, err := unstructured.NestedMap(first.Object, "spec", "strategy")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strategy).To(Equal(filledIn))
	g.Expect(desired).To(Equal(asApplied(onTheHost())))
	g.Expect(unstructured.SetNestedMap(first.Object, map[string]any{"type": "Recreate"}, "spec", "strategy")).To(Succeed())
	g.Expect(first).To(Equal(desired), "all else is as it shall be")
}

func TestNodeSelectorNeverLeavesLinux(t *testing.T) {
	g := NewWithT(t)
	g.Expect(nodeSelector(fleetv1.AgentSpec{NodeSelector: map[string]fleetv1.LabelValue{"kubernetes.io/os": "windows", "pool": "infra"}})).
		To(Equal(map[string]string{"kubernetes.io/os": "linux", "pool": "infra"}))
}

func TestVariablesAreLiteral(t *testing.T) {
	g := NewWithT(t)
	values := variables(everything())
	g.Expect(values).To(HaveKeyWithValue("PRICE", "$$5 or $$(NAMESPACE)"))
	g.Expect(values).To(HaveKeyWithValue("HTTPS_PROXY", "http://user:pa$$$$word@proxy.example.com:3128"))
	g.Expect(values).To(HaveKeyWithValue("EMPTY", ""))
}

func TestNoProxyIsAskedForTheOwnAPIServer(t *testing.T) {
	g := NewWithT(t)
	in := minimal()
	g.Expect(variables(in)).NotTo(HaveKey("NO_PROXY"))
	in.Agent.Proxy.HTTPSProxy = "http://proxy"
	in.Agent.Env = []fleetv1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.0.0.1"}}
	g.Expect(variables(in)).To(HaveKeyWithValue("NO_PROXY", "$(KUBERNETES_SERVICE_HOST),.svc,.cluster.local"))
	g.Expect(variables(in)).NotTo(HaveKey("HTTP_PROXY"))
	names := []string{}
	for _, v := range container(in).Env {
		names = append(names, v.Name)
	}
	g.Expect(names[len(names)-1]).To(Equal("NO_PROXY"), "the kubelet replaces references to earlier variables only")
}

func TestOnTheHostNothingMeetsTheNodesPorts(t *testing.T) {
	for name, in := range map[string]Input{"host": onTheHost(), "bootstrap": bootstrap()} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := deployment(in)
			pod := d.Spec.Template.Spec
			g.Expect(pod.HostNetwork).To(BeTrue())
			g.Expect(d.Spec.Strategy.Type).To(Equal(appsv1.RecreateDeploymentStrategyType), "two pods would want the same ports")
			values := variables(in)
			probe := pod.Containers[0].LivenessProbe.HTTPGet
			g.Expect(values).To(HaveKeyWithValue("FLEET_AGENT_PROBE_BIND_ADDRESS", probe.Host+":"+probe.Port.String()))
			g.Expect(values["FLEET_AGENT_METRICS_BIND_ADDRESS"]).To(HavePrefix("127.0.0.1:"))
			g.Expect(values["FLEET_AGENT_METRICS_BIND_ADDRESS"]).NotTo(Equal(values["FLEET_AGENT_PROBE_BIND_ADDRESS"]))
			g.Expect(probe.Host).To(Equal("127.0.0.1"))
			for _, taken := range []string{":8080", ":8081"} {
				g.Expect(values["FLEET_AGENT_PROBE_BIND_ADDRESS"] + " " + values["FLEET_AGENT_METRICS_BIND_ADDRESS"]).NotTo(ContainSubstring(taken))
			}
		})
	}
}

func TestDNSIsThereWhereTheAgentIs(t *testing.T) {
	g := NewWithT(t)
	g.Expect(podSpec(minimal()).DNSPolicy).To(BeEmpty())
	g.Expect(podSpec(onTheHost()).DNSPolicy).To(Equal(corev1.DNSClusterFirstWithHostNet))
	g.Expect(podSpec(bootstrap()).DNSPolicy).To(Equal(corev1.DNSDefault), "before there is a CNI there is no DNS of the cluster")
}

func TestBootstrapToleratesNodesThatAreNotReady(t *testing.T) {
	g := NewWithT(t)
	tolerated := func(taint corev1.Taint) bool {
		for _, toleration := range tolerations(bootstrap().Agent) {
			if toleration.Key == taint.Key && (toleration.Effect == "" || toleration.Effect == taint.Effect) &&
				(toleration.Operator == corev1.TolerationOpExists || toleration.Value == taint.Value) {
				return true
			}
		}
		return false
	}
	for _, taint := range []corev1.Taint{
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute},
		{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
	} {
		g.Expect(tolerated(taint)).To(BeTrue(), "%+v", taint)
	}
}

func TestAdditionalCAIsFoundBesideTheSystems(t *testing.T) {
	g := NewWithT(t)
	in := everything()
	dirs := strings.Split(variables(in)["SSL_CERT_DIR"], ":")
	g.Expect(dirs).To(Equal([]string{"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/capi-fleet/ca"}))
	g.Expect(configMap(in).(*corev1.ConfigMap).Data).To(HaveKeyWithValue("ca.crt", string(in.Agent.AdditionalCAData)))
	var mounted *corev1.ConfigMapVolumeSource
	for _, mount := range container(in).VolumeMounts {
		for _, volume := range volumes(in) {
			if mount.MountPath == dirs[2] && volume.Name == mount.Name {
				mounted = volume.ConfigMap
			}
		}
	}
	g.Expect(mounted).NotTo(BeNil())
	g.Expect(mounted.Name).To(Equal(configMap(in).GetName()))
	g.Expect(mounted.Items).To(Equal([]corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}))
}

func TestPullSecretsAreCopiesOfThoseThatTheSettingsName(t *testing.T) {
	g := NewWithT(t)
	in := everything()
	wrong := pullSecret("mirror")
	wrong.Type = corev1.SecretTypeOpaque
	copies, missing := PullSecrets(in, []corev1.Secret{pullSecret("another"), wrong, pullSecret("registry")})
	g.Expect(missing).To(Equal([]string{"mirror"}), "it is no pull secret, whatever it holds")
	g.Expect(copies).To(HaveLen(1))
	g.Expect(copies[0].Namespace).To(Equal(Namespace))
	g.Expect(copies[0].Name).To(Equal("capi-fleet-pull-registry"))
	g.Expect(Ours(copies[0], testRegistrationID)).To(BeTrue())
	g.Expect(copies[0].Labels).To(Equal(Labels()))
	g.Expect(copies[0].Data).To(Equal(map[string][]byte{".dockerconfigjson": []byte(`{"auths":{"registry":{}}}`)}))

	empty := pullSecret("registry")
	empty.Data = nil
	_, missing = PullSecrets(in, []corev1.Secret{empty})
	g.Expect(missing).To(Equal([]string{"registry", "mirror"}))

	names := []string{}
	for _, reference := range podSpec(in).ImagePullSecrets {
		names = append(names, reference.Name)
		g.Expect(IsPullSecret(reference.Name)).To(BeTrue())
	}
	g.Expect(names).To(Equal(PullSecretNames(in)))
	g.Expect(IsPullSecret(Name)).To(BeFalse())
}

func TestContentOfAPullSecretIsNoPartOfTheRevision(t *testing.T) {
	g := NewWithT(t)
	rendered, err := json.Marshal(Objects(everything(), Revision(everything())))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(rendered)).NotTo(ContainSubstring("auths"))
}
