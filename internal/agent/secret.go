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
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Keys of the agent's Secret.
const (
	kubeconfigKey          = "kubeconfig"
	clusterNamespaceKey    = "clusterNamespace"
	clusterNameKey         = "clusterName"
	deploymentNamespaceKey = "deploymentNamespace"
	tokenKey               = "token"
)

// Secret returns the agent's way to the management cluster and its credential.
// The token is there twice. The pod sees the key "token" as a file, which the
// agent reads again and again, so that a new token needs no new pod; the
// kubeconfig repeats it for an agent that does not find the file.
func Secret(in Input, token string) *corev1.Secret {
	meta := ours(in, Namespace, Name)
	meta.Annotations[fleetv1.NamespaceUIDAnnotation] = string(in.ClusterNamespaceUID)
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta,
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			kubeconfigKey: kubeconfig(in, token),
			// Fleet's name for the namespace of the Fleet Cluster.
			clusterNamespaceKey:    []byte(in.FleetCluster.Namespace),
			clusterNameKey:         []byte(in.FleetCluster.Name),
			deploymentNamespaceKey: []byte(in.ClusterNamespace),
			tokenKey:               []byte(token),
		},
	}
}

// Token returns the token in an agent's Secret, empty where there is none.
func Token(secret *corev1.Secret) string { return string(secret.Data[tokenKey]) }

// Bounds in bytes of what is looked at of another's Secret. Kubeconfigs and tokens of
// service accounts have some thousands, and about one.
const (
	maxKubeconfigSize = 64 << 10
	maxTokenSize      = 16 << 10
)

// RegisteredToken returns the token that Fleet's own registration gave an agent, which is in
// the kubeconfig of its Secret (Fleet 0.13 to 0.16). It is empty where there is none, or
// none that could be sent: the Secret is from a workload cluster, and may hold anything.
func RegisteredToken(secret *corev1.Secret) string {
	data := secret.Data[kubeconfigKey]
	if len(data) > maxKubeconfigSize {
		return ""
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return ""
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return ""
	}
	token := config.AuthInfos[current.AuthInfo].Token
	unfit := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(token) > maxTokenSize || strings.ContainsFunc(token, unfit) {
		return ""
	}
	return token
}

// Renewed returns the data of an agent's Secret with another token in both places, and
// nothing else changed: what a pod that runs already can read.
func Renewed(secret *corev1.Secret, token string) map[string][]byte {
	data := map[string][]byte{kubeconfigKey: nil}
	maps.Copy(data, secret.Data)
	if old := data[tokenKey]; len(old) > 0 {
		data[kubeconfigKey] = bytes.Replace(data[kubeconfigKey], old, []byte(token), 1)
	}
	data[tokenKey] = []byte(token)
	return data
}

// pullSecretPrefix begins the names of pull secrets in the agent's namespace, so that
// they meet no others there.
const pullSecretPrefix = "capi-fleet-pull-"

// PullSecrets returns the Secrets with which the agent's image is pulled: copies of
// those among secrets, which are from the manager's namespace, that the settings name.
// One that is missing, or of another type than kubernetes.io/dockerconfigjson, is left
// out and named in missing. Nothing but the one key of that type is copied.
func PullSecrets(in Input, secrets []corev1.Secret) (copies []*corev1.Secret, missing []string) {
	for _, name := range in.Agent.ImagePullSecrets {
		i := slices.IndexFunc(secrets, func(s corev1.Secret) bool { return s.Name == name && s.Type == corev1.SecretTypeDockerConfigJson })
		if i < 0 || len(secrets[i].Data[corev1.DockerConfigJsonKey]) == 0 {
			missing = append(missing, name)
			continue
		}
		copies = append(copies, &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: ours(in, Namespace, pullSecretPrefix+name),
			Type:       corev1.SecretTypeDockerConfigJson,
			Data:       map[string][]byte{corev1.DockerConfigJsonKey: secrets[i].Data[corev1.DockerConfigJsonKey]},
		})
	}
	return copies, missing
}

// PullSecretNames returns the names that the pull secrets of the settings have in the
// agent's namespace.
func PullSecretNames(in Input) []string {
	names := make([]string, 0, len(in.Agent.ImagePullSecrets))
	for _, name := range in.Agent.ImagePullSecrets {
		names = append(names, pullSecretPrefix+name)
	}
	return names
}

// IsPullSecret tells whether a Secret in the agent's namespace has the name of a copy
// that PullSecrets made.
func IsPullSecret(name string) bool { return strings.HasPrefix(name, pullSecretPrefix) }

// pullSecretReferences names the copies, or the Secrets themselves where the pod runs
// beside them.
func pullSecretReferences(in Input) []corev1.LocalObjectReference {
	names := PullSecretNames(in)
	if in.Agent.Hosted() {
		names = in.Agent.ImagePullSecrets
	}
	var references []corev1.LocalObjectReference
	for _, name := range names {
		references = append(references, corev1.LocalObjectReference{Name: name})
	}
	return references
}

// kubeconfig returns the kubeconfig for the management cluster. The namespace of
// its context is the one that the agent watches.
func kubeconfig(in Input, token string) []byte {
	const entry = "management-cluster"
	config := clientcmdv1.Config{
		APIVersion: clientcmdv1.SchemeGroupVersion.Version,
		Kind:       "Config",
		Clusters: []clientcmdv1.NamedCluster{{Name: entry, Cluster: clientcmdv1.Cluster{
			Server:                   in.Agent.ManagementCluster.Server,
			CertificateAuthorityData: in.Agent.ManagementCluster.CertificateAuthorityData,
		}}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: entry, AuthInfo: clientcmdv1.AuthInfo{
			Token:     token,
			TokenFile: path.Join(tokenDir(in), tokenKey),
		}}},
		Contexts: []clientcmdv1.NamedContext{{Name: entry, Context: clientcmdv1.Context{
			Cluster:   entry,
			AuthInfo:  entry,
			Namespace: in.ClusterNamespace,
		}}},
		CurrentContext: entry,
	}
	// As JSON, which is YAML too: clientcmd.Write makes YAML by way of JSON and a parser,
	// which was a fifth of what a manager allocated when it started.
	return must(json.Marshal(config))
}
