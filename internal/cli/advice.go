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

package cli

import (
	"regexp"
	"strings"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Advice returns what to do about a reason of a condition as Markdown, empty where that
// is nothing. Links begin at the top of the project.
func Advice(reason string) string { return advice[reason] }

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)

// whatToDo returns the advice as a terminal shows it.
func whatToDo(reason string) string {
	return strings.ReplaceAll(markdownLink.ReplaceAllString(advice[reason], "$1 ($2)"), "`", "")
}

// advice says for every reason what to do. The page docs/reference/conditions.md is made
// from it too.
var advice = map[string]string{
	fleetv1.ReadyReason:                       "",
	fleetv1.FleetClusterCreatedReason:         "",
	fleetv1.FleetClusterForeignReason:         "If Fleet registered it by itself, see [Adoption](docs/concepts/adoption.md). If you delete it, its agent uninstalls everything.",
	fleetv1.ManagementLabelRemovedReason:      "Put the label back, or leave it to the new owner.",
	fleetv1.FleetClusterTerminatingReason:     "Wait. If it lasts, look at its finalizers.",
	fleetv1.NamespaceForeignReason:            "Delete one of the namespaces that the message names. In the second case delete nothing, see [Adoption](docs/concepts/adoption.md#blocked).",
	fleetv1.NamespaceTerminatingReason:        "Wait. If it lasts, look at what is left in it.",
	fleetv1.ServiceAccountForeignReason:       "Delete it.",
	fleetv1.AdoptionBlockedReason:             "See [Adoption](docs/concepts/adoption.md).",
	fleetv1.AdoptionUnprovenReason:            "See [Adoption](docs/concepts/adoption.md#proof).",
	fleetv1.WaitingForAdoptionReason:          "Wait. If it lasts, see [Adoption](docs/concepts/adoption.md).",
	fleetv1.WorkspaceMissingReason:            "Make it. It is looked at again every 30 seconds.",
	fleetv1.RBACForeignReason:                 "Delete it.",
	fleetv1.WorkloadReachableReason:           "",
	fleetv1.WaitingForControlPlaneReason:      "Wait.",
	fleetv1.KubeconfigMissingReason:           "Look at the control plane provider.",
	fleetv1.KubeconfigKeyMissingReason:        "Put the kubeconfig there.",
	fleetv1.KubeconfigEmptyReason:             "Put the kubeconfig there.",
	fleetv1.KubeconfigInvalidReason:           "Mend the Secret.",
	fleetv1.KubeconfigExecReason:              "Use a certificate or a token.",
	fleetv1.KubeconfigAuthProviderReason:      "Use a certificate or a token.",
	fleetv1.KubeconfigFilePathReason:          "Put the data itself into the kubeconfig.",
	fleetv1.KubeconfigProxyReason:             "Use an address that the manager reaches directly.",
	fleetv1.KubeconfigImpersonationReason:     "Use the credential of the user itself.",
	fleetv1.AddressDeniedReason:               "Use another address, or change `--denied-ranges`.",
	fleetv1.ConnectionFailedReason:            "Look at the server and at the network between.",
	fleetv1.ServerCertificateInvalidReason:    "Look at `server`, `certificate-authority-data` and `tls-server-name`.",
	fleetv1.ClientCertificateRejectedReason:   "Put a valid one into the Secret.",
	fleetv1.CredentialsRejectedReason:         "Put valid credentials into the Secret.",
	fleetv1.AccessDeniedReason:                "The user needs the rights of a cluster admin.",
	fleetv1.NotKubernetesReason:               "Look at `server`.",
	fleetv1.RedirectedReason:                  "Put the final address into the kubeconfig.",
	fleetv1.ResponseTimeoutReason:             "Look at the server and at the network between.",
	fleetv1.ResponseTooLargeReason:            "Look at what answers there.",
	fleetv1.ServerErrorReason:                 "Look at the workload cluster's API server.",
	fleetv1.AgentDeployedReason:               "",
	fleetv1.WaitingForFleetClusterReason:      "Look at `FleetClusterReady`.",
	fleetv1.WaitingForWorkloadReason:          "Look at `WorkloadReachable`.",
	fleetv1.ManagementClusterUnknownReason:    "See [Where agents find the management cluster](docs/concepts/management-cluster.md).",
	fleetv1.AgentImageUnknownReason:           "Set `agentImage` in Fleet's configuration, or `--agent-image`.",
	fleetv1.ForeignAgentReason:                "Remove it, or [take it over](docs/concepts/safety.md#taking-over); one of Fleet's own registration can be [adopted](docs/concepts/adoption.md).",
	fleetv1.MovedAwayReason:                   "See [Moving](docs/operations/move.md), or [take it back](docs/concepts/safety.md#taking-over).",
	fleetv1.SelfManagedReason:                 "Use Fleet's own local cluster. Take the label off the Cluster.",
	fleetv1.WorkloadClusterChangedReason:      "Put the kubeconfig right; or, if the old cluster is gone for good, [take the new one over](docs/concepts/safety.md#taking-over).",
	fleetv1.AlreadyRegisteredReason:           "Keep one of the two Clusters, or [take it over](docs/concepts/safety.md#taking-over).",
	fleetv1.WaitingForBundlesReason:           "See [Never an automatic uninstall](docs/concepts/safety.md#never-an-automatic-uninstall).",
	fleetv1.ObjectRejectedReason:              "Look at its admission policies and webhooks, its quotas, and the kubeconfig's rights; at its clock. It is tried again as in [Reaching the workload cluster](docs/concepts/registration.md#reaching-the-workload-cluster).",
	fleetv1.WaitingForAgentToStopReason:       "If it does not stop, look at its pod; see [Moving an agent](docs/concepts/hosted.md#moving-an-agent).",
	fleetv1.WaitingForLeaseReason:             "A holder that was killed is waited for no longer than the lease lasts. If it stays so, an agent renews it: see [Moving an agent](docs/concepts/hosted.md#moving-an-agent).",
	fleetv1.HostedObjectForeignReason:         "Delete it.",
	fleetv1.ManagementClusterUnresolvedReason: "See [Settings](docs/concepts/hosted.md#settings).",
	fleetv1.AgentPodRejectedReason:            "Look at the events of ReplicaSets in the namespace that the message names, at Pod Security levels, quotas and admission webhooks.",
	fleetv1.WaitingForNodeReason:              "Nothing, while the cluster's nodes and its network come up. Ten minutes after the Cluster was made the reason is `AgentUnschedulable`.",
	fleetv1.AgentUnschedulableReason:          "Look at the nodes: whether there are any, their taints and their room.",
	fleetv1.AgentImagePullFailedReason:        "Look at its name, at the registry and at pull secrets.",
	fleetv1.AgentStartFailedReason:            "Look at the events of the agent's pod.",
	fleetv1.AgentCrashLoopingReason:           "Look at the log of the agent's pod.",
	fleetv1.AgentNotAvailableReason:           "Look at the agent's pod.",
	fleetv1.CredentialsIssuedReason:           "",
	fleetv1.WaitingForAgentReason:             "Look at `AgentDeployed`.",
	fleetv1.CredentialsExpiredReason:          "Look at `WorkloadReachable` and `Paused`: it is renewed when the cluster can be reached.",
	fleetv1.TokenRequestFailedReason:          "Look into the manager's log.",
	fleetv1.TokenRejectedReason:               "Look at `--api-audiences` and `--service-account-issuer` of the management cluster's API servers, and into the manager's log.",
	fleetv1.AgentConnectedReason:              "",
	fleetv1.WaitingForHeartbeatReason:         "Wait; the first heartbeat takes at least as long as the agent's image needs.",
	fleetv1.AgentSilentReason:                 "Look at its pod in `cattle-fleet-system` of the workload cluster, and whether it reaches `spec.agent.managementCluster.server`.",
	fleetv1.AgentUpToDateReason:               "",
	fleetv1.AgentUpdatingReason:               "Wait. If it lasts, look at `WorkloadReachable`.",
	fleetv1.AgentUpdateFailedReason:           "Look at `AgentDeployed`, which says what is wrong or is waited for; if that is `True`, the agent has not checked in for ten minutes: look at the log of its pod.",
	fleetv1.BundlesReadyReason:                "",
	fleetv1.BundlesNotReadyReason:             "Look at the status of the Fleet Cluster.",
	fleetv1.TargetedReason:                    "",
	fleetv1.FleetClusterImmutableReason:       "See [Moving to another workspace](docs/concepts/targeting.md#moving-to-another-workspace), or change the policy back.",
	fleetv1.ClassNamespaceNotListedReason:     "List the namespace, if its bundles may reach the namespace of the Fleet Cluster.",
	fleetv1.ValuesIncompleteReason:            "Correct the Cluster, or the `fieldPath` in the policy.",
	fleetv1.LabelsTooLargeReason:              "Include fewer, or take some off.",
	fleetv1.AnnotationsTooLargeReason:         "Include fewer.",
	fleetv1.ClassMissingReason:                "Make it, or correct the Cluster.",
	fleetv1.ClassGroupForeignReason:           "Delete it, if nothing needs it; Fleet uninstalls what reached clusters through it.",
	fleetv1.SelectedReason:                    "",
	fleetv1.OptedOutReason:                    "Nothing, if that is meant; see [Opting out](docs/concepts/leaving.md).",
	fleetv1.LabelInvalidReason:                "Mend the label.",
	fleetv1.LabelRemovedReason:                "Put it back, if that was not meant; see [Opting out](docs/concepts/leaving.md).",
	fleetv1.PolicyDeletedReason:               "Make it again, or another that selects the Cluster.",
	fleetv1.PolicyMismatchReason:              "Mend the selectors or the labels.",
	fleetv1.TargetingDiffersReason:            "Put back what was lost, or see [Losing selection](docs/concepts/selection.md#losing-selection-does-not-deregister).",
	fleetv1.PolicyInvalidReason:               "Mend the policy.",
	fleetv1.NotPausedReason:                   "",
	fleetv1.PausedReason:                      "See [Pause](docs/concepts/pause.md).",
	fleetv1.MovingReason:                      "Wait for the move to end.",
	fleetv1.NotDeletingReason:                 "",
	fleetv1.WaitingForFleetReason:             "Wait. After two minutes it goes on without. If it lasts, look into the manager's log.",
	fleetv1.StoppingAgentReason:               "Wait. After two minutes the Fleet Cluster of a Cluster that opted out stays as an [orphan](docs/operations/orphans.md); else the removal goes on.",
	fleetv1.UninstallingWorkloadsReason:       "Wait. After two minutes it goes on without.",
	fleetv1.InternalErrorReason:               "Look into the manager's log.",
	fleetv1.CAUnavailableReason:               "Mend what the message names.",
	fleetv1.ServerInvalidReason:               "Mend what the message names.",
	fleetv1.RolledOutReason:                   "",
	fleetv1.RollingOutReason:                  "Wait.",
	fleetv1.RolloutPausedReason:               "Set it to `false` to go on.",
	fleetv1.RolloutStalledReason:              "Set the old value to go back, or mend what is wrong.",
}
