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
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// testCA returns a self-signed certificate of that name in PEM form. It has
// expired: nothing here may depend on the day.
func testCA(tb testing.TB, name string) string {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	return pemOf("CERTIFICATE", der)
}

func pemOf(blockType string, data []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: data}))
}

func TestValidateServer(t *testing.T) {
	for _, valid := range []string{
		"https://management.example.com",
		"https://management.example.com:6443",
		"https://management.example.com:6443/",
		"https://rancher.example.com/k8s/clusters/local",
		"https://10.0.0.1:6443",
		"https://[2001:db8::1]",
		"https://[2001:db8::1]:6443/path",
		"https://localhost:1",
		"https://MANAGEMENT.example.com.:65535",
	} {
		if err := ValidateServer(valid); err != nil {
			t.Errorf("%s: %v", valid, err)
		}
	}
	for _, invalid := range []string{
		"",
		"management.example.com:6443",
		"http://management.example.com",
		"HTTPS://management.example.com",
		"https:management.example.com",
		"https://",
		"https:///path",
		"https://:6443",
		"https://user:secret@management.example.com",
		"https://management.example.com/@secret",
		"https://management.example.com?query=secret",
		"https://management.example.com?",
		"https://management.example.com#secret",
		"https://management.example.com#",
		"https://management.example.com:",
		"https://management.example.com:0",
		"https://management.example.com:65536",
		"https://management.example.com:https",
		"https://management example.com",
		" https://management.example.com",
		"https://management.example.com\n",
		"https://münchen.example.com",
		"https://management.example.com/%zz",
		"https://-secret.example.com",
		"https://%73ecret.example.com",
		"https://2001:db8::1",
		"https://[2001:db8::1",
		"https://[10.0.0.1]:6443",
		"https://[fe80::1%25eth0]:6443",
		"https://" + strings.Repeat("a", maxServerLength),
	} {
		err := ValidateServer(invalid)
		if err == nil {
			t.Errorf("%q is taken for valid", invalid)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error repeats it: %v", invalid, err)
		}
	}
}

func TestParseCAKeepsCertificatesAlone(t *testing.T) {
	first, second := testCA(t, "first"), testCA(t, "second")
	for name, tc := range map[string]struct{ bundle, want string }{
		"one":                    {first, first},
		"two in their order":     {second + first, second + first},
		"comments and blanks":    {"# first\n" + first + "\n\n# second\n" + second + "the end", first + second},
		"Windows line ends":      {strings.ReplaceAll(first, "\n", "\r\n"), first},
		"no line end":            {strings.TrimSpace(first), first},
		"headers":                {strings.Replace(first, "-----\n", "-----\nNote: hidden\n\n", 1), first},
		"other blocks in it":     {pemOf("X509 CRL", []byte("list")) + first + pemOf("DATA", []byte("hidden")), first},
		"a public key before it": {pemOf("PUBLIC KEY", []byte("key")) + first, first},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := ParseCA([]byte(tc.bundle))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(got)).To(Equal(tc.want))
		})
	}
}

func TestParseCARefuses(t *testing.T) {
	ca := testCA(t, "ca")
	key := pemOf("EC PRIVATE KEY", []byte("secret"))
	large := strings.Repeat(ca, maxCALength/len(ca)+1)
	for name, tc := range map[string]struct{ bundle, want string }{
		"nothing":                    {"", "holds no certificate"},
		"no PEM":                     {"a certificate, really", "holds no certificate"},
		"other blocks alone":         {pemOf("PUBLIC KEY", []byte("key")), "holds no certificate"},
		"a block that is no X.509":   {ca + pemOf("CERTIFICATE", []byte("rubbish")), "cannot be read"},
		"a block cut off":            {ca + ca[:len(ca)/2], "cannot be read"},
		"a private key behind it":    {ca + key, "private key"},
		"a private key before it":    {key + ca, "private key"},
		"a private key alone":        {key, "private key"},
		"a broken private key":       {ca + key[:len(key)-10], "private key"},
		"an encrypted private key":   {ca + pemOf("ENCRYPTED PRIVATE KEY", []byte("secret")), "private key"},
		"more than the API can hold": {large, "48 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := ParseCA([]byte(tc.bundle))
			g.Expect(err).To(MatchError(ContainSubstring(tc.want)))
			g.Expect(got).To(BeNil())
		})
	}
}

// What ParseCA lets through must fit into the API, which counts base64.
func TestLargestCAFitsTheAPI(t *testing.T) {
	if got := base64.StdEncoding.EncodedLen(maxCALength); got > 65536 {
		t.Errorf("the largest CA has %d characters", got)
	}
}

func TestTrustedBy(t *testing.T) {
	public, private := testCA(t, "public"), testCA(t, "private")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(public))
	for name, tc := range map[string]struct {
		bundle string
		want   bool
	}{
		"one of the roots": {public, true},
		"not of the roots": {private, false},
		"only some are":    {public + private, false},
		"no certificate":   {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := trustedBy(roots, []byte(tc.bundle)); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestParseFleetSettingsReadsWhatTheChartWrites(t *testing.T) {
	g := NewWithT(t)
	ca := testCA(t, "ca")
	got, err := parseFleetSettings(`{
		"systemDefaultRegistry": "registry.example.com",
		"agentImage": "registry.example.com/rancher/fleet-agent:v0.16.0",
		"agentImagePullPolicy": "IfNotPresent",
		"apiServerURL": "https://management.example.com",
		"apiServerCA": "` + base64.StdEncoding.EncodeToString([]byte(ca)) + `",
		"agentCheckinInterval": "15m",
		"agentTLSMode": "system-store",
		"agentWorkers": {"bundledeployment": "50", "drift": "40"},
		"imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}, {"name": "registry"}],

		"garbageCollectionInterval": "1h30m",
		"ignoreClusterRegistrationLabels": false,
		"bootstrap": {"repo": "", "localAgentDisabled": false},
		"gitClientTimeout": "30s"
	}`)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(fleetSettings{
		server:                    "https://management.example.com",
		ca:                        []byte(ca),
		tlsMode:                   "system-store",
		registry:                  "registry.example.com",
		imagePullSecrets:          []string{"registry", "mirror"},
		image:                     "registry.example.com/rancher/fleet-agent:v0.16.0",
		imagePullPolicy:           "IfNotPresent",
		checkinInterval:           15 * time.Minute,
		garbageCollectionInterval: 90 * time.Minute,
		workers:                   fleetv1.AgentWorkers{BundleDeployment: 50, Drift: 40},
	}))
}

func TestParseFleetSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		want   fleetSettings
	}{
		"nothing":                 {"", fleetSettings{}},
		"null":                    {"null", fleetSettings{}},
		"no field":                {"{}", fleetSettings{}},
		"YAML":                    {"agentImage: agent\nagentWorkers:\n  drift: 5\n", fleetSettings{image: "agent", workers: fleetv1.AgentWorkers{Drift: 5}}},
		"numbers as numbers":      {`{"agentWorkers":{"bundledeployment":50,"drift":5}}`, fleetSettings{workers: fleetv1.AgentWorkers{BundleDeployment: 50, Drift: 5}}},
		"empty texts":             {`{"apiServerURL":"","apiServerCA":"","agentImage":"","agentCheckinInterval":"","agentTLSMode":"","agentWorkers":{"drift":""}}`, fleetSettings{}},
		"nulls":                   {`{"apiServerURL":null,"agentImage":null,"agentCheckinInterval":null,"agentWorkers":null}`, fleetSettings{}},
		"zero is not set":         {`{"agentCheckinInterval":0,"garbageCollectionInterval":"0s","agentWorkers":{"drift":0}}`, fleetSettings{}},
		"registry is missing":     {`{"systemDefaultRegistry":"r.example.com/","agentImage":"rancher/agent"}`, fleetSettings{registry: "r.example.com", image: "r.example.com/rancher/agent"}},
		"registry is a name part": {`{"systemDefaultRegistry":"r","agentImage":"rancher/agent"}`, fleetSettings{registry: "r", image: "r/rancher/agent"}},
		"registry without image":  {`{"systemDefaultRegistry":"r.example.com"}`, fleetSettings{registry: "r.example.com"}},
		"CA is not base64":        {`{"apiServerCA":"-----BEGIN"}`, fleetSettings{caErr: errors.New("is not base64")}},
		"CA is no certificate":    {`{"apiServerCA":"AAAA"}`, fleetSettings{caErr: errors.New("holds no certificate in PEM form")}},
		"CA is no text":           {`{"apiServerCA":{}}`, fleetSettings{caErr: errors.New("is not base64")}},
		"URL is no text":          {`{"apiServerURL":{}}`, fleetSettings{server: "{}"}},
		"one bad field spoils no other": {
			`{"agentImage":"agent","agentCheckinInterval":"soon","garbageCollectionInterval":"1h"}`,
			fleetSettings{image: "agent", garbageCollectionInterval: time.Hour, ignored: []string{"agentCheckinInterval"}},
		},
		"bad texts": {
			`{"agentImage":"a b","systemDefaultRegistry":"\n","agentImagePullPolicy":"Sometimes","agentTLSMode":"lax"}`,
			fleetSettings{ignored: []string{"agentTLSMode", "systemDefaultRegistry", "agentImage", "agentImagePullPolicy"}},
		},
		"bad types": {
			`{"agentImage":[],"agentImagePullPolicy":true,"agentTLSMode":{},"agentCheckinInterval":[],"agentWorkers":3}`,
			fleetSettings{ignored: []string{"agentTLSMode", "agentImage", "agentImagePullPolicy", "agentCheckinInterval", "agentWorkers"}},
		},
		"bad numbers": {
			`{"agentCheckinInterval":900,"garbageCollectionInterval":"-1h","agentWorkers":{"bundledeployment":"1001","drift":-1}}`,
			fleetSettings{ignored: []string{"agentCheckinInterval", "garbageCollectionInterval", "agentWorkers.bundledeployment", "agentWorkers.drift"}},
		},
		"heartbeats by the millisecond": {
			`{"agentCheckinInterval":"1ms"}`,
			fleetSettings{ignored: []string{"agentCheckinInterval"}},
		},
		"image too long with its registry": {
			`{"systemDefaultRegistry":"` + strings.Repeat("r", 300) + `","agentImage":"` + strings.Repeat("i", 300) + `"}`,
			fleetSettings{registry: strings.Repeat("r", 300), ignored: []string{"agentImage"}},
		},
		"pull secrets that are no references": {
			`{"imagePullSecrets":["registry"]}`,
			fleetSettings{ignored: []string{"imagePullSecrets"}},
		},
		"a pull secret whose name is no name": {
			`{"imagePullSecrets":[{"name":"registry"},{"name":"../secret"}]}`,
			fleetSettings{ignored: []string{"imagePullSecrets"}},
		},
		"a pull secret without a name": {
			`{"imagePullSecrets":[{}]}`,
			fleetSettings{ignored: []string{"imagePullSecrets"}},
		},
		"too many pull secrets": {
			`{"imagePullSecrets":[` + strings.Repeat(`{"name":"a"},`, 8) + `{"name":"a"}]}`,
			fleetSettings{ignored: []string{"imagePullSecrets"}},
		},
		"no pull secrets": {`{"imagePullSecrets":null}`, fleetSettings{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := parseFleetSettings(tc.config)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestParseFleetSettingsRefusesWhatIsNoObject(t *testing.T) {
	for _, config := range []string{`{"agentImage": "a"`, `[1]`, `"secret"`, `7`, "a: b: c", "\x00", "{\"secret\": !!binary \"!\"}"} {
		g := NewWithT(t)
		_, err := parseFleetSettings(config)
		g.Expect(err).To(HaveOccurred(), config)
		g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
	}
}

// kubeconfigOf returns a kubeconfig as kubeadm writes it into cluster-info: one
// cluster without a name.
func kubeconfigOf(server, ca string) string {
	config := "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: " + server + "\n"
	if ca != "" {
		config += "    certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte(ca)) + "\n"
	}
	return config
}

func TestParseClusterInfo(t *testing.T) {
	ca := testCA(t, "ca")
	two := `{"clusters":[{"name":"a","cluster":{"server":"https://a"}},{"name":"b","cluster":{"server":"https://b"}}]`
	for name, tc := range map[string]struct {
		kubeconfig string
		want       fleetv1.ManagementClusterEndpoint
		refused    string
	}{
		"as kubeadm writes it":    {kubeconfig: kubeconfigOf("https://[2001:db8::1]:6443", ca), want: fleetv1.ManagementClusterEndpoint{Server: "https://[2001:db8::1]:6443", CertificateAuthorityData: []byte(ca)}},
		"without a CA":            {kubeconfig: kubeconfigOf("https://m.example.com", ""), want: fleetv1.ManagementClusterEndpoint{Server: "https://m.example.com"}},
		"two and a context":       {kubeconfig: two + `,"contexts":[{"name":"c","context":{"cluster":"b"}}],"current-context":"c"}`, want: fleetv1.ManagementClusterEndpoint{Server: "https://b"}},
		"two and no context":      {kubeconfig: two + `}`, refused: "more than one"},
		"context without cluster": {kubeconfig: two + `,"contexts":[{"name":"c","context":{"cluster":"x"}}],"current-context":"c"}`, refused: "names no cluster"},
		"nothing":                 {kubeconfig: "", refused: "names no cluster"},
		"not YAML":                {kubeconfig: "\tclusters", refused: "readable"},
		"http":                    {kubeconfig: kubeconfigOf("http://m.example.com", ca), refused: "https"},
		"broken CA":               {kubeconfig: kubeconfigOf("https://m.example.com", "rubbish"), refused: "valid CA"},
		"no verification":         {kubeconfig: kubeconfigOf("https://m.example.com", "") + "    insecure-skip-tls-verify: true\n", refused: "asks for more"},
		"CA in a file":            {kubeconfig: kubeconfigOf("https://m.example.com", "") + "    certificate-authority: /etc/ca.crt\n", refused: "asks for more"},
		"another name in TLS":     {kubeconfig: kubeconfigOf("https://m.example.com", "") + "    tls-server-name: other\n", refused: "asks for more"},
		"proxy":                   {kubeconfig: kubeconfigOf("https://m.example.com", "") + "    proxy-url: http://proxy\n", refused: "asks for more"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := parseClusterInfo(tc.kubeconfig)
			g.Expect(got).To(Equal(tc.want))
			if tc.refused == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.refused)))
			}
		})
	}
}

func FuzzValidateServer(f *testing.F) {
	f.Add("https://management.example.com:6443/path")
	f.Add("https://[2001:db8::1]:6443")
	f.Add("https://user@management.example.com?a#b")
	f.Fuzz(func(t *testing.T, server string) {
		if ValidateServer(server) != nil {
			return
		}
		parsed, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
			t.Errorf("taken for valid: %q", server)
		}
		if len(server) < 9 || len(server) > maxServerLength {
			t.Errorf("the API would refuse %q", server)
		}
	})
}

func FuzzParseCA(f *testing.F) {
	ca := testCA(f, "ca")
	f.Add([]byte(ca))
	f.Add([]byte(ca + pemOf("PRIVATE KEY", []byte("secret")) + ca))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, bundle []byte) {
		got, err := ParseCA(bundle)
		if err != nil {
			if got != nil {
				t.Error("a refused bundle is returned")
			}
			return
		}
		again, err := ParseCA(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("not the same when parsed again: %v", err)
		}
		if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(got) {
			t.Error("no certificate in it")
		}
	})
}

func FuzzParseFleetSettings(f *testing.F) {
	f.Add(`{"agentImage":"agent","systemDefaultRegistry":"r","agentCheckinInterval":"15m","agentWorkers":{"drift":"5","bundledeployment":7}}`)
	f.Add("apiServerURL: https://m\napiServerCA: AAAA\nagentTLSMode: strict\n")
	f.Add(`{"agentWorkers":[]}`)
	f.Fuzz(func(t *testing.T, config string) {
		got, err := parseFleetSettings(config)
		if err != nil {
			return
		}
		if len(got.image) > maxImageLength || strings.ContainsAny(got.image, " \t\n\"'") {
			t.Errorf("image %q", got.image)
		}
		for _, d := range []time.Duration{got.checkinInterval, got.garbageCollectionInterval} {
			if d != 0 && d < minInterval {
				t.Errorf("interval %s", d)
			}
		}
		for _, name := range got.imagePullSecrets {
			if name == "" || strings.ContainsAny(name, "/ \n") {
				t.Errorf("pull secret %q", name)
			}
		}
		for _, n := range []int32{got.workers.BundleDeployment, got.workers.Drift} {
			if n < 0 || n > maxWorkers {
				t.Errorf("workers %d", n)
			}
		}
	})
}

func FuzzParseClusterInfo(f *testing.F) {
	f.Add(kubeconfigOf("https://m.example.com", testCA(f, "ca")))
	f.Add(`{"clusters":[{"name":"a","cluster":null}],"contexts":[{"name":"a","context":null}],"current-context":"a"}`)
	f.Fuzz(func(t *testing.T, kubeconfig string) {
		got, err := parseClusterInfo(kubeconfig)
		if err != nil {
			return
		}
		if err := ValidateServer(got.Server); err != nil {
			t.Errorf("server %q: %v", got.Server, err)
		}
		if len(got.CertificateAuthorityData) > 0 {
			if _, err := ParseCA(got.CertificateAuthorityData); err != nil {
				t.Error(err)
			}
		}
	})
}
