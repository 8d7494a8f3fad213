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
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/internal/written"
)

// summarized are the conditions that Ready sums up, in the order in which they
// come true.
var summarized = []string{
	fleetv1.FleetClusterReadyCondition,
	fleetv1.WorkloadReachableCondition,
	fleetv1.AgentDeployedCondition,
	fleetv1.CredentialsValidCondition,
	fleetv1.AgentConnectedCondition,
}

// report turns what the scope holds into conditions. It returns when the passing of
// time alone will change one of them; zero means never.
func report(s *scope) time.Time {
	setCondition(s, fleetv1.PausedCondition, &finding{reason: fleetv1.NotPausedReason})
	if !s.registration.DeletionTimestamp.IsZero() {
		// The others are about what is being taken away, and stay as they were.
		reportDeleting(s)
		return time.Time{}
	}
	setCondition(s, fleetv1.DeletingCondition, &finding{reason: fleetv1.NotDeletingReason})
	if meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.SelectedCondition) == nil {
		// The selection controller takes over when that changes.
		setCondition(s, fleetv1.SelectedCondition, &finding{ok: true, reason: fleetv1.SelectedReason})
	}

	keep(s, fleetv1.FleetClusterReadyCondition, s.fleetClusterReady, &finding{reason: fleetv1.WaitingForFleetClusterReason})
	if targeted := targeted(s); targeted != nil {
		setCondition(s, fleetv1.TargetedCondition, targeted)
	}
	keep(s, fleetv1.WorkloadReachableCondition, s.workloadReachable, &finding{reason: fleetv1.WaitingForControlPlaneReason,
		message: "The workload cluster was not visited yet"})
	setCondition(s, fleetv1.AgentDeployedCondition, agentDeployed(s))
	credentials, expires := credentialsValid(s)
	setCondition(s, fleetv1.CredentialsValidCondition, credentials)
	connected, silent := agentConnected(s)
	setCondition(s, fleetv1.AgentConnectedCondition, connected)
	setCondition(s, fleetv1.ReadyCondition, ready(s))
	upToDate, failed := agentUpToDate(s)
	setCondition(s, fleetv1.AgentUpToDateCondition, upToDate)
	if upToDate.ok {
		s.registration.Status.Agent.Image = s.registration.Spec.Agent.Image
	}
	if bundles := bundlesReady(s); bundles != nil {
		setCondition(s, fleetv1.BundlesReadyCondition, bundles)
	}
	return earliest(expires, silent, failed)
}

// reportDeleting says what the end waits for. An error leaves what was said before.
func reportDeleting(s *scope) {
	deleting := s.deleting
	switch {
	case deleting != nil:
	case isTrue(s.registration, fleetv1.DeletingCondition):
		return
	default:
		deleting = &finding{true, fleetv1.InternalErrorReason, internalError().message}
	}
	setCondition(s, fleetv1.DeletingCondition, deleting)
	setCondition(s, fleetv1.ReadyCondition, &finding{reason: deleting.reason, message: deleting.message})
}

// earliest returns the first of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// keep sets a condition to what was found, or leaves it as it was; where there is
// none yet, it sets it to the last argument.
func keep(s *scope, condition string, found, otherwise *finding) {
	if found == nil && meta.FindStatusCondition(s.registration.Status.Conditions, condition) != nil {
		return
	}
	if found == nil {
		found = otherwise
	}
	setCondition(s, condition, found)
}

// targeted returns whether the Fleet Cluster has all that the policy asks for, nil where
// that was not looked at.
func targeted(s *scope) *finding {
	switch {
	case !s.lives():
		return nil
	case !isTrue(s.registration, fleetv1.FleetClusterReadyCondition):
		return &finding{reason: fleetv1.WaitingForFleetClusterReason}
	case s.targetErr != nil:
		return internalError()
	case s.fleetCluster == nil && s.target.Class != nil && s.target.Class.Shared:
		return &finding{reason: fleetv1.WaitingForFleetClusterReason, message: "The Fleet Cluster gets into the group of its ClusterClass next"}
	case len(s.unmet) == 0:
		return &finding{ok: true, reason: fleetv1.TargetedReason}
	}
	messages := make([]string, 0, len(s.unmet))
	for _, problem := range s.unmet {
		messages = append(messages, problem.Message)
	}
	return &finding{reason: s.unmet[0].Reason, message: strings.Join(messages, ". ")}
}

func agentDeployed(s *scope) *finding {
	switch {
	case s.agentDeployed != nil:
		return s.agentDeployed
	case s.registration.Status.Agent.Revision != "":
		was := meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.AgentDeployedCondition)
		if was != nil {
			return &finding{was.Status == metav1.ConditionTrue, was.Reason, was.Message}
		}
		return &finding{ok: true, reason: fleetv1.AgentDeployedReason}
	case !isTrue(s.registration, fleetv1.FleetClusterReadyCondition):
		return &finding{reason: fleetv1.WaitingForFleetClusterReason}
	case s.workloadReachable == nil && isTrue(s.registration, fleetv1.WorkloadReachableCondition):
		// A refusal that was found earlier.
		if was := meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.AgentDeployedCondition); was != nil {
			return &finding{false, was.Reason, was.Message}
		}
	}
	return &finding{reason: fleetv1.WaitingForWorkloadReason}
}

// credentialsValid returns the finding, and when the token ends.
func credentialsValid(s *scope) (*finding, time.Time) {
	expires := s.registration.Status.Credential.ExpirationTime.Time
	switch {
	case !expires.IsZero() && s.now.Before(expires):
		return &finding{ok: true, reason: fleetv1.CredentialsIssuedReason}, expires
	case s.credentialsValid != nil:
		return s.credentialsValid, time.Time{}
	case expires.IsZero():
		return &finding{reason: fleetv1.WaitingForAgentReason}, time.Time{}
	}
	return &finding{reason: fleetv1.CredentialsExpiredReason,
		message: "The agent's token has expired; it is renewed when the workload cluster can be reached"}, time.Time{}
}

// agentConnected returns the finding, and when the agent will count as silent.
func agentConnected(s *scope) (*finding, time.Time) {
	pushed := s.registration.Status.Agent.PushedTime.Time
	if pushed.IsZero() {
		return &finding{reason: fleetv1.WaitingForAgentReason}, time.Time{}
	}
	limit := decide.SilenceLimit(s.registration.Spec.Agent.CheckinInterval.Duration)
	heard := s.heartbeat.Heard
	if replaced(s.registration) {
		// Until the new one has checked in, that was the agent before it.
		heard = time.Time{}
	}
	if s.now.Before(heard.Add(limit)) {
		return &finding{ok: true, reason: fleetv1.AgentConnectedReason}, heard.Add(limit)
	}
	// Later pushes are repairs of an agent that should have reported before.
	deployed := pushed
	if was := meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.AgentDeployedCondition); was != nil && was.Status == metav1.ConditionTrue {
		deployed = was.LastTransitionTime.Time
	}
	if heard.IsZero() && s.now.Before(deployed.Add(limit)) {
		return &finding{reason: fleetv1.WaitingForHeartbeatReason,
			message: "The agent was deployed and has not reported yet"}, deployed.Add(limit)
	}
	return &finding{reason: fleetv1.AgentSilentReason,
		message: fmt.Sprintf("The agent has not reported for more than %s; look at its pod in the workload cluster", limit)}, time.Time{}
}

// replaced tells whether the registration's first agent took the place of another one, as in
// an adoption, and has not checked in yet.
func replaced(reg *fleetv1.FleetRegistration) bool {
	connected := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.AgentConnectedCondition)
	return !reg.Status.Agent.UpdatedTime.IsZero() && (connected == nil || merelyWaits(connected))
}

// agentUpToDate returns the finding, and when the agent will count as failed.
func agentUpToDate(s *scope) (*finding, time.Time) {
	reg := s.registration
	update := reg.Status.Agent
	deployed := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.AgentDeployedCondition)
	changing := !update.UpdatedTime.IsZero() || update.Settings != decide.Settings(reg.Spec.Agent)
	since := update.UpdatedTime.Time
	if since.IsZero() {
		since = notUpToDateSince(s)
	}
	deadline := since.Add(updateDeadline)
	switch {
	case update.Revision == "":
		return &finding{reason: fleetv1.WaitingForAgentReason}, time.Time{}
	case changing && deployed.Status != metav1.ConditionTrue && !merelyWaits(deployed):
		return &finding{reason: fleetv1.AgentUpdateFailedReason, message: "See the condition " + fleetv1.AgentDeployedCondition}, time.Time{}
	case changing && update.UpdatedTime.IsZero() && s.now.Before(deadline):
		return &finding{reason: fleetv1.AgentUpdatingReason, message: "The change is not in place yet"}, deadline
	case changing && update.UpdatedTime.IsZero():
		return &finding{reason: fleetv1.AgentUpdateFailedReason,
			message: fmt.Sprintf("The change could not be put in place for %s; see the conditions %s and %s",
				updateDeadline, fleetv1.WorkloadReachableCondition, fleetv1.AgentDeployedCondition)}, time.Time{}
	case changing && s.now.Before(deadline):
		return &finding{reason: fleetv1.AgentUpdatingReason, message: "The agent has not checked in since it was changed"}, deadline
	case changing:
		return &finding{reason: fleetv1.AgentUpdateFailedReason,
			message: fmt.Sprintf("The agent has not checked in for %s since it was changed; look at its pod in the workload cluster", updateDeadline)}, time.Time{}
	case s.heartbeat.Seen.IsZero() && !isTrue(reg, fleetv1.AgentUpToDateCondition):
		return &finding{reason: fleetv1.WaitingForHeartbeatReason}, time.Time{}
	}
	return &finding{ok: true, reason: fleetv1.AgentUpToDateReason}, time.Time{}
}

// notUpToDateSince returns since when the agent does not run what it should: from now on
// where it did so far.
func notUpToDateSince(s *scope) time.Time {
	upToDate := meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.AgentUpToDateCondition)
	if upToDate == nil || upToDate.Status == metav1.ConditionTrue {
		return s.now
	}
	return upToDate.LastTransitionTime.Time
}

// bundlesReady returns what Fleet says of the bundles, nil where it says nothing. Fleet's
// words are left out: they are from the workload cluster, and change all the time.
func bundlesReady(s *scope) *finding {
	if s.fleetCluster == nil {
		return nil
	}
	for _, condition := range s.fleetCluster.Status.Conditions {
		switch {
		case condition.Type != fleet.ReadyCondition:
		case condition.Status == metav1.ConditionTrue:
			return &finding{ok: true, reason: fleetv1.BundlesReadyReason}
		default:
			return &finding{reason: fleetv1.BundlesNotReadyReason,
				message: fmt.Sprintf("See the status of Fleet Cluster %s", client.ObjectKeyFromObject(s.fleetCluster))}
		}
	}
	return nil
}

// ready sums up. What somebody has to see to comes before what is merely waited
// for, whichever comes first.
func ready(s *scope) *finding {
	var waiting *finding
	for _, name := range summarized {
		condition := meta.FindStatusCondition(s.registration.Status.Conditions, name)
		if condition == nil || condition.Status == metav1.ConditionTrue {
			continue
		}
		f := &finding{reason: condition.Reason, message: condition.Message}
		if !comesByItself(condition) {
			return f
		}
		if waiting == nil {
			waiting = f
		}
	}
	if waiting != nil {
		return waiting
	}
	return &finding{ok: true, reason: fleetv1.ReadyReason}
}

// messageLimit is how much of a message is kept, in bytes. Names and field paths in it can
// be anybody's, and the API server refuses a status with one of more than 32 KiB.
const messageLimit = 4096

// cut returns a message that is not too long, and still is UTF-8.
func cut(message string) string {
	const ellipsis = "…"
	if len(message) <= messageLimit {
		return message
	}
	return strings.ToValidUTF8(message[:messageLimit-len(ellipsis)], "") + ellipsis
}

func setCondition(s *scope, condition string, f *finding) {
	status := metav1.ConditionFalse
	if f.ok {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.registration.Status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: f.reason, Message: cut(f.message),
		LastTransitionTime: metav1.NewTime(s.now),
	})
}

func isTrue(reg *fleetv1.FleetRegistration, condition string) bool {
	return meta.IsStatusConditionTrue(reg.Status.Conditions, condition)
}

func hasReason(reg *fleetv1.FleetRegistration, condition, reason string) bool {
	c := meta.FindStatusCondition(reg.Status.Conditions, condition)
	return c != nil && c.Reason == reason
}

// write applies the status where it differs from what it was, in one request.
func (r *Reconciler) write(ctx context.Context, s *scope, before *fleetv1.FleetRegistration) error {
	reg := s.registration
	if equality.Semantic.DeepEqual(before.Status, reg.Status) {
		return nil
	}
	err := written.ApplyStatus(ctx, r.Client, reg, &reg.Status, upstream.FieldOwner)
	if apierrors.IsConflict(err) {
		// The selection controller, or a person, has written what we read from the
		// cache too early.
		live := &fleetv1.FleetRegistration{}
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(reg), live); err != nil {
			return client.IgnoreNotFound(err)
		}
		if selected := meta.FindStatusCondition(live.Status.Conditions, fleetv1.SelectedCondition); selected != nil {
			meta.RemoveStatusCondition(&reg.Status.Conditions, fleetv1.SelectedCondition)
			reg.Status.Conditions = append(reg.Status.Conditions, *selected)
		}
		err = written.ApplyStatus(ctx, r.Client, reg, &reg.Status, upstream.FieldOwner, client.ForceOwnership)
	}
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.written.Note(reg, r.Clock.Now())
	return nil
}

// announce tells the owner of the Cluster, on the Cluster, how its registration
// stands: by the condition FleetRegistered and, where that changes, by an event.
func (r *Reconciler) announce(ctx context.Context, s *scope, before *fleetv1.FleetRegistration) error {
	if !s.lives() || !s.registration.DeletionTimestamp.IsZero() {
		return nil
	}
	if event := transition(before, s.registration); event != nil {
		r.Recorder.Eventf(s.cluster, s.registration, event.kind, event.reason, "Register", "%s", event.note)
	}
	if r.clusters.NewerThan(s.cluster, r.Clock.Now()) {
		return nil
	}
	condition := fleetRegistered(s)
	if condition == nil {
		return nil
	}
	return r.writeToCluster(ctx, s, *condition)
}

// fleetRegistered returns the Cluster's condition where it has to be written, else
// nil.
func fleetRegistered(s *scope) *metav1.Condition {
	ready := meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.ReadyCondition)
	current := meta.FindStatusCondition(s.cluster.Status.Conditions, fleetv1.FleetRegisteredCondition)
	if ready == nil || current == nil && comesByItself(ready) {
		return nil
	}
	condition := &metav1.Condition{
		Type: fleetv1.FleetRegisteredCondition, Status: ready.Status, Reason: ready.Reason, Message: ready.Message,
		LastTransitionTime: metav1.NewTime(s.now),
	}
	if current == nil || current.Status != condition.Status {
		return condition
	}
	if current.Reason == condition.Reason && current.Message == condition.Message {
		return nil
	}
	condition.LastTransitionTime = current.LastTransitionTime
	return condition
}

// merelyWaits tells whether a condition is about something that is waited for.
func merelyWaits(condition *metav1.Condition) bool {
	return condition.Status != metav1.ConditionTrue && strings.HasPrefix(condition.Reason, "WaitingFor")
}

// lasting are the reasons for which something is waited for that may need a person.
var lasting = []string{fleetv1.WaitingForBundlesReason, fleetv1.WaitingForLeaseReason, fleetv1.WaitingForAgentToStopReason}

// comesByItself tells whether nobody has to see to what a condition waits for.
func comesByItself(condition *metav1.Condition) bool {
	return merelyWaits(condition) && !slices.Contains(lasting, condition.Reason)
}

// writeToCluster applies our conditions of the Cluster, or takes them away.
func (r *Reconciler) writeToCluster(ctx context.Context, s *scope, conditions ...metav1.Condition) error {
	status := &struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	}{conditions}
	err := written.ApplyStatus(ctx, r.Client, s.cluster, status, upstream.FieldOwner, client.ForceOwnership)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.clusters.Note(s.cluster, r.Clock.Now())
	return nil
}

// clusterEvent is an event on a Cluster.
type clusterEvent struct{ kind, reason, note string }

// joinedReason is the reason of the event for a registration that became ready.
const joinedReason = "JoinedFleet"

// transition returns the event for what changed, or nil: joined, or a reason that
// somebody has to see to. What merely waits is no event.
func transition(before, after *fleetv1.FleetRegistration) *clusterEvent {
	was := meta.FindStatusCondition(before.Status.Conditions, fleetv1.ReadyCondition)
	is := meta.FindStatusCondition(after.Status.Conditions, fleetv1.ReadyCondition)
	switch {
	case is == nil, comesByItself(is), was != nil && was.Status == is.Status && was.Reason == is.Reason:
		return nil
	case is.Status == metav1.ConditionTrue:
		return &clusterEvent{corev1.EventTypeNormal, joinedReason, "The cluster is in Fleet, and its agent reports"}
	}
	return &clusterEvent{corev1.EventTypeWarning, is.Reason, is.Message}
}
