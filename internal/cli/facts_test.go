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
	"bytes"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/remote"
)

var now = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }

// healthy returns the facts of a Cluster with which nothing is wrong.
func healthy() *facts {
	here := metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1"}
	f := &facts{
		now:       now,
		key:       client.ObjectKey{Namespace: "team-a", Name: "edge-1"},
		cluster:   &clusterv1.Cluster{ObjectMeta: *here.DeepCopy()},
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}},
		registration: &fleetv1.FleetRegistration{
			ObjectMeta: *here.DeepCopy(),
			Spec: fleetv1.FleetRegistrationSpec{
				RegistrationID: "id",
				FleetCluster:   fleetv1.FleetClusterReference{Namespace: "team-a", Name: "edge-1"},
				SelectedBy:     fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster},
				Agent: fleetv1.AgentSpec{
					Image:             "rancher/fleet-agent:v0.14.2",
					ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: "https://mgmt.example.com"},
				},
			},
			Status: fleetv1.FleetRegistrationStatus{
				Namespace:  "cluster-team-a-edge-1",
				Agent:      fleetv1.AgentStatus{Image: "rancher/fleet-agent:v0.14.2"},
				Credential: fleetv1.CredentialStatus{ExpirationTime: at(-24 * time.Hour)},
				Conditions: []metav1.Condition{{Type: fleetv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: fleetv1.ReadyReason, LastTransitionTime: at(time.Hour)}},
			},
		},
		fleetCluster: &fleet.Cluster{
			ObjectMeta: *here.DeepCopy(),
			Status:     fleet.ClusterStatus{Agent: fleet.AgentStatus{LastSeen: at(3 * time.Minute)}},
		},
		bundles:         &bundleCount{Total: 3, Ready: 2},
		manager:         &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: managerDeployment}, Status: appsv1.DeploymentStatus{AvailableReplicas: 1}},
		fleetController: withImage("rancher/fleet:v0.14.0"),
		workload:        &visit{holder: agent.HeldByUs, deployment: &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}}},
		unread:          map[unreadable]bool{},
	}
	f.cluster.Labels = map[string]string{fleetv1.RegisterLabel: "true"}
	f.cluster.Spec.ControlPlaneEndpoint.Host = "10.0.0.1"
	f.cluster.Status.Phase = "Provisioned"
	f.fleetCluster.Labels = map[string]string{fleet.ClusterManagementLabel: "capi-fleet"}
	return f
}

func withImage(image string) *appsv1.Deployment {
	deployment := &appsv1.Deployment{}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Image: image}}
	return deployment
}

func (f *facts) condition(condition, reason, message string) {
	f.registration.Status.Conditions = append(f.registration.Status.Conditions, metav1.Condition{
		Type: condition, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: at(time.Hour)})
}

// reached has the manager have reached the workload cluster.
func (f *facts) reached() {
	f.registration.Status.Conditions = append(f.registration.Status.Conditions, metav1.Condition{
		Type: fleetv1.WorkloadReachableCondition, Status: metav1.ConditionTrue, Reason: fleetv1.WorkloadReachableReason, LastTransitionTime: at(time.Hour)})
}

func TestDiagnoseSaysTheFirstThingThatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name    string
		break_  func(*facts)
		check   string
		message string
	}{
		{"nothing", func(*facts) {}, "", ""},
		{"no Cluster", func(f *facts) { f.cluster, f.registration, f.workload = nil, nil, nil }, "Cluster", "There is no Cluster team-a/edge-1"},
		{"no label", func(f *facts) { f.cluster.Labels, f.registration, f.workload = nil, nil, nil }, "Label", "kubectl label cluster edge-1 --namespace team-a fleet.addons.cluster.x-k8s.io/register=true"},
		{"a wrong label", func(f *facts) { f.cluster.Labels[fleetv1.RegisterLabel] = "yes" }, "Label", "LabelInvalid"},
		{"opted out", func(f *facts) { f.cluster.Labels[fleetv1.RegisterLabel] = "false" }, "Label", "opts out"},
		{"a policy without an address", func(f *facts) {
			f.policies = []fleetv1.FleetRegistrationPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: fleetv1.FleetRegistrationPolicyStatus{
				Conditions: []metav1.Condition{{Type: fleetv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: fleetv1.CAUnavailableReason, Message: "No ConfigMap"}}}}}
		}, "Policy", "Policy edge: CAUnavailable: No ConfigMap. Mend what the message names."},
		{"a paused Cluster", func(f *facts) { f.cluster.Spec.Paused = ptr.To(true) }, "Pause", "The Cluster is paused"},
		{"a paused registration", func(f *facts) {
			f.registration.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, "Pause", "The FleetRegistration has the annotation cluster.x-k8s.io/paused"},
		{"no manager", func(f *facts) { f.manager = nil }, "Manager", "--manager-namespace"},
		{"a manager that does not run", func(f *facts) { f.manager.Status.AvailableReplicas = 0 }, "Manager", "available"},
		{"no registration", func(f *facts) { f.registration, f.workload = nil, nil }, "Registration", "--watch-filter"},
		{"a foreign Fleet Cluster", func(f *facts) {
			f.condition(fleetv1.FleetClusterReadyCondition, fleetv1.FleetClusterForeignReason, "It is not ours")
		}, "Registration", "FleetClusterForeign: It is not ours. If Fleet registered it by itself"},
		{"neither an address nor a kubeconfig", func(f *facts) {
			f.cluster.Spec.ControlPlaneEndpoint.Host = ""
			f.workload = &visit{kubeconfig: &remote.Error{Reason: fleetv1.KubeconfigMissingReason}}
		}, "Endpoint", "clusterctl describe cluster edge-1"},
		{"no address, and a kubeconfig", func(f *facts) { f.cluster.Spec.ControlPlaneEndpoint.Host = "" }, "", ""},
		{"no address, and a kubeconfig that is refused", func(f *facts) {
			f.cluster.Spec.ControlPlaneEndpoint.Host = ""
			f.workload = &visit{kubeconfig: &remote.Error{Reason: fleetv1.KubeconfigExecReason, Message: "it names a program"}}
		}, "Kubeconfig", "KubeconfigExec"},
		{"no address, and a kubeconfig that may not be read", func(f *facts) {
			f.cluster.Spec.ControlPlaneEndpoint.Host, f.workload, f.unread[unreadKubeconfig] = "", nil, true
		}, "", ""},
		{"no kubeconfig", func(f *facts) {
			f.workload = &visit{kubeconfig: &remote.Error{Reason: fleetv1.KubeconfigMissingReason, Message: "it is not there"}}
		}, "Kubeconfig", "KubeconfigMissing: it is not there. Look at the control plane provider."},
		{"no answer", func(f *facts) {
			f.workload = &visit{reach: &remote.Error{Reason: fleetv1.ConnectionFailedReason, Message: "refused"}}
		}, "Reachability", "ConnectionFailed"},
		{"no answer to this machine alone", func(f *facts) {
			f.reached()
			f.workload = &visit{reach: &remote.Error{Reason: fleetv1.ConnectionFailedReason, Message: "refused"}}
		}, "", ""},
		{"no answer to this machine alone, and a silent agent", func(f *facts) {
			f.reached()
			f.workload = &visit{reach: &remote.Error{Reason: fleetv1.ConnectionFailedReason, Message: "refused"}}
			f.fleetCluster.Status.Agent.LastSeen = at(2 * time.Hour)
		}, "Heartbeat", "last reported 120m ago"},
		{"no answer to this machine alone, and an agent that is not well", func(f *facts) {
			f.reached()
			f.workload = &visit{reach: &remote.Error{Reason: fleetv1.ConnectionFailedReason, Message: "refused"}}
			f.condition(fleetv1.AgentDeployedCondition, fleetv1.AgentImagePullFailedReason, "It cannot be pulled")
		}, "Agent", "AgentImagePullFailed"},
		{"no answer to the manager alone", func(f *facts) {
			f.condition(fleetv1.WorkloadReachableCondition, fleetv1.CredentialsRejectedReason, "Refused")
		}, "Reachability", "CredentialsRejected: Refused. Put valid credentials into the Secret. From here the workload cluster answers"},
		{"no answer to either", func(f *facts) {
			f.condition(fleetv1.WorkloadReachableCondition, fleetv1.CredentialsRejectedReason, "Refused")
			f.workload = &visit{reach: &remote.Error{Reason: fleetv1.ConnectionFailedReason, Message: "refused"}}
		}, "Reachability", "CredentialsRejected"},
		{"no answer, and a kubeconfig that may not be read", func(f *facts) {
			f.condition(fleetv1.WorkloadReachableCondition, fleetv1.ConnectionFailedReason, "Refused")
			f.workload, f.unread[unreadKubeconfig] = nil, true
		}, "Reachability", "ConnectionFailed"},
		{"an account without rights", func(f *facts) { f.denied = []string{"get Contents"} }, "RBAC", "may not get Contents"},
		{"a foreign agent", func(f *facts) { f.workload.holder = agent.HeldByOther }, "Agent", "ForeignAgent"},
		{"no agent", func(f *facts) { f.workload.deployment = nil }, "Agent", "no Deployment cattle-fleet-system/fleet-agent"},
		{"an agent on the management cluster", func(f *facts) {
			f.registration.Spec.Agent.Placement, f.workload = fleetv1.PlacementManagement, &visit{}
		}, "", ""},
		{"a stopped agent", func(f *facts) { f.workload.deployment.Spec.Replicas = ptr.To(int32(0)) }, "Agent", "0 replicas"},
		{"an agent that is not well", func(f *facts) {
			f.workload.ailment = &agent.Ailment{Reason: fleetv1.AgentCrashLoopingReason, Message: "It ends"}
		}, "Agent", "AgentCrashLooping: It ends. Look at the log"},
		{"no address for agents", func(f *facts) {
			f.condition(fleetv1.AgentDeployedCondition, fleetv1.ManagementClusterUnknownReason, "No source")
		}, "Agent", "ManagementClusterUnknown"},
		{"an expired credential", func(f *facts) {
			f.condition(fleetv1.CredentialsValidCondition, fleetv1.CredentialsExpiredReason, "")
		}, "Agent", "CredentialsExpired"},
		{"an agent that never reported", func(f *facts) { f.fleetCluster.Status.Agent.LastSeen = metav1.Time{} }, "Heartbeat", "never reported"},
		{"a silent agent", func(f *facts) { f.fleetCluster.Status.Agent.LastSeen = at(2 * time.Hour) }, "Heartbeat", "last reported 120m ago"},
		{"an old Fleet", func(f *facts) { f.fleetController = withImage("rancher/fleet:v0.12.4") }, "Fleet version", "must be 0.13.0 or newer"},
		{"an agent of another version whose update has not arrived", func(f *facts) {
			f.registration.Status.Agent.Image, f.fleetController = "rancher/fleet-agent:v0.13.9", withImage("rancher/fleet:v0.14.1")
		}, "Fleet version", "0.13.9"},
		{"an agent of another version", func(f *facts) { f.fleetController = withImage("rancher/fleet:v0.15.1") }, "Fleet version", "0.14.2"},
		{"two things", func(f *facts) { f.denied, f.cluster.Spec.Paused = []string{"get Contents"}, ptr.To(true) }, "Pause", "paused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			f := healthy()
			tt.break_(f)
			results := runChecks(f)
			g.Expect(results).To(HaveLen(len(checks)))
			found := firstWrong(results)
			if tt.check == "" {
				g.Expect(found).To(BeNil())
				return
			}
			g.Expect(found).NotTo(BeNil())
			g.Expect(found.Name).To(Equal(tt.check))
			g.Expect(found.Message).To(ContainSubstring(tt.message))
		})
	}
}

func TestAClusterThatIsNotReachedFromHereIsUnknownAndNotWrong(t *testing.T) {
	g := NewWithT(t)
	f := healthy()
	f.reached()
	f.workload = &visit{reach: &remote.Error{Reason: fleetv1.ConnectionFailedReason, Message: "refused"}}
	result, message := checkReachability(f)
	g.Expect(result).To(Equal(verdictUnknown))
	g.Expect(message).To(And(ContainSubstring("This machine does not reach the workload cluster"), ContainSubstring("The manager did")))
}

func TestWhatMayNotBeReadIsUnknownAndNotWrong(t *testing.T) {
	g := NewWithT(t)
	f := healthy()
	f.namespace, f.manager, f.fleetController, f.fleetCluster, f.workload = &corev1.Namespace{}, nil, nil, nil, nil
	for _, what := range []unreadable{unreadNamespace, unreadPolicies, unreadFleetCluster, unreadBundles, unreadManager, unreadFleet, unreadKubeconfig, unreadRights} {
		f.unread[what] = true
	}
	results := runChecks(f)
	g.Expect(firstWrong(results)).To(BeNil())
	unknown := 0
	for _, r := range results {
		if r.Verdict == verdictUnknown {
			unknown++
		}
	}
	g.Expect(unknown).To(Equal(8))
	g.Expect(describe(f, "capi-fleet-system").Tree.Nodes).To(HaveLen(2))
}

func TestTheTreeShowsBothClusters(t *testing.T) {
	g := NewWithT(t)
	f := healthy()
	f.condition(fleetv1.AgentConnectedCondition, fleetv1.AgentSilentReason, "It is\nsilent")
	d := describe(f, "capi-fleet-system")
	var out bytes.Buffer
	printNode(&out, &d.Tree, "", "")
	printConditions(&out, d.Conditions[1:], now, false)
	g.Expect(out.String()).To(Equal(`Cluster team-a/edge-1: Provisioned
├─ Management cluster: https://mgmt.example.com
│  ├─ FleetRegistration team-a/edge-1: Ready=True, Ready, selected by the built-in policy
│  ├─ Fleet Cluster team-a/edge-1: its agent reported 3m ago
│  ├─ Namespace cluster-team-a-edge-1: 2 of 3 bundles ready
│  └─ ServiceAccount capi-fleet-system/cluster-team-a-edge-1: its credential ends in 24h
└─ Workload cluster: answers
   ├─ Secret cattle-fleet-system/fleet-agent: is this registration's
   └─ Deployment cattle-fleet-system/fleet-agent: is available

AgentConnected=False AgentSilent (since 60m)
  It is silent
  What to do: Look at its pod in cattle-fleet-system of the workload cluster, and whether it reaches spec.agent.managementCluster.server.
`))
}

func TestTheTreeSaysWhyTheWorkloadClusterWasNotLookedAt(t *testing.T) {
	g := NewWithT(t)
	f := healthy()
	f.workload = &visit{reach: &remote.Error{Reason: fleetv1.ConnectionFailedReason, Message: "refused"}}
	tree := describe(f, "capi-fleet-system").Tree
	g.Expect(tree.Nodes[1].State).To(Equal("ConnectionFailed: refused"))
	f.workload, f.registration.Spec.Agent.Placement = &visit{}, fleetv1.PlacementManagement
	g.Expect(describe(f, "capi-fleet-system").Tree.Nodes[1].State).To(Equal("answers; its agent runs on the management cluster"))
	f.registration = nil
	tree = describe(f, "capi-fleet-system").Tree
	g.Expect(tree.Nodes).To(BeEmpty())
	g.Expect(tree.State).To(ContainSubstring("not registered"))
}

func TestStatusHasALineForEachCluster(t *testing.T) {
	g := NewWithT(t)
	f := healthy()
	other := clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "a-new-one"}}
	bundles := []fleet.BundleDeployment{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-team-a-edge-1", Name: "one"}, Status: fleet.BundleDeploymentStatus{Ready: true}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-team-a-edge-1", Name: "two"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "three"}},
	}
	joined := join([]clusterv1.Cluster{*f.cluster, other}, []fleetv1.FleetRegistration{*f.registration}, []fleet.Cluster{*f.fleetCluster}, bundles, true)
	rows := []statusRow{rowOf(&joined[0]), rowOf(&joined[1])}
	g.Expect(rows[0].Name).To(Equal("a-new-one"))
	g.Expect(rows[0].Reason).To(Equal(notRegistered))
	g.Expect(rows[1].Joined).To(Equal("True"))
	g.Expect(rows[1].AgentVersion).To(Equal("v0.14.2"))
	g.Expect(rows[1].WantedAgentVersion).To(Equal("v0.14.2"))
	g.Expect(agentCell(&rows[1])).To(Equal("v0.14.2"))
	g.Expect(reasonCell(&rows[1])).To(Equal("Ready"))
	g.Expect(rows[1].LastSeen.Time).To(BeTemporally("==", now.Add(-3*time.Minute)))
	g.Expect(*rows[1].Bundles).To(Equal(bundleCount{Total: 2, Ready: 1}))

	g.Expect(judgeRows(rows, false)).To(Succeed(), "one that nobody selected is not to join")
	g.Expect(judgeRows(rows, true)).To(MatchError(errFinding))
	rows[1].Joined = "False"
	g.Expect(errors.Is(judgeRows(rows, false), errFinding)).To(BeTrue())
}

func TestStatusShowsWhatRunsAndWhatIsToRun(t *testing.T) {
	for _, tt := range []struct{ runs, wanted, cell string }{
		{"rancher/fleet-agent:v0.14.2", "rancher/fleet-agent:v0.14.2", "v0.14.2"},
		{"rancher/fleet-agent:v0.14.1", "rancher/fleet-agent:v0.14.2", "v0.14.1 (to be v0.14.2)"},
		{"rancher/fleet-agent:v0.14.2", "mirror.example.org/fleet-agent:v0.14.2", "v0.14.2 (to be mirror.example.org/fleet-agent:v0.14.2)"},
		{"", "rancher/fleet-agent:v0.14.2", "- (to be v0.14.2)"},
	} {
		g := NewWithT(t)
		f := healthy()
		f.registration.Status.Agent.Image, f.registration.Spec.Agent.Image = tt.runs, tt.wanted
		row := rowOf(&registered{cluster: *f.cluster, registration: f.registration})
		g.Expect(agentCell(&row)).To(Equal(tt.cell))
		g.Expect(row.AgentImage).To(Equal(tt.runs))
		g.Expect(row.WantedAgentImage).To(Equal(tt.wanted))
		g.Expect(row.WantedAgentVersion).To(Equal("v0.14.2"))
	}
}

func TestStatusSaysThatARegistrationIsPaused(t *testing.T) {
	g := NewWithT(t)
	f := healthy()
	f.registration.Status.Conditions = append(f.registration.Status.Conditions, metav1.Condition{Type: fleetv1.PausedCondition, Status: metav1.ConditionTrue})
	row := rowOf(&registered{cluster: *f.cluster, registration: f.registration})
	g.Expect(row.Paused).To(BeTrue())
	g.Expect(row.Reason).To(Equal("Ready"))
	g.Expect(reasonCell(&row)).To(Equal("Ready (paused)"))
}

func TestOnlyLinesInWhichSomethingChangedArePrintedAgain(t *testing.T) {
	g := NewWithT(t)
	shown := map[string]string{}
	rows := []statusRow{{Name: "a", Joined: "False"}, {Name: "b", Joined: "True"}}
	g.Expect(changed(shown, rows)).To(Equal(rows))
	seen := at(0)
	rows[1].LastSeen = &seen
	g.Expect(changed(shown, rows)).To(BeEmpty(), "a heartbeat is no news")
	rows[0].Joined = "True"
	g.Expect(changed(shown, rows)).To(Equal(rows[:1]))
}

func TestImageVersion(t *testing.T) {
	for image, want := range map[string]string{
		"rancher/fleet-agent:v0.14.2":                                  "v0.14.2",
		"registry:5000/rancher/fleet-agent":                            "",
		"registry:5000/rancher/fleet-agent:v1@sha256:0123456789abcdef": "v1",
		"fleet-agent@sha256:0123456789abcdef0123":                      "sha256:0123456789ab",
		"": "",
	} {
		NewWithT(t).Expect(imageVersion(image)).To(Equal(want), image)
	}
}
