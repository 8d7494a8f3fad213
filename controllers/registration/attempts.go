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
	"crypto/sha256"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	firstRetry     = 500 * time.Millisecond
	settleRetryCap = 250 * time.Millisecond
	youngRetryCap  = 5 * time.Second
	oldRetryCap    = 2 * time.Minute

	// eagerRetryFloor and eagerRetryCap bound the pause between two tries of a control plane
	// that is waited for and refuses. In between it is eagerSpacing for each of those.
	eagerRetryFloor = 200 * time.Millisecond
	eagerRetryCap   = time.Second
	eagerSpacing    = 5 * time.Millisecond

	// refusedTime is how long a try takes at most that says at once that there is nothing yet.
	refusedTime = time.Second

	// restShare is how many times as long as a try took the next one has to wait.
	restShare = 10

	// slowRetry is how often the kubeconfig Secret is read although the control
	// plane's endpoint does not answer: it may name another address.
	slowRetry = 30 * time.Second

	// firstCheck is the time from a change of an agent to the first look at how it is,
	// updatingCheckCap the longest pause between two while that can still come right by
	// itself, and unwellCheckCap after that and for all other agents.
	firstCheck       = 5 * time.Second
	updatingCheckCap = time.Minute
	unwellCheckCap   = 10 * time.Minute
)

// attempts remembers when which workload cluster was tried, so that events in
// between do not lead to a dial, and when its agent was last heard. It is lost with the
// process, which costs one early dial for each cluster that did not answer.
type attempts struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]*attempt
	// lastTurn is the turn of the last one of those that wait eagerly.
	lastTurn time.Time
}

// attempt is what is remembered of one cluster. The controller handles an object
// only once at a time, so it needs no lock of its own.
type attempt struct {
	// hint stands for everything that makes a new try worthwhile at once.
	hint     string
	failures int
	next     time.Time
	// answered is when the control plane's endpoint first answered; zero before.
	answered time.Time
	// nextSlow is when the Secret is read although the endpoint does not answer.
	nextSlow time.Time
	// nextCheck is when the health of an agent that was changed, is not well or does not
	// report is looked at next; zero means at once.
	nextCheck time.Time
	// heardAtCheck is when the newest heartbeat at the last of those looks was heard.
	heardAtCheck time.Time
	// undelivered says that the last token did not reach the workload cluster.
	undelivered bool
	// reporting is the UID of the Fleet Cluster that was read last, and heartbeat what is
	// known of those there.
	reporting types.UID
	heartbeat decide.Heartbeat
	// leavingSince is when the registration was first seen to be taken away; zero while
	// it is not, or is paused.
	leavingSince time.Time
	// lease is the version of a lease that is in the way, and leaseSince is when it was first
	// seen to have it.
	lease      string
	leaseSince time.Time
	// unproven is what the last visit for an adoption came to; nil means that none failed.
	unproven *upstream.Refusal
	// disowned is the cluster namespace for which agents of others lost their rights.
	disowned types.UID
	// revision is the agent's revision for the input with the hash revisionInput: it is
	// asked for in every reconcile, and making it is most of one that has nothing to do.
	revision      string
	revisionInput [sha256.Size]byte
}

func (a *attempts) get(key types.NamespacedName) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey == nil {
		a.byKey = map[types.NamespacedName]*attempt{}
	}
	if a.byKey[key] == nil {
		a.byKey[key] = &attempt{}
	}
	return a.byKey[key]
}

func (a *attempts) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byKey, key)
}

// eagerPause returns how long a control plane that is waited for, and refuses connections,
// waits for its next turn, and books that. The more there are, the longer: a try is cheap, but
// not many are.
func (a *attempts) eagerPause(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lastTurn.Before(now) || a.lastTurn.Sub(now) > eagerRetryCap {
		a.lastTurn = now
	}
	if turn := a.lastTurn.Add(eagerSpacing); turn.Sub(now) <= eagerRetryCap {
		a.lastTurn = turn
	}
	return max(eagerRetryFloor, a.lastTurn.Sub(now))
}

// listen notes what the registration's Fleet Cluster says of heartbeats.
func (a *attempt) listen(reg *fleetv1.FleetRegistration, cluster *fleet.Cluster, now time.Time) {
	seen := cluster.Status.Agent.LastSeen.Time
	if a.reporting == cluster.UID {
		a.heartbeat = a.heartbeat.Next(seen, now)
		return
	}
	a.reporting = cluster.UID
	a.heartbeat = decide.FirstHeartbeat(seen, now, reg.Spec.Agent.CheckinInterval.Duration,
		hasReason(reg, fleetv1.AgentConnectedCondition, fleetv1.AgentSilentReason))
}

// revisionOf returns agent.Revision of the input.
func (a *attempt) revisionOf(input agent.Input) string {
	content, err := json.Marshal(input)
	if err != nil {
		return agent.Revision(input)
	}
	if sum := sha256.Sum256(content); a.revision == "" || a.revisionInput != sum {
		a.revision, a.revisionInput = agent.Revision(input), sum
	}
	return a.revision
}

// leavingFor returns how long the registration has been taken away. Time in which it was
// paused, or there was no manager, does not count: nothing was tried then.
func (a *attempt) leavingFor(now time.Time) time.Duration {
	if a.leavingSince.IsZero() {
		a.leavingSince = now
	}
	return now.Sub(a.leavingSince)
}

// leaseSame returns how long a lease that is in the way has been seen at that version.
func (a *attempt) leaseSame(version string, now time.Time) time.Duration {
	if version != a.lease {
		a.lease, a.leaseSince = version, now
	}
	return now.Sub(a.leaseSince)
}

// wait returns how long the next try has to wait; zero means that it is due. A
// hint that differs from the last one makes it due and starts the delays anew.
func (a *attempt) wait(hint string, now time.Time) time.Duration {
	if hint != a.hint {
		a.hint, a.failures, a.next, a.nextSlow = hint, 0, time.Time{}, time.Time{}
	}
	return max(0, a.next.Sub(now))
}

// failed notes a try that failed and returns how long the next one has to wait:
// half a second at first, twice as long each time, up to limit, with a jitter of a
// fifth, so that clusters that fail together are not tried together. It also waits for ten
// times as long as the try took: one that hangs must not hold a worker most of the time.
func (a *attempt) failed(now time.Time, took, limit time.Duration) time.Duration {
	delay := min(limit, max(firstRetry<<min(a.failures, 16), restShare*took))
	a.failures++
	delay += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(delay)) //nolint:gosec // A jitter need not be secret.
	a.next = now.Add(delay)
	return delay
}

// checkAfter notes a change of the agent, or a look at its health, and when the next look
// is due.
func (a *attempt) checkAfter(pause time.Duration, now time.Time) {
	a.nextCheck, a.heardAtCheck = now.Add(pause), a.heartbeat.Heard
}

// checkPause returns how long the next look at an agent's health has to wait: as long as it
// has been since the agent was changed, or put in place, so that the pauses double each time
// and a manager that was restarted goes on with them.
func checkPause(update fleetv1.AgentStatus, now time.Time) time.Duration {
	switch age := now.Sub(update.UpdatedTime.Time); {
	case update.UpdatedTime.IsZero():
		return min(unwellCheckCap, max(decide.StartTime, now.Sub(update.PushedTime.Time)))
	case age < updateDeadline:
		return min(updatingCheckCap, max(firstCheck, age))
	}
	return unwellCheckCap
}

// checkHint notes that a heartbeat has arrived, which can be that of an agent that was
// changed: it is worth a look at once.
func (a *attempt) checkHint() {
	if a.heartbeat.Heard.After(a.heardAtCheck) {
		a.nextCheck = time.Time{}
	}
}

// slowDue tells whether the Secret is to be read although the endpoint does not
// answer, and notes that it is.
func (a *attempt) slowDue(now time.Time) bool {
	if a.nextSlow.IsZero() {
		// The first look waits too: a young cluster mostly answers before.
		a.nextSlow = now.Add(slowRetry)
		return false
	}
	if now.Before(a.nextSlow) {
		return false
	}
	a.nextSlow = now.Add(slowRetry)
	return true
}
