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

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FleetRegistrationSpec is the resolved snapshot of how one Cluster joins Fleet.
// The manager alone writes it.
type FleetRegistrationSpec struct {
	// registrationID is random and made with the object. The same value is on
	// the Fleet Cluster and on the Secret in the workload cluster; a different
	// one there means that they belong to someone else.
	// +required
	// +kubebuilder:validation:MinLength=32
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="registrationID is immutable"
	RegistrationID string `json:"registrationID,omitempty"`

	// fleetCluster names the Fleet Cluster that stands for the Cluster.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="fleetCluster is immutable"
	FleetCluster FleetClusterReference `json:"fleetCluster,omitempty,omitzero"`

	// selectedBy records what selected the Cluster last.
	// +required
	SelectedBy SelectedBy `json:"selectedBy,omitempty,omitzero"`

	// credentials says what credential the agent is given. A change counts from the
	// next renewal on and needs no new pod.
	// +optional
	Credentials CredentialsSpec `json:"credentials,omitempty,omitzero"`

	// adoption says whether a cluster that Fleet registered by itself is taken over.
	// Omitted means Never.
	// +optional
	Adoption AdoptionMode `json:"adoption,omitempty"`

	// deletion says what becomes of the workload cluster when its Cluster opts out.
	// +optional
	Deletion DeletionSpec `json:"deletion,omitempty,omitzero"`

	// targeting says what is on the Fleet Cluster for Fleet to select and template by. It
	// needs no new pod. Omitted, the Fleet Cluster gets the labels of the Cluster.
	// +optional
	Targeting TargetingSettings `json:"targeting,omitempty,omitzero"`

	// policyFleetCluster names the Fleet Cluster as the policy would have it now, where
	// that is another one than fleetCluster. It is not made: fleetCluster is immutable.
	// +optional
	PolicyFleetCluster FleetClusterReference `json:"policyFleetCluster,omitempty,omitzero"`

	// clusterUID is the UID that the Cluster had when agent was found. Where it is not
	// the Cluster's, both were moved or restored, and agent speaks of another management
	// cluster. Empty means that it is not known.
	// +optional
	ClusterUID types.UID `json:"clusterUID,omitempty"`

	// agent holds what the agent's pod is made from. A change of any field here
	// needs a new pod.
	// +optional
	Agent AgentSpec `json:"agent,omitempty,omitzero"`
}

// AdoptionMode says whether a cluster that Fleet registered by itself, or that an
// earlier provider had it register, is taken over.
// +kubebuilder:validation:Enum=Never;Adopt
type AdoptionMode string

const (
	// AdoptionNever leaves such a cluster alone and says so.
	AdoptionNever AdoptionMode = "Never"
	// AdoptionAdopt takes it over with its Fleet Cluster, its cluster namespace and
	// everything that is deployed.
	AdoptionAdopt AdoptionMode = "Adopt"
)

// DeletionSpec says what becomes of the workload cluster when its Cluster opts out
// of Fleet and lives on. The deletion of the Cluster is not governed by it.
type DeletionSpec struct {
	// workloads says what becomes of what Fleet deployed: Orphan leaves it running,
	// Uninstall lets the agent uninstall it. Omitted means Orphan. A Cluster whose label
	// was removed, and not set to "false", is always left with its workloads.
	// +optional
	Workloads WorkloadsDeletion `json:"workloads,omitempty"`

	// agent says what becomes of the agent's objects: Remove takes them away, Keep
	// leaves them, but for the credential, with the Deployment at 0 replicas. Omitted
	// means Remove.
	// +optional
	Agent AgentDeletion `json:"agent,omitempty"`
}

// WorkloadsDeletion says what becomes of deployed bundles.
// +kubebuilder:validation:Enum=Orphan;Uninstall
type WorkloadsDeletion string

const (
	// WorkloadsOrphan leaves what is deployed running.
	WorkloadsOrphan WorkloadsDeletion = "Orphan"
	// WorkloadsUninstall lets the agent uninstall it.
	WorkloadsUninstall WorkloadsDeletion = "Uninstall"
)

// AgentDeletion says what becomes of an agent's objects.
// +kubebuilder:validation:Enum=Remove;Keep
type AgentDeletion string

const (
	// AgentRemove takes the agent's objects away.
	AgentRemove AgentDeletion = "Remove"
	// AgentKeep leaves them, but for the credential, with the Deployment at 0 replicas.
	AgentKeep AgentDeletion = "Keep"
)

// CredentialsSpec says what credential an agent is given.
type CredentialsSpec struct {
	// lifetime of the agent's token, from 1h to 8760h. The API server may grant less.
	// The token is renewed between a third and a half of its life. Omitted means 72h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h') && duration(self) <= duration('8760h')",message="lifetime must be from 1h to 8760h"
	Lifetime metav1.Duration `json:"lifetime,omitempty,omitzero"`
}

// FleetClusterReference names a Fleet Cluster.
type FleetClusterReference struct {
	// namespace of the Fleet Cluster, Fleet's registration namespace or workspace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name of the Fleet Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
}

// SelectedBy says what selected a Cluster.
type SelectedBy struct {
	// policy is the name of the FleetRegistrationPolicy. Empty means the built-in
	// policy, which takes labelled Clusters with every default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy,omitempty"`

	// label says which object carried the label that opted in: Cluster or
	// Namespace. Empty means that a selector of the policy matched without it.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Namespace
	Label LabelHolder `json:"label,omitempty"`

	// namespaceSelector is that of the policy when it last selected the Cluster; empty
	// means that it selected all Namespaces. If it still selects the Namespace, and the
	// policy's own does not, the policy was changed, and other policies take the Cluster
	// over; else the Namespace was, and they do not. Omitted, that is not known.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// LabelHolder is the kind of object that carries the opt-in label.
type LabelHolder string

const (
	// LabelOnCluster means that the Cluster itself carries the opt-in label.
	LabelOnCluster LabelHolder = "Cluster"
	// LabelOnNamespace means that the Namespace of the Cluster carries it.
	LabelOnNamespace LabelHolder = "Namespace"
)

// AgentSpec is everything that the agent's pod is made from.
type AgentSpec struct {
	// manifests is the version of the agent's manifests, a hash: which of what a manager
	// builds for every agent alike the agent is to have. While it is another than the
	// running manager's, a new version of capi-fleet leaves the agent as it is.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Manifests string `json:"manifests,omitempty"`

	// managementCluster is where the agent finds the management cluster. It is
	// missing while no source names an address; the agent then waits.
	// +optional
	ManagementCluster ManagementClusterEndpoint `json:"managementCluster,omitempty,omitzero"`

	// image of the agent. It is missing while no source names one; the agent
	// then waits.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// imagePullPolicy of the agent's container. Empty leaves it to Kubernetes.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets are names of Secrets in the manager's namespace. Each is copied
	// into the agent's namespace as capi-fleet-pull-<name>.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=230
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`

	// env are variables of the agent's container besides those that are always there.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Env []EnvVar `json:"env,omitempty"`

	// proxy is the way out for the agent's HTTP requests. Empty means a direct one.
	// +optional
	Proxy ProxySettings `json:"proxy,omitempty,omitzero"`

	// resources of the agent's container. Empty asks for none and sets no limit.
	// +optional
	Resources AgentResources `json:"resources,omitempty,omitzero"`

	// nodeSelector are labels that the agent's node must have besides
	// kubernetes.io/os=linux.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// tolerations of the agent's pod besides those that it always has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity of the agent's pod.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// network of the agent's pod. Empty means that of the preset.
	// +optional
	Network AgentNetwork `json:"network,omitempty"`

	// priorityClassName of the agent's pod.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// checkinInterval is the time between two heartbeats of the agent. Empty
	// means 15m, the agent's own default.
	// +optional
	CheckinInterval metav1.Duration `json:"checkinInterval,omitempty,omitzero"`

	// garbageCollectionInterval is the time between two looks of the agent for
	// releases that have no BundleDeployment. Empty leaves it to the agent.
	// +optional
	GarbageCollectionInterval metav1.Duration `json:"garbageCollectionInterval,omitempty,omitzero"`

	// workers bounds the agent's concurrency. Empty leaves it to the agent.
	// +optional
	Workers AgentWorkers `json:"workers,omitempty,omitzero"`

	// additionalCAData is a PEM bundle of certificates that the agent trusts besides
	// those of its system.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	AdditionalCAData []byte `json:"additionalCAData,omitempty"`

	// preset is a set of settings that the others add to. Empty means Standard.
	// +optional
	Preset AgentPreset `json:"preset,omitempty"`

	// placement says in which cluster the agent's pod runs. Empty means Workload.
	// +optional
	Placement AgentPlacement `json:"placement,omitempty"`
}

// AgentPlacement says in which cluster an agent's pod runs.
// +kubebuilder:validation:Enum=Workload;Management
type AgentPlacement string

const (
	// PlacementWorkload runs the agent in the workload cluster, which needs a way to the
	// management cluster then.
	PlacementWorkload AgentPlacement = "Workload"
	// PlacementManagement runs it in the manager's namespace on the management cluster,
	// so that the workload cluster needs no way out.
	PlacementManagement AgentPlacement = "Management"
)

// Hosted tells whether the agent is to run on the management cluster.
func (a *AgentSpec) Hosted() bool { return a.Placement == PlacementManagement }

// EnvVar is a variable of the agent's container.
type EnvVar struct {
	// name of the variable. Those that capi-fleet sets itself are refused, and so are
	// those that have a field of their own.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_.-]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['NAMESPACE', 'KUBECONFIG', 'AGENT_SCOPE', 'CHECKIN_INTERVAL', 'FLEET_AGENT_METRICS_BIND_ADDRESS', 'FLEET_AGENT_PROBE_BIND_ADDRESS']) && !self.startsWith('CATTLE_ELECTION_') && !self.endsWith('_RECONCILER_WORKERS')",message="name must not be that of a variable which capi-fleet sets itself or which would break the agent"
	// +kubebuilder:validation:XValidation:rule="!(self.upperAscii() in ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY'])",message="name must not be that of a proxy variable: use the field proxy"
	// +kubebuilder:validation:XValidation:rule="!(self in ['SSL_CERT_DIR', 'SSL_CERT_FILE'])",message="name must not be SSL_CERT_DIR or SSL_CERT_FILE: use the field additionalCA"
	Name string `json:"name,omitempty"`

	// value of the variable, taken literally: $(NAME) is not replaced. It can be read
	// by everybody who may read the registration or the workload cluster's Deployment,
	// so it must hold no secret.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
}

// ProxySettings say through which proxies HTTP requests go.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.httpProxy) || has(self.httpsProxy)",message="proxy must have httpProxy or httpsProxy"
type ProxySettings struct {
	// httpProxy is the URL of the proxy for http requests.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https', 'socks5'] && url(self).getHostname() != ''",message="httpProxy must be an http, https or socks5 URL with a host"
	HTTPProxy string `json:"httpProxy,omitempty"`

	// httpsProxy is the URL of the proxy for https requests; those to the management
	// cluster are among them.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https', 'socks5'] && url(self).getHostname() != ''",message="httpsProxy must be an http, https or socks5 URL with a host"
	HTTPSProxy string `json:"httpsProxy,omitempty"`

	// noProxy are hosts, domains and CIDRs, separated by commas, that are reached
	// directly. The API server of the workload cluster and what ends in .svc or
	// .cluster.local always are.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\s]+$`
	NoProxy string `json:"noProxy,omitempty"`
}

// AgentResources are the resources of the agent's container.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="requests must not be above limits"
type AgentResources struct {
	// requests of cpu, memory and ephemeral-storage.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="requests may only have cpu, memory and ephemeral-storage"
	// +kubebuilder:validation:XValidation:rule="self.all(k, quantity(string(self[k])).compareTo(quantity('0')) >= 0)",message="requests must not be negative"
	Requests map[corev1.ResourceName]resource.Quantity `json:"requests,omitempty"`

	// limits of cpu, memory and ephemeral-storage.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="limits may only have cpu, memory and ephemeral-storage"
	// +kubebuilder:validation:XValidation:rule="self.all(k, quantity(string(self[k])).compareTo(quantity('0')) > 0)",message="limits must be above 0"
	Limits map[corev1.ResourceName]resource.Quantity `json:"limits,omitempty"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// AgentNetwork is the network that the agent's pod is in.
// +kubebuilder:validation:Enum=Pod;Host
type AgentNetwork string

const (
	// NetworkPod gives the pod an address of its own.
	NetworkPod AgentNetwork = "Pod"
	// NetworkHost puts it into the network of its node.
	NetworkHost AgentNetwork = "Host"
)

// AgentPreset is a set of settings for a purpose.
// +kubebuilder:validation:Enum=Standard;Bootstrap
type AgentPreset string

const (
	// PresetStandard is for clusters that have all that a pod needs.
	PresetStandard AgentPreset = "Standard"
	// PresetBootstrap is for clusters in which the agent deploys the CNI: the network
	// and the DNS of the node, and tolerations for nodes that are not ready yet.
	PresetBootstrap AgentPreset = "Bootstrap"
)

// AgentWorkers is the number of workers of the agent's controllers.
// +kubebuilder:validation:MinProperties=1
type AgentWorkers struct {
	// bundleDeployment is the number of BundleDeployments handled at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	BundleDeployment int32 `json:"bundleDeployment,omitempty"`

	// drift is the number of BundleDeployments whose drift is corrected at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Drift int32 `json:"drift,omitempty"`
}

// ManagementClusterEndpoint is the address of the management cluster's API server
// as agents use it.
type ManagementClusterEndpoint struct {
	// server is the https URL of the API server; it may have a port and a path.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="server must be an https URL"
	Server string `json:"server,omitempty"`

	// certificateAuthorityData is the PEM bundle that signs the API server's
	// certificate. Empty means that the agent trusts what its system trusts.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CertificateAuthorityData []byte `json:"certificateAuthorityData,omitempty"`
}

// FleetRegistrationStatus is what was last seen and done. All of it can be found
// out again: after a move it is empty.
type FleetRegistrationStatus struct {
	// conditions say how far the registration is and, where it does not go on, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// namespace is the cluster namespace on the management cluster: it holds the
	// BundleDeployments that the agent watches. The service account of the agent,
	// in the manager's namespace, has the same name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// namespaceUID is the UID of that namespace.
	// +optional
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`

	// workload is what identifies the workload cluster.
	// +optional
	Workload WorkloadStatus `json:"workload,omitempty,omitzero"`

	// agent is what was last put into the workload cluster.
	// +optional
	Agent AgentStatus `json:"agent,omitempty,omitzero"`

	// credential describes the token that the agent was last given.
	// +optional
	Credential CredentialStatus `json:"credential,omitempty,omitzero"`
}

// WorkloadStatus identifies a workload cluster.
type WorkloadStatus struct {
	// systemNamespaceUID is the UID of the namespace kube-system of the workload
	// cluster. Empty means that it is not known.
	// +optional
	SystemNamespaceUID types.UID `json:"systemNamespaceUID,omitempty"`
}

// AgentStatus describes the agent's objects in the workload cluster.
type AgentStatus struct {
	// placement is where the agent was last put. Empty means Workload.
	// +optional
	Placement AgentPlacement `json:"placement,omitempty"`

	// revision of the agent's manifests that was last put in place.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision,omitempty"`

	// image is what the agent runs: that of spec.agent when the agent last checked in with
	// it. Empty means that it has not yet.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// settings is a hash of the spec.agent from which the agent's objects were last made.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Settings string `json:"settings,omitempty"`

	// pullSecrets is a hash of which versions of the pull secrets were last copied. Empty
	// means that the settings name none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PullSecrets string `json:"pullSecrets,omitempty"`

	// namespaceUID is the UID of the cluster namespace that the agent was last
	// pointed at.
	// +optional
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`

	// updatedTime is when the objects of an agent that was there were last changed. It
	// is empty once the agent has checked in since.
	// +optional
	UpdatedTime metav1.Time `json:"updatedTime,omitempty,omitzero"`

	// availableTime is when the pod of that change became available, by the workload
	// cluster's clock. It is empty before, and once the agent has checked in since.
	// +optional
	AvailableTime metav1.Time `json:"availableTime,omitempty,omitzero"`

	// pushedTime is when the agent's objects were last written, or last found to be in
	// place.
	// +optional
	PushedTime metav1.Time `json:"pushedTime,omitempty,omitzero"`
}

// CredentialStatus describes the token that the agent was given: for the management
// cluster or, where it runs there, for the workload cluster.
type CredentialStatus struct {
	// issuedTime is when the token was issued.
	// +optional
	IssuedTime metav1.Time `json:"issuedTime,omitempty,omitzero"`

	// expirationTime is when the token ends. The API server may have granted a
	// shorter life than was asked for.
	// +optional
	ExpirationTime metav1.Time `json:"expirationTime,omitempty,omitzero"`

	// serviceAccountUID is the UID of the agent's service account on the management
	// cluster: its token for that ends with it. Empty means that it is not known.
	// +optional
	ServiceAccountUID types.UID `json:"serviceAccountUID,omitempty"`

	// rotation is a hash of the annotation fleet.addons.cluster.x-k8s.io/rotate when
	// the token was issued. Empty means that there was none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Rotation string `json:"rotation,omitempty"`
}

// FleetRegistration is one Cluster's membership in Fleet. It has the name and
// namespace of its Cluster and is owned by it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=fleetregistrations,scope=Namespaced,shortName=fleetreg,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/provider=addon-fleet";"clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the agent is deployed and reports"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not ready"
// +kubebuilder:printcolumn:name="Selected",type=string,JSONPath=`.status.conditions[?(@.type=="Selected")].status`,description="Whether a policy still selects the Cluster"
// +kubebuilder:printcolumn:name="Paused",type=string,JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Whether the registration is paused"
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.credential.expirationTime`,description="When the agent's credential ends",priority=1
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.namespace`,description="Cluster namespace on the management cluster",priority=1
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.selectedBy.policy`,description="Policy that selected the Cluster, empty for the built-in one",priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What to do",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FleetRegistration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the resolved snapshot of how the Cluster joins. The manager writes it.
	// +required
	Spec FleetRegistrationSpec `json:"spec,omitempty,omitzero"`

	// status is what was last seen and done.
	// +optional
	Status FleetRegistrationStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the registration.
func (r *FleetRegistration) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the registration.
func (r *FleetRegistration) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// FleetRegistrationList is a list of FleetRegistrations.
// +kubebuilder:object:root=true
type FleetRegistrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []FleetRegistration `json:"items"`
}
