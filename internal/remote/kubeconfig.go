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
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

const (
	// kubeconfigKey is the key that Cluster API puts a kubeconfig under (Cluster API
	// 1.14, util/secret, KubeconfigDataName).
	kubeconfigKey = "value"

	// maxKubeconfigSize is in bytes, and leaves room for a large bundle of
	// certificate authorities.
	maxKubeconfigSize = 512 << 10
)

// KubeconfigFromSecret returns the kubeconfig in one of Cluster API's kubeconfig
// Secrets, of which it looks at the data only. The Error has the reason
// KubeconfigMissing for a nil Secret, KubeconfigKeyMissing or KubeconfigEmpty.
func KubeconfigFromSecret(secret *corev1.Secret) ([]byte, *Error) {
	if secret == nil {
		return nil, &Error{
			Reason:  fleetv1.KubeconfigMissingReason,
			Message: "the Cluster has no kubeconfig Secret",
		}
	}
	kubeconfig, found := secret.Data[kubeconfigKey]
	if !found {
		return nil, &Error{
			Reason:  fleetv1.KubeconfigKeyMissingReason,
			Message: `the kubeconfig Secret has no key "value"`,
		}
	}
	if len(kubeconfig) == 0 {
		return nil, kubeconfigEmpty()
	}
	return kubeconfig, nil
}

// access is what a kubeconfig says, as far as we use it.
type access struct {
	// server is an https URL: host, maybe port and path, nothing else.
	server *url.URL

	// config holds the certificates and credentials, and no host.
	config *rest.Config
}

// readKubeconfig checks a kubeconfig and takes what its current context names.
// What could reach beyond a plain connection to the server is refused wherever it
// stands, also in entries that are not used: a person who sees the refusal need not
// know which of them counts. The order of the checks is fixed, so that a kubeconfig
// with several faults always gives the same reason.
func readKubeconfig(data []byte) (*access, *Error) {
	switch {
	case len(data) == 0:
		return nil, kubeconfigEmpty()
	case len(data) > maxKubeconfigSize:
		return nil, kubeconfigInvalid("is larger than 512 KiB", nil)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, kubeconfigInvalid("cannot be parsed", err)
	}
	if refused := refusal(config); refused != nil {
		return nil, refused
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, kubeconfigInvalid("has no current context", nil)
	}
	cluster := config.Clusters[current.Cluster]
	if cluster == nil {
		return nil, kubeconfigInvalid("has no cluster for its current context", nil)
	}
	user := config.AuthInfos[current.AuthInfo]
	if user == nil {
		return nil, kubeconfigInvalid("has no user for its current context", nil)
	}
	server, invalid := parseServer(cluster.Server)
	if invalid != nil {
		return nil, invalid
	}
	if strings.ContainsFunc(user.Token, unicode.IsControl) {
		return nil, kubeconfigInvalid("has a token with line breaks or other control characters", nil)
	}
	if (len(user.ClientCertificateData) > 0) != (len(user.ClientKeyData) > 0) {
		// Client-go would go on without either.
		return nil, kubeconfigInvalid("has a client certificate without its key, or a key without its certificate", nil)
	}
	return &access{
		server: server,
		config: &rest.Config{
			Username:    user.Username,
			Password:    user.Password,
			BearerToken: user.Token,
			TLSClientConfig: rest.TLSClientConfig{
				Insecure:   cluster.InsecureSkipTLSVerify,
				ServerName: cluster.TLSServerName,
				CAData:     cluster.CertificateAuthorityData,
				CertData:   user.ClientCertificateData,
				KeyData:    user.ClientKeyData,
				NextProtos: []string{"http/1.1"},
			},
		},
	}, nil
}

// refusal returns an Error if any entry of the kubeconfig has a field that must not
// be followed.
func refusal(config *clientcmdapi.Config) *Error {
	var exec, provider, path, proxy, impersonation bool
	for _, user := range config.AuthInfos {
		exec = exec || user.Exec != nil
		provider = provider || user.AuthProvider != nil
		path = path || user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != ""
		impersonation = impersonation || user.Impersonate != "" || user.ImpersonateUID != "" ||
			len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0
	}
	for _, cluster := range config.Clusters {
		path = path || cluster.CertificateAuthority != ""
		proxy = proxy || cluster.ProxyURL != ""
	}
	for _, check := range []struct {
		found         bool
		reason, field string
	}{
		{exec, fleetv1.KubeconfigExecReason, "a program to run (exec)"},
		{provider, fleetv1.KubeconfigAuthProviderReason, "an auth provider (auth-provider)"},
		{path, fleetv1.KubeconfigFilePathReason, "a file to read (certificate-authority, client-certificate, " +
			"client-key or tokenFile); use the fields that hold the data itself"},
		{proxy, fleetv1.KubeconfigProxyReason, "a proxy (proxy-url)"},
		{impersonation, fleetv1.KubeconfigImpersonationReason, "another user to act as (as, as-uid, as-groups or as-user-extra)"},
	} {
		if check.found {
			return &Error{Reason: check.reason, Message: "refused: the kubeconfig names " + check.field}
		}
	}
	return nil
}

// parseServer reads the address of the server. The errors of url.Parse repeat what
// they read, so they are not passed on.
func parseServer(server string) (*url.URL, *Error) {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" ||
		parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, kubeconfigInvalid("has a server that is not a plain https:// URL", nil)
	}
	if port := parsed.Port(); port != "" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return nil, kubeconfigInvalid("has a server whose port is not a number from 1 to 65535", nil)
		}
	}
	return parsed, nil
}

func kubeconfigEmpty() *Error {
	return &Error{
		Reason:  fleetv1.KubeconfigEmptyReason,
		Message: `the key "value" of the kubeconfig Secret is empty`,
	}
}

func kubeconfigInvalid(what string, err error) *Error {
	return &Error{
		Reason:  fleetv1.KubeconfigInvalidReason,
		Message: fmt.Sprintf("the kubeconfig %s; mend the kubeconfig Secret", what),
		err:     err,
	}
}
