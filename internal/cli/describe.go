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
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// node is an object of a registration, with those below it.
type node struct {
	Object string `json:"object"`
	State  string `json:"state,omitempty"`
	Nodes  []node `json:"objects,omitempty"`
}

// conditionLine is a condition with what to do.
type conditionLine struct {
	Type     string      `json:"type"`
	Status   string      `json:"status"`
	Reason   string      `json:"reason"`
	Since    metav1.Time `json:"since"`
	Message  string      `json:"message,omitempty"`
	WhatToDo string      `json:"whatToDo,omitempty"`
}

// description is what describe shows.
type description struct {
	Tree       node            `json:"tree"`
	Conditions []conditionLine `json:"conditions,omitempty"`
}

func newDescribeCommand(a *app) *cobra.Command {
	return a.factsCommand(&cobra.Command{
		Use:   "describe CLUSTER",
		Short: "Show a registration's objects on both clusters, and its conditions with what to do",
		Long: `Show a registration's objects on both clusters as a tree, and its conditions with what to
do about each. The workload cluster is reached from here. Nothing is changed.`,
		Example: `  clusterctl fleet describe edge-1 --namespace team-a`,
	}, a.describe)
}

func (a *app) describe(f *facts, where lookup, output *outputFlag) error {
	if f.cluster == nil && f.registration == nil {
		return noClusterError(f.key)
	}
	d := describe(f, where.managerNamespace)
	if output.structured() {
		return output.print(a.Out, d)
	}
	printNode(a.Out, &d.Tree, "", "")
	printConditions(a.Out, d.Conditions, f.now, styleFor(a.Out))
	return nil
}

// describe makes a tree and a list of what is known.
func describe(f *facts, managerNamespace string) description {
	d := description{Tree: node{Object: "Cluster " + f.key.String(), State: clusterState(f)}}
	reg := f.registration
	if reg == nil {
		return d
	}
	d.Tree.Nodes = []node{managementNode(f, managerNamespace), workloadNode(f)}
	for _, c := range reg.Status.Conditions {
		d.Conditions = append(d.Conditions, conditionLine{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Since: c.LastTransitionTime,
			Message: oneLine(c.Message), WhatToDo: whatToDo(c.Reason),
		})
	}
	return d
}

func clusterState(f *facts) string {
	switch {
	case f.cluster == nil:
		return "is gone"
	case f.registration == nil:
		return "is not registered: " + programName + " diagnose says why"
	}
	return orNothing(f.cluster.Status.Phase)
}

func managementNode(f *facts, managerNamespace string) node {
	reg := f.registration
	at := reg.Spec.FleetCluster
	n := node{Object: "Management cluster", State: reg.Spec.Agent.ManagementCluster.Server, Nodes: []node{
		{Object: "FleetRegistration " + f.key.String(), State: registrationState(reg)},
		{Object: "Fleet Cluster " + at.Namespace + "/" + at.Name, State: fleetClusterState(f)},
	}}
	if reg.Status.Namespace != "" {
		n.Nodes = append(n.Nodes,
			node{Object: "Namespace " + reg.Status.Namespace, State: bundlesState(f)},
			node{Object: "ServiceAccount " + managerNamespace + "/" + reg.Status.Namespace, State: credentialState(f)})
	}
	return n
}

func registrationState(reg *fleetv1.FleetRegistration) string {
	by := "the built-in policy"
	if reg.Spec.SelectedBy.Policy != "" {
		by = "policy " + reg.Spec.SelectedBy.Policy
	}
	state := "selected by " + by
	if ready := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.ReadyCondition); ready != nil {
		state = fmt.Sprintf("Ready=%s, %s, %s", ready.Status, ready.Reason, state)
	}
	return state
}

func fleetClusterState(f *facts) string {
	switch {
	case f.unread[unreadFleetCluster]:
		return "may not be read"
	case f.fleetCluster == nil:
		return "is missing"
	case f.fleetCluster.Labels[fleet.ClusterManagementLabel] == "":
		return "was handed to Fleet"
	case f.fleetCluster.Status.Agent.LastSeen.IsZero():
		return "its agent has not reported yet"
	}
	return "its agent reported " + ago(f.now, &f.fleetCluster.Status.Agent.LastSeen)
}

func bundlesState(f *facts) string {
	if f.bundles == nil {
		return "its bundles may not be read"
	}
	return fmt.Sprintf("%d of %d bundles ready", f.bundles.Ready, f.bundles.Total)
}

func credentialState(f *facts) string {
	credential := f.registration.Status.Credential
	switch {
	case len(f.denied) > 0:
		return "lacks rights: may not " + strings.Join(f.denied, ", nor ")
	case credential.ExpirationTime.IsZero():
		return "has no credential yet"
	}
	return "its credential ends " + until(f.now, &credential.ExpirationTime)
}

func workloadNode(f *facts) node {
	n := node{Object: "Workload cluster"}
	switch v := f.workload; {
	case f.unread[unreadKubeconfig]:
		n.State = "was not looked at: its kubeconfig may not be read"
	case v == nil:
		n.State = "was not looked at"
	case v.kubeconfig != nil:
		n.State = v.kubeconfig.Error()
	case v.reach != nil:
		n.State = v.reach.Error()
	default:
		n.State = "answers"
		if f.registration.Spec.Agent.Hosted() {
			n.State += "; its agent runs on the management cluster"
			break
		}
		n.Nodes = []node{
			{Object: "Secret " + agent.Namespace + "/" + agent.Name, State: holderState(v.holder)},
			{Object: "Deployment " + agent.Namespace + "/" + agent.Name, State: deploymentState(v)},
		}
	}
	return n
}

func holderState(holder agent.Holder) string {
	switch holder {
	case agent.HeldByUs:
		return "is this registration's"
	case agent.HeldByOther:
		return "is not this registration's"
	case agent.HeldByNobody:
	}
	return "is missing"
}

func deploymentState(v *visit) string {
	switch {
	case v.deployment == nil:
		return "is missing"
	case ptr.Deref(v.deployment.Spec.Replicas, 1) == 0:
		return "is stopped"
	case v.ailment != nil:
		return v.ailment.Reason + ": " + v.ailment.Message
	case agent.Complete(v.deployment):
		return "is available"
	}
	return "is starting"
}

// printNode prints a tree: first is what begins its line, rest what begins those below.
func printNode(out io.Writer, n *node, first, rest string) {
	line := first + oneLine(n.Object)
	if n.State != "" {
		line += ": " + oneLine(n.State)
	}
	fmt.Fprintln(out, line)
	for i := range n.Nodes {
		if i < len(n.Nodes)-1 {
			printNode(out, &n.Nodes[i], rest+"├─ ", rest+"│  ")
		} else {
			printNode(out, &n.Nodes[i], rest+"└─ ", rest+"   ")
		}
	}
}

func printConditions(out io.Writer, conditions []conditionLine, now time.Time, painter style) {
	for i := range conditions {
		c := &conditions[i]
		fmt.Fprintf(out, "\n%s=%s %s (since %s)\n", c.Type, painter.paint(conditionColour(c), c.Status), c.Reason, strings.TrimSuffix(ago(now, &c.Since), " ago"))
		if c.Message != "" {
			fmt.Fprintln(out, "  "+c.Message)
		}
		if c.WhatToDo != "" {
			fmt.Fprintln(out, "  What to do: "+c.WhatToDo)
		}
	}
}

// conditionColour colours what should be otherwise.
func conditionColour(c *conditionLine) string {
	good := string(metav1.ConditionTrue)
	if c.Type == fleetv1.PausedCondition || c.Type == fleetv1.DeletingCondition {
		good = string(metav1.ConditionFalse)
	}
	switch c.Status {
	case good:
		return green
	case string(metav1.ConditionUnknown):
		return yellow
	}
	return red
}
