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
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/token"
)

// PushReason says why the workload cluster is to be visited. It is empty where
// there is nothing to do there. The values are labels of metrics.
type PushReason string

// The reasons, in the order in which they are looked for.
const (
	// NotDeployed means that the agent was never put in place, or that what was put
	// there is no longer known.
	NotDeployed PushReason = "NotDeployed"
	// NamespaceReplaced means that the cluster namespace is another one than the
	// agent was pointed at.
	NamespaceReplaced PushReason = "NamespaceReplaced"
	// RevisionChanged means that the manifests differ from what was put in place.
	RevisionChanged PushReason = "RevisionChanged"
	// HostedMissing means that the agent runs on the management cluster, and that its
	// Deployment there is gone.
	HostedMissing PushReason = "HostedMissing"
	// AccountReplaced means that the agent's service account was made anew, with which
	// the agent's token ended.
	AccountReplaced PushReason = "AccountReplaced"
	// RotationAsked means that somebody asked for a new token.
	RotationAsked PushReason = "RotationAsked"
	// CredentialDue means that it is time for a new token.
	CredentialDue PushReason = "CredentialDue"
	// AgentSilent means that the heartbeat has not arrived for too long.
	AgentSilent PushReason = "AgentSilent"
	// HealthDue means that an agent does not report, or has not checked in since it was
	// changed, or that its pod was not well, and that it is time to look again.
	HealthDue PushReason = "HealthDue"
	// PullSecretsChanged means that a pull secret is not what it was when it was copied.
	PullSecretsChanged PushReason = "PullSecretsChanged"
	// VisitFailed means that the last visit failed, and that what called for it is over:
	// what it found would stand until the next one.
	VisitFailed PushReason = "VisitFailed"
	// ResyncDue means that the agent's objects were not looked at for a long time.
	ResyncDue PushReason = "ResyncDue"
)

// PushInput is what is known of an agent without visiting it.
type PushInput struct {
	Now time.Time
	// RegistrationID spreads renewals.
	RegistrationID string
	// Revision of the manifests as they should be.
	Revision string
	// Rotation is a hash of the annotation that asks for a new token; empty means none.
	Rotation string
	// Status of the registration.
	Status *fleetv1.FleetRegistrationStatus
	// Heard is when the newest heartbeat was heard; zero means none yet.
	Heard time.Time
	// CheckinInterval between two heartbeats; zero means the agent's default.
	CheckinInterval time.Duration
	// AccountUID is the UID of the agent's service account; empty means that it is not
	// known.
	AccountUID types.UID
	// HostedMissing tells whether the cache does not show the Deployment of an agent on the
	// management cluster.
	HostedMissing bool
	// PullSecrets is the version of the pull secrets that the settings name; empty means
	// that it is not known, or that they name none.
	PullSecrets string
	// NextCheck is when the health of an agent that was changed, was not well or does not
	// report is looked at again. Zero means at once, or as soon as one that was put in place
	// had its time to report.
	NextCheck time.Time
	// ResyncInterval is the time between two looks at the agent's objects; zero means
	// that nothing but a cause leads to one.
	ResyncInterval time.Duration
}

var pushChecks = []struct {
	reason PushReason
	due    func(PushInput) bool
}{
	{NotDeployed, func(in PushInput) bool { return in.Status.Agent.Revision == "" }},
	{NamespaceReplaced, func(in PushInput) bool { return in.Status.Agent.NamespaceUID != in.Status.NamespaceUID }},
	{RevisionChanged, func(in PushInput) bool { return in.Status.Agent.Revision != in.Revision }},
	{HostedMissing, func(in PushInput) bool { return in.HostedMissing && !in.Now.Before(in.hostedTime()) }},
	{AccountReplaced, PushInput.accountReplaced},
	{PullSecretsChanged, func(in PushInput) bool { return in.PullSecrets != "" && in.PullSecrets != in.Status.Agent.PullSecrets }},
	{RotationAsked, func(in PushInput) bool { return in.rotationAsked() && !in.Now.Before(in.rotationTime()) }},
	{CredentialDue, func(in PushInput) bool { return !in.Now.Before(in.renewTime()) }},
	{AgentSilent, func(in PushInput) bool { return !in.Now.Before(in.silentTime()) }},
	{VisitFailed, PushInput.visitFailed},
	{HealthDue, func(in PushInput) bool { return in.watchesHealth() && !in.Now.Before(in.healthTime()) }},
	{ResyncDue, func(in PushInput) bool { return in.ResyncInterval > 0 && !in.Now.Before(in.resyncTime()) }},
}

// Push decides whether the workload cluster is to be visited, and why.
func Push(in PushInput) PushReason {
	for _, check := range pushChecks {
		if check.due(in) {
			return check.reason
		}
	}
	return ""
}

// KeepsToken tells whether the agent goes on with a token that it was given earlier,
// which is for the service account subject and ends with it. What the token says is
// only believed where the API server then accepts it.
func KeepsToken(in PushInput, claims token.Claims, subject string) bool {
	return claims.Subject == subject &&
		(in.AccountUID == "" || claims.AccountUID == in.AccountUID) &&
		in.Now.Before(token.RenewTime(claims.Issued, claims.Expires, in.RegistrationID)) &&
		(!in.rotationAsked() || in.Now.Before(in.rotationTime()))
}

// NextPush returns when Push will find something to do although nothing changed.
func NextPush(in PushInput) time.Time {
	next := in.renewTime()
	if silent := in.silentTime(); silent.Before(next) {
		next = silent
	}
	if in.rotationAsked() && in.rotationTime().Before(next) {
		next = in.rotationTime()
	}
	if in.ResyncInterval > 0 && in.resyncTime().Before(next) {
		next = in.resyncTime()
	}
	if in.HostedMissing && in.hostedTime().Before(next) {
		next = in.hostedTime()
	}
	if in.watchesHealth() && in.healthTime().Before(next) {
		next = in.healthTime()
	}
	return next
}

func (in PushInput) visitFailed() bool {
	conditions := in.Status.Conditions
	return meta.IsStatusConditionFalse(conditions, fleetv1.WorkloadReachableCondition) ||
		meta.IsStatusConditionFalse(conditions, fleetv1.AgentDeployedCondition) && !Unwell(conditions)
}

// StartTime is how long an agent that was put in place may take to report before its pod
// is looked at. Most report before, which costs no request.
const StartTime = 30 * time.Second

// watchesHealth tells whether the agent's pod is looked at from time to time: where it is
// known that not all is well, and where nothing is heard.
func (in PushInput) watchesHealth() bool {
	return in.isWatched() || !Reported(in.Heard, in.CheckinInterval, in.Now)
}

func (in PushInput) isWatched() bool {
	return !in.Status.Agent.UpdatedTime.IsZero() || Unwell(in.Status.Conditions)
}

// healthTime is when an agent that is watched is looked at next.
func (in PushInput) healthTime() time.Time {
	if start := in.Status.Agent.PushedTime.Add(StartTime); !in.isWatched() && start.After(in.NextCheck) {
		return start
	}
	return in.NextCheck
}

// Reported tells whether an agent that was last heard at a time counts as connected.
func Reported(heard time.Time, checkin time.Duration, now time.Time) bool {
	return now.Before(heard.Add(SilenceLimit(checkin)))
}

// unwell are the reasons of AgentDeployed for objects that are in place and a pod that is
// not well.
var unwell = []string{
	fleetv1.AgentPodRejectedReason,
	fleetv1.WaitingForNodeReason,
	fleetv1.AgentUnschedulableReason,
	fleetv1.AgentImagePullFailedReason,
	fleetv1.AgentStartFailedReason,
	fleetv1.AgentCrashLoopingReason,
	fleetv1.AgentNotAvailableReason,
}

// Unwell tells whether the agent's objects are in place and its pod was not well when it
// was last looked at.
func Unwell(conditions []metav1.Condition) bool {
	deployed := meta.FindStatusCondition(conditions, fleetv1.AgentDeployedCondition)
	return deployed != nil && slices.Contains(unwell, deployed.Reason)
}

func (in PushInput) accountReplaced() bool {
	known := in.Status.Credential.ServiceAccountUID
	return known != "" && in.AccountUID != "" && in.AccountUID != known
}

// rotationAsked tells whether the annotation asks for another token than the one that
// is there. While nothing is known of one, nobody can mean it.
func (in PushInput) rotationAsked() bool {
	credential := in.Status.Credential
	return in.Rotation != "" && in.Rotation != credential.Rotation && !credential.IssuedTime.IsZero()
}

// resyncTime is when the agent's objects are looked at although nothing calls for it.
// A tenth more or less spreads registrations that were made together, each time anew.
func (in PushInput) resyncTime() time.Time {
	pushed := in.Status.Agent.PushedTime
	seed := fmt.Sprintf("%s/%d", in.RegistrationID, pushed.Unix())
	return pushed.Add(in.ResyncInterval + time.Duration((token.Spread(seed)-0.5)*0.2*float64(in.ResyncInterval)))
}

// hostedLag is how long the cache may not show a Deployment that was just made.
const hostedLag = 5 * time.Second

// hostedTime is when a Deployment that the cache does not show is believed to be gone.
func (in PushInput) hostedTime() time.Time { return in.Status.Agent.PushedTime.Add(hostedLag) }

// rotationTime is when the next request for a new token is heeded. Tenants may ask
// as often as they like.
func (in PushInput) rotationTime() time.Time {
	return in.Status.Credential.IssuedTime.Add(time.Minute)
}

func (in PushInput) renewTime() time.Time {
	credential := in.Status.Credential
	return token.RenewTime(credential.IssuedTime.Time, credential.ExpirationTime.Time, in.RegistrationID)
}

// silentTime is when the silence since the last sign of life, or since the agent
// was last put right, becomes too long.
func (in PushInput) silentTime() time.Time {
	since := in.Heard
	if pushed := in.Status.Agent.PushedTime.Time; pushed.After(since) {
		since = pushed
	}
	return since.Add(SilenceLimit(in.CheckinInterval))
}

// defaultCheckinInterval is the agent's own (Fleet 0.13 to 0.16, where
// CHECKIN_INTERVAL is empty).
const defaultCheckinInterval = 15 * time.Minute

// SilenceLimit returns how long after a heartbeat an agent counts as connected.
// Zero means the default interval. Single heartbeats can get lost, since Fleet
// overwrites the status of its Clusters as a whole.
func SilenceLimit(checkin time.Duration) time.Duration {
	if checkin <= 0 {
		checkin = defaultCheckinInterval
	}
	return max(3*checkin, nextHeartbeat(checkin))
}

// nextHeartbeat returns how long the next heartbeat may take that does not get lost.
func nextHeartbeat(checkin time.Duration) time.Duration {
	if checkin <= 0 {
		checkin = defaultCheckinInterval
	}
	return checkin + 2*time.Minute
}
