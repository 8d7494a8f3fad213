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
	// ReadyCondition is True when the agent is deployed, holds a valid credential
	// and reports. Otherwise it repeats the first of the conditions that it sums up, in
	// the order of this page, that is not True; one that somebody has to see to
	// comes before one that merely waits.
	ReadyCondition = "Ready"

	// FleetClusterReadyCondition says whether the Fleet Cluster, its namespace and
	// the agent's account are on the management cluster.
	FleetClusterReadyCondition = "FleetClusterReady"

	// WorkloadReachableCondition says whether the last attempt to talk to the
	// workload cluster succeeded.
	WorkloadReachableCondition = "WorkloadReachable"

	// AgentDeployedCondition says whether the agent's objects are in the workload
	// cluster, and whether its pod was well when that cluster was last visited.
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

	// SelectedCondition says whether a policy selects the Cluster. A registration
	// that lost its selection stays as it is and goes on being cared for.
	SelectedCondition = "Selected"

	// PausedCondition says whether the registration is paused: nothing is written
	// to either cluster then.
	PausedCondition = "Paused"

	// DeletingCondition is True while the registration is being taken away.
	DeletingCondition = "Deleting"
)

// FleetRegisteredCondition is on the CAPI Cluster, where Cluster API's own tools show
// it. It repeats Ready of the registration, and is first written when that is True or
// has a reason that somebody has to see to. Cluster API waits for it where the
// Cluster's spec.availabilityGates name it.
const FleetRegisteredCondition = "FleetRegistered"

// Reasons of the Ready condition beside those it repeats.
const (
	// ReadyReason means that nothing is missing.
	ReadyReason = "Ready"
)

// Reasons of the FleetClusterReady condition.
const (
	// FleetClusterCreatedReason means that everything on the management cluster is
	// in place.
	FleetClusterCreatedReason = "FleetClusterCreated"

	// FleetClusterForeignReason means that a Fleet Cluster of that name exists
	// which is not ours. It is left as it is.
	FleetClusterForeignReason = "FleetClusterForeign"

	// ManagementLabelRemovedReason means that our Fleet Cluster no longer carries
	// our value of Fleet's management label: it was handed to someone else, and is
	// left as it is.
	ManagementLabelRemovedReason = "ManagementLabelRemoved"

	// FleetClusterTerminatingReason means that a Fleet Cluster of that name is being
	// deleted. A new one follows once it is gone.
	FleetClusterTerminatingReason = "FleetClusterTerminating"

	// NamespaceForeignReason means that both possible names of the cluster
	// namespace are taken by namespaces that are not ours.
	NamespaceForeignReason = "NamespaceForeign"

	// ServiceAccountForeignReason means that the manager's namespace has a service
	// account of the agent's name that is not ours.
	ServiceAccountForeignReason = "ServiceAccountForeign"

	// RBACForeignReason means that a Role or RoleBinding of the agent's name is
	// there and not ours.
	RBACForeignReason = "RBACForeign"

	// NamespaceTerminatingReason means that a namespace which has to hold our
	// objects is being deleted.
	NamespaceTerminatingReason = "NamespaceTerminating"

	// AdoptionBlockedReason means that the Fleet Cluster of that name would be adopted,
	// but another tool still manages it.
	AdoptionBlockedReason = "AdoptionBlocked"

	// WorkspaceMissingReason means that the namespace which the Fleet Cluster has to be
	// in is not there.
	WorkspaceMissingReason = "WorkspaceMissing"

	// WaitingForAdoptionReason means that Fleet is still taking away what it manages
	// its own agent with.
	WaitingForAdoptionReason = "WaitingForAdoption"
)

// Reasons of the WorkloadReachable condition.
const (
	// WorkloadReachableReason means that the last attempt succeeded.
	WorkloadReachableReason = "Reachable"

	// WaitingForControlPlaneReason means that the Cluster is young and its control
	// plane has no address yet, or does not answer there yet.
	WaitingForControlPlaneReason = "WaitingForControlPlane"

	// KubeconfigMissingReason means that the Secret <cluster>-kubeconfig is not
	// there although the control plane answers.
	KubeconfigMissingReason = "KubeconfigMissing"

	// KubeconfigKeyMissingReason means that the Secret has no key "value".
	KubeconfigKeyMissingReason = "KubeconfigKeyMissing"

	// KubeconfigEmptyReason means that the key "value" is empty.
	KubeconfigEmptyReason = "KubeconfigEmpty"

	// KubeconfigInvalidReason means that it is not a usable kubeconfig.
	KubeconfigInvalidReason = "KubeconfigInvalid"

	// KubeconfigExecReason means that it names a program to run.
	KubeconfigExecReason = "KubeconfigExecRefused"

	// KubeconfigAuthProviderReason means that it names an auth provider.
	KubeconfigAuthProviderReason = "KubeconfigAuthProviderRefused"

	// KubeconfigFilePathReason means that it names a file to read.
	KubeconfigFilePathReason = "KubeconfigFilePathRefused"

	// KubeconfigProxyReason means that it names a proxy.
	KubeconfigProxyReason = "KubeconfigProxyRefused"

	// KubeconfigImpersonationReason means that it asks to act as another user.
	KubeconfigImpersonationReason = "KubeconfigImpersonationRefused"

	// AddressDeniedReason means that the address lies in a range that the manager
	// must not connect to.
	AddressDeniedReason = "AddressDenied"

	// ConnectionFailedReason means that no connection came about: refused, timed
	// out, no route, no such host.
	ConnectionFailedReason = "ConnectionFailed"

	// ServerCertificateInvalidReason means that the server's certificate is not
	// signed by the kubeconfig's authority, or not for that address.
	ServerCertificateInvalidReason = "ServerCertificateInvalid"

	// ClientCertificateRejectedReason means that the server refused the
	// kubeconfig's client certificate during the TLS handshake.
	ClientCertificateRejectedReason = "ClientCertificateRejected"

	// CredentialsRejectedReason means that the server answered 401 Unauthorized.
	CredentialsRejectedReason = "CredentialsRejected"

	// AccessDeniedReason means that the server answered 403 Forbidden.
	AccessDeniedReason = "AccessDenied"

	// NotKubernetesReason means that what answers is not a Kubernetes API server.
	NotKubernetesReason = "NotKubernetes"

	// RedirectedReason means that the server answered with a redirect.
	RedirectedReason = "Redirected"

	// ResponseTimeoutReason means that the server did not end its answer in time.
	ResponseTimeoutReason = "ResponseTimeout"

	// ResponseTooLargeReason means that the server's answer was cut off at 4 MiB, or
	// would need too much memory.
	ResponseTooLargeReason = "ResponseTooLarge"

	// ServerErrorReason means that the server answered with an error of its own
	// (5xx or too many requests).
	ServerErrorReason = "ServerError"
)

// Reasons of the AgentDeployed condition.
const (
	// AgentDeployedReason means that the agent's objects are in place.
	AgentDeployedReason = "AgentDeployed"

	// WaitingForFleetClusterReason means that FleetClusterReady comes first.
	WaitingForFleetClusterReason = "WaitingForFleetCluster"

	// WaitingForWorkloadReason means that WorkloadReachable comes first.
	WaitingForWorkloadReason = "WaitingForWorkload"

	// ManagementClusterUnknownReason means that no source says where agents find
	// the management cluster.
	ManagementClusterUnknownReason = "ManagementClusterUnknown"

	// AgentImageUnknownReason means that no source names the agent's image.
	AgentImageUnknownReason = "AgentImageUnknown"

	// ForeignAgentReason means that the workload cluster has an agent of Fleet
	// which is not ours. It is left as it is.
	ForeignAgentReason = "ForeignAgent"

	// MovedAwayReason means that another management cluster has taken this
	// registration over.
	MovedAwayReason = "MovedAway"

	// SelfManagedReason means that the workload cluster is the management cluster.
	SelfManagedReason = "SelfManaged"

	// WorkloadClusterChangedReason means that the kubeconfig leads to another cluster
	// than the one that was registered, where an agent may still run.
	WorkloadClusterChangedReason = "WorkloadClusterChanged"

	// AlreadyRegisteredReason means that the workload cluster is registered
	// already, by another FleetRegistration.
	AlreadyRegisteredReason = "AlreadyRegistered"

	// WaitingForBundlesReason means that the workload cluster has releases of
	// Fleet without a BundleDeployment in the cluster namespace. An agent that
	// started now would uninstall them.
	WaitingForBundlesReason = "WaitingForBundles"

	// ObjectRejectedReason means that the workload cluster refused one of the
	// agent's objects.
	ObjectRejectedReason = "ObjectRejected"

	// WaitingForAgentToStopReason means that an agent is about to run in the other
	// cluster, once it was seen to have stopped where it was.
	WaitingForAgentToStopReason = "WaitingForAgentToStop"

	// WaitingForLeaseReason means that an agent holds the lease of the workload cluster's
	// agents, so that no other one is started.
	WaitingForLeaseReason = "WaitingForLease"

	// HostedObjectForeignReason means that the manager's namespace has an object of the
	// name of one of a hosted agent's that is not ours.
	HostedObjectForeignReason = "HostedObjectForeign"

	// ManagementClusterUnresolvedReason means that the host of the management cluster's
	// address has no address as the manager sees it, so that a hosted agent could not be
	// let through to it.
	ManagementClusterUnresolvedReason = "ManagementClusterUnresolved"

	// AgentPodRejectedReason means that the workload cluster took the agent's Deployment
	// and refuses its pod.
	AgentPodRejectedReason = "AgentPodRejected"

	// AgentUnschedulableReason means that no node takes the agent's pod.
	AgentUnschedulableReason = "AgentUnschedulable"

	// AgentImagePullFailedReason means that a node cannot pull the agent's image.
	AgentImagePullFailedReason = "AgentImagePullFailed"

	// AgentStartFailedReason means that a node cannot start the agent's container.
	AgentStartFailedReason = "AgentStartFailed"

	// AgentCrashLoopingReason means that the agent ends again and again.
	AgentCrashLoopingReason = "AgentCrashLooping"

	// AgentNotAvailableReason means that the agent's pod is not available, and that
	// nothing says why.
	AgentNotAvailableReason = "AgentNotAvailable"
)

// Reasons of the CredentialsValid condition.
const (
	// CredentialsIssuedReason means that the agent holds a valid token.
	CredentialsIssuedReason = "CredentialsIssued"

	// WaitingForAgentReason means that AgentDeployed comes first.
	WaitingForAgentReason = "WaitingForAgent"

	// CredentialsExpiredReason means that the agent's token has expired.
	CredentialsExpiredReason = "CredentialsExpired"

	// TokenRequestFailedReason means that the management cluster did not issue a
	// token.
	TokenRequestFailedReason = "TokenRequestFailed"

	// TokenRejectedReason means that the management cluster does not accept a token
	// that it has just issued. It was not given to the agent.
	TokenRejectedReason = "TokenRejected"
)

// Reasons of the AgentConnected condition. It has WaitingForAgent too.
const (
	// AgentConnectedReason means that the heartbeat arrives.
	AgentConnectedReason = "AgentConnected"

	// WaitingForHeartbeatReason means that the agent was deployed a short while
	// ago and has not reported yet.
	WaitingForHeartbeatReason = "WaitingForHeartbeat"

	// AgentSilentReason means that the agent has not reported for longer than
	// three check-in intervals.
	AgentSilentReason = "AgentSilent"
)

// Reasons of the AgentUpToDate condition. It has WaitingForAgent and WaitingForHeartbeat
// too.
const (
	// AgentUpToDateReason means that the agent runs what spec.agent says.
	AgentUpToDateReason = "AgentUpToDate"

	// AgentUpdatingReason means that a change is being put in place, or that the agent has
	// not checked in since.
	AgentUpdatingReason = "Updating"

	// AgentUpdateFailedReason means that the agent did not come up with a change: the
	// other conditions say why, or it has not checked in for ten minutes.
	AgentUpdateFailedReason = "UpdateFailed"
)

// Reasons of the BundlesReady condition.
const (
	// BundlesReadyReason means that Fleet calls the cluster ready.
	BundlesReadyReason = "BundlesReady"

	// BundlesNotReadyReason means that Fleet does not.
	BundlesNotReadyReason = "BundlesNotReady"
)

// Reasons of the Targeted condition. It has WaitingForFleetCluster and InternalError too.
const (
	// TargetedReason means that the Fleet Cluster has all that the policy asks for.
	TargetedReason = "Targeted"

	// FleetClusterImmutableReason means that the policy would have the Fleet Cluster in
	// another namespace or under another name now. It stays where it is.
	FleetClusterImmutableReason = "FleetClusterImmutable"

	// ClassNamespaceNotListedReason means that the Cluster uses a ClusterClass of another
	// namespace, and that the policy does not list that.
	ClassNamespaceNotListedReason = "ClassNamespaceNotListed"

	// ClassMissingReason means that the ClusterClass of the Cluster does not exist. There is
	// no group for it.
	ClassMissingReason = "ClassMissing"

	// ClassGroupForeignReason means that a ClusterGroup or a BundleNamespaceMapping of the
	// name that the ClusterClass calls for is there, selects something else and is not
	// ours. It is left as it is.
	ClassGroupForeignReason = "ClassGroupForeign"

	// ValuesIncompleteReason means that the Cluster does not have some of the values, or
	// has there what is no string, number or boolean. The others are in place.
	ValuesIncompleteReason = "ValuesIncomplete"

	// LabelsTooLargeReason means that the labels which are to be copied are too large
	// together. None is copied, and those that are there stay as they are.
	LabelsTooLargeReason = "LabelsTooLarge"

	// AnnotationsTooLargeReason means that the annotations which are to be copied are too
	// large together. Some are in place.
	AnnotationsTooLargeReason = "AnnotationsTooLarge"
)

// Reasons of the Selected condition.
const (
	// SelectedReason means that the policy in spec.selectedBy selects the Cluster.
	SelectedReason = "Selected"

	// OptedOutReason means that the label says "false".
	OptedOutReason = "OptedOut"

	// LabelInvalidReason means that the label has a value other than "true" and
	// "false".
	LabelInvalidReason = "LabelInvalid"

	// LabelRemovedReason means that neither the Cluster nor its Namespace carries
	// the label any more.
	LabelRemovedReason = "LabelRemoved"

	// PolicyDeletedReason means that the policy which selected the Cluster is gone.
	PolicyDeletedReason = "PolicyDeleted"

	// PolicyMismatchReason means that the policy which selected the Cluster no
	// longer does, nor does another.
	PolicyMismatchReason = "PolicyMismatch"

	// PolicyInvalidReason means that the policy's selector cannot be read.
	PolicyInvalidReason = "PolicyInvalid"
)

// Reasons of the Paused condition.
const (
	// NotPausedReason means that the registration is not paused.
	NotPausedReason = "NotPaused"

	// PausedReason means that the Cluster or the registration is paused.
	PausedReason = "Paused"

	// MovingReason means that clusterctl is about to delete this copy of the
	// object as part of a move.
	MovingReason = "Moving"
)

// Reasons of the Deleting condition.
const (
	// NotDeletingReason means that the registration is not being taken away.
	NotDeletingReason = "NotDeleting"

	// WaitingForFleetReason means that Fleet is taking away the cluster namespace.
	WaitingForFleetReason = "WaitingForFleet"

	// StoppingAgentReason means that the agent is being stopped before anything that it
	// could take as a reason to uninstall workloads.
	StoppingAgentReason = "StoppingAgent"

	// UninstallingWorkloadsReason means that the agent is uninstalling what it deployed.
	UninstallingWorkloadsReason = "UninstallingWorkloads"
)

// InternalErrorReason means an error that says nothing to a user. Look into the
// manager's log. Every condition can have it.
const InternalErrorReason = "InternalError"

// Reasons of the Ready condition of a FleetRegistrationPolicy. It has Ready,
// ManagementClusterUnknown, AgentImageUnknown, PolicyInvalid and InternalError
// as well.
const (
	// CAUnavailableReason means that the ConfigMap or Secret which the policy names
	// is not there, has no such key or holds no certificate.
	CAUnavailableReason = "CAUnavailable"

	// ServerInvalidReason means that the address of the management cluster is not
	// an https URL without user, query and fragment.
	ServerInvalidReason = "ServerInvalid"
)

// RolledOutCondition of a FleetRegistrationPolicy says whether all agents that can be
// reached run what the policy makes agents from now. It is missing before that is known.
const RolledOutCondition = "RolledOut"

// Reasons of the RolledOut condition.
const (
	// RolledOutReason means that nothing is left to do. The message counts clusters that
	// were left for later: those that are paused or cannot be reached.
	RolledOutReason = "RolledOut"

	// RollingOutReason means that agents are being changed.
	RollingOutReason = "RollingOut"

	// RolloutPausedReason means that agents wait because spec.rollout.paused is set.
	RolloutPausedReason = "RolloutPaused"

	// RolloutStalledReason means that agents have failed: as many as may change at once, or
	// all that are left. Those that wait keep what they have.
	RolloutStalledReason = "RolloutStalled"
)
