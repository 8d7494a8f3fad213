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

package registration

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// running gives the workload cluster a pod of the agent and a release of its.
func (l *life) running(t *testing.T) *corev1.Pod {
	t.Helper()
	g := NewWithT(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: "fleet-agent-1", Labels: agent.PodLabels()}}
	g.Expect(l.client.Create(t.Context(), pod)).To(Succeed())
	l.deploymentStatus(t, 1)
	release, err := agentsim.ReleaseSecret("app", agent.Namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.client.Create(t.Context(), release)).To(Succeed())
	bundle := &fleet.BundleDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.registration(t).Status.Namespace, Name: "app"},
		Spec:       fleet.BundleDeploymentSpec{DeploymentID: "content:options"},
	}
	g.Expect(l.WithWatch.Create(t.Context(), bundle)).To(Succeed())
	return pod
}

func (l *life) deploymentStatus(t *testing.T, replicas int32) {
	t.Helper()
	g := NewWithT(t)
	deployment := &appsv1.Deployment{}
	g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, deployment)).To(Succeed())
	deployment.Status.Replicas, deployment.Status.ObservedGeneration = replicas, deployment.Generation
	g.Expect(l.client.Status().Update(t.Context(), deployment)).To(Succeed())
}

// optOut does what the selection controller and the Cluster's owner do.
func (l *life) optOut(t *testing.T, labels map[string]string, how fleetv1.DeletionSpec) {
	t.Helper()
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{}
	g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	cluster.Labels = labels
	g.Expect(l.WithWatch.Update(t.Context(), cluster)).To(Succeed())
	reg := l.registration(t)
	reg.Spec.Deletion = how
	reg.Spec.SelectedBy.Label = fleetv1.LabelOnCluster
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), reg)).To(Succeed())
	// The fake client knows the real time only.
	l.clock.SetTime(time.Now())
}

// once reconciles once and returns the reason of the condition Deleting, empty where the
// registration is gone.
func (l *life) once(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	result, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	reg := &fleetv1.FleetRegistration{}
	if err := l.Get(t.Context(), edge.NamespacedName, reg); apierrors.IsNotFound(err) {
		return ""
	}
	g.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 10*time.Second)))
	return meta.FindStatusCondition(reg.Status.Conditions, fleetv1.DeletingCondition).Reason
}

// fleetDeletes does Fleet's part once the Fleet Cluster is gone: the cluster namespace goes
// with what is in it.
func (l *life) fleetDeletes(t *testing.T) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.registration(t).Status.Namespace}}
	g := NewWithT(t)
	for _, inside := range []client.Object{&rbacv1.RoleBinding{}, &fleet.BundleDeployment{}} {
		g.Expect(l.DeleteAllOf(t.Context(), inside, client.InNamespace(namespace.Name))).To(Succeed())
	}
	g.Expect(l.WithWatch.Delete(t.Context(), namespace)).To(Succeed())
}

func (l *life) fleetCluster(t *testing.T) *fleet.Cluster {
	t.Helper()
	cluster := &fleet.Cluster{}
	if err := l.Get(t.Context(), edge.NamespacedName, cluster); err != nil {
		return nil
	}
	return cluster
}

func (l *life) accounts(t *testing.T) int {
	t.Helper()
	accounts, roles, bindings := &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	g := NewWithT(t)
	g.Expect(l.List(t.Context(), accounts)).To(Succeed())
	g.Expect(l.List(t.Context(), roles)).To(Succeed())
	g.Expect(l.List(t.Context(), bindings, client.InNamespace("team-a"))).To(Succeed())
	return len(accounts.Items) + len(roles.Items) + len(bindings.Items)
}

func (l *life) has(t *testing.T, obj client.Object) bool {
	t.Helper()
	err := l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, obj)
	if !apierrors.IsNotFound(err) {
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
	return err == nil
}

var optedOut = map[string]string{fleetv1.RegisterLabel: "false"}

func TestTheFleetClusterStaysUntilTheAgentIsSeenToHaveStopped(t *testing.T) {
	for _, tt := range []struct {
		name   string
		labels map[string]string
		how    fleetv1.DeletionSpec
		keeps  bool
	}{
		{name: "by default", labels: optedOut},
		{name: "the agent is kept", labels: optedOut, how: fleetv1.DeletionSpec{Agent: fleetv1.AgentKeep}, keeps: true},
		{name: "a removed label never uninstalls", how: fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			pod := l.running(t)
			l.optOut(t, tt.labels, tt.how)

			g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			deployment := &appsv1.Deployment{}
			g.Expect(l.has(t, deployment)).To(BeTrue())
			g.Expect(deployment.Spec.Replicas).To(Equal(ptr.To[int32](0)))
			g.Expect(l.fleetCluster(t)).NotTo(BeNil(), "its pod is still counted")

			l.deploymentStatus(t, 0)
			g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			g.Expect(l.fleetCluster(t)).NotTo(BeNil(), "its pod is still ending")

			g.Expect(l.client.Delete(t.Context(), pod)).To(Succeed())
			g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
			g.Expect(l.fleetCluster(t)).To(BeNil())
			g.Expect(l.has(t, &corev1.Secret{})).To(BeFalse())
			g.Expect(l.has(t, &appsv1.Deployment{})).To(Equal(tt.keeps))
			g.Expect(l.accounts(t)).To(Equal(1), "the service account is the last to go")

			l.fleetDeletes(t)
			g.Expect(l.once(t)).To(BeEmpty())
			g.Expect(l.accounts(t)).To(BeZero())
			condition, _ := l.fleetRegistered(t)
			g.Expect(condition).To(BeNil())
			g.Expect(l.eventsSoFar()).To(ContainElement(ContainSubstring("Normal LeftFleet")))
		})
	}
}

func TestAnEarlierTryIsNoProofThatTheAgentStopped(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	reg := l.registration(t)
	meta.SetStatusCondition(&reg.Status.Conditions, metav1.Condition{
		Type: fleetv1.DeletingCondition, Status: metav1.ConditionTrue, Reason: fleetv1.WaitingForFleetReason, LastTransitionTime: metav1.NewTime(l.clock.Now()),
	})
	g.Expect(l.Status().Update(t.Context(), reg)).To(Succeed())
	// It was to be uninstalled, and that failed.
	l.optOut(t, nil, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})

	l.clock.SetTime(reg.Status.Conditions[0].LastTransitionTime.Time)
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	g.Expect(l.fleetCluster(t)).NotTo(BeNil(), "the agent runs")
}

func TestTheClusterSaysThatItWaitsForBundles(t *testing.T) {
	for name, joined := range map[string]bool{"never registered here": false, "was registered": true} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			if joined {
				l = joinedLife(t)
				g.Expect(l.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}})).To(Succeed())
			}
			release, err := agentsim.ReleaseSecret("app", agent.Namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(l.client.Create(t.Context(), release)).To(Succeed())
			l.eventsSoFar()
			l.pass(40 * time.Hour)
			for range 3 {
				_, err = l.reconciler.Reconcile(t.Context(), edge)
				g.Expect(err).NotTo(HaveOccurred())
				l.pass(time.Minute)
			}
			condition, _ := l.fleetRegistered(t)
			g.Expect(condition).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", fleetv1.WaitingForBundlesReason)))
			g.Expect(l.eventsSoFar()).To(ConsistOf(ContainSubstring("Warning WaitingForBundles")))
		})
	}
}

func TestABundleDeploymentThatIsGoingIsAsGoodAsGone(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	release, err := agentsim.ReleaseSecret("app", agent.Namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.client.Create(t.Context(), release)).To(Succeed())
	_, err = l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	going := &fleet.BundleDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.registration(t).Status.Namespace, Name: "app", Finalizers: []string{"test/held"}},
		Spec:       fleet.BundleDeploymentSpec{DeploymentID: "content:options"},
	}
	g.Expect(l.WithWatch.Create(t.Context(), going)).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), going)).To(Succeed())

	l.pass(time.Minute)
	_, err = l.reconciler.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hasReason(l.registration(t), fleetv1.AgentDeployedCondition, fleetv1.WaitingForBundlesReason)).To(BeTrue())
	g.Expect(l.tokens).To(BeZero())
}

func TestABundleDeploymentThatMakesAnotherReleaseIsNone(t *testing.T) {
	for name, spec := range map[string]fleet.BundleDeploymentSpec{
		"in another namespace":          {DeploymentID: "content:options", Options: fleet.BundleDeploymentOptions{TargetNamespace: "shop"}},
		"paused before it was deployed": {Paused: true, StagedDeploymentID: "content:options"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			release, err := agentsim.ReleaseSecret("app", agent.Namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(l.client.Create(t.Context(), release)).To(Succeed())
			_, err = l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).NotTo(HaveOccurred())
			there := &fleet.BundleDeployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: l.registration(t).Status.Namespace, Name: "app"}, Spec: spec,
			}
			g.Expect(l.WithWatch.Create(t.Context(), there)).To(Succeed())
			l.pass(time.Minute)
			_, err = l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).NotTo(HaveOccurred())
			waiting := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition)
			g.Expect(waiting.Reason).To(Equal(fleetv1.WaitingForBundlesReason))
			g.Expect(waiting.Message).To(ContainSubstring(": app. "))
			g.Expect(l.tokens).To(BeZero())

			there.Spec = fleet.BundleDeploymentSpec{DeploymentID: "content:options"}
			g.Expect(l.WithWatch.Update(t.Context(), there)).To(Succeed())
			l.reconcile(t)
			g.Expect(l.pushedToken(t)).To(Equal("token-1"))
		})
	}
}

func TestWithoutProofThatTheAgentStoppedTheFleetClusterStaysAsAnOrphan(t *testing.T) {
	for name, hide := range map[string]func(*testing.T, *life){
		"unreachable": func(t *testing.T, l *life) { NewWithT(t).Expect(l.workload.Stop()).To(Succeed()) },
		"no kubeconfig": func(t *testing.T, l *life) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1-kubeconfig"}}
			NewWithT(t).Expect(l.WithWatch.Delete(t.Context(), secret)).To(Succeed())
		},
		"a pod that never ends": func(*testing.T, *life) {},
		"a kubeconfig that leads to another cluster": func(t *testing.T, l *life) {
			// What is there looks as if the agent had stopped.
			NewWithT(t).Expect(l.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(agent.Namespace))).To(Succeed())
			l.deploymentStatus(t, 0)
			l.joinedElsewhere(t)
		},
		"another agent's Secret": func(t *testing.T, l *life) {
			secret := &corev1.Secret{}
			l.has(t, secret)
			secret.Annotations[fleetv1.RegistrationIDAnnotation] = "another"
			NewWithT(t).Expect(l.client.Update(t.Context(), secret)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.running(t)
			hide(t, l)
			l.optOut(t, optedOut, fleetv1.DeletionSpec{})

			g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			l.pass(time.Minute)
			g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			g.Expect(l.accounts(t)).To(Equal(3))

			namespace := l.registration(t).Status.Namespace
			l.pass(90 * time.Second)
			g.Expect(l.once(t)).To(BeEmpty(), "it ends all the same")
			g.Expect(l.fleetCluster(t).Labels).To(HaveKeyWithValue(fleetv1.OrphanLabel, "true"))
			left := &corev1.Namespace{}
			g.Expect(l.Get(t.Context(), client.ObjectKey{Name: namespace}, left)).To(Succeed())
			g.Expect(left.Labels).To(HaveKeyWithValue(fleetv1.OrphanLabel, "true"))
			g.Expect(l.accounts(t)).To(BeZero())
			g.Expect(l.eventsSoFar()).To(ContainElement(ContainSubstring("Warning LeftAsOrphan")))
		})
	}
}

// joinedElsewhere makes the registration one of another workload cluster.
func (l *life) joinedElsewhere(t *testing.T) {
	t.Helper()
	reg := l.registration(t)
	reg.Status.Workload.SystemNamespaceUID = "uid-of-another-cluster"
	NewWithT(t).Expect(l.Status().Update(t.Context(), reg)).To(Succeed())
}

func TestAnotherClusterBehindTheKubeconfigGetsNoAgent(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.joinedElsewhere(t)
	l.pass(40 * time.Hour)
	l.heartbeat(t)
	writes := len(l.workload.Writes())
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WorkloadClusterChangedReason)
	g.Expect(l.workload.Writes()).To(HaveLen(writes))
	g.Expect(l.tokens).To(Equal(1), "no token for it")

	reg := l.registration(t)
	allow("")(reg)
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-2"), "a person says that it is the one")
	g.Expect(l.registration(t).Status.Workload.SystemNamespaceUID).NotTo(BeEquivalentTo("uid-of-another-cluster"))
}

func TestNothingIsTakenOutOfAnotherClusterBehindTheKubeconfig(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.joinedElsewhere(t)
	writes := len(l.workload.Writes())
	cluster := &clusterv1.Cluster{}
	g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), cluster)).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	g.Expect(l.workload.Writes()).To(HaveLen(writes))
}

func TestANamespaceThatFleetDoesNotDeleteIsToldOf(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	namespace := l.registration(t).Status.Namespace
	g.Expect(l.WithWatch.Delete(t.Context(), livingCluster())).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
	l.clock.SetTime(time.Now())
	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	l.eventsSoFar()

	l.pass(fleetDeletionTimeout + time.Second)
	g.Expect(l.once(t)).To(BeEmpty())

	g.Expect(l.eventsSoFar()).To(ConsistOf(And(ContainSubstring("Warning NamespaceLeft"), ContainSubstring(namespace))))
	g.Expect(l.accounts(t)).To(BeZero())
	bindings := &rbacv1.RoleBindingList{}
	g.Expect(l.List(t.Context(), bindings)).To(Succeed())
	g.Expect(bindings.Items).To(BeEmpty(), "the next registration of that name could not use it")
}

func TestAnOptOutThatIsTakenBackTooLateComesToItsEnd(t *testing.T) {
	for name, how := range map[string]fleetv1.DeletionSpec{
		"orphaned":    {},
		"uninstalled": {Workloads: fleetv1.WorkloadsUninstall},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.optOut(t, optedOut, how)
			if how.Workloads == "" {
				g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
				l.deploymentStatus(t, 0)
			}
			g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
			g.Expect(l.fleetCluster(t)).To(BeNil())

			cluster := &clusterv1.Cluster{}
			g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
			cluster.Labels = map[string]string{fleetv1.RegisterLabel: "true"}
			g.Expect(l.WithWatch.Update(t.Context(), cluster)).To(Succeed())
			l.fleetDeletes(t)
			g.Expect(l.once(t)).To(BeEmpty())
			g.Expect(l.accounts(t)).To(BeZero(), "the next registration could not use it")
			l.expectJoinsAnew(t)
		})
	}
}

func TestWhatAPersonDeletedWithItsFleetClusterJoinsAnew(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	g.Expect(l.WithWatch.Delete(t.Context(), l.fleetCluster(t))).To(Succeed())
	l.fleetDeletes(t)
	g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
	l.clock.SetTime(time.Now())
	g.Expect(l.once(t)).To(BeEmpty())
	release, err := agentsim.ReleaseSecret("app", agent.Namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.client.Get(t.Context(), client.ObjectKeyFromObject(release), release)).To(Succeed(), "what it deployed stays")
	g.Expect(l.client.Delete(t.Context(), release)).To(Succeed())
	l.expectJoinsAnew(t)
}

func TestADeletedRegistrationWhoseFleetClusterLostItsIDTakesNothingAlong(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	before := l.accounts(t)
	lost := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+fleetv1.RegistrationIDAnnotation+`":null}}}`))
	g.Expect(l.WithWatch.Patch(t.Context(), l.fleetCluster(t), lost)).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())

	g.Expect(l.once(t)).To(BeEmpty())

	g.Expect(l.Get(t.Context(), edge.NamespacedName, &fleetv1.FleetRegistration{})).To(Satisfy(apierrors.IsNotFound))
	g.Expect(l.fleetCluster(t)).NotTo(BeNil())
	g.Expect(l.accounts(t)).To(Equal(before))
	g.Expect(l.has(t, &appsv1.Deployment{})).To(BeTrue())
	g.Expect(l.has(t, &corev1.Secret{})).To(BeTrue())
}

// Whatever ends the registration, an agent that may still run must not see its bundles go.
func TestAFleetClusterThatLostItsIDStaysHoweverTheRegistrationEnds(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *life){
		"the Cluster opts out, and the agent stops": func(t *testing.T, l *life) {
			l.optOut(t, optedOut, fleetv1.DeletionSpec{})
			NewWithT(t).Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			l.deploymentStatus(t, 0)
			NewWithT(t).Expect(l.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(agent.Namespace))).To(Succeed())
		},
		"the Cluster opts out, and the agent does not stop": func(t *testing.T, l *life) {
			l.optOut(t, optedOut, fleetv1.DeletionSpec{})
			NewWithT(t).Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			l.pass(stopTimeout + time.Second)
		},
		"the Cluster opts out, and all is to be uninstalled": func(t *testing.T, l *life) {
			l.optOut(t, optedOut, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})
			NewWithT(t).Expect(l.once(t)).To(Equal(fleetv1.UninstallingWorkloadsReason))
			l.pass(fleetDeletionTimeout + uninstallTimeout + time.Second)
		},
		"the Cluster is deleted": func(t *testing.T, l *life) {
			NewWithT(t).Expect(l.WithWatch.Delete(t.Context(), livingCluster())).To(Succeed())
			NewWithT(t).Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.running(t)
			lost := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+fleetv1.RegistrationIDAnnotation+`":null}}}`))
			g.Expect(l.WithWatch.Patch(t.Context(), l.fleetCluster(t), lost)).To(Succeed())
			namespace := l.registration(t).Status.Namespace
			l.eventsSoFar()

			end(t, l)
			g.Expect(l.once(t)).To(BeEmpty())

			g.Expect(l.fleetCluster(t)).NotTo(BeNil())
			bundles := &fleet.BundleDeploymentList{}
			g.Expect(l.List(t.Context(), bundles, client.InNamespace(namespace))).To(Succeed())
			g.Expect(bundles.Items).To(HaveLen(1))
			g.Expect(l.accounts(t)).To(BeZero(), "an agent that runs on learns nothing more")
			g.Expect(l.eventsSoFar()).To(ContainElement(And(ContainSubstring("Warning FleetClusterLeft"), ContainSubstring("team-a/edge-1"))))
		})
	}
}

// expectJoinsAnew makes the registration that follows one that ended, and expects that
// nothing is in its way.
func (l *life) expectJoinsAnew(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	next := owned()
	next.UID, next.Spec.RegistrationID = "uid-of-next", "next"
	next.Spec.Agent.Image, next.Spec.Agent.ManagementCluster.Server = "agent", "https://management.example"
	g.Expect(l.WithWatch.Create(t.Context(), next)).To(Succeed())
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	l.pass(time.Minute)
	_, err = l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition)).To(
		HaveField("Reason", fleetv1.AgentDeployedReason), "%+v", l.registration(t).Status)
}

// readsOnce lets the next read of the Fleet Cluster, live, come out as answer says; those
// after it are real.
func (l *life) readsOnce(answer func(*fleet.Cluster) error) {
	done := false
	l.reconciler.Upstream.Reader = interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if cluster, ok := obj.(*fleet.Cluster); ok && !done {
				done = true
				return answer(cluster)
			}
			return err
		},
	})
}

// What one read says must not be undone by the next: the agent would be left running, and
// uninstall all as the Fleet Cluster goes.
func TestAFleetClusterThatIsThereAgainIsNotDeletedUnderARunningAgent(t *testing.T) {
	for name, answer := range map[string]func(*fleet.Cluster) error{
		"its API is not served": func(*fleet.Cluster) error { return fleetNotServed() },
		"a server is behind": func(*fleet.Cluster) error {
			return apierrors.NewNotFound(fleet.GroupVersion.WithResource("clusters").GroupResource(), "edge-1")
		},
		"its annotation is another's": func(cluster *fleet.Cluster) error {
			cluster.Annotations[fleetv1.RegistrationIDAnnotation] = "of-another"
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.running(t)
			accounts := l.accounts(t)
			l.optOut(t, optedOut, fleetv1.DeletionSpec{})
			l.readsOnce(answer)
			_, err := l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).To(HaveOccurred(), "it is tried again")
			g.Expect(l.fleetCluster(t)).NotTo(BeNil())
			g.Expect(l.accounts(t)).To(Equal(accounts))
			g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			g.Expect(l.deployment(t).Spec.Replicas).To(Equal(ptr.To[int32](0)))
		})
		t.Run(name+", and only the registration was deleted", func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.running(t)
			accounts, writes := l.accounts(t), len(l.workload.Writes())
			g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
			l.readsOnce(answer)
			_, err := l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).To(HaveOccurred(), "it is tried again")
			g.Expect(l.once(t)).To(BeEmpty())
			g.Expect(l.fleetCluster(t)).NotTo(BeNil())
			g.Expect(l.accounts(t)).To(Equal(accounts))
			g.Expect(l.workload.Writes()).To(HaveLen(writes))
		})
	}
}

// fleetNotServed is what a server answers of an API that it does not serve.
func fleetNotServed() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", fleet.GroupVersion.WithResource("clusters").GroupResource(), "edge-1", "404 page not found", 0, true)
}

// withoutFleet lets the management cluster serve no API of Fleet's to live reads.
func (l *life) withoutFleet() {
	l.reconciler.Upstream.Reader = interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*fleet.Cluster); ok {
				return fleetNotServed()
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
}

func TestNobodyLeavesWhileFleetsAPIIsNotServed(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	accounts, writes := l.accounts(t), len(l.workload.Writes())
	l.optOut(t, optedOut, fleetv1.DeletionSpec{})
	l.eventsSoFar()
	reader := l.reconciler.Upstream.Reader
	l.withoutFleet()
	for range 3 {
		_, err := l.reconciler.Reconcile(t.Context(), edge)
		g.Expect(err).To(HaveOccurred())
		l.pass(2 * time.Minute)
	}
	g.Expect(l.accounts(t)).To(Equal(accounts))
	g.Expect(l.workload.Writes()).To(HaveLen(writes))
	g.Expect(l.eventsSoFar()).To(BeEmpty())

	l.reconciler.Upstream.Reader = reader
	l.deploymentStatus(t, 0)
	g.Expect(l.once(t)).NotTo(BeEmpty())
	g.Expect(l.deployment(t).Spec.Replicas).To(Equal(ptr.To[int32](0)))
}

// A finalizer must not hold a Namespace for ever because Fleet is gone.
func TestADeletionEndsWhereFleetsAPIIsGoneForGood(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.withoutFleet()
	g.Expect(l.WithWatch.Delete(t.Context(), livingCluster())).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
	l.clock.SetTime(time.Now())
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).To(HaveOccurred(), "it may come back")
	l.expect(t, fleetv1.DeletingCondition, metav1.ConditionTrue, fleetv1.WaitingForFleetReason)

	l.pass(fleetDeletionTimeout + time.Second)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.accounts(t)).To(BeZero())
}

func TestAnAgentWhoseFleetClusterIsGoneLeavesAsThePolicySays(t *testing.T) {
	for what, there := range map[fleetv1.AgentDeletion]bool{fleetv1.AgentRemove: false, fleetv1.AgentKeep: true} {
		t.Run(string(what), func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.running(t)
			g.Expect(l.WithWatch.Delete(t.Context(), l.fleetCluster(t))).To(Succeed())
			l.fleetDeletes(t)
			l.optOut(t, optedOut, fleetv1.DeletionSpec{Agent: what})
			g.Expect(l.once(t)).To(BeEmpty())
			g.Expect(l.has(t, &corev1.Secret{})).To(BeFalse())
			g.Expect(l.has(t, &appsv1.Deployment{})).To(Equal(there))
			if there {
				g.Expect(l.deployment(t).Spec.Replicas).To(Equal(ptr.To[int32](0)))
			}
		})
	}
}

// rejectDeployments lets the workload cluster refuse the agent's Deployment.
func (l *life) rejectDeployments() {
	l.workload.SetFault(lightapi.When(func(req *http.Request) bool {
		return strings.Contains(req.URL.Path, "/deployments/") && req.Method == http.MethodPatch
	}, lightapi.Refuse(http.StatusForbidden)))
}

func TestWhatThereIsOfAnAgentThatWasNeverCompleteIsTakenAway(t *testing.T) {
	refuseSecrets := lightapi.When(func(req *http.Request) bool {
		return strings.HasSuffix(req.URL.Path, "/secrets/"+agent.Name) && req.Method == http.MethodDelete
	}, lightapi.Refuse(http.StatusServiceUnavailable))
	for _, tt := range []struct {
		name string
		// first is what the workload cluster does as the Cluster leaves, later what it does
		// once Fleet has deleted the namespace.
		first, later lightapi.Fault
		stays        bool
	}{
		{name: "at once"},
		{name: "by the second try", first: refuseSecrets},
		{name: "not at all", first: refuseSecrets, later: refuseSecrets, stays: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.rejectDeployments()
			for range 2 {
				_, err := l.reconciler.Reconcile(t.Context(), edge)
				g.Expect(err).NotTo(HaveOccurred())
				l.pass(time.Minute)
			}
			l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.ObjectRejectedReason)
			g.Expect(l.has(t, &corev1.Secret{})).To(BeTrue())
			l.optOut(t, optedOut, fleetv1.DeletionSpec{})
			l.eventsSoFar()

			l.workload.SetFault(tt.first)
			g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
			l.workload.SetFault(tt.later)
			l.fleetDeletes(t)
			g.Expect(l.once(t)).To(BeEmpty())

			g.Expect(l.has(t, &corev1.Secret{})).To(Equal(tt.stays))
			events := l.eventsSoFar()
			g.Expect(events).To(ContainElement(ContainSubstring("Normal LeftFleet")))
			if tt.stays {
				g.Expect(events).To(ContainElement(ContainSubstring("Warning AgentCleanupSkipped")))
			} else {
				g.Expect(events).To(HaveLen(1))
			}
		})
	}
}

func TestAnAgentThatStaysBehindWithItsClusterIsToldOf(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.eventsSoFar()
	g.Expect(l.workload.Stop()).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), livingCluster())).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
	l.clock.SetTime(time.Now())
	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	l.once(t)
	g.Expect(l.eventsSoFar()).To(ConsistOf(And(ContainSubstring("Warning AgentCleanupSkipped"), ContainSubstring("the connection was refused"))), "once")
}

func TestAPauseDoesNotCountAgainstLeaving(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	l.optOut(t, optedOut, fleetv1.DeletionSpec{})
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))

	pause := func(on bool) {
		cluster := &clusterv1.Cluster{}
		g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
		cluster.Spec.Paused = &on
		g.Expect(l.WithWatch.Update(t.Context(), cluster)).To(Succeed())
	}
	pause(true)
	l.step(t)
	l.pass(time.Hour)
	pause(false)
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason), "it has its time yet")
	l.pass(stopTimeout)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.fleetCluster(t).Labels).To(HaveKey(fleetv1.OrphanLabel))
}

func TestErrorsDoNotStartTheTimeOfLeavingAnew(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	l.optOut(t, optedOut, fleetv1.DeletionSpec{})
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	reader, writer := l.reconciler.APIReader, l.reconciler.Upstream.Reader
	broken := interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("unavailable")
		},
	})
	l.reconciler.APIReader, l.reconciler.Upstream.Reader = broken, broken
	l.pass(stopTimeout)
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).To(HaveOccurred())
	l.expect(t, fleetv1.DeletingCondition, metav1.ConditionTrue, fleetv1.StoppingAgentReason)
	l.reconciler.APIReader, l.reconciler.Upstream.Reader = reader, writer
	g.Expect(l.once(t)).To(BeEmpty(), "its time is over")
}

func TestAClusterThatNeverHadAnAgentLeavesAtOnce(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	g.Expect(l.workload.Stop()).To(Succeed())
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	l.optOut(t, optedOut, fleetv1.DeletionSpec{})

	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	l.fleetDeletes(t)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.fleetCluster(t)).To(BeNil())
	g.Expect(l.accounts(t)).To(BeZero())
}

// The end of the manager right after a push leaves an agent that the status does not know.
func TestAnAgentOfARegistrationWhoseStatusWasLostIsStoppedBeforeItsFleetClusterGoes(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	pod := l.running(t)
	l.forget(t)
	l.optOut(t, optedOut, fleetv1.DeletionSpec{})

	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	g.Expect(l.fleetCluster(t)).To(HaveField("DeletionTimestamp", BeNil()))
	g.Expect(*l.deployment(t).Spec.Replicas).To(BeZero())

	l.deploymentStatus(t, 0)
	g.Expect(l.client.Delete(t.Context(), pod)).To(Succeed())
	l.pass(10 * time.Second)
	l.once(t)
	g.Expect(l.fleetCluster(t)).To(BeNil())
	g.Expect(l.has(t, &appsv1.Deployment{})).To(BeFalse())
}

func TestUninstallWaitsForTheAgentAndThenTakesItAway(t *testing.T) {
	for _, tt := range []struct {
		name        string
		how         fleetv1.AgentDeletion
		uninstalled bool
		event       string
	}{
		{"uninstalled", fleetv1.AgentRemove, true, "Normal LeftFleet"},
		{"never uninstalled", fleetv1.AgentRemove, false, "Warning LeftFleet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.running(t)
			l.optOut(t, optedOut, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall, Agent: tt.how})

			g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
			g.Expect(l.fleetCluster(t)).To(BeNil())
			g.Expect(l.has(t, &appsv1.Deployment{})).To(BeTrue(), "it is needed")
			l.fleetDeletes(t)
			g.Expect(l.once(t)).To(Equal(fleetv1.UninstallingWorkloadsReason))
			g.Expect(l.accounts(t)).To(Equal(1))

			if tt.uninstalled {
				release, err := agentsim.ReleaseSecret("app", agent.Namespace)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(l.client.Delete(t.Context(), release)).To(Succeed())
			} else {
				l.pass(5 * time.Minute)
			}
			g.Expect(l.once(t)).To(BeEmpty())
			g.Expect(l.has(t, &appsv1.Deployment{})).To(BeFalse())
			g.Expect(l.accounts(t)).To(BeZero())
			g.Expect(l.eventsSoFar()).To(ContainElement(ContainSubstring(tt.event)))
		})
	}
}

func TestUninstallWithoutAnAgentDoesNotClaimThatItHappened(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	for _, obj := range agent.Leftovers() {
		g.Expect(client.IgnoreNotFound(l.client.Delete(t.Context(), obj))).To(Succeed())
	}
	l.optOut(t, optedOut, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})
	l.once(t)
	l.fleetDeletes(t)
	g.Expect(l.once(t)).To(Equal(fleetv1.UninstallingWorkloadsReason))
	l.pass(5 * time.Minute)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.eventsSoFar()).To(ContainElement(ContainSubstring("Warning LeftFleet")))
}

func TestARegistrationThatIsTakenAwayShowsThatAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	before := l.registration(t).Status.Conditions
	l.optOut(t, optedOut, fleetv1.DeletionSpec{})
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	after := l.registration(t).Status.Conditions
	g.Expect(hasReason(l.registration(t), fleetv1.ReadyCondition, fleetv1.StoppingAgentReason)).To(BeTrue())
	for _, condition := range summarized {
		g.Expect(meta.FindStatusCondition(after, condition)).To(Equal(meta.FindStatusCondition(before, condition)))
	}
}

// The garbage collector can be faster than the cache of Clusters.
func TestARegistrationWhoseClusterTheCacheStillShowsIsDeletedInFull(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
	l.clock.SetTime(time.Now())
	l.reconciler.APIReader = interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*clusterv1.Cluster); ok {
				return apierrors.NewNotFound(clusterv1.GroupVersion.WithResource("clusters").GroupResource(), key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	g.Expect(l.fleetCluster(t)).To(BeNil())
}

func TestAStoppedAgentIsTakenUpAgain(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	deployment := agent.Objects(agent.Input{RegistrationID: "of-another-time"}, "of another time")
	kept := deployment[len(deployment)-1].(*appsv1.Deployment)
	kept.Spec.Replicas = ptr.To[int32](0)
	g.Expect(l.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}})).To(Succeed())
	g.Expect(l.client.Create(t.Context(), kept)).To(Succeed())

	l.reconcile(t)

	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
	l.has(t, kept)
	g.Expect(kept.Spec.Replicas).To(Equal(ptr.To[int32](1)))
}

// A backup brings objects back with new UIDs, without status and with owner references
// to what is gone.
func TestARestoredRegistrationIsGivenToTheClusterOfItsName(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		g := NewWithT(t)
		l := joinedLife(t)
		l.running(t)
		cluster := &clusterv1.Cluster{}
		g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
		g.Expect(l.WithWatch.Delete(t.Context(), cluster.DeepCopy())).To(Succeed())
		cluster.UID, cluster.ResourceVersion = "uid-of-restored-cluster", ""
		g.Expect(l.WithWatch.Create(t.Context(), cluster)).To(Succeed())
		reg := l.registration(t)
		reg.CreationTimestamp = cluster.CreationTimestamp
		g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
		l.forget(t)
		if deleted {
			// The garbage collector was faster.
			g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
		}
		writes := len(l.workload.Writes())

		_, err := l.reconciler.Reconcile(t.Context(), edge)

		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(l.workload.Writes()).To(HaveLen(writes))
		g.Expect(l.fleetCluster(t).DeletionTimestamp.IsZero()).To(BeTrue())
		g.Expect(l.fleetCluster(t).Annotations).To(HaveKeyWithValue(fleetv1.ClusterUIDAnnotation, "uid-of-restored-cluster"))
		if deleted {
			g.Expect(apierrors.IsNotFound(l.Get(t.Context(), edge.NamespacedName, reg))).To(BeTrue())
			continue
		}
		g.Expect(l.registration(t).OwnerReferences).To(ConsistOf(decide.OwnerReference(cluster)))
		l.reconcile(t)
		g.Expect(isTrue(l.registration(t), fleetv1.AgentDeployedCondition)).To(BeTrue())
	}
}

func TestARestoredRegistrationWaitsForItsCluster(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		g := NewWithT(t)
		l := joinedLife(t)
		l.running(t)
		cluster := &clusterv1.Cluster{}
		g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
		g.Expect(l.WithWatch.Delete(t.Context(), cluster.DeepCopy())).To(Succeed())
		reg := l.registration(t)
		reg.CreationTimestamp = metav1.NewTime(l.clock.Now())
		g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
		l.forget(t)
		if deleted {
			g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
		}

		result, err := l.reconciler.Reconcile(t.Context(), edge)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", restoreTime)))
		g.Expect(l.fleetCluster(t).DeletionTimestamp.IsZero()).To(BeTrue())
		g.Expect(l.registration(t).DeletionTimestamp.IsZero()).To(Equal(!deleted))

		// None comes.
		l.pass(restoreTime)
		for range 2 {
			_, err = l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(l.fleetCluster(t)).To(BeNil())
	}
}

func TestARegistrationOfAClusterThatWasMadeAnewIsNotARestoredOne(t *testing.T) {
	for name, change := range map[string]func(*scope){
		"it made something":               func(s *scope) { s.registration.Status.Namespace = "cluster-a" },
		"it is older":                     func(s *scope) { s.registration.CreationTimestamp = ago(time.Hour) },
		"the new one is going as well":    func(s *scope) { s.namesake.DeletionTimestamp = ptr.To(ago(0)) },
		"there is no Cluster of its name": func(s *scope) { s.namesake = nil },
	} {
		s := newScope()
		s.namesake = livingCluster()
		s.namesake.CreationTimestamp = ago(time.Minute)
		s.registration.CreationTimestamp = ago(time.Minute)
		NewWithT(t).Expect(s.restored()).To(BeTrue())
		change(s)
		NewWithT(t).Expect(s.restored()).To(BeFalse(), name)
	}
}

func TestAnAgentInTheManagementClusterItselfIsRemoved(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	own := &corev1.Namespace{}
	g.Expect(l.client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, own)).To(Succeed())
	l.reconciler.managementUID.uid = own.UID
	l.pass(time.Hour)

	_, err := l.reconciler.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hasReason(l.registration(t), fleetv1.AgentDeployedCondition, fleetv1.SelfManagedReason)).To(BeTrue())
	g.Expect(l.has(t, &appsv1.Deployment{})).To(BeFalse())
	release, err := agentsim.ReleaseSecret("app", agent.Namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.client.Get(t.Context(), client.ObjectKeyFromObject(release), release)).To(Succeed(), "what it deployed stays")
}

func TestAnotherRegistrationsAgentIsTakenOverOnlyIfAPersonSaysSo(t *testing.T) {
	others := func(reg string) map[string]string { return map[string]string{fleetv1.RegistrationIDAnnotation: reg} }
	for _, tt := range []struct {
		name   string
		found  map[string]string // annotations of the Secret
		target string            // the Fleet Cluster that the Secret names
		change func(*fleetv1.FleetRegistration)
		taken  bool
	}{
		{name: "never by itself", found: others("gone")},
		{name: "allowed", found: others("gone"), change: allow(""), taken: true},
		{name: "allowed for another namespace", found: others("gone"), change: allow("uid-of-old")},
		{name: "Fleet's own is not taken by that", change: allow("")},
		{name: "adopted", target: "edge-1", change: adopt, taken: true},
		{name: "adopted, and it stands for another", target: "edge-2", change: adopt},
		{name: "adopted, and it is another registration's", found: others("gone"), target: "edge-1", change: adopt},
		{name: "Fleet's own", target: "edge-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			theirs := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name, Annotations: tt.found},
				Data:       map[string][]byte{"clusterNamespace": []byte("team-a"), "clusterName": []byte(tt.target), "token": []byte("theirs")},
			}
			g.Expect(l.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}})).To(Succeed())
			g.Expect(l.client.Create(t.Context(), theirs)).To(Succeed())
			_, err := l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).NotTo(HaveOccurred())
			if tt.change != nil {
				reg := l.registration(t)
				tt.change(reg)
				g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
			}
			l.pass(5 * time.Minute)
			_, err = l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).NotTo(HaveOccurred())
			if tt.taken {
				g.Expect(l.pushedToken(t)).To(Equal("token-1"))
				return
			}
			g.Expect(hasReason(l.registration(t), fleetv1.AgentDeployedCondition, fleetv1.ForeignAgentReason)).To(BeTrue())
			g.Expect(l.tokens).To(BeZero())
		})
	}
}

// allow sets the annotation, by default to what it has to be.
func allow(uid string) func(*fleetv1.FleetRegistration) {
	return func(reg *fleetv1.FleetRegistration) {
		if uid == "" {
			uid = string(reg.Status.NamespaceUID)
		}
		reg.Annotations = map[string]string{fleetv1.TakeOverAnnotation: uid}
	}
}

func adopt(reg *fleetv1.FleetRegistration) { reg.Spec.Adoption = fleetv1.AdoptionAdopt }

func TestWhatAnotherManagementClusterTookIsTakenBackOnlyIfAPersonSaysSo(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	secret := &corev1.Secret{}
	l.has(t, secret)
	secret.Annotations[fleetv1.NamespaceUIDAnnotation] = "of-another-management-cluster"
	g.Expect(l.client.Update(t.Context(), secret)).To(Succeed())
	l.pass(time.Hour)
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hasReason(l.registration(t), fleetv1.AgentDeployedCondition, fleetv1.MovedAwayReason)).To(BeTrue())

	// Not even when the other one lets go.
	g.Expect(l.client.Delete(t.Context(), secret)).To(Succeed())
	requests := len(l.workload.Requests())
	l.pass(48 * time.Hour)
	result, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically(">", time.Hour))
	g.Expect(l.workload.Requests()).To(HaveLen(requests))

	reg := l.registration(t)
	allow("")(reg)
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-2"))

	l.reconcile(t)
	g.Expect(l.registration(t).Annotations).NotTo(HaveKey(fleetv1.TakeOverAnnotation), "it counts once")
}

func TestASecretThatLostItsAnnotationIsNotTakenForAnotherManagementClusters(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.running(t)
	secret := &corev1.Secret{}
	l.has(t, secret)
	delete(secret.Annotations, fleetv1.NamespaceUIDAnnotation)
	g.Expect(l.client.Update(t.Context(), secret)).To(Succeed())
	l.pass(40 * time.Hour)

	l.reconcile(t)

	g.Expect(isTrue(l.registration(t), fleetv1.AgentDeployedCondition)).To(BeTrue())
	g.Expect(l.pushedToken(t)).To(Equal("token-2"))
	l.has(t, secret)
	g.Expect(secret.Annotations).To(HaveKeyWithValue(fleetv1.NamespaceUIDAnnotation, string(l.registration(t).Status.NamespaceUID)))
}

func TestAnAgentThatAnotherManagementClusterTookOverIsNotRemovedWithTheCopyOfTheCluster(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *life){
		"Cluster deleted": func(t *testing.T, l *life) {
			g := NewWithT(t)
			g.Expect(l.WithWatch.Delete(t.Context(), livingCluster())).To(Succeed())
			g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
		},
		"opted out": func(t *testing.T, l *life) { l.optOut(t, optedOut, fleetv1.DeletionSpec{}) },
		"opted out, and uninstalled": func(t *testing.T, l *life) {
			l.optOut(t, optedOut, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.running(t)
			secret := &corev1.Secret{}
			l.has(t, secret)
			secret.Annotations[fleetv1.NamespaceUIDAnnotation] = "of-another-management-cluster"
			g.Expect(l.client.Update(t.Context(), secret)).To(Succeed())
			writes := len(l.workload.Writes())

			end(t, l)
			l.once(t)
			l.pass(6 * time.Minute)
			l.once(t)

			g.Expect(l.workload.Writes()).To(HaveLen(writes))
		})
	}
}

func TestWhatWasMovedHereWaitsForItsSettingsOfThisManagementCluster(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	reg := l.registration(t)
	reg.Spec.ClusterUID = "uid-on-another-management-cluster"
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.workload.Requests()).To(BeEmpty())
	g.Expect(isTrue(l.registration(t), fleetv1.FleetClusterReadyCondition)).To(BeTrue(), "what leads to no other management cluster goes on")

	reg = l.registration(t)
	reg.Spec.ClusterUID = livingCluster().UID
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
}

func TestAWorkloadClusterWithTwoRegistrationsIsGivenToTheOneThatAPersonNames(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	own := &corev1.Namespace{}
	g.Expect(l.client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, own)).To(Succeed())
	other := owned()
	other.Name, other.UID = "edge-2", "uid-of-edge-2"
	other.Status.Workload.SystemNamespaceUID = own.UID
	g.Expect(l.WithWatch.Create(t.Context(), other)).To(Succeed())
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hasReason(l.registration(t), fleetv1.AgentDeployedCondition, fleetv1.AlreadyRegisteredReason)).To(BeTrue())

	reg := l.registration(t)
	allow("")(reg)
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))

	l.reconcile(t)
	g.Expect(l.registration(t).Annotations).To(BeEmpty())
	l.pass(40 * time.Hour)
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-2"), "it stays the holder")
}

// A workload cluster can show any UID as that of its kube-system.
func TestANeighbourThatClaimsTheSameUIDBlocksNobodyWhoWasThereFirst(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	other := owned()
	other.Name, other.UID = "edge-2", "uid-of-edge-2"
	other.Status.Workload.SystemNamespaceUID = l.registration(t).Status.Workload.SystemNamespaceUID
	g.Expect(l.WithWatch.Create(t.Context(), other)).To(Succeed())
	// What would show that the agent is ours is lost.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
	g.Expect(l.client.Delete(t.Context(), secret)).To(Succeed())
	l.pass(24 * time.Hour)

	l.reconcile(t)

	g.Expect(isTrue(l.registration(t), fleetv1.AgentDeployedCondition)).To(BeTrue())
	g.Expect(l.pushedToken(t)).To(Equal("token-2"))
}
