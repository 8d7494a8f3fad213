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

package endpoint

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

const policyServer = "https://policy.example.com"

func settingsOf(agent fleetv1.AgentSettings) fleetv1.FleetRegistrationPolicySpec {
	return fleetv1.FleetRegistrationPolicySpec{
		ManagementCluster: fleetv1.ManagementClusterSource{Server: policyServer},
		Agent:             agent,
	}
}

func allSettings() fleetv1.AgentSettings {
	return fleetv1.AgentSettings{
		Image:                     "policy.example.com/agent:v1",
		ImagePullPolicy:           "Never",
		Registry:                  "unused.example.com",
		ImagePullSecrets:          []string{"policy"},
		Env:                       []fleetv1.EnvVar{{Name: "A", Value: "b"}},
		Proxy:                     fleetv1.ProxySettings{HTTPProxy: "http://proxy", HTTPSProxy: "http://proxy", NoProxy: "10.0.0.0/8"},
		Resources:                 fleetv1.AgentResources{Requests: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("1")}},
		NodeSelector:              map[string]fleetv1.LabelValue{"pool": "infra"},
		Tolerations:               []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}},
		Affinity:                  &corev1.Affinity{},
		Network:                   fleetv1.NetworkHost,
		PriorityClassName:         "high",
		CheckinInterval:           metav1.Duration{Duration: 2 * time.Minute},
		GarbageCollectionInterval: metav1.Duration{Duration: 3 * time.Minute},
		Workers:                   fleetv1.AgentWorkers{BundleDeployment: 7, Drift: 8},
		AdditionalCA:              fleetv1.CASource{ConfigMap: fleetv1.KeyReference{Name: "extra"}},
		Preset:                    fleetv1.PresetStandard,
		Placement:                 fleetv1.PlacementWorkload,
	}
}

func TestAPolicysSettingsComeBeforeFleetsAndTheDefaults(t *testing.T) {
	g := NewWithT(t)
	ca := testCA(t, "extra")
	resolver := &Resolver{
		Reader: newReads(t,
			fleetConfig(`{"systemDefaultRegistry":"fleet.example.com","agentImage":"fleet-agent","agentImagePullPolicy":"Always","agentCheckinInterval":"15m",
				"garbageCollectionInterval":"1h","agentWorkers":{"bundledeployment":"50","drift":"40"},"imagePullSecrets":[{"name":"fleet"}]}`),
			configMap(managerNamespace, "extra", map[string]string{"ca.crt": ca})),
		ManagerNamespace: managerNamespace, FleetNamespace: fleetNamespace,
		Defaults: AgentDefaults{Image: "default", CheckinInterval: time.Minute},
	}
	policy := allSettings()
	got, err := resolver.Resolve(t.Context(), settingsOf(policy))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(fleetv1.AgentSpec{
		ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: policyServer},
		Image:             policy.Image, ImagePullPolicy: policy.ImagePullPolicy, ImagePullSecrets: policy.ImagePullSecrets,
		Env: policy.Env, Proxy: policy.Proxy, Resources: policy.Resources, NodeSelector: policy.NodeSelector,
		Tolerations: policy.Tolerations, Affinity: policy.Affinity, Network: policy.Network, PriorityClassName: policy.PriorityClassName,
		CheckinInterval: policy.CheckinInterval, GarbageCollectionInterval: policy.GarbageCollectionInterval, Workers: policy.Workers,
		AdditionalCAData: []byte(ca),
	}))
}

func TestEverySettingOfAPolicyReachesTheAgent(t *testing.T) {
	ca := testCA(t, "extra")
	resolver := &Resolver{
		Reader:           newReads(t, configMap(managerNamespace, "extra", map[string]string{"ca.crt": ca})),
		ManagerNamespace: managerNamespace, FleetNamespace: fleetNamespace, Defaults: AgentDefaults{Image: "default"},
	}
	resolve := func(g Gomega, settings fleetv1.AgentSettings) fleetv1.AgentSpec {
		agent, err := resolver.Resolve(t.Context(), settingsOf(settings))
		g.Expect(err).NotTo(HaveOccurred())
		return agent
	}
	for field := range reflect.TypeFor[fleetv1.AgentSettings]().Fields() {
		t.Run(field.Name, func(t *testing.T) {
			g := NewWithT(t)
			all := allSettings()
			all.Preset, all.Placement = fleetv1.PresetBootstrap, fleetv1.PlacementManagement
			one := fleetv1.AgentSettings{}
			reflect.ValueOf(&one).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(all).FieldByIndex(field.Index))
			g.Expect(one).NotTo(Equal(fleetv1.AgentSettings{}), "the field is new: set it in allSettings")
			g.Expect(resolve(g, one)).NotTo(Equal(resolve(g, fleetv1.AgentSettings{})))
		})
	}
}

func TestEachSettingHasItsOwnSource(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		policy fleetv1.AgentSettings
		want   fleetv1.AgentSpec
	}{
		"one number of workers each": {
			config: `{"agentWorkers":{"bundledeployment":"50","drift":"40"}}`,
			policy: fleetv1.AgentSettings{Workers: fleetv1.AgentWorkers{Drift: 8}},
			want:   fleetv1.AgentSpec{Image: "default", Workers: fleetv1.AgentWorkers{BundleDeployment: 50, Drift: 8}},
		},
		"Fleet's pull secrets": {
			config: `{"imagePullSecrets":[{"name":"fleet"}]}`,
			want:   fleetv1.AgentSpec{Image: "default", ImagePullSecrets: []string{"fleet"}},
		},
		"the policy's instead of Fleet's pull secrets": {
			config: `{"imagePullSecrets":[{"name":"fleet"}]}`,
			policy: fleetv1.AgentSettings{ImagePullSecrets: []string{"policy"}},
			want:   fleetv1.AgentSpec{Image: "default", ImagePullSecrets: []string{"policy"}},
		},
		"defaults that are named are no change": {
			policy: fleetv1.AgentSettings{Network: fleetv1.NetworkPod, Preset: fleetv1.PresetStandard, Placement: fleetv1.PlacementWorkload},
			want:   fleetv1.AgentSpec{Image: "default"},
		},
		"nor is the network that a preset has": {
			policy: fleetv1.AgentSettings{Network: fleetv1.NetworkHost, Preset: fleetv1.PresetBootstrap},
			want:   fleetv1.AgentSpec{Image: "default", Preset: fleetv1.PresetBootstrap},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			resolver := &Resolver{Reader: newReads(t, fleetConfig(tc.config)), FleetNamespace: fleetNamespace, Defaults: AgentDefaults{Image: "default"}}
			got, err := resolver.Resolve(t.Context(), settingsOf(tc.policy))
			g.Expect(err).NotTo(HaveOccurred())
			tc.want.ManagementCluster.Server = policyServer
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestTheRegistryIsPutBeforeImagesWithoutOne(t *testing.T) {
	const sha = "@sha256:0123"
	for name, tc := range map[string]struct {
		fleet, policy fleetv1.AgentSettings // of Fleet's, only registry and image
		want          string
	}{
		"no registry":                           {fleetv1.AgentSettings{}, fleetv1.AgentSettings{Image: "rancher/agent:v1"}, "rancher/agent:v1"},
		"the policy's image and registry":       {fleetv1.AgentSettings{}, fleetv1.AgentSettings{Image: "rancher/agent:v1", Registry: "r.example.com"}, "r.example.com/rancher/agent:v1"},
		"an image in no folder":                 {fleetv1.AgentSettings{}, fleetv1.AgentSettings{Image: "agent:v1", Registry: "r.example.com"}, "r.example.com/agent:v1"},
		"a registry with a port and a path":     {fleetv1.AgentSettings{}, fleetv1.AgentSettings{Image: "a/agent" + sha, Registry: "r:5000/mirror"}, "r:5000/mirror/a/agent" + sha},
		"the policy's image, Fleet's registry":  {fleetv1.AgentSettings{Registry: "f.example.com"}, fleetv1.AgentSettings{Image: "rancher/agent:v1"}, "f.example.com/rancher/agent:v1"},
		"an image with a registry of its own":   {fleetv1.AgentSettings{Registry: "f.example.com"}, fleetv1.AgentSettings{Image: "ghcr.io/rancher/agent", Registry: "r.example.com"}, "ghcr.io/rancher/agent"},
		"an image of a local registry":          {fleetv1.AgentSettings{}, fleetv1.AgentSettings{Image: "localhost/agent", Registry: "r.example.com"}, "localhost/agent"},
		"an image of a registry with a port":    {fleetv1.AgentSettings{}, fleetv1.AgentSettings{Image: "other:5000/agent", Registry: "r.example.com"}, "other:5000/agent"},
		"Fleet's image, the policy's registry":  {fleetv1.AgentSettings{Image: "rancher/agent:v1"}, fleetv1.AgentSettings{Registry: "r.example.com"}, "r.example.com/rancher/agent:v1"},
		"the policy's registry beats Fleet's":   {fleetv1.AgentSettings{Registry: "f.example.com", Image: "f.example.com/rancher/agent:v1"}, fleetv1.AgentSettings{Registry: "r.example.com"}, "r.example.com/rancher/agent:v1"},
		"Fleet's image of another registry":     {fleetv1.AgentSettings{Registry: "f", Image: "f/ghcr.io/agent"}, fleetv1.AgentSettings{Registry: "r.example.com"}, "ghcr.io/agent"},
		"the manager's image":                   {fleetv1.AgentSettings{}, fleetv1.AgentSettings{Registry: "r.example.com"}, "r.example.com/default"},
		"a registry that is a word, named once": {fleetv1.AgentSettings{}, fleetv1.AgentSettings{Image: "mirror/agent", Registry: "mirror"}, "mirror/agent"},
		"longer than an image can be":           {fleetv1.AgentSettings{Image: strings.Repeat("i", 500)}, fleetv1.AgentSettings{Registry: "r.example.com"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := newReads(t, fleetConfig(`{"systemDefaultRegistry":"`+tc.fleet.Registry+`","agentImage":"`+tc.fleet.Image+`"}`))
			resolver := &Resolver{Reader: reader, FleetNamespace: fleetNamespace, Defaults: AgentDefaults{Image: "default"}}
			got, err := resolver.Resolve(t.Context(), settingsOf(tc.policy))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Image).To(Equal(tc.want))
		})
	}
}

// An agent that starts without a CA that it needs would fail in a way that nobody
// connects with the CA.
func TestAnAgentWaitsForItsAdditionalCA(t *testing.T) {
	for name, tc := range map[string]struct {
		ca      fleetv1.CASource
		message string
	}{
		"missing":    {fleetv1.CASource{Secret: fleetv1.KeyReference{Name: "extra"}}, "Secret manager/extra"},
		"not usable": {fleetv1.CASource{Inline: "rubbish"}, "spec.agent.additionalCA.inline"},
		"no source":  {fleetv1.CASource{Inline: "a", Secret: fleetv1.KeyReference{Name: "extra"}}, "spec.agent.additionalCA must name"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			resolver := &Resolver{Reader: newReads(t), ManagerNamespace: managerNamespace, FleetNamespace: fleetNamespace, Defaults: AgentDefaults{Image: "default"}}
			got, err := resolver.Resolve(t.Context(), settingsOf(fleetv1.AgentSettings{AdditionalCA: tc.ca}))
			var problem *Error
			g.Expect(errors.As(err, &problem)).To(BeTrue(), "got %v", err)
			g.Expect(problem.Reason).To(Equal(fleetv1.CAUnavailableReason))
			g.Expect(problem.Message).To(ContainSubstring(tc.message))
			g.Expect(got).To(Equal(fleetv1.AgentSpec{Image: "default"}))
		})
	}
}

func TestWhatIsResolvedIsNotThePolicysOwn(t *testing.T) {
	g := NewWithT(t)
	resolver := &Resolver{Reader: newReads(t), FleetNamespace: fleetNamespace}
	policy := settingsOf(allSettings())
	policy.Agent.AdditionalCA = fleetv1.CASource{}
	got, err := resolver.Resolve(t.Context(), policy)
	g.Expect(err).NotTo(HaveOccurred())
	got.ImagePullSecrets[0], got.Env[0].Name, got.NodeSelector["pool"], got.Tolerations[0].Key = "x", "x", "x", "x"
	want := allSettings()
	want.AdditionalCA = fleetv1.CASource{}
	g.Expect(policy.Agent).To(Equal(want), "it comes from a cache that others read")
}
