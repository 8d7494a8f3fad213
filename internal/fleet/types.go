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

package fleet

import (
	"encoding/json"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of Fleet's API.
	GroupVersion = schema.GroupVersion{Group: "fleet.cattle.io", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Cluster{}, &ClusterList{},
		&ClusterGroup{}, &ClusterGroupList{},
		&BundleNamespaceMapping{}, &BundleNamespaceMappingList{},
		&Bundle{}, &BundleList{},
		&BundleDeployment{}, &BundleDeploymentList{},
		&Content{}, &ContentList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

const (
	// ClusterManagementLabel on a Cluster, with any value that is not empty, keeps
	// Fleet's own agent management away from it. Since Fleet 0.13.
	ClusterManagementLabel = "fleet.cattle.io/cluster-management"

	// ShardRefLabel names the shard of Fleet's controller that handles an object.
	ShardRefLabel = "fleet.cattle.io/shard-ref"

	// ClusterDisplayNameLabel on a Cluster is the name that Rancher shows. clusterName in
	// the targets of a Bundle matches it as well (Fleet's internal/cmd/controller/target/
	// matcher, newer versions).
	ClusterDisplayNameLabel = "management.cattle.io/cluster-display-name"

	// ManagedLabel marks the namespaces that Fleet cleans up once their Cluster is
	// gone.
	ManagedLabel = "fleet.cattle.io/managed"

	// ClusterNamespaceAnnotation on a cluster namespace names the namespace of its
	// Cluster, and ClusterAnnotation the Cluster. Fleet needs both to carry the
	// state of BundleDeployments to the Cluster.
	ClusterNamespaceAnnotation = "fleet.cattle.io/cluster-namespace"
	// ClusterAnnotation names the Cluster of a cluster namespace.
	ClusterAnnotation = "fleet.cattle.io/cluster"

	// BundleNameLabel and BundleNamespaceLabel on a BundleDeployment name its
	// Bundle.
	BundleNameLabel = "fleet.cattle.io/bundle-name"
	// BundleNamespaceLabel names the namespace of a BundleDeployment's Bundle.
	BundleNamespaceLabel = "fleet.cattle.io/bundle-namespace"
	// ClusterNamespaceLabel and ClusterLabel on a BundleDeployment name the Cluster that it
	// is for.
	ClusterNamespaceLabel = "fleet.cattle.io/cluster-namespace"
	// ClusterLabel names the Cluster of a BundleDeployment.
	ClusterLabel = "fleet.cattle.io/cluster"

	// BundleIDAnnotation and AgentNamespaceAnnotation are in the chart metadata of
	// the Helm releases that Fleet's agent makes.
	BundleIDAnnotation = "fleet.cattle.io/bundle-id"
	// AgentNamespaceAnnotation names the namespace of the agent that made a release.
	AgentNamespaceAnnotation = "fleet.cattle.io/agent-namespace"

	// DefaultAgentNamespace is where an agent runs in the workload cluster unless
	// it is told otherwise, and where Fleet itself runs.
	DefaultAgentNamespace = "cattle-fleet-system"
)

// Cluster is a cluster that Fleet deploys to.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec,omitempty"`
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is what a Cluster should be.
type ClusterSpec struct {
	// ClientID identifies the cluster in Fleet's own registration. Whoever knows
	// it and holds a registration token can register as this cluster.
	ClientID string `json:"clientID,omitempty"`

	// AgentNamespace is the agent's namespace in the workload cluster. Empty means
	// cattle-fleet-system.
	AgentNamespace string `json:"agentNamespace,omitempty"`

	// Paused keeps Fleet from changing BundleDeployments.
	Paused bool `json:"paused,omitempty"`

	// TemplateValues are for the templates of fleet.yaml, which know them as
	// .ClusterValues. Upstream wraps the map in a type of its own.
	TemplateValues map[string]apiextensionsv1.JSON `json:"templateValues,omitempty"`
}

// ClusterStatus is what Fleet and the agent report of a Cluster.
type ClusterStatus struct {
	// Namespace is the cluster namespace. Fleet deletes it together with the
	// Cluster.
	Namespace string `json:"namespace,omitempty"`

	// Agent is written by the agent's heartbeat.
	Agent AgentStatus `json:"agent,omitempty"`

	// Conditions are Fleet's.
	Conditions []Condition `json:"conditions,omitempty"`
}

// ReadyCondition of a Cluster says whether all that Fleet deploys there is ready. It is
// True where that is nothing.
const ReadyCondition = "Ready"

// Condition is one of Fleet's conditions.
type Condition struct {
	Type   string                 `json:"type"`
	Status metav1.ConditionStatus `json:"status"`
}

// AgentStatus is the agent's heartbeat.
type AgentStatus struct {
	// LastSeen is the time of the newest heartbeat, zero before the first.
	LastSeen metav1.Time `json:"lastSeen,omitempty"`

	// Namespace is where the agent runs.
	Namespace string `json:"namespace,omitempty"`
}

// UnmarshalJSON takes a LastSeen that is no time for none. The API server accepts
// more as a date-time than Go can read, and agents write it: one that could not be
// read would keep all Clusters from being listed.
func (s *AgentStatus) UnmarshalJSON(data []byte) error {
	var sent struct {
		LastSeen  string `json:"lastSeen"`
		Namespace string `json:"namespace"`
	}
	if err := json.Unmarshal(data, &sent); err != nil {
		return err
	}
	*s = AgentStatus{Namespace: sent.Namespace}
	if seen, err := time.Parse(time.RFC3339, sent.LastSeen); err == nil {
		s.LastSeen = metav1.NewTime(seen.Local())
	}
	return nil
}

// ClusterList is a list of Clusters.
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterGroup is a selection of Clusters in its namespace that has labels of its own.
// +kubebuilder:object:root=true
type ClusterGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterGroupSpec `json:"spec,omitempty"`
}

// ClusterGroupSpec says which Clusters are in a ClusterGroup.
type ClusterGroupSpec struct {
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ClusterGroupList is a list of ClusterGroups.
// +kubebuilder:object:root=true
type ClusterGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterGroup `json:"items"`
}

// BundleNamespaceMapping lets Bundles of its namespace reach the Clusters of others.
// +kubebuilder:object:root=true
type BundleNamespaceMapping struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	BundleSelector    *metav1.LabelSelector `json:"bundleSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// BundleNamespaceMappingList is a list of BundleNamespaceMappings.
// +kubebuilder:object:root=true
type BundleNamespaceMappingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BundleNamespaceMapping `json:"items"`
}

// Bundle is a set of resources and the Clusters that they go to. Only the lab
// and tests make any.
// +kubebuilder:object:root=true
type Bundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BundleSpec `json:"spec,omitempty"`
}

// BundleSpec is what a Bundle deploys, and where.
type BundleSpec struct {
	BundleDeploymentOptions `json:",inline"`

	// Paused keeps Fleet from changing what the Bundle deploys.
	Paused    bool             `json:"paused,omitempty"`
	Resources []BundleResource `json:"resources,omitempty"`
	Targets   []BundleTarget   `json:"targets,omitempty"`
}

// BundleResource is one file of a Bundle.
type BundleResource struct {
	Name    string `json:"name,omitempty"`
	Content string `json:"content,omitempty"`
}

// BundleTarget selects Clusters in the namespace of the Bundle.
type BundleTarget struct {
	ClusterName     string                `json:"clusterName,omitempty"`
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
}

// BundleList is a list of Bundles.
// +kubebuilder:object:root=true
type BundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Bundle `json:"items"`
}

// BundleDeployment is a Bundle on one Cluster. It lies in the cluster namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type BundleDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BundleDeploymentSpec   `json:"spec,omitempty"`
	Status BundleDeploymentStatus `json:"status,omitempty"`
}

// BundleDeploymentSpec is what the agent should deploy.
type BundleDeploymentSpec struct {
	Paused bool `json:"paused,omitempty"`

	// StagedOptions and StagedDeploymentID become Options and DeploymentID once Fleet lets
	// the Cluster have them. While a BundleDeployment is paused it does not.
	StagedOptions BundleDeploymentOptions `json:"stagedOptions,omitempty"`
	// StagedDeploymentID belongs to StagedOptions.
	StagedDeploymentID string `json:"stagedDeploymentID,omitempty"`

	// Options say where the agent deploys.
	Options BundleDeploymentOptions `json:"options,omitempty"`
	// DeploymentID is the name of a Content, a colon and a hash of the options. It is
	// empty where the agent has nothing to deploy yet.
	DeploymentID string `json:"deploymentID,omitempty"`
}

// BundleDeploymentOptions are those that name the Helm release.
type BundleDeploymentOptions struct {
	// DefaultNamespace is the namespace of the release, unless TargetNamespace is set.
	DefaultNamespace string `json:"defaultNamespace,omitempty"`
	// TargetNamespace is the namespace of the release and of all that it deploys.
	TargetNamespace string       `json:"namespace,omitempty"`
	Helm            *HelmOptions `json:"helm,omitempty"`
}

// HelmOptions are those of Helm.
type HelmOptions struct {
	// ReleaseName is the name of the release. Empty means one made of the name of the
	// BundleDeployment.
	ReleaseName string `json:"releaseName,omitempty"`
}

// BundleDeploymentStatus is what the agent reports.
type BundleDeploymentStatus struct {
	Ready               bool   `json:"ready,omitempty"`
	AppliedDeploymentID string `json:"appliedDeploymentID,omitempty"`
	Release             string `json:"release,omitempty"`
}

// BundleDeploymentList is a list of BundleDeployments.
// +kubebuilder:object:root=true
type BundleDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BundleDeployment `json:"items"`
}

// Content holds the resources of a Bundle under a name that cannot be guessed.
// +kubebuilder:object:root=true
type Content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Content   []byte `json:"content,omitempty"`
	SHA256Sum string `json:"sha256sum,omitempty"`
}

// ContentList is a list of Contents.
// +kubebuilder:object:root=true
type ContentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Content `json:"items"`
}
