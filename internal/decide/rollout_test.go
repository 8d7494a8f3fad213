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

package decide

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// running is a registration whose agent reports and runs image, changed.
func running(image string, change ...func(*fleetv1.FleetRegistration)) *fleetv1.FleetRegistration {
	reg := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "edge"}}
	reg.Spec.Agent = of(image)
	reg.Status.Agent = fleetv1.AgentStatus{Revision: "some", Settings: Settings(reg.Spec.Agent)}
	say(fleetv1.AgentConnectedCondition, metav1.ConditionTrue, fleetv1.AgentConnectedReason)(reg)
	say(fleetv1.WorkloadReachableCondition, metav1.ConditionTrue, fleetv1.WorkloadReachableReason)(reg)
	say(fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)(reg)
	for _, f := range change {
		f(reg)
	}
	return reg
}

func of(image string) fleetv1.AgentSpec {
	return fleetv1.AgentSpec{Image: image, ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: "https://here"}}
}

func say(condition string, status metav1.ConditionStatus, reason string) func(*fleetv1.FleetRegistration) {
	return func(reg *fleetv1.FleetRegistration) {
		meta.SetStatusCondition(&reg.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: reason})
	}
}

var (
	isSilent      = say(fleetv1.AgentConnectedCondition, metav1.ConditionFalse, fleetv1.AgentSilentReason)
	isUnreachable = say(fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.ConnectionFailedReason)
	isPaused      = say(fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
	isUpdating    = say(fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
	hasFailed     = say(fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdateFailedReason)
	joins         = func(reg *fleetv1.FleetRegistration) { reg.Status = fleetv1.FleetRegistrationStatus{} }
	isGiven       = func(reg *fleetv1.FleetRegistration) { reg.Spec.Agent = of("given") }
)

func TestTurns(t *testing.T) {
	moved := of("v2")
	moved.ManagementCluster.Server = "https://there"
	certified := of("v1")
	certified.ManagementCluster.CertificateAuthorityData = []byte("new")
	for _, tt := range []struct {
		name     string
		reg      *fleetv1.FleetRegistration
		wanted   fleetv1.AgentSpec
		want     Turn
		changing bool
	}{
		{"joins", running("v1", joins), of("v2"), AtOnce, false},
		{"has joined and not reported", running("v1", isSilent, say(fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.WaitingForHeartbeatReason)), of("v2"), AtOnce, false},
		{"reports", running("v1"), of("v2"), InTurn, false},
		{"reports, and the address is another", running("v1"), moved, InTurn, false},
		{"silent", running("v1", isSilent), of("v2"), InTurn, false},
		{"silent, and the address is another", running("v1", isSilent), moved, AtOnce, false},
		{"silent, and the CA is another", running("v1", isSilent), certified, AtOnce, false},
		{"silent and unreachable, and has never reported", running("v1", isSilent, isUnreachable, say(fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.WaitingForHeartbeatReason)), of("v2"), Later, false},
		{"silent and unreachable", running("v1", isSilent, isUnreachable), of("v2"), Later, false},
		{"silent and unreachable, and the address is another", running("v1", isSilent, isUnreachable), moved, AtOnce, false},
		{"silent and unreachable, and the CA is another", running("v1", isSilent, isUnreachable), certified, AtOnce, false},
		{"reports and is unreachable", running("v1", isUnreachable), of("v2"), Later, false},
		{"was given others a moment ago", running("v1", isGiven), of("v2"), AtOnce, true},
		{"was given others and was paused before", running("v1", isGiven, isPaused), of("v2"), InTurn, false},
		{"is being changed", running("v1", isUpdating), of("v2"), AtOnce, true},
		{"was changed and failed", running("v1", hasFailed), of("v2"), AtOnce, true},
		{"was given others and is unreachable", running("v1", isGiven, isUnreachable), of("v2"), AtOnce, false},
		{"was given others, is dead and unreachable", running("v1", isGiven, isSilent, isUnreachable), of("v2"), AtOnce, false},
		{"is being changed, and was paused", running("v1", isUpdating, isPaused), of("v2"), InTurn, false},
		{"was changed and failed, and was paused", running("v1", hasFailed, isPaused), of("v2"), InTurn, false},
		{"was changed and failed, and is unreachable", running("v1", hasFailed, isUnreachable), of("v2"), AtOnce, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(TurnOf(tt.reg, tt.wanted)).To(Equal(tt.want))
			g.Expect(Changing(tt.reg)).To(Equal(tt.changing))
		})
	}
	now := metav1.Now()
	gone := running("v1", hasFailed)
	gone.DeletionTimestamp = &now
	NewWithT(t).Expect(Changing(gone)).To(BeFalse(), "it goes")
}

func TestWhoWaitsForATurn(t *testing.T) {
	now := metav1.Now()
	for _, tt := range []struct {
		name string
		reg  *fleetv1.FleetRegistration
		want bool
	}{
		{"reports", running("v1"), true},
		{"silent", running("v1", isSilent), true},
		{"has them", running("v2"), false},
		{"joins", running("v1", joins), false},
		{"unreachable", running("v1", isUnreachable), false},
		{"is being changed", running("v1", isUpdating), false},
		{"paused", running("v1", isPaused), false},
		{"lost its selection", running("v1", say(fleetv1.SelectedCondition, metav1.ConditionFalse, fleetv1.LabelRemovedReason)), false},
		{"goes", running("v1", func(reg *fleetv1.FleetRegistration) { reg.DeletionTimestamp = &now }), false},
	} {
		NewWithT(t).Expect(Waits(tt.reg, of("v2"))).To(Equal(tt.want), tt.name)
	}
}

func TestSettingsThatCannotBePutInPlaceAreKnown(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Unreached(running("v1", isGiven, isUnreachable), of("v1"))).To(BeTrue())
	g.Expect(Unreached(running("v1", isGiven), of("v1"))).To(BeFalse(), "it can be reached")
	g.Expect(Unreached(running("v1", isUnreachable), of("v1"))).To(BeFalse(), "they are in place")
	g.Expect(Unreached(running("v1", isGiven, isUnreachable), of("v0"))).To(BeFalse(), "others are in place than are remembered")
	g.Expect(Unreached(running("v1", isGiven, isUnreachable, isPaused), of("v1"))).To(BeFalse(), "nothing may be given to it")
}

func TestMaxChanging(t *testing.T) {
	for _, tt := range []struct {
		limit  *intstr.IntOrString
		agents int
		want   int
	}{
		{nil, 30, 3},
		{nil, 39, 3},
		{nil, 9, 1},
		{nil, 0, 1},
		{new(intstr.FromString("100%")), 7, 7},
		{new(intstr.FromString("50%")), 7, 3},
		{new(intstr.FromInt32(5)), 2, 5},
		{new(intstr.FromInt32(5)), 100, 5},
		{new(intstr.FromString("nonsense")), 100, 1},
	} {
		NewWithT(t).Expect(MaxChanging(fleetv1.RolloutSpec{MaxUnavailable: tt.limit}, tt.agents)).To(Equal(tt.want), "%v of %d", tt.limit, tt.agents)
	}
}

func TestProgress(t *testing.T) {
	two := fleetv1.RolloutSpec{MaxUnavailable: new(intstr.FromInt32(2))}
	paused := fleetv1.RolloutSpec{Paused: true}
	pull := say(fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentImagePullFailedReason)
	old, done := running("v1"), running("v2")
	failed := running("v2", hasFailed, pull)
	for _, tt := range []struct {
		name    string
		rollout fleetv1.RolloutSpec
		regs    []*fleetv1.FleetRegistration
		want    Progress
	}{
		{"nothing there", two, nil, Progress{Done: true, Reason: fleetv1.RolledOutReason}},
		{"one that joins does not count", two, []*fleetv1.FleetRegistration{done, running("v2", joins)}, Progress{Updated: 1, Done: true, Reason: fleetv1.RolledOutReason}},
		{"not begun", two, []*fleetv1.FleetRegistration{old, done}, Progress{Updated: 1, Reason: fleetv1.RollingOutReason, Message: "Agents: 1 waiting"}},
		{"under way", two, []*fleetv1.FleetRegistration{old, old, done, running("v2", isUpdating)}, Progress{Updated: 1, Reason: fleetv1.RollingOutReason, Message: "Agents: 1 changing; 2 waiting"}},
		{"the last", two, []*fleetv1.FleetRegistration{done, running("v2", isUpdating)}, Progress{Updated: 1, Reason: fleetv1.RollingOutReason, Message: "Agents: 1 changing"}},
		{"paused", paused, []*fleetv1.FleetRegistration{old, done}, Progress{Updated: 1, Reason: fleetv1.RolloutPausedReason, Message: "Agents: 1 waiting"}},
		{"paused with nothing to do", paused, []*fleetv1.FleetRegistration{done}, Progress{Updated: 1, Done: true, Reason: fleetv1.RolledOutReason}},
		{"left for later", two, []*fleetv1.FleetRegistration{done, running("v1", isPaused), running("v1", isUnreachable)}, Progress{Updated: 1, Done: true, Reason: fleetv1.RolledOutReason, Message: "Agents: 1 paused, left for later; 1 cannot be reached, left for later"}},
		{"one failed, the rest goes on", two, []*fleetv1.FleetRegistration{old, failed}, Progress{Failed: 1, Reason: fleetv1.RollingOutReason, Message: "Agents: 1 waiting; 1 failed: team/edge (AgentImagePullFailed)"}},
		{"one failed, the rest is done", two, []*fleetv1.FleetRegistration{done, failed}, Progress{Updated: 1, Failed: 1, Reason: fleetv1.RolloutStalledReason, Message: "Agents: 1 failed: team/edge (AgentImagePullFailed)"}},
		{"as many failed as may", two, []*fleetv1.FleetRegistration{old, failed, failed}, Progress{Failed: 2, Reason: fleetv1.RolloutStalledReason, Message: "Agents: 1 waiting; 2 failed: team/edge (AgentImagePullFailed), team/edge (AgentImagePullFailed)"}},
		{"four are named by three", two, []*fleetv1.FleetRegistration{failed, failed, failed, running("v2", hasFailed)}, Progress{Failed: 4, Reason: fleetv1.RolloutStalledReason, Message: "Agents: 4 failed: team/edge (AgentImagePullFailed), team/edge (AgentImagePullFailed), team/edge (AgentImagePullFailed), 1 more"}},
		{"given and not to be reached", two, []*fleetv1.FleetRegistration{running("v1", isGiven, isUnreachable)}, Progress{Done: true, Reason: fleetv1.RolledOutReason, Message: "Agents: 1 cannot be reached, left for later"}},
		{"paused while it changed", two, []*fleetv1.FleetRegistration{done, running("v2", isUpdating, isPaused), running("v2", hasFailed, pull, isPaused)}, Progress{Updated: 1, Done: true, Reason: fleetv1.RolledOutReason, Message: "Agents: 2 paused, left for later"}},
		{"paused when it was done", two, []*fleetv1.FleetRegistration{running("v2", isPaused)}, Progress{Updated: 1, Done: true, Reason: fleetv1.RolledOutReason}},
		{"has never reported", two, []*fleetv1.FleetRegistration{running("v2", say(fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.WaitingForHeartbeatReason))}, Progress{Done: true, Reason: fleetv1.RolledOutReason}},
		{"waited for too long", two, []*fleetv1.FleetRegistration{running("v1", isGiven, hasFailed, say(fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForLeaseReason))}, Progress{Failed: 1, Reason: fleetv1.RolloutStalledReason, Message: "Agents: 1 failed: team/edge (WaitingForLease)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var regs []fleetv1.FleetRegistration
			for _, reg := range tt.regs {
				regs = append(regs, *reg.DeepCopy())
			}
			NewWithT(t).Expect(ProgressOf(tt.rollout, regs, of("v2"))).To(Equal(tt.want))
		})
	}
}
