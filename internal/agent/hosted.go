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
	"net/netip"
	"path"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

const (
	// workloadKey is the key of the kubeconfig with which a hosted agent reaches the
	// workload cluster.
	workloadKey = "kubeconfig"

	workloadVolume = "workload"

	// projectedTokenLife is what the kubelet asks for, and renews after four fifths of
	// it. The token ends with its pod.
	projectedTokenLife = time.Hour

	// hostedRevisionAnnotation on the pod template of a hosted agent is a hash of what it
	// reads only when it starts and no policy decides: how it reaches the workload
	// cluster, and which service account it is.
	hostedRevisionAnnotation = fleetv1.KeyPrefix + "hosted-revision"

	// clusterNamespaceLabel on a hosted agent's pods tells those of one cluster from
	// those of others.
	clusterNamespaceLabel = fleetv1.KeyPrefix + "cluster-namespace"

	dnsPort = 53
)

// Hosting is what a hosted agent, one that runs on the management cluster, is made from
// besides its Input. All of its objects there have the name of its cluster namespace, as
// its service account has.
type Hosting struct {
	// Namespace is the manager's.
	Namespace string
	// Registration is the key of the FleetRegistration.
	Registration types.NamespacedName
	// AccountUID is the UID of the agent's service account. The token of a pod ends with
	// the account, so another one needs another pod.
	AccountUID types.UID
	// Workload is how the agent reaches the workload cluster.
	Workload WorkloadCluster
}

// WorkloadCluster is the address of a workload cluster's API server.
type WorkloadCluster struct {
	// Server is its https URL.
	Server string
	// CAData is the PEM bundle that signs its certificate; empty means that the system's
	// are trusted.
	CAData []byte
	// ServerName is the name in its certificate; empty means that of the URL.
	ServerName string
	// InsecureTLS turns the check of the certificate off.
	InsecureTLS bool
}

// Destination is something that a hosted agent may connect to.
type Destination struct {
	Addresses []netip.Addr
	Port      uint16
}

// HostedPodLabels are the labels of the pods of the agent that is hosted for a cluster
// namespace.
func HostedPodLabels(clusterNamespace string) map[string]string {
	labels := PodLabels()
	labels[clusterNamespaceLabel] = clusterNamespace
	return labels
}

// HostedDeployment returns the Deployment of a hosted agent, with its revision. Write what
// HostedSecret and HostedNetworkPolicy return before it.
func HostedDeployment(in Input, hosting Hosting) *appsv1.Deployment {
	hosted := hostedDeployment(in, hosting)
	setRevision(hosted, Revision(in))
	return hosted
}

// hostedDeployment is the Deployment of the workload cluster, but for what the pod is
// given. The account that it runs as may do no more than a pushed credential, and of what
// it can read it may have to send all to the owner of the workload cluster, who can change
// where the agent reports to. So it is given that account's token and a credential of that
// same workload cluster, and nothing else.
func hostedDeployment(in Input, hosting Hosting) *appsv1.Deployment {
	hosted := deployment(in)
	hosted.ObjectMeta = hostedMeta(in, hosting)
	labels := HostedPodLabels(in.ClusterNamespace)
	hosted.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	template := &hosted.Spec.Template
	template.Labels = labels
	template.Annotations[fleetv1.HostedForAnnotation] = hosting.Registration.String()
	template.Annotations[hostedRevisionAnnotation] = hash([]any{hosting.Workload, hosting.AccountUID})

	pod := &template.Spec
	pod.ServiceAccountName = in.ClusterNamespace
	pod.AutomountServiceAccountToken = new(false)
	pod.EnableServiceLinks = new(false)
	pod.Volumes = hostedVolumes(in)
	container := &pod.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: workloadVolume, MountPath: workloadDir(in), ReadOnly: true})
	for i := range container.Env {
		if v := &container.Env[i]; v.Name == "NAMESPACE" {
			// That of the agent's objects in the workload cluster.
			v.Value, v.ValueFrom = Namespace, nil
		}
	}
	container.Env = append([]corev1.EnvVar{{Name: "KUBECONFIG", Value: path.Join(workloadDir(in), workloadKey)}}, container.Env...)
	return hosted
}

func hostedVolumes(in Input) []corev1.Volume {
	all := []corev1.Volume{
		emptyDir("kube"),
		emptyDir("tmp"),
		{
			Name: tokenVolume,
			VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					// Without an audience it is for the API server.
					ExpirationSeconds: new(int64(projectedTokenLife / time.Second)),
					Path:              tokenKey,
				}}},
				DefaultMode: new(int32(0o444)),
			}},
		},
		secretVolume(workloadVolume, in.ClusterNamespace, workloadKey, tokenKey),
	}
	if len(in.Agent.AdditionalCAData) > 0 {
		all = append(all, secretVolume(caVolume, in.ClusterNamespace, additionalCAKey))
	}
	return all
}

// workloadDir returns the folder in which a hosted agent sees its way to the workload
// cluster.
func workloadDir(in Input) string { return tokenDir(in) + "-workload" }

// TokenDirOf returns the folder in which the pod of a hosted agent's Deployment has its
// token: that of the manager which made it.
func TokenDirOf(hosted *appsv1.Deployment) string {
	for _, container := range hosted.Spec.Template.Spec.Containers {
		for _, mount := range container.VolumeMounts {
			if mount.Name == tokenVolume {
				return mount.MountPath
			}
		}
	}
	return ""
}

// HostedSecret returns the way of a hosted agent to the workload cluster, and its
// credential there. As in Secret the token is there twice.
func HostedSecret(in Input, hosting Hosting, token string) *corev1.Secret {
	data := map[string][]byte{
		workloadKey: hosting.Workload.Kubeconfig(token, path.Join(workloadDir(in), tokenKey)),
		tokenKey:    []byte(token),
	}
	if ca := in.Agent.AdditionalCAData; len(ca) > 0 {
		data[additionalCAKey] = ca
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: hostedMeta(in, hosting),
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

// Kubeconfig returns a kubeconfig for the workload cluster with a token, and a file that
// goes before it where it can be read; empty means none.
func (w WorkloadCluster) Kubeconfig(token, tokenFile string) []byte {
	const entry = "workload-cluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{
		Server:                   w.Server,
		CertificateAuthorityData: w.CAData,
		TLSServerName:            w.ServerName,
		InsecureSkipTLSVerify:    w.InsecureTLS,
	}
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{Token: token, TokenFile: tokenFile}
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry, Namespace: Namespace}
	config.CurrentContext = entry
	return must(clientcmd.Write(*config))
}

// HostedNetworkPolicy lets a hosted agent reach the destinations and the cluster's DNS,
// and nobody reach it. The same addresses, in whatever order, give the same object.
func HostedNetworkPolicy(in Input, hosting Hosting, destinations []Destination) *networkingv1.NetworkPolicy {
	egress := []networkingv1.NetworkPolicyEgressRule{{
		Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, dnsPort), port(corev1.ProtocolTCP, dnsPort)},
		To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem},
		}}},
	}}
	for _, destination := range merged(destinations) {
		rule := networkingv1.NetworkPolicyEgressRule{Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, destination.Port)}}
		for _, address := range destination.Addresses {
			block := netip.PrefixFrom(address, address.BitLen()).String()
			rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: block}})
		}
		egress = append(egress, rule)
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: hostedMeta(in, hosting),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: HostedPodLabels(in.ClusterNamespace)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress:      egress,
		},
	}
}

func port(protocol corev1.Protocol, number uint16) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(int32(number)))}
}

// merged returns the destinations by port, each address once. One without an address
// is left out: a rule without peers would allow all.
func merged(destinations []Destination) []Destination {
	byPort := map[uint16][]netip.Addr{}
	for _, destination := range destinations {
		for _, address := range destination.Addresses {
			byPort[destination.Port] = append(byPort[destination.Port], address.Unmap().WithZone(""))
		}
	}
	var all []Destination
	for number, addresses := range byPort {
		slices.SortFunc(addresses, netip.Addr.Compare)
		all = append(all, Destination{slices.Compact(addresses), number})
	}
	slices.SortFunc(all, func(a, b Destination) int { return int(a.Port) - int(b.Port) })
	return all
}

func hostedMeta(in Input, hosting Hosting) metav1.ObjectMeta {
	meta := ours(in, hosting.Namespace, in.ClusterNamespace)
	meta.Annotations[fleetv1.HostedForAnnotation] = hosting.Registration.String()
	return meta
}

// HostedLeftovers returns what a removal of a hosted agent deletes on the management
// cluster, with names only. The Deployment comes first, which stops the agent.
func HostedLeftovers(managerNamespace, clusterNamespace string) []client.Object {
	here := metav1.ObjectMeta{Namespace: managerNamespace, Name: clusterNamespace}
	return []client.Object{
		&appsv1.Deployment{ObjectMeta: here},
		&networkingv1.NetworkPolicy{ObjectMeta: here},
		&corev1.Secret{ObjectMeta: here},
	}
}

// maxLeaseDuration bounds what a lease may say of how long it lasts. Fleet's agent has 30
// seconds unless somebody sets more.
const maxLeaseDuration = 5 * time.Minute

// LeaseFree tells whether no agent holds the lease of the workload cluster's agents, nil
// where there is none: it was given up, or is the same for longer than it lasts. The times
// in it are those of another clock, and one from the future would keep it for ever.
func LeaseFree(lease *coordinationv1.Lease, same time.Duration) bool {
	return lease == nil || ptr.Deref(lease.Spec.HolderIdentity, "") == "" || same > LeaseDuration(lease)
}

// LeaseDuration returns how long a lease is held after it was renewed.
func LeaseDuration(lease *coordinationv1.Lease) time.Duration {
	seconds := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return min(max(0, seconds), maxLeaseDuration)
}
