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
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/token"
)

// registered is what is known of an agent that was put in place at epoch, with a
// token for three days, and reported a minute later.
func registered() PushInput {
	return PushInput{
		Now:            epoch.Add(2 * time.Minute),
		RegistrationID: "one",
		Revision:       "r1",
		Heard:          epoch.Add(time.Minute),
		AccountUID:     "account",
		Status: &fleetv1.FleetRegistrationStatus{
			NamespaceUID: "uid",
			Agent:        fleetv1.AgentStatus{Revision: "r1", NamespaceUID: "uid", PushedTime: metav1.NewTime(epoch)},
			Credential: fleetv1.CredentialStatus{
				IssuedTime:     metav1.NewTime(epoch),
				ExpirationTime: metav1.NewTime(epoch.Add(72 * time.Hour)),

				ServiceAccountUID: "account",
			},
		},
	}
}

func TestPushFindsTheReason(t *testing.T) {
	never := func(in *PushInput) { in.Status.Agent = fleetv1.AgentStatus{} }
	replaced := func(in *PushInput) { in.Status.NamespaceUID = "other" }
	revised := func(in *PushInput) { in.Revision = "r2" }
	due := func(in *PushInput) { in.Status.Credential.IssuedTime.Time = in.Now.Add(-70 * time.Hour) }
	silent := func(in *PushInput) {
		in.Heard = in.Now.Add(-time.Hour)
		in.Status.Agent.PushedTime.Time = in.Now.Add(-time.Hour)
	}
	deployed := func(reason string) func(*PushInput) {
		return func(in *PushInput) {
			in.Status.Conditions = []metav1.Condition{{Type: fleetv1.AgentDeployedCondition, Status: metav1.ConditionFalse, Reason: reason}}
		}
	}
	unwell := deployed(fleetv1.AgentCrashLoopingReason)
	updated := func(in *PushInput) { in.Status.Agent.UpdatedTime = metav1.NewTime(in.Now) }
	unheard := func(in *PushInput) {
		in.Heard = time.Time{}
		in.Status.Agent.PushedTime.Time = in.Now.Add(-StartTime + time.Nanosecond)
	}
	started := func(in *PushInput) { in.Status.Agent.PushedTime.Time = in.Now.Add(-StartTime) }
	looked := func(in *PushInput) { in.NextCheck = in.Now.Add(time.Second) }
	type changes = []func(*PushInput)
	for _, tt := range []struct {
		name    string
		changes changes
		want    PushReason
	}{
		{"at rest", nil, ""},
		{"never deployed", changes{never}, NotDeployed},
		{"namespace replaced", changes{replaced}, NamespaceReplaced},
		{"revision changed", changes{revised}, RevisionChanged},
		{"credential due", changes{due}, CredentialDue},
		{"account made anew", changes{func(in *PushInput) { in.AccountUID = "new" }}, AccountReplaced},
		{"account not known", changes{func(in *PushInput) { in.Status.Credential.ServiceAccountUID = ""; in.AccountUID = "new" }}, ""},
		{"account not in the cache", changes{func(in *PushInput) { in.AccountUID = "" }}, ""},
		{"resync due", changes{func(in *PushInput) { in.ResyncInterval = time.Minute }}, ResyncDue},
		{"resync not due", changes{func(in *PushInput) { in.ResyncInterval = 3 * time.Minute }}, ""},
		{"resync due, and silent", changes{silent, func(in *PushInput) { in.ResyncInterval = time.Minute }}, AgentSilent},
		{"no credential known", changes{func(in *PushInput) { in.Status.Credential = fleetv1.CredentialStatus{} }}, CredentialDue},
		{"silent", changes{silent}, AgentSilent},
		{"changed", changes{updated}, HealthDue},
		{"changed and looked at a moment ago", changes{updated, looked}, ""},
		{"not well", changes{unwell}, HealthDue},
		{"not well, and looked at a moment ago", changes{unwell, looked}, ""},
		{"not well, and silent", changes{unwell, silent}, AgentSilent},
		{"never reported, and had its time", changes{unheard, started}, HealthDue},
		{"never reported, but may yet", changes{unheard}, ""},
		{"never reported, and looked at a moment ago", changes{unheard, started, looked}, ""},
		{"never reported, and not well", changes{unheard, unwell}, HealthDue},
		{"stopped reporting, and was put right a minute ago", changes{silent, started}, HealthDue},
		{"refused", changes{deployed(fleetv1.ObjectRejectedReason), looked}, VisitFailed},
		{"all at once", changes{silent, due, revised, replaced, never}, NotDeployed},
		{"all but the first", changes{silent, due, revised, replaced}, NamespaceReplaced},
		{"the last three", changes{silent, due, revised}, RevisionChanged},
		{"the last two", changes{silent, due}, CredentialDue},
		{"after a move", changes{func(in *PushInput) { in.Status = &fleetv1.FleetRegistrationStatus{} }}, NotDeployed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := registered()
			for _, change := range tt.changes {
				change(&in)
			}
			NewWithT(t).Expect(Push(in)).To(Equal(tt.want))
		})
	}
}

func TestATokenIsRenewedBetweenAThirdAndAHalfOfItsLife(t *testing.T) {
	seen := map[time.Time]bool{}
	for _, id := range []string{"one", "two", "three", "four", "five"} {
		g := NewWithT(t)
		in := registered()
		in.RegistrationID = id
		in.CheckinInterval = 1000 * time.Hour // Silence is no matter here.
		at := NextPush(in)
		g.Expect(at).To(BeTemporally(">=", epoch.Add(24*time.Hour)))
		g.Expect(at).To(BeTemporally("<=", epoch.Add(36*time.Hour)))
		in.Now = at.Add(-time.Nanosecond)
		g.Expect(Push(in)).To(BeEmpty())
		in.Now = at
		g.Expect(Push(in)).To(Equal(CredentialDue))
		seen[at] = true
	}
	NewWithT(t).Expect(seen).To(HaveLen(5), "tokens that were issued together are renewed at different times")
}

func TestAnAgentIsVisitedWhenItWasSilentForTooLong(t *testing.T) {
	limit := 45 * time.Minute
	for _, tt := range []struct {
		name         string
		seen, pushed time.Time
		silentFrom   time.Time
		checkin      time.Duration
	}{
		{name: "counted from the heartbeat", seen: epoch.Add(time.Hour), pushed: epoch, silentFrom: epoch.Add(time.Hour + limit)},
		{name: "counted from the push before the first heartbeat", pushed: epoch, silentFrom: epoch.Add(limit)},
		{name: "counted from the push that was to mend it", seen: epoch, pushed: epoch.Add(time.Hour), silentFrom: epoch.Add(time.Hour + limit)},
		{name: "by the interval of the agent", seen: epoch.Add(time.Hour), pushed: epoch, checkin: 30 * time.Second, silentFrom: epoch.Add(time.Hour + 150*time.Second)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			in := registered()
			in.Heard, in.Status.Agent.PushedTime.Time, in.CheckinInterval = tt.seen, tt.pushed, tt.checkin
			in.NextCheck = epoch.Add(24 * time.Hour) // Looks at its pod are no matter here.
			g.Expect(NextPush(in)).To(Equal(tt.silentFrom))
			in.Now = tt.silentFrom.Add(-time.Nanosecond)
			g.Expect(Push(in)).To(BeEmpty())
			in.Now = tt.silentFrom
			g.Expect(Push(in)).To(Equal(AgentSilent))
		})
	}
}

// A manager that was restarted remembers no look at all: what is not yet time for one must
// follow from the status, or as many are dialled as have just joined.
func TestAnAgentThatNeverReportedIsLookedAtAsSoonAsItHadItsTime(t *testing.T) {
	g := NewWithT(t)
	in := registered()
	in.Heard = time.Time{}
	g.Expect(NextPush(in)).To(Equal(epoch.Add(StartTime)))
	in.NextCheck = epoch.Add(StartTime + time.Minute)
	g.Expect(NextPush(in)).To(Equal(in.NextCheck))
	in.Heard = epoch.Add(time.Minute)
	g.Expect(NextPush(in)).To(Equal(epoch.Add(time.Minute+SilenceLimit(0))), "one that reports is left alone")
}

func TestSilenceLimit(t *testing.T) {
	for _, tt := range []struct{ checkin, want time.Duration }{
		{0, 45 * time.Minute},
		{-time.Second, 45 * time.Minute},
		{time.Second, 2*time.Minute + time.Second},
		{time.Minute, 3 * time.Minute},
		{2 * time.Minute, 6 * time.Minute},
		{time.Hour, 3 * time.Hour},
	} {
		NewWithT(t).Expect(SilenceLimit(tt.checkin)).To(Equal(tt.want), "%s", tt.checkin)
	}
}

func TestResyncsAreSpreadAndFoundInTime(t *testing.T) {
	seen := map[time.Time]bool{}
	for _, id := range []string{"one", "two", "three", "four", "five"} {
		g := NewWithT(t)
		in := registered()
		in.RegistrationID, in.ResyncInterval = id, 10*time.Hour
		in.CheckinInterval = 1000 * time.Hour // Silence is no matter here.
		at := NextPush(in)
		g.Expect(at).To(BeTemporally("~", epoch.Add(10*time.Hour), time.Hour))
		in.Now = at.Add(-time.Nanosecond)
		g.Expect(Push(in)).To(BeEmpty())
		in.Now = at
		g.Expect(Push(in)).To(Equal(ResyncDue))
		seen[at] = true

		in.Status.Agent.PushedTime = metav1.NewTime(at)
		g.Expect(NextPush(in)).NotTo(BeTemporally("==", at.Add(at.Sub(epoch))), "spread anew each time")
	}
	NewWithT(t).Expect(seen).To(HaveLen(5))
}

func TestATokenIsKeptForAsLongAsItIsGood(t *testing.T) {
	good := token.Claims{Subject: "system:serviceaccount:a:b", AccountUID: "account", Issued: epoch, Expires: epoch.Add(72 * time.Hour)}
	for _, tt := range []struct {
		name   string
		change func(*PushInput, *token.Claims)
		kept   bool
	}{
		{"good", func(*PushInput, *token.Claims) {}, true},
		{"found again after the status was lost", func(in *PushInput, _ *token.Claims) {
			in.Status.Credential, in.Rotation = fleetv1.CredentialStatus{}, "asked before"
		}, true},
		{"account not known", func(in *PushInput, _ *token.Claims) { in.AccountUID = "" }, true},
		{"of another account", func(_ *PushInput, c *token.Claims) { c.Subject = "system:serviceaccount:a:c" }, false},
		{"of an account that is gone", func(_ *PushInput, c *token.Claims) { c.AccountUID = "old" }, false},
		{"due", func(_ *PushInput, c *token.Claims) {
			c.Expires = epoch.Add(time.Hour)
			c.Issued = epoch.Add(-time.Hour)
		}, false},
		{"expired", func(_ *PushInput, c *token.Claims) {
			c.Expires = epoch.Add(-time.Hour)
			c.Issued = epoch.Add(-2 * time.Hour)
		}, false},
		{"asked for", func(in *PushInput, _ *token.Claims) { in.Rotation = "now" }, false},
		{"asked for too soon", func(in *PushInput, _ *token.Claims) { in.Rotation, in.Now = "now", epoch.Add(time.Second) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in, claims := registered(), good
			tt.change(&in, &claims)
			NewWithT(t).Expect(KeepsToken(in, claims, good.Subject)).To(Equal(tt.kept))
		})
	}
}
