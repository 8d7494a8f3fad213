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

// KeyPrefix begins every label, annotation and finalizer of capi-fleet.
const KeyPrefix = "fleet.addons.cluster.x-k8s.io/"

// Keys for people to set.
const (
	// RegisterLabel on a Cluster or on its Namespace says whether the Cluster
	// joins Fleet: "true" or "false". The Cluster's own label decides where it
	// is present, else the Namespace's. Any other value counts as not selected.
	RegisterLabel = KeyPrefix + "register"

	// RotateAnnotation on a FleetRegistration renews the agent's credential when its
	// value changes, whatever the value is. It is heeded once a minute at most.
	RotateAnnotation = KeyPrefix + "rotate"

	// StartWithoutBundlesAnnotation on a FleetRegistration, set to the UID of the
	// cluster namespace in status.namespaceUID, starts the agent although
	// releases in the workload cluster have no BundleDeployment there yet. Fleet's
	// agent uninstalls such releases.
	StartWithoutBundlesAnnotation = KeyPrefix + "start-without-bundles"

	// TakeOverAnnotation on a FleetRegistration, set to the UID of the cluster namespace
	// in status.namespaceUID, lets it take over an agent of another registration: one
	// that is gone (ForeignAgent), that of the management cluster from which it was
	// taken over before (MovedAway), or one that has registered the same workload cluster
	// (AlreadyRegistered). It never lets releases be uninstalled, and is taken off once it
	// was used.
	TakeOverAnnotation = KeyPrefix + "take-over"
)

// Keys that capi-fleet sets.
const (
	// RegistrationIDAnnotation on everything that a registration makes repeats
	// spec.registrationID: equal means the registration's own. Of the objects in the
	// workload cluster the Namespace cattle-fleet-system and its ServiceAccount default do
	// not have it.
	RegistrationIDAnnotation = KeyPrefix + "registration-id"

	// ClusterUIDAnnotation on the Fleet Cluster is the UID of the Cluster that
	// it stands for.
	ClusterUIDAnnotation = KeyPrefix + "cluster-uid"

	// NamespaceUIDAnnotation on the Secret fleet-agent in the workload cluster is the UID
	// of the cluster namespace that the agent was last pointed at.
	NamespaceUIDAnnotation = KeyPrefix + "namespace-uid"

	// RevisionAnnotation on the agent's Deployment names the revision of the
	// manifests that it was made from, equal to status.agent.revision.
	RevisionAnnotation = KeyPrefix + "revision"

	// HostedForAnnotation on the objects and pods of an agent that runs on the management
	// cluster is the namespace and name, with a slash between, of its FleetRegistration.
	HostedForAnnotation = KeyPrefix + "hosted-for"

	// OrphanLabel is "true" on a Fleet Cluster of ours whose FleetRegistration is gone,
	// and on its cluster namespace.
	OrphanLabel = KeyPrefix + "orphan"

	// AccessEndedAnnotation on a Fleet Cluster that is being removed as an orphan says when
	// its agent's service account was deleted.
	AccessEndedAnnotation = KeyPrefix + "access-ended"

	// HandedOverLabel on a Fleet Cluster is "true" once `clusterctl fleet handback --mode
	// fleet` gave it to Fleet.
	HandedOverLabel = KeyPrefix + "handed-over"

	// AdoptingAnnotation on a Fleet Cluster says that it was taken over from Fleet's own
	// registration, which may still be at work on it. On its Namespace it says for whom and
	// when that was last touched, so that Fleet looks again; there it may be removed.
	AdoptingAnnotation = KeyPrefix + "adopting"

	// PropagatedAnnotation on a Fleet Cluster, and on the ClusterGroups and
	// BundleNamespaceMappings that capi-fleet makes, lists what capi-fleet put there, so
	// that it knows what to take away. Nothing else is.
	PropagatedAnnotation = KeyPrefix + "propagated"

	// FleetRegistrationFinalizer is on every FleetRegistration from its creation.
	FleetRegistrationFinalizer = KeyPrefix + "registration"
)

// Labels of Fleet Clusters and ClusterGroups. They are those of the provider that came
// before this one, so that selectors which were written for it go on working.
const (
	// ClassNameLabel is the name of the ClusterClass. One of more than 63 characters is cut
	// and has a hash at the end.
	ClassNameLabel = "clusterclass-name.fleet.addons.cluster.x-k8s.io"

	// ClassNamespaceLabel is its namespace.
	ClassNamespaceLabel = "clusterclass-namespace.fleet.addons.cluster.x-k8s.io"
)
