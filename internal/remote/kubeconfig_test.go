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

package remote

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// hostileFields are the fields that must not be followed, in the order in which
// their reasons count.
var hostileFields = []struct {
	name, reason string
	set          func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
}{
	{"exec", fleetv1.KubeconfigExecReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.Exec = &clientcmdapi.ExecConfig{Command: canary, APIVersion: "client.authentication.k8s.io/v1"}
	}},
	{"auth-provider", fleetv1.KubeconfigAuthProviderReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: canary}
	}},
	{"tokenFile", fleetv1.KubeconfigFilePathReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = "/" + canary }},
	{"client-certificate", fleetv1.KubeconfigFilePathReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.ClientCertificate = "/" + canary
	}},
	{"client-key", fleetv1.KubeconfigFilePathReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = "/" + canary }},
	{"certificate-authority", fleetv1.KubeconfigFilePathReason, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.CertificateAuthority = "/" + canary
	}},
	{"proxy-url", fleetv1.KubeconfigProxyReason, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://" + canary }},
	{"as", fleetv1.KubeconfigImpersonationReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = canary }},
	{"as-uid", fleetv1.KubeconfigImpersonationReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ImpersonateUID = canary }},
	{"as-groups", fleetv1.KubeconfigImpersonationReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.ImpersonateGroups = []string{canary}
	}},
	{"as-user-extra", fleetv1.KubeconfigImpersonationReason, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.ImpersonateUserExtra = map[string][]string{canary: {canary}}
	}},
}

func TestKubeconfigWithHostileFieldIsRefused(t *testing.T) {
	for _, field := range hostileFields {
		t.Run(field.name, func(t *testing.T) {
			_, err := dialer().Connect(kubeconfig(t, nil, field.set))
			expectReason(t, err, field.reason)
		})
	}
}

func TestKubeconfigWithHostileFieldInAnUnusedEntryIsRefused(t *testing.T) {
	for _, field := range hostileFields {
		t.Run(field.name, func(t *testing.T) {
			cluster := &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
			user := &clientcmdapi.AuthInfo{}
			field.set(cluster, user)
			config := clientcmdapi.NewConfig()
			config.Clusters = map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:1"}, "unused": cluster}
			config.AuthInfos = map[string]*clientcmdapi.AuthInfo{"u": {Token: "t"}, "unused": user}
			config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
			config.CurrentContext = "x"
			_, err := dialer().Connect(write(t, config))
			expectReason(t, err, field.reason)
		})
	}
}

func TestKubeconfigWithSeveralFaultsGivesTheFirstReason(t *testing.T) {
	for first := range hostileFields {
		data := kubeconfig(t, nil, func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			c.Server = "http://" + canary
			for _, field := range slices.Backward(hostileFields[first:]) {
				field.set(c, u)
			}
		})
		_, err := dialer().Connect(data)
		expectReason(t, err, hostileFields[first].reason)
	}
}

func TestKubeconfigThatIsNotUsableIsInvalid(t *testing.T) {
	edited := func(edit func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte { return kubeconfig(t, nil, edit) }
	withServer := func(server string) []byte {
		return edited(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = server })
	}
	_, certificatePEM, keyPEM := certificate(t)
	for name, data := range map[string][]byte{
		"not YAML":         []byte("\t{" + canary),
		"a scalar":         []byte(canary),
		"a list":           []byte("[" + canary + "]"),
		"another kind":     []byte("apiVersion: v1\nkind: " + canary + "\n"),
		"wrong type":       []byte("apiVersion: v1\nkind: Config\nclusters: " + canary + "\n"),
		"empty object":     []byte("{}"),
		"too large":        []byte(strings.Repeat("#"+canary+"\n", maxKubeconfigSize)),
		"no context":       []byte("apiVersion: v1\nkind: Config\ncurrent-context: " + canary + "\n"),
		"no cluster":       []byte("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: " + canary + ", user: u}}]\nusers: [{name: u, user: {}}]\n"),
		"no user":          []byte("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: " + canary + "}}]\nclusters: [{name: c, cluster: {server: 'https://h'}}]\n"),
		"no server":        withServer(""),
		"http":             withServer("http://" + canary),
		"no scheme":        withServer(canary + ":6443"),
		"no host":          withServer("https://:6443"),
		"not a URL":        withServer("https://" + canary + "/%zz"),
		"user in URL":      withServer("https://" + canary + ":" + canary + "@h"),
		"query":            withServer("https://h?" + canary),
		"fragment":         withServer("https://h#" + canary),
		"port too large":   withServer("https://" + canary + ":65536"),
		"port 0":           withServer("https://" + canary + ":0"),
		"token with break": edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = "a\r\nX: " + canary }),
		"token and password": edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Username, u.Password = canary, canary
		}),
		"authority not PEM": edited(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = []byte(canary)
		}),
		"authority although insecure": edited(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, c.InsecureSkipTLSVerify = certificatePEM, true
		}),
		"certificate not PEM": edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = []byte(canary), []byte(canary)
		}),
		"certificate without key": edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData = certificatePEM
		}),
		"key without certificate": edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientKeyData = keyPEM
		}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dialer().Connect(data)
			expectReason(t, err, fleetv1.KubeconfigInvalidReason)
		})
	}
}

func TestKubeconfigFromSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		want   string
		reason string
	}{
		"no Secret":             {nil, "", fleetv1.KubeconfigMissingReason},
		"no key":                {&corev1.Secret{Data: map[string][]byte{"other": []byte("x")}}, "", fleetv1.KubeconfigKeyMissingReason},
		"empty":                 {&corev1.Secret{Data: map[string][]byte{"value": {}}}, "", fleetv1.KubeconfigEmptyReason},
		"Opaque and unlabelled": {&corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"value": []byte("x")}}, "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := KubeconfigFromSecret(tc.secret)
			if string(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			switch {
			case tc.reason != "":
				expectReason(t, err, tc.reason)
			case err != nil:
				t.Error(err)
			}
		})
	}
}

func TestEmptyKubeconfigIsRefused(t *testing.T) {
	_, err := dialer().Connect(nil)
	expectReason(t, err, fleetv1.KubeconfigEmptyReason)
}

func FuzzConnect(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("a: &a [*a, *a]"))
	f.Add([]byte("apiVersion: v1\nkind: Config\nclusters: [{}]\nusers: [{}]\ncontexts: [{}]\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Config","clusters":null,"extensions":[{"name":"e","extension":{"kind":"X"}}]}`))
	f.Add(kubeconfig(f, nil))
	reasons := []string{fleetv1.KubeconfigEmptyReason, fleetv1.KubeconfigInvalidReason}
	for _, field := range hostileFields {
		f.Add(kubeconfig(f, nil, field.set))
		reasons = append(reasons, field.reason)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := dialer().Connect(data)
		if err == nil {
			c.Close()
			return
		}
		var classified *Error
		if !errors.As(err, &classified) || !slices.Contains(reasons, classified.Reason) {
			t.Errorf("unexpected error %v", err)
		}
	})
}
