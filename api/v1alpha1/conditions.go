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

// Conditions of a FleetRegistration. Ready sums up FleetClusterReady,
// WorkloadReachable, AgentDeployed, CredentialsValid and AgentConnected; the
// others stand beside it.
const (
	// ReadyCondition sums up the next five. It repeats the first that is not True; one that
	// somebody has to see to comes before one that merely waits (its reason begins with
	// WaitingFor). A FleetRegistrationPolicy has it too.
	ReadyCondition = "Ready"

	// FleetClusterReadyCondition says whether the Fleet Cluster, its namespace and
	// the agent's account are on the management cluster.
	FleetClusterReadyCondition = "FleetClusterReady"

	// WorkloadReachableCondition says whether the last attempt to talk to the
	// workload cluster succeeded.
	WorkloadReachableCondition = "WorkloadReachable"

	// AgentDeployedCondition says whether the agent's objects are in the workload
	// cluster, and whether its pod was well when that was last looked at.
	AgentDeployedCondition = "AgentDeployed"

	// CredentialsValidCondition says whether the agent holds a token that has not
	// expired.
	CredentialsValidCondition = "CredentialsValid"

	// AgentConnectedCondition says whether the agent's heartbeat arrives.
	AgentConnectedCondition = "AgentConnected"

	// AgentUpToDateCondition says whether the agent runs what spec.agent says and has
	// checked in since. The policy's rollout goes by it.
	AgentUpToDateCondition = "AgentUpToDate"

	// BundlesReadyCondition repeats the condition Ready of the Fleet Cluster: whether all
	// that Fleet deploys there is ready. It is missing while Fleet has none.
	BundlesReadyCondition = "BundlesReady"

	// TargetedCondition says whether the Fleet Cluster has all that its policy asks for:
	// its place, labels, values and groups.
	TargetedCondition = "Targeted"

	// SelectedCondition says whether a policy selects the Cluster. False changes nothing
	// else: a registration that lost its selection goes on being cared for.
	SelectedCondition = "Selected"

	// PausedCondition says whether the registration is paused: nothing is written
	// to either cluster then.
	PausedCondition = "Paused"

	// DeletingCondition is True while the registration is being taken away.
	DeletingCondition = "Deleting"
)

// FleetRegisteredCondition is on the CAPI Cluster, where Cluster API's own tools show
// it. It repeats Ready of the registration. It is first written when that is True or has
// a reason that somebody has to see to, and not while the Cluster is paused. Cluster API
// waits for it where the Cluster's spec.availabilityGates name it.
const FleetRegisteredCondition = "FleetRegistered"

// Reasons of the Ready condition beside those it repeats.
const (
	// ReadyReason means that nothing is missing.
	ReadyReason = "Ready"
)

// Reasons of the FleetClusterReady condition.
const (
	// FleetClusterCreatedReason means that everything on the management cluster is in place.
	FleetClusterCreatedReason = "FleetClusterCreated"

	// FleetClusterForeignReason means that a Fleet Cluster of that name exists and is not
	// this registration's.
	FleetClusterForeignReason = "FleetClusterForeign"

	// ManagementLabelRemovedReason means that the Fleet Cluster lost the label
	// `fleet.cattle.io/cluster-management: capi-fleet`: it was handed to someone else.
	ManagementLabelRemovedReason = "ManagementLabelRemoved"

	// FleetClusterTerminatingReason means that a Fleet Cluster of that name is being
	// deleted.
	FleetClusterTerminatingReason = "FleetClusterTerminating"

	// NamespaceForeignReason means that both names that the cluster namespace can have are
	// taken. Or a Fleet Cluster that would be adopted names a namespace that is not its own.
	NamespaceForeignReason = "NamespaceForeign"

	// ServiceAccountForeignReason means that the manager's namespace has a service account
	// of the agent's name that is not ours.
	ServiceAccountForeignReason = "ServiceAccountForeign"

	// RBACForeignReason means that a Role or RoleBinding of the agent's name is there and
	// not ours.
	RBACForeignReason = "RBACForeign"

	// NamespaceTerminatingReason means that a namespace that has to hold our objects is
	// being deleted.
	NamespaceTerminatingReason = "NamespaceTerminating"

	// AdoptionBlockedReason means that a Fleet Cluster of that name would be adopted, but
	// another tool still manages it, or it is not in the namespace of the Cluster. The
	// message says which.
	AdoptionBlockedReason = "AdoptionBlocked"

	// AdoptionUnprovenReason means that a Fleet Cluster of that name would be adopted, but
	// the workload cluster does not prove to be the one behind it: its agent must be that
	// Fleet Cluster's, with a token that the management cluster accepts. The message says
	// what is missing.
	AdoptionUnprovenReason = "AdoptionUnproven"

	// WorkspaceMissingReason means that the namespace that the policy names as `workspace`
	// does not exist.
	WorkspaceMissingReason = "WorkspaceMissing"

	// WaitingForAdoptionReason means that Fleet is still taking away what it manages its own
	// agent with.
	WaitingForAdoptionReason = "WaitingForAdoption"
)

// Reasons of the WorkloadReachable condition.
const (
	// WorkloadReachableReason means that the last attempt succeeded. A message warns if the
	// kubeconfig turns off the check of the server's certificate.
	WorkloadReachableReason = "Reachable"

	// WaitingForControlPlaneReason means that the control plane has no address yet or does
	// not answer yet, and it is young, or has only just begun to answer. Or the cluster was
	// not visited yet.
	WaitingForControlPlaneReason = "WaitingForControlPlane"

	// KubeconfigMissingReason means that the Secret `<cluster>-kubeconfig` is not there
	// although the control plane answers. Or it is owned by another Cluster that had this
	// name.
	KubeconfigMissingReason = "KubeconfigMissing"

	// KubeconfigKeyMissingReason means that the Secret has no key `value`.
	KubeconfigKeyMissingReason = "KubeconfigKeyMissing"

	// KubeconfigEmptyReason means that the key `value` is empty.
	KubeconfigEmptyReason = "KubeconfigEmpty"

	// KubeconfigInvalidReason means that it is not a usable kubeconfig. The message says
	// what is wrong.
	KubeconfigInvalidReason = "KubeconfigInvalid"

	// KubeconfigExecReason means that it names a program to run (`exec`).
	KubeconfigExecReason = "KubeconfigExecRefused"

	// KubeconfigAuthProviderReason means that it names an auth provider.
	KubeconfigAuthProviderReason = "KubeconfigAuthProviderRefused"

	// KubeconfigFilePathReason means that it names a file to read.
	KubeconfigFilePathReason = "KubeconfigFilePathRefused"

	// KubeconfigProxyReason means that it names a proxy.
	KubeconfigProxyReason = "KubeconfigProxyRefused"

	// KubeconfigImpersonationReason means that it asks to act as another user.
	KubeconfigImpersonationReason = "KubeconfigImpersonationRefused"

	// AddressDeniedReason means that the address lies in a range that the manager must not
	// connect to.
	AddressDeniedReason = "AddressDenied"

	// ConnectionFailedReason means that the connection was refused, timed out or broke off, or
	// that there is no route or no such host.
	ConnectionFailedReason = "ConnectionFailed"

	// ServerCertificateInvalidReason means that the server's certificate is not signed by
	// the kubeconfig's authority, or not for that address.
	ServerCertificateInvalidReason = "ServerCertificateInvalid"

	// ClientCertificateRejectedReason means that the server refused the kubeconfig's client
	// certificate in the TLS handshake.
	ClientCertificateRejectedReason = "ClientCertificateRejected"

	// CredentialsRejectedReason means that the server answered 401 Unauthorized.
	CredentialsRejectedReason = "CredentialsRejected"

	// AccessDeniedReason means that the server answered 403 Forbidden.
	AccessDeniedReason = "AccessDenied"

	// NotKubernetesReason means that what answers is not a Kubernetes API server.
	NotKubernetesReason = "NotKubernetes"

	// RedirectedReason means that the server answered with a redirect. These are not
	// followed.
	RedirectedReason = "Redirected"

	// ResponseTimeoutReason means that the server did not end its answer in time.
	ResponseTimeoutReason = "ResponseTimeout"

	// ResponseTooLargeReason means that the answer was larger than 4 MiB, had more than
	// 100,000 values, more than 10,000 entries in lists or more than 64 levels, or its
	// headers were larger than 64 KiB.
	ResponseTooLargeReason = "ResponseTooLarge"

	// ServerErrorReason means that the server answered with an error of its own (5xx or
	// 429).
	ServerErrorReason = "ServerError"
)

// Reasons of the AgentDeployed condition.
const (
	// AgentDeployedReason means that the agent's objects are in place. A message names a
	// kind that the cluster does not serve.
	AgentDeployedReason = "AgentDeployed"

	// WaitingForFleetClusterReason means that `FleetClusterReady` comes first.
	// `FleetClusterReady` itself has this reason before it was first looked at, and when its
	// Fleet Cluster is gone, or its cluster namespace was replaced, and what belongs to it
	// is about to be made anew.
	WaitingForFleetClusterReason = "WaitingForFleetCluster"

	// WaitingForWorkloadReason means that `WorkloadReachable` comes first. `FleetClusterReady`
	// has this reason where a Fleet Cluster is to be adopted.
	WaitingForWorkloadReason = "WaitingForWorkload"

	// ManagementClusterUnknownReason means that no source says where agents find the
	// management cluster, or the source cannot be used. A policy has this reason too.
	ManagementClusterUnknownReason = "ManagementClusterUnknown"

	// AgentImageUnknownReason means that no source names the agent's image. A policy has
	// this reason too.
	AgentImageUnknownReason = "AgentImageUnknown"

	// ForeignAgentReason means that the workload cluster has an agent that is not this
	// registration's.
	ForeignAgentReason = "ForeignAgent"

	// MovedAwayReason means that another management cluster has taken this registration
	// over. The workload cluster is not visited any more.
	MovedAwayReason = "MovedAway"

	// SelfManagedReason means that the workload cluster is the management cluster itself. An
	// agent of ours that was there from before was removed; what it had deployed stays.
	SelfManagedReason = "SelfManaged"

	// WorkloadClusterChangedReason means that the kubeconfig leads to another cluster than
	// the one that was registered: the UID of `kube-system` differs. An agent may still run
	// in the old one, so none is put into the new.
	WorkloadClusterChangedReason = "WorkloadClusterChanged"

	// AlreadyRegisteredReason means that the workload cluster is registered by another
	// FleetRegistration.
	AlreadyRegisteredReason = "AlreadyRegistered"

	// WaitingForBundlesReason means that the agent would uninstall releases that have no
	// BundleDeployment, or one that is paused or deploys elsewhere. Or there are too many or
	// too large releases to find out.
	WaitingForBundlesReason = "WaitingForBundles"

	// ObjectRejectedReason means that the workload cluster refused one of the agent's
	// objects. Or it issued no token that is of use for an agent on the management cluster.
	// The message says which.
	ObjectRejectedReason = "ObjectRejected"

	// WaitingForAgentToStopReason means that the agent is to run in the other cluster, and
	// was not seen to have stopped where it is. `FleetClusterReady` has this reason where
	// the cluster namespace is another one than before.
	WaitingForAgentToStopReason = "WaitingForAgentToStop"

	// WaitingForLeaseReason means that an agent holds the lease
	// `cattle-fleet-system/fleet-agent` in the workload cluster. One on the management
	// cluster is started once that is over.
	WaitingForLeaseReason = "WaitingForLease"

	// HostedObjectForeignReason means that the manager's namespace has an object of the name
	// of one of this agent's that is not ours. The message names it.
	HostedObjectForeignReason = "HostedObjectForeign"

	// ManagementClusterUnresolvedReason means that the host of the management cluster's
	// address has no address within the management cluster, where the agent is to run.
	ManagementClusterUnresolvedReason = "ManagementClusterUnresolved"

	// AgentPodRejectedReason means that the workload cluster, or the management cluster
	// where the agent runs there, took the agent's Deployment and refuses its pod.
	AgentPodRejectedReason = "AgentPodRejected"

	// WaitingForNodeReason means that no node takes the agent's pod, in a cluster that is
	// so young that its nodes may still come. The agent has not reported yet.
	WaitingForNodeReason = "WaitingForNode"
	// AgentUnschedulableReason means that no node takes the agent's pod.
	AgentUnschedulableReason = "AgentUnschedulable"

	// AgentImagePullFailedReason means that a node cannot pull the agent's image, which the
	// message names.
	AgentImagePullFailedReason = "AgentImagePullFailed"

	// AgentStartFailedReason means that a node cannot start the agent's container.
	AgentStartFailedReason = "AgentStartFailed"

	// AgentCrashLoopingReason means that the agent ends again and again. The message says if
	// it runs out of memory.
	AgentCrashLoopingReason = "AgentCrashLooping"

	// AgentNotAvailableReason means that the agent's pod is not available, and nothing says
	// why.
	AgentNotAvailableReason = "AgentNotAvailable"
)

// Reasons of the CredentialsValid condition.
const (
	// CredentialsIssuedReason means that the agent holds a valid token.
	CredentialsIssuedReason = "CredentialsIssued"

	// WaitingForAgentReason means that `AgentDeployed` comes first. `AgentConnected` has
	// this reason too.
	WaitingForAgentReason = "WaitingForAgent"

	// CredentialsExpiredReason means that the agent's token has expired.
	CredentialsExpiredReason = "CredentialsExpired"

	// TokenRequestFailedReason means that the management cluster did not issue a token.
	TokenRequestFailedReason = "TokenRequestFailed"

	// TokenRejectedReason means that the management cluster does not accept a token that it
	// has just issued. The agent was not given it.
	TokenRejectedReason = "TokenRejected"
)

// Reasons of the AgentConnected condition. It has WaitingForAgent too.
const (
	// AgentConnectedReason means that the heartbeat arrives.
	AgentConnectedReason = "AgentConnected"

	// WaitingForHeartbeatReason means that the agent was deployed a short while ago and has
	// not reported yet.
	WaitingForHeartbeatReason = "WaitingForHeartbeat"

	// AgentSilentReason means that the agent has not reported for three check-in intervals.
	AgentSilentReason = "AgentSilent"
)

// Reasons of the AgentUpToDate condition. It has WaitingForAgent and WaitingForHeartbeat
// too.
const (
	// AgentUpToDateReason means that the agent runs what `spec.agent` says.
	AgentUpToDateReason = "AgentUpToDate"

	// AgentUpdatingReason means that a change is being put in place, or the agent has not
	// checked in since.
	AgentUpdatingReason = "Updating"

	// AgentUpdateFailedReason means that the agent did not come up with a change, or that the
	// change could not be put in place for ten minutes.
	AgentUpdateFailedReason = "UpdateFailed"
)

// Reasons of the BundlesReady condition.
const (
	// BundlesReadyReason means that Fleet calls the cluster ready. With no bundles it is.
	BundlesReadyReason = "BundlesReady"

	// BundlesNotReadyReason means that Fleet does not.
	BundlesNotReadyReason = "BundlesNotReady"
)

// Reasons of the Targeted condition. It has WaitingForFleetCluster too, and InternalError
// where the API server refuses what is to be written.
const (
	// TargetedReason means that the Fleet Cluster has all that the policy asks for.
	TargetedReason = "Targeted"

	// FleetClusterImmutableReason means that the policy would have the Fleet Cluster in
	// another namespace or under another name now. It stays where it is.
	FleetClusterImmutableReason = "FleetClusterImmutable"

	// ClassNamespaceNotListedReason means that the Cluster uses a ClusterClass of a namespace
	// that the policy does not list in `classNamespaces`. There is no group for it, and its
	// labels are not put on the Fleet Cluster; those that are there stay.
	ClassNamespaceNotListedReason = "ClassNamespaceNotListed"

	// ClassMissingReason means that the policy makes groups, and the ClusterClass of the
	// Cluster does not exist. No group is made for it. The Fleet Cluster stays in the group
	// that it is in. It is also an Event on the Cluster.
	ClassMissingReason = "ClassMissing"

	// ClassGroupForeignReason means that a ClusterGroup or BundleNamespaceMapping of the name
	// that the ClusterClass calls for is not capi-fleet's and selects something else, or in a
	// workspace has labels that bundles select it by. The Fleet Cluster stays in the group
	// that it is in. It is also an Event on the Cluster.
	ClassGroupForeignReason = "ClassGroupForeign"

	// ValuesIncompleteReason means that the message names values that the Cluster does not
	// have, or that are a list, an object or too long. The others are in place.
	ValuesIncompleteReason = "ValuesIncomplete"

	// LabelsTooLargeReason means that the labels that the policy includes are more than 64
	// KiB together. None is copied; those that were copied before stay as they are. As an
	// Event on the Cluster it means the labels of its ClusterClass.
	LabelsTooLargeReason = "LabelsTooLarge"

	// AnnotationsTooLargeReason means that the annotations that the policy includes are more
	// than 128 KiB together. Some are left out.
	AnnotationsTooLargeReason = "AnnotationsTooLarge"
)

// Reasons of the Selected condition.
const (
	// SelectedReason means that the policy in `spec.selectedBy` selects the Cluster.
	SelectedReason = "Selected"

	// OptedOutReason means that the label says `"false"`: on the Namespace, where the
	// registration stays, or on the Cluster, which is then leaving.
	OptedOutReason = "OptedOut"

	// LabelInvalidReason means that the label is neither `"true"` nor `"false"`.
	LabelInvalidReason = "LabelInvalid"

	// LabelRemovedReason means that the label is gone from the Cluster and its Namespace. If
	// it was the Cluster's own, it is leaving.
	LabelRemovedReason = "LabelRemoved"

	// PolicyDeletedReason means that the policy that selected the Cluster is gone, and no
	// other selects it.
	PolicyDeletedReason = "PolicyDeleted"

	// PolicyMismatchReason means that the policy that selected the Cluster no longer does,
	// and no other does.
	PolicyMismatchReason = "PolicyMismatch"

	// TargetingDiffersReason means that what selected the Cluster was lost: its policy, a
	// selector that can be read, or a label of its Namespace. Another policy selects it too,
	// but has other settings under `spec.fleetCluster`, with which Fleet could uninstall
	// workloads. Nothing changes.
	TargetingDiffersReason = "TargetingDiffers"

	// PolicyInvalidReason means that a selector of the policy cannot be read. The policy's
	// `Ready` has this reason too.
	PolicyInvalidReason = "PolicyInvalid"
)

// Reasons of the Paused condition.
const (
	// NotPausedReason means that the registration is not paused.
	NotPausedReason = "NotPaused"

	// PausedReason means that the Cluster or the registration is paused.
	PausedReason = "Paused"

	// MovingReason means that `clusterctl move` is about to delete this copy of the object.
	MovingReason = "Moving"
)

// Reasons of the Deleting condition.
const (
	// NotDeletingReason means that the registration is not being taken away.
	NotDeletingReason = "NotDeleting"

	// WaitingForFleetReason means that Fleet is taking the cluster namespace away, or our
	// objects could not be deleted yet.
	WaitingForFleetReason = "WaitingForFleet"

	// StoppingAgentReason means that the Cluster opted out. The agent is being stopped first,
	// so that it uninstalls nothing. Or the pod of an agent on the management cluster has not
	// ended yet, which is what the message says then.
	StoppingAgentReason = "StoppingAgent"

	// UninstallingWorkloadsReason means that the Cluster opted out with `Uninstall`. The
	// agent is uninstalling what it deployed.
	UninstallingWorkloadsReason = "UninstallingWorkloads"
)

// Reasons that every condition can have.
const (
	// InternalErrorReason means an error that says nothing to a user.
	InternalErrorReason = "InternalError"
)

// Reasons of the Ready condition of a FleetRegistrationPolicy. It has Ready,
// ManagementClusterUnknown, AgentImageUnknown, PolicyInvalid and InternalError
// as well.
const (
	// CAUnavailableReason means that the CA's ConfigMap or Secret is not there, lacks the
	// key, or holds no usable certificate.
	CAUnavailableReason = "CAUnavailable"

	// ServerInvalidReason means that the address of the management cluster is not an `https`
	// URL without user, query and fragment.
	ServerInvalidReason = "ServerInvalid"
)

// RolledOutCondition says, on a FleetRegistrationPolicy, whether all agents that can be
// reached run what the policy makes them from now. It is missing before that is known.
const RolledOutCondition = "RolledOut"

// Reasons of the RolledOut condition.
const (
	// RolledOutReason means that nothing is left to do. The message counts clusters that
	// were left for later: those that are paused or cannot be reached.
	RolledOutReason = "RolledOut"

	// RollingOutReason means that agents are being changed.
	RollingOutReason = "RollingOut"

	// RolloutPausedReason means that agents wait because `spec.rollout.paused` is set.
	RolloutPausedReason = "RolloutPaused"

	// RolloutStalledReason means that agents have failed: as many as may change at once, or
	// all that are left. The message names up to three and why. Those that wait keep what
	// they have.
	RolloutStalledReason = "RolloutStalled"
)
