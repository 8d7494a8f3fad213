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

// FleetClusterSettings say where the Fleet Clusters of a policy are, what they are
// called and what is on them for Fleet to select and template by.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.workspace) || has(self.nameFormat) && self.nameFormat == 'NamespaceName'",message="workspace requires nameFormat NamespaceName: two namespaces can have Clusters of one name"
// +kubebuilder:validation:XValidation:rule="!has(self.workspace) || has(self.labels) && has(self.labels.include) && self.labels.include.all(p, !p.contains('*'))",message="workspace requires labels.include, a list of keys without *: who labels a Cluster would choose among the bundles there"
// +kubebuilder:validation:XValidation:rule="!has(self.workspace) || !has(self.annotations) || !has(self.annotations.include) || self.annotations.include.all(p, !p.contains('*'))",message="workspace requires that annotations.include lists keys without *: who annotates a Cluster would choose what templates of the bundles there see"
// +kubebuilder:validation:XValidation:rule="!has(self.workspace) || !has(self.displayName) || self.displayName != 'Name'",message="workspace does not go with displayName Name: two namespaces can have Clusters of one name"
// +kubebuilder:validation:XValidation:rule="!has(self.workspace) || !has(self.groups) || self.groups != 'ClusterClass' || has(self.labels) && has(self.labels.include) && ['clusterclass-name.fleet.addons.cluster.x-k8s.io', 'clusterclass-namespace.fleet.addons.cluster.x-k8s.io'].all(k, k in self.labels.include)",message="groups ClusterClass with a workspace requires that labels.include lists the two keys of the ClusterClass"
// +kubebuilder:validation:XValidation:rule="!has(self.classNamespaces) || has(self.groups) && self.groups == 'ClusterClass'",message="classNamespaces requires groups ClusterClass"
type FleetClusterSettings struct {
	// workspace is the namespace that the Fleet Clusters are in, and so whose bundles
	// reach them. It must be there. Omitted, each is in the namespace of its Cluster.
	// Only new registrations are made there: one that is there keeps its place, and the
	// condition Targeted says so.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="workspace must be a valid name of a namespace"
	Workspace string `json:"workspace,omitempty"`

	// nameFormat is how Fleet Clusters are named: Name after the Cluster, NamespaceName
	// after its namespace and itself, with a hash, so that no two are named alike.
	// Omitted means Name. It counts for new registrations only, as workspace does.
	// +optional
	NameFormat NameFormat `json:"nameFormat,omitempty"`

	TargetingSettings `json:",inline"`
}

// NameFormat is how Fleet Clusters are named.
// +kubebuilder:validation:Enum=Name;NamespaceName
type NameFormat string

const (
	// FormatName names a Fleet Cluster after its Cluster.
	FormatName NameFormat = "Name"
	// FormatNamespaceName names it after namespace and name of the Cluster.
	FormatNamespaceName NameFormat = "NamespaceName"
)

// TargetingSettings say what is on a Fleet Cluster for Fleet to select and template by.
// A change needs no new pod of the agent.
type TargetingSettings struct {
	// labels of the Fleet Cluster. Omitted, all labels of the Cluster are copied. Two
	// more, clusterclass-name.fleet.addons.cluster.x-k8s.io and
	// clusterclass-namespace.fleet.addons.cluster.x-k8s.io, say which ClusterClass it is
	// of. In a workspace other than the Cluster's namespace only the keys that include
	// lists come from the Cluster, and these two have to be among them. A label that the
	// Cluster loses goes from the Fleet Cluster, and what Fleet deployed by it.
	// +optional
	Labels LabelPropagation `json:"labels,omitempty,omitzero"`

	// annotations of the Fleet Cluster, which templates of bundles have as
	// .ClusterAnnotations. Omitted, none are copied. In a workspace other than the
	// Cluster's namespace only keys that include lists without * are.
	// +optional
	Annotations AnnotationPropagation `json:"annotations,omitempty,omitzero"`

	// values are for the templates of bundles, which have them as .ClusterValues. They
	// are in spec.templateValues of the Fleet Cluster. One that the Cluster does not have
	// is left out, and the condition Targeted names it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Values []TemplateValue `json:"values,omitempty"`

	// groups is ClusterClass for a ClusterGroup of Fleet for each ClusterClass in use, or
	// None. A group is named <class> in the namespace of the class, and
	// <class>.<namespace of the class> in others. It has the labels of the ClusterClass,
	// but in a workspace other than the Cluster's namespace. With None no more are made;
	// those that are there stay as long as a Fleet Cluster is in them. Omitted means None.
	// +optional
	Groups GroupMode `json:"groups,omitempty"`

	// classNamespaces are the namespaces whose bundles may reach Clusters of other
	// namespaces that use a ClusterClass of theirs. For each such pair of namespaces a
	// BundleNamespaceMapping is made, which opens the namespace of the Fleet Clusters to
	// all bundles of the other one. A ClusterClass in any other namespace than the
	// Cluster's own has no effect: its labels are not put on a Fleet Cluster, either.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="classNamespaces must be valid names of namespaces"
	ClassNamespaces []string `json:"classNamespaces,omitempty"`

	// paused keeps Fleet from changing what is deployed: spec.paused of the Fleet
	// Cluster. Set by somebody else there it stays as it is.
	// +optional
	Paused bool `json:"paused,omitempty"` //nolint:kubeapilinter // Fleet has it so.

	// shard names the shard of Fleet's controller that handles the Fleet Cluster: its
	// label fleet.cattle.io/shard-ref. Omitted sets none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Shard LabelValue `json:"shard,omitempty"`

	// displayName is the name that Rancher shows, and that clusterName in the targets of
	// a bundle matches as well: the label management.cattle.io/cluster-display-name. Name
	// is the Cluster's, NamespaceName is <namespace>.<name>. Omitted sets none.
	// +optional
	DisplayName NameFormat `json:"displayName,omitempty"`
}

// GroupMode says by what clusters are grouped.
// +kubebuilder:validation:Enum=None;ClusterClass
type GroupMode string

const (
	// GroupsNone makes no groups.
	GroupsNone GroupMode = "None"
	// GroupsClusterClass makes a group for each ClusterClass in use.
	GroupsClusterClass GroupMode = "ClusterClass"
)

// LabelPropagation says which labels a Fleet Cluster gets. Keys of Fleet, Rancher and
// Cluster API, and those by which other tools know what is theirs, are never copied.
// +kubebuilder:validation:MinProperties=1
type LabelPropagation struct {
	// include are the keys of labels that are copied. In each, * stands for any
	// characters. Omitted means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Include []KeyPattern `json:"include,omitempty"`

	// exclude are the keys of labels that are not copied although include has them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Exclude []KeyPattern `json:"exclude,omitempty"`

	// static labels are the same on each Fleet Cluster. They win over what is copied.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="static must have valid names of labels"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?(cattle[.]io|x-k8s[.]io|helm[.]sh|argoproj[.]io|fluxcd[.]io|kapp[.]k14s[.]io|kubectl[.]kubernetes[.]io|applyset[.]kubernetes[.]io)/|^app[.]kubernetes[.]io/(managed-by|instance)$|^clusterclass-name(space)?[.]fleet[.]addons[.]cluster[.]x-k8s[.]io$'))",message="static must not have keys of Fleet, Rancher or Cluster API, nor those by which other tools know what is theirs"
	Static map[string]LabelValue `json:"static,omitempty"`
}

// AnnotationPropagation says which annotations a Fleet Cluster gets. Keys that are not
// copied for labels are not copied here either.
// +kubebuilder:validation:MinProperties=1
type AnnotationPropagation struct {
	// include are the keys of annotations that are copied. In each, * stands for any
	// characters. Omitted means none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Include []KeyPattern `json:"include,omitempty"`

	// exclude are the keys of annotations that are not copied although include has them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Exclude []KeyPattern `json:"exclude,omitempty"`

	// static annotations are the same on each Fleet Cluster. They win over what is
	// copied.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="static must have valid names of annotations"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?(cattle[.]io|x-k8s[.]io|helm[.]sh|argoproj[.]io|fluxcd[.]io|kapp[.]k14s[.]io|kubectl[.]kubernetes[.]io|applyset[.]kubernetes[.]io)/|^app[.]kubernetes[.]io/(managed-by|instance)$'))",message="static must not have keys of Fleet, Rancher or Cluster API, nor those by which other tools know what is theirs"
	Static map[string]AnnotationValue `json:"static,omitempty"`
}

// KeyPattern is the key of a label or an annotation, in which * stands for any
// characters, also for none.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^[-A-Za-z0-9_./*]+$`
type KeyPattern string

// AnnotationValue is the value of an annotation.
// +kubebuilder:validation:MaxLength=4096
type AnnotationValue string

// TemplateValue is a value for the templates of bundles.
// +kubebuilder:validation:XValidation:rule="has(self.fieldPath) != has(self.value)",message="exactly one of fieldPath and value must be set"
type TemplateValue struct {
	// name that templates know the value by.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	Name string `json:"name,omitempty"`

	// fieldPath is the field of the Cluster that the value is copied from: a string of
	// at most 4096 bytes, a number or a boolean. For example metadata.name,
	// metadata.labels['example.org/region'], spec.topology.version,
	// spec.topology.variables['network'].mtu, spec.clusterNetwork.pods.cidrBlocks[0].
	// Where there is none, or a list or an object, the others come nevertheless, and the
	// condition Targeted names it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(metadata\.(name|namespace)|metadata\.(labels|annotations)\['[-A-Za-z0-9_./]+'\]|spec\.topology\.version|spec\.topology\.classRef\.(name|namespace)|spec\.(clusterNetwork|controlPlaneEndpoint|infrastructureRef|controlPlaneRef)(\.[A-Za-z0-9]+|\[[0-9]{1,4}\])+|spec\.topology\.variables\['[^']+'\](\.[-A-Za-z0-9_]+|\['[^']+'\]|\[[0-9]{1,4}\])*)$`
	FieldPath string `json:"fieldPath,omitempty"`

	// value is the value itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
}
