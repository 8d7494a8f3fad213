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

package selection

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
)

// fleet30 is a policy, gold, with 30 Clusters whose agents report and are up to date.
type fleet30 struct {
	*env
	policy *fleetv1.FleetRegistrationPolicy
	config *corev1.ConfigMap
}

const members = 30

func newFleet30(t *testing.T) *fleet30 {
	t.Helper()
	f := &fleet30{policy: gold(), config: fleetConfig(goodConfig)}
	objects := []client.Object{namespace(nil), f.policy, f.config}
	for i := range members {
		labelled := cluster(register("true"))
		labelled.Name, labelled.UID = memberName(i), types.UID(memberName(i))
		reg := registered(by("gold", fleetv1.LabelOnCluster))
		reg.Name, reg.UID, reg.OwnerReferences = memberName(i), types.UID("registration-"+memberName(i)), []metav1.OwnerReference{decide.OwnerReference(labelled)}
		reg.Spec.ClusterUID, reg.Spec.FleetCluster.Name = labelled.UID, reg.Name
		reg.Status.Agent = fleetv1.AgentStatus{Revision: "some", Settings: decide.Settings(goodAgent)}
		reg.Status.Conditions = []metav1.Condition{
			condition(fleetv1.AgentConnectedCondition, metav1.ConditionTrue, fleetv1.AgentConnectedReason),
			condition(fleetv1.WorkloadReachableCondition, metav1.ConditionTrue, fleetv1.WorkloadReachableReason),
			condition(fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason),
		}
		objects = append(objects, labelled, reg)
	}
	f.env = newEnv(t, objects...)
	return f
}

func memberName(i int) string { return fmt.Sprintf("edge-%02d", i) }

func request(i int) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: memberName(i)}}
}

// image has Fleet ask for another image of the agent.
func (f *fleet30) image(t *testing.T, tag string) {
	t.Helper()
	f.change(t, f.config, func() { f.config.Data["config"] = strings.ReplaceAll(goodConfig, "agent:v1", "agent:"+tag) })
}

func (f *fleet30) reconcileAll(t *testing.T) {
	t.Helper()
	for i := range members {
		_, err := f.Reconcile(t.Context(), request(i))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
}

func (f *fleet30) all(t *testing.T) []fleetv1.FleetRegistration {
	t.Helper()
	list := &fleetv1.FleetRegistrationList{}
	NewWithT(t).Expect(f.api.List(t.Context(), list)).To(Succeed())
	return list.Items
}

// with returns the names of the registrations that have the image with that tag.
func (f *fleet30) with(t *testing.T, tag string) []string {
	t.Helper()
	var names []string
	for _, reg := range f.all(t) {
		if strings.HasSuffix(reg.Spec.Agent.Image, ":"+tag) {
			names = append(names, reg.Name)
		}
	}
	return names
}

// report does what the registration controller reports of a registration: that its
// settings are in place, and what came of that.
func (f *fleet30) report(t *testing.T, name string, conditions ...metav1.Condition) {
	t.Helper()
	g := NewWithT(t)
	reg := &fleetv1.FleetRegistration{}
	g.Expect(f.api.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: name}, reg)).To(Succeed())
	for _, c := range conditions {
		meta.SetStatusCondition(&reg.Status.Conditions, c)
		if c.Type == fleetv1.AgentUpToDateCondition {
			reg.Status.Agent.Settings = decide.Settings(reg.Spec.Agent)
		}
	}
	g.Expect(f.api.Status().Update(t.Context(), reg)).To(Succeed())
}

var (
	upToDate    = condition(fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
	updating    = condition(fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
	failed      = condition(fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdateFailedReason)
	pullFailed  = condition(fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentImagePullFailedReason)
	silent      = condition(fleetv1.AgentConnectedCondition, metav1.ConditionFalse, fleetv1.AgentSilentReason)
	unreachable = condition(fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.ConnectionFailedReason)
	reachable   = condition(fleetv1.WorkloadReachableCondition, metav1.ConditionTrue, fleetv1.WorkloadReachableReason)
)

func (f *fleet30) rolledOut(t *testing.T) (*metav1.Condition, fleetv1.FleetRegistrationPolicyStatus) {
	t.Helper()
	_, err := f.policies().Reconcile(t.Context(), goldRequest)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	status := f.policyNow(t).Status
	return meta.FindStatusCondition(status.Conditions, fleetv1.RolledOutCondition), status
}

func TestAgentsThatReportAreChangedABatchAtATime(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.reconcileAll(t)
	g.Expect(f.writes).To(BeEmpty(), "nothing to do")
	done, _ := f.rolledOut(t)
	g.Expect(done).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", fleetv1.RolledOutReason)))

	f.image(t, "v2")
	for rounds := 0; len(f.with(t, "v2")) < members; rounds++ {
		g.Expect(rounds).To(BeNumerically("<", members))
		f.reconcileAll(t)
		f.reconcileAll(t)
		given := 0
		for _, reg := range f.all(t) {
			if decide.Changing(&reg) {
				given++
				f.report(t, reg.Name, updating)
			}
		}
		g.Expect(given).To(Equal(3))
		progress, status := f.rolledOut(t)
		g.Expect(progress.Reason).To(Equal(fleetv1.RollingOutReason))
		g.Expect(status.Updated).To(HaveValue(BeEquivalentTo(len(f.with(t, "v2")) - 3)))
		f.reconcileAll(t)
		for _, name := range f.with(t, "v2") {
			f.report(t, name, upToDate)
		}
	}
	done, status := f.rolledOut(t)
	g.Expect(done.Reason).To(Equal(fleetv1.RolledOutReason))
	g.Expect(status.Updated).To(HaveValue(BeEquivalentTo(members)))
	g.Expect(status.Revision).To(Equal(decide.Settings(f.all(t)[0].Spec.Agent)))
}

func TestAChangeThatFailsStopsByItselfAndTheOldValueTakesItBack(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "broken")
	f.reconcileAll(t)
	ill := f.with(t, "broken")
	for _, name := range ill {
		f.report(t, name, failed, pullFailed)
	}
	f.reconcileAll(t)
	g.Expect(f.with(t, "broken")).To(Equal(ill), "the others keep what they have")
	stalled, status := f.rolledOut(t)
	g.Expect(stalled.Reason).To(Equal(fleetv1.RolloutStalledReason))
	g.Expect(stalled.Message).To(And(
		ContainSubstring("team-a/edge-00 (AgentImagePullFailed)"), ContainSubstring("team-a/edge-02 (AgentImagePullFailed)"), ContainSubstring("27 waiting")))
	g.Expect(status.Failed).To(HaveValue(BeEquivalentTo(3)))

	f.image(t, "v1")
	f.reconcileAll(t)
	g.Expect(f.with(t, "v1")).To(HaveLen(members))
}

// An outage of the management cluster silences all of them, and they come back by
// themselves.
func TestAgentsThatAreSilentAreChangedABatchAtATime(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	for i := range members {
		f.report(t, memberName(i), silent)
	}
	f.image(t, "v2")
	f.reconcileAll(t)
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(HaveLen(3))
	for _, name := range f.with(t, "v2") {
		f.report(t, name, upToDate)
	}
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(HaveLen(6))
}

func TestAgentsThatAreSilentAndNeedAnotherAddressTakeItAtOnce(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	for i := range members {
		f.report(t, memberName(i), silent)
	}
	f.change(t, f.config, func() {
		f.config.Data["config"] = strings.ReplaceAll(goodConfig, goodAgent.ManagementCluster.Server, "https://new.example")
	})
	f.reconcileAll(t)
	for _, reg := range f.all(t) {
		g.Expect(reg.Spec.Agent.ManagementCluster.Server).To(Equal("https://new.example"))
	}
}

// They are likely to fail, and would keep the places of those that do well.
func TestSilentAgentsHaveTheirTurnAfterThoseThatReport(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	ill := []string{memberName(0), memberName(1), memberName(2), memberName(3)}
	for _, name := range ill {
		f.report(t, name, silent)
	}
	f.image(t, "v2")
	for range members {
		f.reconcileAll(t)
		for _, name := range f.with(t, "v2") {
			if !slices.Contains(ill, name) {
				f.report(t, name, upToDate)
				continue
			}
			g.Expect(len(f.with(t, "v2"))).To(BeNumerically(">", members-len(ill)))
			f.report(t, name, failed)
		}
	}
	g.Expect(f.with(t, "v1")).To(Equal(ill[3:]))
	stalled, _ := f.rolledOut(t)
	g.Expect(stalled.Reason).To(Equal(fleetv1.RolloutStalledReason))
}

func TestAPausedRolloutLeavesAgentsAlone(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.change(t, f.policy, func() { f.policy.Spec.Rollout.Paused = true })
	f.image(t, "v2")
	f.report(t, memberName(7), silent)
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(BeEmpty())
	paused, _ := f.rolledOut(t)
	g.Expect(paused.Reason).To(Equal(fleetv1.RolloutPausedReason))
}

func TestAnUnreachableAndAPausedClusterAreLeftForLater(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.report(t, memberName(0), unreachable)
	f.report(t, memberName(1), condition(fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason))
	paused := cluster(nil)
	paused.Name = memberName(1)
	f.change(t, paused, func() { paused.Spec.Paused = new(true) })
	f.image(t, "v2")
	for range members {
		f.reconcileAll(t)
		for _, name := range f.with(t, "v2") {
			f.report(t, name, upToDate)
		}
	}
	g.Expect(f.with(t, "v1")).To(ConsistOf(memberName(0), memberName(1)))
	done, _ := f.rolledOut(t)
	g.Expect(done.Status).To(Equal(metav1.ConditionTrue))
	g.Expect(done.Message).To(And(ContainSubstring("1 paused"), ContainSubstring("1 cannot be reached")))

	f.report(t, memberName(0), reachable)
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(ContainElement(memberName(0)))
}

func TestAClusterThatTurnsOutToBeUnreachableInItsTurnIsPassedOver(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "v2")
	for range members/3 + 3 {
		f.reconcileAll(t)
		for _, name := range f.with(t, "v2") {
			if name == memberName(0) {
				f.report(t, name, unreachable)
				continue
			}
			f.report(t, name, upToDate)
		}
	}
	g.Expect(f.with(t, "v1")).To(ConsistOf(memberName(0)))
	done, _ := f.rolledOut(t)
	g.Expect(done.Status).To(Equal(metav1.ConditionTrue), done.Message)
}

// They take an address at once, which none of them can be given before somebody mends them.
func TestDeadAgentsThatCannotBeReachedKeepNoPlace(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	dead := []string{memberName(0), memberName(1), memberName(2), memberName(3)}
	for _, name := range dead {
		f.report(t, name, silent, unreachable)
	}
	f.change(t, f.config, func() {
		f.config.Data["config"] = strings.ReplaceAll(goodConfig, goodAgent.ManagementCluster.Server, "https://new.example")
	})
	has := func() []string {
		var names []string
		for _, reg := range f.all(t) {
			if reg.Spec.Agent.ManagementCluster.Server == "https://new.example" {
				names = append(names, reg.Name)
			}
		}
		return names
	}
	f.reconcileAll(t)
	g.Expect(has()).To(HaveLen(len(dead)+3), "the dead ones and a batch")
	for range members {
		for _, name := range has() {
			if !slices.Contains(dead, name) {
				f.report(t, name, upToDate)
			}
		}
		f.reconcileAll(t)
	}
	g.Expect(has()).To(HaveLen(members))
	done, _ := f.rolledOut(t)
	g.Expect(done.Status).To(Equal(metav1.ConditionTrue), done.Message)
	g.Expect(done.Message).To(ContainSubstring("4 cannot be reached"))
}

func TestAClusterThatIsPausedWhileItsAgentChangesGivesItsPlaceToAnother(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "v2")
	f.reconcileAll(t)
	for _, name := range f.with(t, "v2") {
		f.report(t, name, updating)
	}
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(HaveLen(3))

	f.report(t, memberName(0), condition(fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason))
	paused := cluster(nil)
	paused.Name = memberName(0)
	f.change(t, paused, func() { paused.Spec.Paused = new(true) })
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(HaveLen(4))
	for range members {
		for _, name := range f.with(t, "v2") {
			if name != memberName(0) {
				f.report(t, name, upToDate)
			}
		}
		f.reconcileAll(t)
	}
	done, _ := f.rolledOut(t)
	g.Expect(done.Status).To(Equal(metav1.ConditionTrue), done.Message)
	g.Expect(done.Message).To(ContainSubstring("1 paused"))
}

func TestAClusterThatIsPassedOverKeepsItsPlaceUntilItsSettingsAreTakenBack(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "v2")
	f.reconcileAll(t)
	given := f.with(t, "v2")
	g.Expect(given).To(HaveLen(3))
	f.report(t, memberName(0), unreachable)
	reconcile := func(i int) {
		_, err := f.Reconcile(t.Context(), request(i))
		g.Expect(err).NotTo(HaveOccurred())
	}
	reconcile(10)
	g.Expect(f.with(t, "v2")).To(Equal(given), "the network may be back before they are")
	reconcile(0)
	reconcile(10)
	g.Expect(f.with(t, "v2")).To(Equal([]string{memberName(1), memberName(2), memberName(10)}))
}

func TestWhatCouldNotBePutInPlaceIsTakenBackSoThatItDoesNotComeAllAtOnce(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "v2")
	// The network is gone, which nobody notices before a cluster is visited.
	for range members {
		f.reconcileAll(t)
		for _, name := range f.with(t, "v2") {
			f.report(t, name, unreachable)
		}
	}
	g.Expect(len(f.with(t, "v2"))).To(BeNumerically("<=", 3))
	for i := range members {
		f.report(t, memberName(i), reachable)
	}
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(HaveLen(3))
}

func TestNeitherACacheThatIsBehindNorManyWorkersMakeABatchTooLarge(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "v2")
	frozen := newEnv(t, func() []client.Object {
		var objects []client.Object
		for _, reg := range f.all(t) {
			objects = append(objects, reg.DeepCopy())
		}
		return objects
	}()...).api
	f.Client = interceptor.NewClient(f.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*fleetv1.FleetRegistration); ok {
				return frozen.Get(ctx, key, obj, opts...)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*fleetv1.FleetRegistrationList); ok {
				return frozen.List(ctx, list, opts...)
			}
			return c.List(ctx, list, opts...)
		},
	})
	var group sync.WaitGroup
	for i := range members {
		group.Go(func() {
			_, err := f.Reconcile(t.Context(), request(i))
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	g.Expect(f.with(t, "v2")).To(HaveLen(3))
}

func TestTheEndOfATurnBringsBackOneThatWaits(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "v2")
	f.reconcileAll(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	turned := func(from, to metav1.Condition) int {
		before := f.all(t)[0].DeepCopy()
		before.Status.Agent.Settings = decide.Settings(before.Spec.Agent)
		after := before.DeepCopy()
		meta.SetStatusCondition(&before.Status.Conditions, from)
		meta.SetStatusCondition(&after.Status.Conditions, to)
		f.passTurn().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
		return queue.Len()
	}
	g.Expect(turned(updating, failed)).To(BeZero())
	g.Expect(turned(upToDate, upToDate)).To(BeZero())
	g.Expect(turned(updating, upToDate)).To(Equal(1))
	first, _ := queue.Get()
	g.Expect(first).To(Equal(request(3)), "the first by name that waits")
	queue.Done(first)
	g.Expect(turned(updating, upToDate)).To(Equal(1))
	second, _ := queue.Get()
	g.Expect(second).To(Equal(request(4)))

	result, err := f.Reconcile(t.Context(), request(3))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(turnInterval), "it looks by itself as well")
}

// TestARolloutAtRandom lets anything happen in any order: never are more agents changing
// than the policy lets, and in the end all of them have changed.
func TestARolloutAtRandom(t *testing.T) {
	g := NewWithT(t)
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 1))
		f := newFleet30(t)
		tags := 1
		changing := func() []fleetv1.FleetRegistration {
			var regs []fleetv1.FleetRegistration
			for _, reg := range f.all(t) {
				if decide.Changing(&reg) {
					regs = append(regs, reg)
				}
			}
			return regs
		}
		// What was passed over and not taken back before its manager ended stays as it is.
		forgotten := map[string]bool{}
		for range 150 {
			switch roll := random.IntN(20); {
			case roll == 0:
				tags++
				f.image(t, fmt.Sprintf("v%d", tags))
			case roll == 1:
				// Another manager goes on.
				for _, reg := range f.all(t) {
					if reg.Status.Agent.Settings != decide.Settings(reg.Spec.Agent) && !decide.Changing(&reg) {
						forgotten[reg.Name] = true
					}
				}
				next := newEnv(t)
				f.Reconciler = &Reconciler{APIReader: f.APIReader, Client: f.Client, Endpoint: f.Endpoint, Recorder: next.events, Clock: next.clock}
			case roll < 4:
				f.report(t, memberName(random.IntN(members)), unreachable)
			case roll < 6:
				f.report(t, memberName(random.IntN(members)), reachable)
			case roll < 10:
				for _, reg := range changing() {
					if meta.IsStatusConditionTrue(reg.Status.Conditions, fleetv1.WorkloadReachableCondition) {
						f.report(t, reg.Name, []metav1.Condition{updating, upToDate, upToDate, failed}[random.IntN(4)])
					}
				}
			default:
				_, err := f.Reconcile(t.Context(), request(random.IntN(members)))
				g.Expect(err).NotTo(HaveOccurred())
			}
			counted := slices.DeleteFunc(changing(), func(reg fleetv1.FleetRegistration) bool { return forgotten[reg.Name] })
			g.Expect(len(counted)).To(BeNumerically("<=", 3), "seed %d", seed)
		}
		for _, reg := range f.all(t) {
			f.report(t, reg.Name, reachable)
		}
		for range members/3 + 3 {
			f.reconcileAll(t)
			for _, reg := range changing() {
				f.report(t, reg.Name, upToDate)
			}
		}
		g.Expect(f.with(t, fmt.Sprintf("v%d", tags))).To(HaveLen(members), "seed %d", seed)
	}
}
