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
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

const (
	managerNamespace = "manager"
	fleetNamespace   = "fleet"

	fleetRead       = "ConfigMap fleet/fleet-controller"
	clusterInfoRead = "ConfigMap kube-public/cluster-info"
)

// reads is a client that has some objects, records what is read by name and fails
// the test for anything else.
type reads struct {
	client.Client
	names []string
	fail  error // what every read answers, if set
}

func newReads(t *testing.T, objects ...client.Object) *reads {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &reads{}
	r.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			kind := "ConfigMap"
			if _, ok := obj.(*corev1.Secret); ok {
				kind = "Secret"
			}
			r.names = append(r.names, kind+" "+key.String())
			if r.fail != nil {
				return r.fail
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			t.Error("something is listed")
			return errors.New("refused")
		},
	}).Build()
	return r
}

func configMap(namespace, name string, data map[string]string) client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

func fleetConfig(config string) client.Object {
	return configMap(fleetNamespace, "fleet-controller", map[string]string{"config": config})
}

func clusterInfoConfig(kubeconfig string) client.Object {
	return configMap("kube-public", "cluster-info", map[string]string{"kubeconfig": kubeconfig})
}

func caSecret(key, value string) client.Object {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "ca"},
		Data:       map[string][]byte{key: []byte(value)},
	}
}

// from returns a policy that names an address.
func from(source fleetv1.ManagementClusterSource) fleetv1.FleetRegistrationPolicySpec {
	return fleetv1.FleetRegistrationPolicySpec{ManagementCluster: source}
}

func TestResolve(t *testing.T) {
	ca, otherCA, publicCA := testCA(t, "ca"), testCA(t, "other"), testCA(t, "public")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(publicCA))
	base64CA := base64.StdEncoding.EncodeToString([]byte(ca))
	base64Public := base64.StdEncoding.EncodeToString([]byte(publicCA))

	const policyServer, fleetServer, ownServer = "https://policy.example.com", "https://fleet.example.com:6443/path", "https://[2001:db8::1]:6443"
	inline := func(ca string) fleetv1.ManagementClusterSource {
		return fleetv1.ManagementClusterSource{Server: policyServer, CA: fleetv1.CASource{Inline: ca}}
	}
	fromConfigMap := func(name, key string) fleetv1.ManagementClusterSource {
		return fleetv1.ManagementClusterSource{Server: policyServer, CA: fleetv1.CASource{ConfigMap: fleetv1.KeyReference{Name: name, Key: key}}}
	}
	fromSecret := func(name, key string) fleetv1.ManagementClusterSource {
		return fleetv1.ManagementClusterSource{Server: policyServer, CA: fleetv1.CASource{Secret: fleetv1.KeyReference{Name: name, Key: key}}}
	}
	at := func(server, ca string) fleetv1.ManagementClusterEndpoint {
		endpoint := fleetv1.ManagementClusterEndpoint{Server: server}
		if ca != "" {
			endpoint.CertificateAuthorityData = []byte(ca)
		}
		return endpoint
	}

	for name, tc := range map[string]struct {
		objects []client.Object
		source  fleetv1.ManagementClusterSource
		want    fleetv1.ManagementClusterEndpoint
		reads   []string
		reason  string
		message string
		noImage bool
	}{
		"a policy's address comes before all": {
			objects: []client.Object{fleetConfig(`{"apiServerURL":"` + fleetServer + `"}`), clusterInfoConfig(kubeconfigOf(ownServer, otherCA))},
			source:  inline(ca),
			want:    at(policyServer, ca),
			reads:   []string{fleetRead},
		},
		"a policy's address without a CA": {
			source: fleetv1.ManagementClusterSource{Server: policyServer},
			want:   at(policyServer, ""),
			reads:  []string{fleetRead},
		},
		"a policy's CA in a ConfigMap": {
			objects: []client.Object{configMap(managerNamespace, "ca", map[string]string{"ca.crt": ca})},
			source:  fromConfigMap("ca", ""),
			want:    at(policyServer, ca),
			reads:   []string{fleetRead, "ConfigMap manager/ca"},
		},
		"a policy's CA in the binary data of a ConfigMap": {
			objects: []client.Object{&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "ca"},
				BinaryData: map[string][]byte{"bundle": []byte(ca)},
			}},
			source: fromConfigMap("ca", "bundle"),
			want:   at(policyServer, ca),
			reads:  []string{fleetRead, "ConfigMap manager/ca"},
		},
		"a policy's CA in a Secret": {
			objects: []client.Object{caSecret("tls.crt", ca)},
			source:  fromSecret("ca", "tls.crt"),
			want:    at(policyServer, ca),
			reads:   []string{fleetRead, "Secret manager/ca"},
		},
		"a policy's CA is pinned whatever Fleet's mode": {
			objects: []client.Object{fleetConfig(`{"agentTLSMode":"system-store"}`)},
			source:  inline(publicCA),
			want:    at(policyServer, publicCA),
			reads:   []string{fleetRead},
		},
		"Fleet's address comes before the cluster's own": {
			objects: []client.Object{fleetConfig(`{"apiServerURL":"` + fleetServer + `","apiServerCA":"` + base64CA + `"}`), clusterInfoConfig(kubeconfigOf(ownServer, otherCA))},
			want:    at(fleetServer, ca),
			reads:   []string{fleetRead},
		},
		"Fleet's address without a CA": {
			objects: []client.Object{fleetConfig(`{"apiServerURL":"` + fleetServer + `","apiServerCA":""}`)},
			want:    at(fleetServer, ""),
			reads:   []string{fleetRead},
		},
		"system-store leaves a public CA out": {
			objects: []client.Object{fleetConfig(`{"agentTLSMode":"system-store","apiServerURL":"` + fleetServer + `","apiServerCA":"` + base64Public + `"}`)},
			want:    at(fleetServer, ""),
			reads:   []string{fleetRead},
		},
		"system-store keeps a private CA, without which no agent could connect": {
			objects: []client.Object{fleetConfig(`{"agentTLSMode":"system-store","apiServerURL":"` + fleetServer + `","apiServerCA":"` + base64CA + `"}`)},
			want:    at(fleetServer, ca),
			reads:   []string{fleetRead},
		},
		"strict pins a public CA": {
			objects: []client.Object{fleetConfig(`{"agentTLSMode":"strict","apiServerURL":"` + fleetServer + `","apiServerCA":"` + base64Public + `"}`)},
			want:    at(fleetServer, publicCA),
			reads:   []string{fleetRead},
		},
		"the cluster's own address": {
			objects: []client.Object{fleetConfig(`{"apiServerURL":"","apiServerCA":"` + base64CA + `"}`), clusterInfoConfig(kubeconfigOf(ownServer, otherCA))},
			want:    at(ownServer, otherCA),
			reads:   []string{fleetRead, clusterInfoRead},
		},
		"the cluster's own address with Fleet's configuration missing": {
			objects: []client.Object{clusterInfoConfig(kubeconfigOf(ownServer, otherCA))},
			want:    at(ownServer, otherCA),
			reads:   []string{fleetRead, clusterInfoRead},
		},
		"the cluster's own address with a public CA and system-store": {
			objects: []client.Object{fleetConfig(`{"agentTLSMode":"system-store"}`), clusterInfoConfig(kubeconfigOf(ownServer, publicCA))},
			want:    at(ownServer, ""),
			reads:   []string{fleetRead, clusterInfoRead},
		},

		"nothing says where": {
			reads:   []string{fleetRead, clusterInfoRead},
			reason:  fleetv1.ManagementClusterUnknownReason,
			message: "apiServerURL and apiServerCA in key \"config\" of ConfigMap fleet/fleet-controller (ConfigMap kube-public/cluster-info is not there)",
		},
		"the cluster's own address is not https": {
			objects: []client.Object{clusterInfoConfig(kubeconfigOf("http://own.example.com", ca))},
			reads:   []string{fleetRead, clusterInfoRead},
			reason:  fleetv1.ManagementClusterUnknownReason,
			message: "names no valid https server",
		},
		"Fleet's configuration is broken and the next source is not taken": {
			objects: []client.Object{fleetConfig(`{"agentImage":`), clusterInfoConfig(kubeconfigOf(ownServer, otherCA))},
			reads:   []string{fleetRead},
			reason:  fleetv1.ManagementClusterUnknownReason,
			message: "Key \"config\" of ConfigMap fleet/fleet-controller is not valid JSON",
			noImage: true,
		},
		"Fleet's configuration is broken and the policy names the address": {
			objects: []client.Object{fleetConfig(`[]`)},
			source:  inline(ca),
			want:    at(policyServer, ca),
			reads:   []string{fleetRead},
			reason:  fleetv1.AgentImageUnknownReason,
			message: "is not a JSON object",
			noImage: true,
		},
		"Fleet's address is not valid": {
			objects: []client.Object{fleetConfig(`{"apiServerURL":"https://user:secret@fleet.example.com"}`), clusterInfoConfig(kubeconfigOf(ownServer, otherCA))},
			reads:   []string{fleetRead},
			reason:  fleetv1.ServerInvalidReason,
			message: "apiServerURL in key \"config\" of ConfigMap fleet/fleet-controller is not valid",
		},
		"Fleet's CA is not base64": {
			objects: []client.Object{fleetConfig(`{"apiServerURL":"` + fleetServer + `","apiServerCA":"-----"}`)},
			reads:   []string{fleetRead},
			reason:  fleetv1.CAUnavailableReason,
			message: "apiServerCA in key \"config\" of ConfigMap fleet/fleet-controller is not base64",
		},
		"Fleet's CA is none": {
			objects: []client.Object{fleetConfig(`{"apiServerURL":"` + fleetServer + `","apiServerCA":"AAAA"}`)},
			reads:   []string{fleetRead},
			reason:  fleetv1.CAUnavailableReason,
			message: "holds no certificate",
		},
		"a policy's address is not valid": {
			objects: []client.Object{clusterInfoConfig(kubeconfigOf(ownServer, otherCA))},
			source:  fleetv1.ManagementClusterSource{Server: "https://policy.example.com?secret"},
			reads:   []string{fleetRead},
			reason:  fleetv1.ServerInvalidReason,
			message: "spec.managementCluster.server is not valid: it must not have a user, query or fragment",
		},
		"a policy has a CA and no address": {
			objects: []client.Object{clusterInfoConfig(kubeconfigOf(ownServer, otherCA))},
			source:  fleetv1.ManagementClusterSource{CA: fleetv1.CASource{Inline: ca}},
			reads:   []string{fleetRead},
			reason:  fleetv1.ServerInvalidReason,
			message: "must begin with https://",
		},
		"a policy's CA has two sources": {
			source:  fleetv1.ManagementClusterSource{Server: policyServer, CA: fleetv1.CASource{Inline: ca, Secret: fleetv1.KeyReference{Name: "ca"}}},
			reads:   []string{fleetRead},
			reason:  fleetv1.CAUnavailableReason,
			message: "exactly one source",
		},
		"a policy's CA names a key and no object": {
			source:  fromConfigMap("", "ca.crt"),
			reads:   []string{fleetRead},
			reason:  fleetv1.CAUnavailableReason,
			message: "exactly one source",
		},
		"a policy's ConfigMap is not there": {
			objects: []client.Object{configMap("elsewhere", "ca", map[string]string{"ca.crt": ca})},
			source:  fromConfigMap("ca", ""),
			reads:   []string{fleetRead, "ConfigMap manager/ca"},
			reason:  fleetv1.CAUnavailableReason,
			message: "ConfigMap manager/ca, which the policy names for the CA, is not there",
		},
		"a policy's ConfigMap has no such key": {
			objects: []client.Object{configMap(managerNamespace, "ca", map[string]string{"other": ca})},
			source:  fromConfigMap("ca", ""),
			reads:   []string{fleetRead, "ConfigMap manager/ca"},
			reason:  fleetv1.CAUnavailableReason,
			message: "has no key \"ca.crt\"",
		},
		"a policy's Secret is not there": {
			source:  fromSecret("ca", ""),
			reads:   []string{fleetRead, "Secret manager/ca"},
			reason:  fleetv1.CAUnavailableReason,
			message: "Secret manager/ca, which the policy names for the CA, is not there",
		},
		"a policy's Secret has no such key": {
			objects: []client.Object{caSecret("ca.crt", ca)},
			source:  fromSecret("ca", "other"),
			reads:   []string{fleetRead, "Secret manager/ca"},
			reason:  fleetv1.CAUnavailableReason,
			message: "has no key \"other\"",
		},
		"a policy's Secret holds a private key": {
			objects: []client.Object{caSecret("ca.crt", ca+pemOf("PRIVATE KEY", []byte("secret")))},
			source:  fromSecret("ca", ""),
			reads:   []string{fleetRead, "Secret manager/ca"},
			reason:  fleetv1.CAUnavailableReason,
			message: "Key \"ca.crt\" of Secret manager/ca holds a private key",
		},
		"a policy's Secret holds something else": {
			objects: []client.Object{caSecret("ca.crt", "secret")},
			source:  fromSecret("ca", ""),
			reads:   []string{fleetRead, "Secret manager/ca"},
			reason:  fleetv1.CAUnavailableReason,
			message: "holds no certificate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := newReads(t, tc.objects...)
			resolver := &Resolver{
				Reader:           reader,
				ManagerNamespace: managerNamespace,
				FleetNamespace:   fleetNamespace,
				Defaults:         AgentDefaults{Image: "default-agent"},
				SystemRoots:      roots,
			}
			got, err := resolver.Resolve(t.Context(), from(tc.source))
			g.Expect(reader.names).To(Equal(tc.reads))
			g.Expect(got.ManagementCluster).To(Equal(tc.want))
			if tc.noImage {
				g.Expect(got.Image).To(BeEmpty())
			} else {
				g.Expect(got.Image).To(Equal("default-agent"), "the rest is resolved whatever the address")
			}
			if tc.reason == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			var typed *Error
			g.Expect(errors.As(err, &typed)).To(BeTrue(), "got %v", err)
			g.Expect(typed.Reason).To(Equal(tc.reason))
			g.Expect(typed.Message).To(ContainSubstring(tc.message))
			g.Expect(typed.Message).NotTo(ContainSubstring("secret"))
		})
	}
}

func TestFleetsSettingsComeBeforeTheDefaults(t *testing.T) {
	source := fleetv1.ManagementClusterSource{Server: "https://policy.example.com"}
	defaults := AgentDefaults{Image: "default-agent", CheckinInterval: time.Minute}
	for name, tc := range map[string]struct {
		config   string
		defaults AgentDefaults
		want     fleetv1.AgentSpec
	}{
		"Fleet's": {
			config:   `{"agentImage":"fleet-agent","agentImagePullPolicy":"Always","agentCheckinInterval":"15m","garbageCollectionInterval":"1h","agentWorkers":{"bundledeployment":"50","drift":"40"}}`,
			defaults: defaults,
			want: fleetv1.AgentSpec{
				Image:                     "fleet-agent",
				ImagePullPolicy:           "Always",
				CheckinInterval:           metav1.Duration{Duration: 15 * time.Minute},
				GarbageCollectionInterval: metav1.Duration{Duration: time.Hour},
				Workers:                   fleetv1.AgentWorkers{BundleDeployment: 50, Drift: 40},
			},
		},
		"the defaults": {
			config:   `{}`,
			defaults: defaults,
			want:     fleetv1.AgentSpec{Image: "default-agent", CheckinInterval: metav1.Duration{Duration: time.Minute}},
		},
		"neither": {config: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			resolver := &Resolver{Reader: newReads(t, fleetConfig(tc.config)), FleetNamespace: fleetNamespace, Defaults: tc.defaults}
			got, err := resolver.Resolve(t.Context(), from(source))
			g.Expect(err).NotTo(HaveOccurred())
			tc.want.ManagementCluster.Server = source.Server
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

// An object that could not be read is not an object that is not there: agents must
// not be sent elsewhere because the API server had a bad moment.
func TestFailedReadResolvesNothing(t *testing.T) {
	unavailable := errors.New("unavailable")
	for name, source := range map[string]fleetv1.ManagementClusterSource{
		"no policy":         {},
		"a policy's server": {Server: "https://policy.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := newReads(t)
			reader.fail = unavailable
			resolver := &Resolver{Reader: reader, FleetNamespace: fleetNamespace, Defaults: AgentDefaults{Image: "default-agent"}}
			got, err := resolver.Resolve(t.Context(), from(source))
			g.Expect(err).To(MatchError(unavailable))
			g.Expect(isError(err)).To(BeFalse())
			g.Expect(got).To(Equal(fleetv1.AgentSpec{}))
			g.Expect(reader.names).To(Equal([]string{fleetRead}))
		})
	}
}

func TestFailedReadOfACAResolvesNothing(t *testing.T) {
	for name, ca := range map[string]fleetv1.CASource{
		"ConfigMap": {ConfigMap: fleetv1.KeyReference{Name: "ca"}},
		"Secret":    {Secret: fleetv1.KeyReference{Name: "ca"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			unavailable := errors.New("unavailable")
			reader := newReads(t)
			failing := interceptor.NewClient(reader.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if key.Name == "ca" {
						return unavailable
					}
					return c.Get(ctx, key, obj, opts...)
				},
			})
			resolver := &Resolver{Reader: failing, ManagerNamespace: managerNamespace, FleetNamespace: fleetNamespace, Defaults: AgentDefaults{Image: "default-agent"}}
			got, err := resolver.Resolve(t.Context(), from(fleetv1.ManagementClusterSource{Server: "https://policy.example.com", CA: ca}))
			g.Expect(err).To(MatchError(unavailable))
			g.Expect(isError(err)).To(BeFalse())
			g.Expect(got).To(Equal(fleetv1.AgentSpec{}))
		})
	}
}

func TestFleetsSettingsAreReadAsTheyAreNow(t *testing.T) {
	g := NewWithT(t)
	reader := newReads(t, fleetConfig(""))
	resolver := &Resolver{Reader: reader, FleetNamespace: fleetNamespace}
	live := &corev1.ConfigMap{}
	g.Expect(reader.Get(t.Context(), client.ObjectKey{Namespace: fleetNamespace, Name: "fleet-controller"}, live)).To(Succeed())

	for _, server := range []string{"https://one.example.com", "https://other.example.com", "https://one.example.com"} {
		live.Data["config"] = `{"apiServerURL":"` + server + `","agentImage":"agent"}`
		g.Expect(reader.Update(t.Context(), live)).To(Succeed())
		for range 2 {
			got, err := resolver.Resolve(t.Context(), fleetv1.FleetRegistrationPolicySpec{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.ManagementCluster.Server).To(Equal(server))
		}
	}
	live.Data["config"] = "{"
	g.Expect(reader.Update(t.Context(), live)).To(Succeed())
	for range 2 {
		_, err := resolver.Resolve(t.Context(), fleetv1.FleetRegistrationPolicySpec{})
		g.Expect(err).To(HaveOccurred())
		g.Expect(isError(err)).To(BeTrue())
	}
}

func TestIgnoredFieldsAreLoggedOncePerVersion(t *testing.T) {
	g := NewWithT(t)
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	ctx := ctrl.LoggerInto(t.Context(), logger)
	reader := newReads(t, fleetConfig(`{"agentCheckinInterval":"secret","agentWorkers":{"drift":"secret"}}`))
	resolver := &Resolver{Reader: reader, FleetNamespace: fleetNamespace}
	source := fleetv1.ManagementClusterSource{Server: "https://policy.example.com"}

	for range 3 {
		_, err := resolver.Resolve(ctx, from(source))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(lines).To(HaveLen(1))
	g.Expect(lines[0]).To(ContainSubstring("agentCheckinInterval, agentWorkers.drift"))
	g.Expect(lines[0]).NotTo(ContainSubstring("secret"))

	live := &corev1.ConfigMap{}
	g.Expect(reader.Get(ctx, client.ObjectKey{Namespace: fleetNamespace, Name: "fleet-controller"}, live)).To(Succeed())
	live.Data["config"] = `{"agentCheckinInterval":"later"}`
	g.Expect(reader.Update(ctx, live)).To(Succeed())
	_, err := resolver.Resolve(ctx, from(source))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lines).To(HaveLen(2))
}

func TestImageUnknownSaysWhatToSet(t *testing.T) {
	g := NewWithT(t)
	err := (&Resolver{FleetNamespace: fleetNamespace}).ImageUnknown()
	g.Expect(err.Reason).To(Equal(fleetv1.AgentImageUnknownReason))
	g.Expect(err.Message).To(And(ContainSubstring("agentImage"), ContainSubstring("ConfigMap fleet/fleet-controller"), ContainSubstring("--agent-image")))
}
