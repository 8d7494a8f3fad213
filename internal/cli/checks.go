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
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/remote"
)

// verdict is the result of a check.
type verdict string

const (
	verdictOK    verdict = "ok"
	verdictWrong verdict = "wrong"
	// verdictUnknown means that it may not be read, or that something before it is wrong.
	verdictUnknown verdict = "unknown"
)

// check is one thing that was looked at.
type check struct {
	Name    string  `json:"name"`
	Verdict verdict `json:"verdict"`
	Message string  `json:"message,omitempty"`
}

// minFleetVersion is the first Fleet that leaves labelled Clusters to others.
var minFleetVersion = version.MustParseGeneric("0.13.0")

// checks are what a person would look at, in that order. Each says what is wrong, or that
// it does not know.
var checks = []struct {
	name string
	run  func(*facts) (verdict, string)
}{
	{"Cluster", checkCluster},
	{"Label", checkLabel},
	{"Policy", checkPolicy},
	{"Pause", checkPause},
	{"Manager", checkManager},
	{"Registration", checkRegistration},
	{"Endpoint", checkEndpoint},
	{"Kubeconfig", checkKubeconfig},
	{"Reachability", checkReachability},
	{"RBAC", checkRights},
	{"Agent", checkAgent},
	{"Heartbeat", checkHeartbeat},
	{"Fleet version", checkFleetVersion},
}

// runChecks runs all checks.
func runChecks(f *facts) []check {
	results := make([]check, 0, len(checks))
	for _, c := range checks {
		result, message := c.run(f)
		results = append(results, check{Name: c.name, Verdict: result, Message: message})
	}
	return results
}

// firstWrong returns the first check that found something, nil where none did.
func firstWrong(results []check) *check {
	for i := range results {
		if results[i].Verdict == verdictWrong {
			return &results[i]
		}
	}
	return nil
}

func ok() (verdict, string) { return verdictOK, "" }

func wrongf(format string, args ...any) (verdict, string) {
	return verdictWrong, fmt.Sprintf(format, args...)
}

func mayNotRead(what unreadable) (verdict, string) {
	return verdictUnknown, fmt.Sprintf("Your rights do not suffice to look (%s).", what)
}

func needs(what string) (verdict, string) { return verdictUnknown, "It needs " + what + " first." }

// wrongFor says what is wrong in the words of a condition, and what to do.
func wrongFor(reason, message string) (verdict, string) {
	text := reason
	if message != "" {
		text += ": " + strings.TrimSuffix(oneLine(message), ".") + "."
	}
	if do := whatToDo(reason); do != "" {
		text += " " + do
	}
	return verdictWrong, text
}

func checkCluster(f *facts) (verdict, string) {
	switch {
	case f.cluster == nil:
		return wrongf("There is no Cluster %s. Look at --namespace and --context.", f.key)
	case !f.cluster.DeletionTimestamp.IsZero():
		return wrongf("The Cluster is being deleted, and its registration with it.")
	}
	return ok()
}

func (f *facts) selection() decide.Selection {
	in := decide.SelectionInput{
		ClusterLabels:   f.cluster.Labels,
		NamespaceLabels: f.namespace.Labels,
		Policies:        f.policies,
		BuiltInPolicy:   true,
	}
	if f.registration != nil {
		in.Current = &f.registration.Spec.SelectedBy
	}
	return decide.Select(in)
}

func checkLabel(f *facts) (verdict, string) {
	switch {
	case f.cluster == nil:
		return needs("the Cluster")
	case f.unread[unreadNamespace]:
		return mayNotRead(unreadNamespace)
	case f.unread[unreadPolicies]:
		return mayNotRead(unreadPolicies)
	}
	selection := f.selection()
	_, labelled := f.cluster.Labels[fleetv1.RegisterLabel]
	_, inherited := f.namespace.Labels[fleetv1.RegisterLabel]
	switch {
	case selection.By != nil:
		return ok()
	case selection.OptsOut:
		return wrongf("The Cluster opts out of Fleet and is leaving. To keep it: kubectl label cluster %s --namespace %s --overwrite %s=true",
			f.key.Name, f.key.Namespace, fleetv1.RegisterLabel)
	case f.registration == nil && !labelled && !inherited:
		return wrongf("Neither the Cluster nor its Namespace has the label %[1]s, and no policy selects the Cluster. To let it join: kubectl label cluster %[2]s --namespace %[3]s %[1]s=true",
			fleetv1.RegisterLabel, f.key.Name, f.key.Namespace)
	}
	return wrongFor(selection.Reason, selection.Message)
}

func checkPolicy(f *facts) (verdict, string) {
	switch {
	case f.cluster == nil:
		return needs("the Cluster")
	case f.unread[unreadPolicies]:
		return mayNotRead(unreadPolicies)
	}
	policy := f.selection().Policy
	if policy == nil {
		return ok()
	}
	ready := meta.FindStatusCondition(policy.Status.Conditions, fleetv1.ReadyCondition)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return ok()
	}
	result, message := wrongFor(ready.Reason, ready.Message)
	return result, "Policy " + policy.Name + ": " + message
}

func checkPause(f *facts) (verdict, string) {
	switch reg := f.registration; {
	case f.cluster != nil && decide.Moving(f.cluster), reg != nil && decide.Moving(reg):
		return wrongf("clusterctl is moving the Cluster to another management cluster. Wait, and look there.")
	case f.cluster != nil && ptr.Deref(f.cluster.Spec.Paused, false):
		return wrongf("The Cluster is paused. To go on: kubectl patch cluster %s --namespace %s --type merge --patch '{\"spec\":{\"paused\":false}}'", f.key.Name, f.key.Namespace)
	case f.cluster != nil && annotations.HasPaused(f.cluster):
		return wrongf("The Cluster has the annotation %[1]s. To go on: kubectl annotate cluster %[2]s --namespace %[3]s %[1]s-", clusterv1.PausedAnnotation, f.key.Name, f.key.Namespace)
	case reg != nil && annotations.HasPaused(reg):
		return wrongf("The FleetRegistration has the annotation %[1]s. To go on: kubectl annotate fleetregistration %[2]s --namespace %[3]s %[1]s-", clusterv1.PausedAnnotation, f.key.Name, f.key.Namespace)
	}
	return ok()
}

func checkManager(f *facts) (verdict, string) {
	switch {
	case f.unread[unreadManager]:
		return mayNotRead(unreadManager)
	case f.manager == nil:
		return wrongf("There is no Deployment %s. Install capi-fleet, or name its namespace with --manager-namespace.", managerDeployment)
	case f.manager.Status.AvailableReplicas == 0:
		return wrongf("No pod of Deployment %s/%s is available. Look at it and at its log.", f.manager.Namespace, f.manager.Name)
	}
	return ok()
}

func checkRegistration(f *facts) (verdict, string) {
	reg := f.registration
	if reg == nil {
		if f.cluster == nil || f.selection().By == nil {
			return needs("a Cluster that is selected")
		}
		return wrongf("The Cluster is selected and has no FleetRegistration. Look into the manager's log, and whether its flags --namespace, --watch-filter or --built-in-policy leave this Cluster out.")
	}
	for _, condition := range []string{fleetv1.DeletingCondition, fleetv1.FleetClusterReadyCondition} {
		found := meta.FindStatusCondition(reg.Status.Conditions, condition)
		if found == nil {
			continue
		}
		if good := found.Status == metav1.ConditionTrue; good == (condition == fleetv1.DeletingCondition) {
			return wrongFor(found.Reason, found.Message)
		}
	}
	if len(reg.Status.Conditions) == 0 {
		return wrongf("The manager has not looked at the FleetRegistration yet. If that lasts, look into the manager's log.")
	}
	return ok()
}

// checkEndpoint judges what the kubeconfig makes up for: the manager goes by that where the
// Cluster says nothing.
func checkEndpoint(f *facts) (verdict, string) {
	switch {
	case f.cluster == nil:
		return needs("the Cluster")
	case f.cluster.Spec.ControlPlaneEndpoint.Host != "", f.reachedByManager():
		return ok()
	case f.unread[unreadKubeconfig]:
		return mayNotRead(unreadKubeconfig)
	case f.workload == nil:
		return needs("a registration")
	case f.workload.kubeconfig == nil || f.workload.kubeconfig.Reason != fleetv1.KubeconfigMissingReason:
		return ok()
	}
	return wrongf("The Cluster has neither a spec.controlPlaneEndpoint nor a kubeconfig yet. Look at its infrastructure: clusterctl describe cluster %s --namespace %s", f.key.Name, f.key.Namespace)
}

func checkKubeconfig(f *facts) (verdict, string) {
	switch {
	case f.unread[unreadKubeconfig]:
		return mayNotRead(unreadKubeconfig)
	case f.workload == nil:
		return needs("a registration")
	case f.workload.kubeconfig != nil:
		return wrongAbout(f.workload.kubeconfig)
	}
	return ok()
}

// wrongAbout says why a workload cluster cannot be used, in the words of package remote.
func wrongAbout(err *remote.Error) (verdict, string) { return wrongFor(err.Reason, err.Message) }

// checkReachability goes by what the manager found, since that is what counts, and says what
// is otherwise from here.
func checkReachability(f *facts) (verdict, string) {
	if f.registration == nil {
		return needs("a registration")
	}
	found := meta.FindStatusCondition(f.registration.Status.Conditions, fleetv1.WorkloadReachableCondition)
	if found != nil && found.Status == metav1.ConditionFalse {
		result, message := wrongFor(found.Reason, found.Message)
		if v := f.workload; v != nil && v.kubeconfig == nil && v.reach == nil {
			message += " From here the workload cluster answers: the manager may not have looked again yet, or something lies between it and the cluster."
		}
		return result, message
	}
	switch v := f.workload; {
	case v == nil && f.unread[unreadKubeconfig]:
		return mayNotRead(unreadKubeconfig)
	case v == nil || v.kubeconfig != nil:
		return needs("a kubeconfig")
	case v.reach == nil && v.insecureTLS:
		return verdictOK, "The kubeconfig turns off the check of the server's certificate."
	case v.reach == nil:
		return ok()
	case f.reachedByManager():
		return verdictUnknown, fmt.Sprintf("This machine does not reach the workload cluster (%s). The manager did when it last tried.", oneLine(v.reach.Error()))
	}
	return wrongAbout(f.workload.reach)
}

// reachedByManager tells whether the manager reached the workload cluster when it last tried.
func (f *facts) reachedByManager() bool {
	return f.registration != nil && meta.IsStatusConditionTrue(f.registration.Status.Conditions, fleetv1.WorkloadReachableCondition)
}

func checkRights(f *facts) (verdict, string) {
	switch {
	case f.unread[unreadRights]:
		return mayNotRead(unreadRights)
	case f.registration == nil || f.registration.Status.Namespace == "":
		return needs("a registration with a cluster namespace")
	case len(f.denied) > 0:
		return wrongf("The agent's account may not %s. The manager puts that right within minutes unless something takes it away again: look into its log, and whether ClusterRoles capi-fleet-system-agent and capi-fleet-system-agent-contents are there. A manager in another namespace is named with --manager-namespace.",
			strings.Join(f.denied, ", nor "))
	}
	return ok()
}

func checkAgent(f *facts) (verdict, string) {
	reg := f.registration
	if reg == nil {
		return needs("a registration")
	}
	if !reg.Spec.Agent.Hosted() && f.workload != nil && f.workload.kubeconfig == nil && f.workload.reach == nil {
		if result, message := checkVisited(f.workload, reg); result == verdictWrong {
			return result, message
		}
	}
	for _, condition := range []string{fleetv1.AgentDeployedCondition, fleetv1.CredentialsValidCondition} {
		if found := meta.FindStatusCondition(reg.Status.Conditions, condition); found != nil && found.Status != metav1.ConditionTrue {
			return wrongFor(found.Reason, found.Message)
		}
	}
	return ok()
}

// checkVisited judges what the workload cluster showed a moment ago. What the manager
// found before comes after that.
func checkVisited(v *visit, reg *fleetv1.FleetRegistration) (verdict, string) {
	deployed := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.AgentDeployedCondition)
	switch {
	case deployed != nil && deployed.Status == metav1.ConditionFalse:
		return wrongFor(deployed.Reason, deployed.Message)
	case v.holder == agent.HeldByOther:
		return wrongFor(fleetv1.ForeignAgentReason, "The workload cluster has an agent that is not this registration's")
	case v.deployment == nil:
		return wrongf("The workload cluster has no Deployment %s/%s. The manager puts it back at its next look; to have it look now: %s rotate %s --namespace %s",
			agent.Namespace, agent.Name, programName, reg.Name, reg.Namespace)
	case ptr.Deref(v.deployment.Spec.Replicas, 1) == 0:
		return wrongf("Deployment %s/%s in the workload cluster has 0 replicas: somebody stopped the agent.", agent.Namespace, agent.Name)
	case v.ailment != nil:
		return wrongFor(v.ailment.Reason, v.ailment.Message)
	}
	return ok()
}

func checkHeartbeat(f *facts) (verdict, string) {
	switch {
	case f.registration == nil:
		return needs("a registration")
	case f.unread[unreadFleetCluster]:
		return mayNotRead(unreadFleetCluster)
	case f.fleetCluster == nil:
		return needs("the Fleet Cluster")
	}
	seen := f.fleetCluster.Status.Agent.LastSeen
	limit := decide.SilenceLimit(f.registration.Spec.Agent.CheckinInterval.Duration)
	server := f.registration.Spec.Agent.ManagementCluster.Server
	switch {
	case seen.IsZero():
		return wrongf("The agent has never reported. Its first heartbeat takes at least as long as its image needs; if that lasts, look at its log in %s, and whether it reaches %s.", agent.Namespace, orNothing(server))
	case f.now.Sub(seen.Time) > limit:
		return wrongf("The agent last reported %s. Look at its log in %s of the workload cluster, and whether it reaches %s from there.", ago(f.now, &seen), agent.Namespace, orNothing(server))
	}
	return ok()
}

func checkFleetVersion(f *facts) (verdict, string) {
	switch {
	case f.unread[unreadFleet]:
		return mayNotRead(unreadFleet)
	case f.fleetController == nil:
		return verdictUnknown, fmt.Sprintf("There is no Deployment %s. Name Fleet's namespace with --fleet-namespace.", fleetDeployment)
	}
	controller, err := version.ParseGeneric(imageVersion(firstImage(f.fleetController)))
	if err != nil {
		return verdictUnknown, "The image of Fleet's controller names no version."
	}
	if controller.LessThan(minFleetVersion) {
		return wrongf("Fleet is %s. It must be %s or newer, or it registers the clusters of capi-fleet by itself as well.", controller, minFleetVersion)
	}
	if f.registration == nil {
		return ok()
	}
	agentImage := cmp.Or(f.registration.Status.Agent.Image, f.registration.Spec.Agent.Image)
	running, err := version.ParseGeneric(imageVersion(agentImage))
	if err == nil && (running.Major() != controller.Major() || running.Minor() != controller.Minor()) {
		return wrongf("The agent is %s and Fleet's controller %s. Their versions should be the same: look at the agent's image in Fleet's configuration and in the policy, and at the policy's rollout.", running, controller)
	}
	return ok()
}

func firstImage(deployment *appsv1.Deployment) string {
	if containers := deployment.Spec.Template.Spec.Containers; len(containers) > 0 {
		return containers[0].Image
	}
	return ""
}
