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
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// settingsDigits is the length of a hash of settings, 64 bits in hex.
const settingsDigits = 16

// Settings returns a hash of what an agent is made from.
func Settings(agent fleetv1.AgentSpec) string {
	content, err := json.Marshal(agent)
	if err != nil {
		panic(err) // It holds plain values only.
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])[:settingsDigits]
}

// Turn says when a registration takes settings that restart its agent.
type Turn int

const (
	// AtOnce is for agents that a restart takes nothing from: there is none yet, it has
	// never reported, it needs the settings to report again, or it is being changed
	// already or about to be.
	AtOnce Turn = iota
	// InTurn is for agents that report, or may do so again by themselves: as many at once
	// as the policy lets.
	InTurn
	// Later is for workload clusters that cannot be reached.
	Later
)

// TurnOf decides when the registration takes the settings wanted, which are not those that
// it has.
func TurnOf(reg *fleetv1.FleetRegistration, wanted fleetv1.AgentSpec) Turn {
	connected := Reports(reg)
	switch {
	case reg.Status.Agent.Revision == "", Changing(reg), !inPlace(reg) && !isTrue(reg, fleetv1.PausedCondition):
		return AtOnce
	case !connected && !sameEndpoint(reg.Spec.Agent, wanted):
		// It may be silent for that very reason.
		return AtOnce
	case isFalse(reg, fleetv1.WorkloadReachableCondition):
		return Later
	case !connected && neverReported(reg):
		return AtOnce
	}
	// Silent ones too: when the management cluster was away, all are silent.
	return InTurn
}

func neverReported(reg *fleetv1.FleetRegistration) bool {
	upToDate := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.AgentUpToDateCondition)
	return upToDate != nil && upToDate.Reason == fleetv1.WaitingForHeartbeatReason
}

// Reports tells whether the registration's agent reports. Those that do have their turn
// first: one that is silent for a reason of its own would fail and keep a place for ever.
func Reports(reg *fleetv1.FleetRegistration) bool {
	return isTrue(reg, fleetv1.AgentConnectedCondition)
}

// Waits tells whether the registration is still to take the settings wanted in its turn.
func Waits(reg *fleetv1.FleetRegistration, wanted fleetv1.AgentSpec) bool {
	return takesPart(reg) && !equality.Semantic.DeepEqual(reg.Spec.Agent, wanted) && TurnOf(reg, wanted) == InTurn
}

func sameEndpoint(a, b fleetv1.AgentSpec) bool {
	return a.ManagementCluster.Server == b.ManagementCluster.Server &&
		bytes.Equal(a.ManagementCluster.CertificateAuthorityData, b.ManagementCluster.CertificateAuthorityData)
}

// Changing tells whether the registration's agent was given settings and has not checked
// in with them yet, be it that it still can or that it failed. One that joins is not
// changing. One that is paused is left for later, wherever its change is, and so is one
// whose change is not in place and cannot be put there.
func Changing(reg *fleetv1.FleetRegistration) bool {
	switch {
	case reg.Status.Agent.Revision == "", !reg.DeletionTimestamp.IsZero(), isTrue(reg, fleetv1.PausedCondition):
		return false
	case !inPlace(reg):
		return !isFalse(reg, fleetv1.WorkloadReachableCondition)
	}
	upToDate := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.AgentUpToDateCondition)
	return upToDate != nil && (upToDate.Reason == fleetv1.AgentUpdatingReason || upToDate.Reason == fleetv1.AgentUpdateFailedReason)
}

// Unreached tells whether the registration was given settings that could not be put in
// place, since its workload cluster cannot be reached, and may be given previous back,
// which it has in place.
func Unreached(reg *fleetv1.FleetRegistration, previous fleetv1.AgentSpec) bool {
	return takesPart(reg) && !inPlace(reg) && isFalse(reg, fleetv1.WorkloadReachableCondition) && reg.Status.Agent.Settings == Settings(previous)
}

// takesPart tells whether the registration may be given settings at all.
func takesPart(reg *fleetv1.FleetRegistration) bool {
	return reg.DeletionTimestamp.IsZero() && !isTrue(reg, fleetv1.PausedCondition) && !isFalse(reg, fleetv1.SelectedCondition)
}

func inPlace(reg *fleetv1.FleetRegistration) bool {
	return reg.Status.Agent.Settings == Settings(reg.Spec.Agent)
}

// defaultMaxUnavailable holds where a policy says nothing.
var defaultMaxUnavailable = intstr.FromString("10%")

// MaxChanging returns how many of so many agents may be changing at once, at least one.
func MaxChanging(rollout fleetv1.RolloutSpec, agents int) int {
	limit := cmp.Or(rollout.MaxUnavailable, &defaultMaxUnavailable)
	scaled, err := intstr.GetScaledValueFromIntOrPercent(limit, agents, false)
	if err != nil {
		return 1
	}
	return max(1, scaled)
}

// Progress is how far a rollout is.
type Progress struct {
	// Updated counts the agents that run what is wanted and have checked in since, Failed
	// those that were changed and did not come up.
	Updated, Failed int
	// Done, Reason and Message are those of the RolledOut condition.
	Done            bool
	Reason, Message string
}

// ProgressOf returns how far the settings wanted are among the registrations of a policy.
func ProgressOf(rollout fleetv1.RolloutSpec, registrations []fleetv1.FleetRegistration, wanted fleetv1.AgentSpec) Progress {
	var updated, changing, waiting, paused, unreachable int
	var failed []string
	revision := Settings(wanted)
	for i := range registrations {
		reg := &registrations[i]
		switch {
		case reg.Status.Agent.Revision == "", !reg.DeletionTimestamp.IsZero():
			// It joins, or it goes.
		case Changing(reg) && failure(reg) != "":
			failed = append(failed, fmt.Sprintf("%s/%s (%s)", reg.Namespace, reg.Name, failure(reg)))
		case Changing(reg):
			changing++
		case reg.Status.Agent.Settings == revision && inPlace(reg) && isTrue(reg, fleetv1.AgentUpToDateCondition):
			updated++
		case isTrue(reg, fleetv1.PausedCondition):
			paused++
		case reg.Status.Agent.Settings == revision && inPlace(reg):
			// It has never reported.
		case isFalse(reg, fleetv1.WorkloadReachableCondition):
			unreachable++
		default:
			waiting++
		}
	}
	progress := Progress{Updated: updated, Failed: len(failed)}
	stuck := changing == 0 && len(failed) > 0 && (waiting == 0 || len(failed) >= MaxChanging(rollout, len(registrations)))
	switch {
	case changing+waiting+len(failed) == 0:
		progress.Done, progress.Reason = true, fleetv1.RolledOutReason
	case rollout.Paused && waiting > 0:
		progress.Reason = fleetv1.RolloutPausedReason
	case stuck:
		progress.Reason = fleetv1.RolloutStalledReason
	default:
		progress.Reason = fleetv1.RollingOutReason
	}
	progress.Message = sentence(
		count(changing, "%d changing"),
		count(waiting, "%d waiting"),
		count(paused, "%d paused, left for later"),
		count(unreachable, "%d cannot be reached, left for later"),
		count(len(failed), "%d failed: "+some(failed)),
	)
	return progress
}

// failure returns why an agent that is changing does not get on, empty where it may.
func failure(reg *fleetv1.FleetRegistration) string {
	conditions := reg.Status.Conditions
	upToDate := meta.FindStatusCondition(conditions, fleetv1.AgentUpToDateCondition)
	failed := upToDate != nil && upToDate.Reason == fleetv1.AgentUpdateFailedReason
	for _, name := range []string{fleetv1.WorkloadReachableCondition, fleetv1.AgentDeployedCondition} {
		condition := meta.FindStatusCondition(conditions, name)
		if condition != nil && condition.Status == metav1.ConditionFalse && (failed || !strings.HasPrefix(condition.Reason, "WaitingFor")) {
			return condition.Reason
		}
	}
	if failed {
		return upToDate.Reason
	}
	return ""
}

// some lists three of the names at most.
func some(names []string) string {
	const limit = 3
	slices.Sort(names)
	if more := len(names) - limit; more > 0 {
		names = append(slices.Clone(names[:limit]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func count(n int, format string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}

// sentence joins those of the parts that are not empty.
func sentence(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return ""
	}
	return "Agents: " + strings.Join(parts, "; ")
}

func isTrue(reg *fleetv1.FleetRegistration, condition string) bool {
	return meta.IsStatusConditionTrue(reg.Status.Conditions, condition)
}

func isFalse(reg *fleetv1.FleetRegistration, condition string) bool {
	return meta.IsStatusConditionFalse(reg.Status.Conditions, condition)
}
