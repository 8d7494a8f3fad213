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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FleetRegistrationPolicySpec says which Clusters join Fleet, and how.
type FleetRegistrationPolicySpec struct {
	// clusterSelector selects Clusters by their labels. Omitted, it selects those
	// with fleet.addons.cluster.x-k8s.io/register set to "true" on the Cluster or,
	// where the Cluster does not carry the label, on its Namespace. The value
	// "false" keeps a Cluster out whatever a selector says.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`

	// namespaceSelector selects the Namespaces of those Clusters by their labels.
	// Omitted, it selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// priority decides between policies that select the same Cluster: the highest
	// wins, then the one that has the Cluster, then the older policy, then the name that sorts first. Omitted means 0.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`

	// fleetCluster says where the Fleet Clusters are, what they are called and what is on
	// them for Fleet to select and template by. Omitted, each is in the namespace of its
	// Cluster, has its name and gets its labels.
	// +optional
	FleetCluster FleetClusterSettings `json:"fleetCluster,omitempty,omitzero"`

	// managementCluster says where agents find the management cluster. Omitted, the
	// address comes from Fleet's own configuration (apiServerURL and apiServerCA in
	// the ConfigMap fleet-controller), then from the ConfigMap cluster-info in
	// kube-public.
	// +optional
	ManagementCluster ManagementClusterSource `json:"managementCluster,omitempty,omitzero"`

	// credentials says what credential the agents are given. A change counts from the
	// next renewal of each on.
	// +optional
	Credentials CredentialsSpec `json:"credentials,omitempty,omitzero"`

	// adoption says whether clusters that Fleet registered by itself are taken over.
	// Omitted means Never.
	// +optional
	Adoption AdoptionMode `json:"adoption,omitempty"`

	// deletion says what becomes of a workload cluster whose Cluster opts out. A change
	// counts at once for every registration of the policy.
	// +optional
	Deletion DeletionSpec `json:"deletion,omitempty,omitzero"`

	// agent holds settings of the agents. What is omitted comes from Fleet's own
	// configuration, then from the manager's flags. A change needs a new pod of each
	// agent.
	// +optional
	Agent AgentSettings `json:"agent,omitempty,omitzero"`

	// rollout says how changes that restart agents spread over the policy's clusters.
	// +optional
	Rollout RolloutSpec `json:"rollout,omitempty,omitzero"`
}

// RolloutSpec says how changes that restart agents spread over clusters.
type RolloutSpec struct {
	// maxUnavailable is how many agents may be changing at once: a number from 1, or a
	// percentage of the policy's clusters from "1%" to "100%", rounded down, at least
	// one. An agent that fails counts until it checks in again. Omitted means "10%".
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable must be a number from 1, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// paused gives no more turns, so that no agent is changed. Agents that are changing
	// already go on.
	// +optional
	Paused bool `json:"paused,omitempty"` //nolint:kubeapilinter // A Deployment has it so.
}

// AgentSettings are the settings of agents.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.preset) || self.preset != 'Bootstrap' || !has(self.network) || self.network == 'Host'",message="network must not be Pod with preset Bootstrap"
// +kubebuilder:validation:XValidation:rule="!has(self.placement) || self.placement != 'Management' || (!has(self.network) || self.network == 'Pod') && (!has(self.preset) || self.preset == 'Standard')",message="placement Management must not have network Host or preset Bootstrap: it would open the nodes of the management cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.placement) || self.placement != 'Management' || !has(self.proxy)",message="placement Management must not have a proxy: an agent on the management cluster reaches both clusters directly"
type AgentSettings struct {
	// image of the agent. Its version should be that of Fleet on the management
	// cluster. Omitted, it is the one that Fleet's configuration names (agentImage).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9\[][-A-Za-z0-9._:/@\[\]]*$`
	Image string `json:"image,omitempty"`

	// imagePullPolicy of the agent's container. Omitted, it is that of Fleet's
	// configuration (agentImagePullPolicy), then left to Kubernetes.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`

	// registry is put before an image that names no registry of its own: a host, which
	// may have a port and a path. Omitted, it is that of Fleet's configuration
	// (systemDefaultRegistry).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9\[][-A-Za-z0-9.:\[\]]*(/[A-Za-z0-9][-A-Za-z0-9._]*)*$`
	Registry string `json:"registry,omitempty"`

	// imagePullSecrets are names of Secrets in the manager's namespace, of type
	// kubernetes.io/dockerconfigjson. Each is copied into the agent's namespace as
	// capi-fleet-pull-<name>. Omitted, the names are those of Fleet's configuration
	// (imagePullSecrets).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=230
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="each of imagePullSecrets must be a valid object name"
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`

	// env are further variables of the agent's container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Env []EnvVar `json:"env,omitempty"`

	// proxy is the way out for the agent's HTTP requests, also for those to the
	// management cluster. Omitted means a direct one.
	// +optional
	Proxy ProxySettings `json:"proxy,omitempty,omitzero"`

	// resources of the agent's container. Omitted asks for none and sets no limit.
	// +optional
	Resources AgentResources `json:"resources,omitempty,omitzero"`

	// nodeSelector are labels that the agent's node must have besides
	// kubernetes.io/os=linux.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != 'kubernetes.io/os')",message="nodeSelector must not have kubernetes.io/os: agents run on linux"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="nodeSelector must have valid names of labels"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// tolerations of the agent's pod besides those that it always has, up to 16. What is
	// in them is bounded in the CRD alone (hack/crdbounds).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.key) && t.key != '' || has(t.operator) && t.operator == 'Exists')",message="tolerations without a key must have operator Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')",message="tolerations with operator Exists must have no value"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')",message="tolerations with tolerationSeconds must have effect NoExecute"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity of the agent's pod. Each of its lists has up to 16 entries.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// network of the agent's pod: Pod gives it an address of its own, Host puts it into
	// the network of its node. A cluster that enforces the Pod Security Standard
	// baseline or restricted on the agent's namespace refuses Host. Omitted means Host
	// with preset Bootstrap, and else Pod.
	// +optional
	Network AgentNetwork `json:"network,omitempty"`

	// priorityClassName of the agent's pod. The PriorityClass must be there in the
	// workload cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="priorityClassName must be a valid object name"
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// checkinInterval is the time between two heartbeats of an agent, at least 1s.
	// Omitted, it is that of Fleet's configuration (agentCheckinInterval), then that of
	// the manager's flag, then the agent's own 15m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="checkinInterval must be at least 1s"
	CheckinInterval metav1.Duration `json:"checkinInterval,omitempty,omitzero"`

	// garbageCollectionInterval is the time between two looks of an agent for releases
	// that have no BundleDeployment, at least 1s. Omitted, it is that of Fleet's
	// configuration, then the agent's own.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="garbageCollectionInterval must be at least 1s"
	GarbageCollectionInterval metav1.Duration `json:"garbageCollectionInterval,omitempty,omitzero"`

	// workers bounds the concurrency of an agent. Each number that is omitted is that
	// of Fleet's configuration (agentWorkers), then the agent's own.
	// +optional
	Workers AgentWorkers `json:"workers,omitempty,omitzero"`

	// additionalCA are certificates that the agent trusts besides those of its system:
	// for a proxy or a registry of charts. The management cluster's own CA has its
	// place in managementCluster.
	// +optional
	AdditionalCA CASource `json:"additionalCA,omitempty,omitzero"`

	// preset is a set of settings that the others add to. Bootstrap is for clusters in
	// which the agent deploys the CNI: it is in the network of its node, uses the DNS of
	// its node and tolerates nodes that are not ready yet. Omitted means Standard.
	// +optional
	Preset AgentPreset `json:"preset,omitempty"`

	// placement says in which cluster the agent's pod runs: Workload, or Management for
	// one in the manager's namespace, where the workload cluster has no way to the
	// management cluster. What is said here about nodes, priority classes and pull
	// secrets is about that cluster then. Omitted means Workload.
	// +optional
	Placement AgentPlacement `json:"placement,omitempty"`
}

// ManagementClusterSource says where agents find the management cluster.
type ManagementClusterSource struct {
	// server is the https URL of the management cluster's API server, reachable
	// from the workload clusters. It may have a port and a path, but no user,
	// query or fragment.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''",message="server must be an https URL with a host"
	// +kubebuilder:validation:XValidation:rule="!self.contains('?') && !self.contains('#') && !self.contains('@')",message="server must not have a user, query or fragment"
	Server string `json:"server,omitempty"`

	// ca says which certificate authority signs the server's certificate. Omitted,
	// the agent trusts what its system trusts.
	// +optional
	CA CASource `json:"ca,omitempty,omitzero"`
}

// CASource is a PEM bundle of certificates, from one of three places.
// +kubebuilder:validation:XValidation:rule="(has(self.inline) ? 1 : 0) + (has(self.configMap) ? 1 : 0) + (has(self.secret) ? 1 : 0) == 1",message="exactly one of inline, configMap and secret must be set"
type CASource struct {
	// inline is the PEM bundle itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Inline string `json:"inline,omitempty"`

	// configMap is a key of a ConfigMap in the manager's namespace.
	// +optional
	ConfigMap KeyReference `json:"configMap,omitempty,omitzero"`

	// secret is a key of a Secret in the manager's namespace.
	// +optional
	Secret KeyReference `json:"secret,omitempty,omitzero"`
}

// KeyReference names a key of an object in the manager's namespace.
type KeyReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="name must be a valid object name"
	Name string `json:"name,omitempty"`

	// key within the object. Omitted means ca.crt.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// FleetRegistrationPolicyStatus counts the registrations of a policy.
type FleetRegistrationPolicyStatus struct {
	// conditions say whether the policy can be carried out.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// matched is the number of registrations that this policy selected.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Matched *int32 `json:"matched,omitempty"`

	// ready is how many of them are ready.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Ready *int32 `json:"ready,omitempty"`

	// revision is a hash of what the policy makes agents from now.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision,omitempty"`

	// updated is how many agents run that revision and have checked in since.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Updated *int32 `json:"updated,omitempty"`

	// failed is how many agents were changed and did not come up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed *int32 `json:"failed,omitempty"`
}

// FleetRegistrationPolicy says which Clusters join Fleet, and how.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=fleetregistrationpolicies,scope=Cluster,shortName=fleetregpolicy,categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/provider=addon-fleet";"clusterctl.cluster.x-k8s.io=";"clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the policy can be carried out"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it can or cannot"
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,description="The highest wins"
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.matched`,description="Registrations that this policy selected"
// +kubebuilder:printcolumn:name="Joined",type=integer,JSONPath=`.status.ready`,description="Registrations that are ready"
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updated`,description="Agents that run the newest revision"
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`,description="Agents that did not come up after a change"
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.conditions[?(@.type=="RolledOut")].reason`,description="How far the newest revision is"
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`,description="What agents are made from now",priority=1
// +kubebuilder:printcolumn:name="Waits",type=string,JSONPath=`.status.conditions[?(@.type=="RolledOut")].message`,description="What the rollout waits for",priority=1
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.managementCluster.server`,description="Where agents find the management cluster",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FleetRegistrationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says which Clusters join, and how. Empty, the policy selects every
	// labelled Cluster and takes every default.
	// +optional
	Spec FleetRegistrationPolicySpec `json:"spec,omitempty,omitzero"`

	// status counts the registrations of the policy.
	// +optional
	Status FleetRegistrationPolicyStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the policy.
func (p *FleetRegistrationPolicy) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the conditions of the policy.
func (p *FleetRegistrationPolicy) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = conditions
}

// FleetRegistrationPolicyList is a list of FleetRegistrationPolicies.
// +kubebuilder:object:root=true
type FleetRegistrationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []FleetRegistrationPolicy `json:"items"`
}
