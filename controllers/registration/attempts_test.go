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
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
)

func TestARetryWaitsTwiceAsLongEachTimeUpToItsLimit(t *testing.T) {
	for _, limit := range []time.Duration{youngRetryCap, oldRetryCap} {
		g := NewWithT(t)
		a := &attempt{}
		want := firstRetry
		for range 100 {
			delay := a.failed(epoch, 0, limit)
			g.Expect(delay).To(BeNumerically(">=", want*8/10))
			g.Expect(delay).To(BeNumerically("<=", want*12/10))
			g.Expect(a.wait("", epoch)).To(Equal(delay))
			g.Expect(a.wait("", epoch.Add(delay))).To(BeZero())
			g.Expect(a.wait("", epoch.Add(time.Hour))).To(BeZero())
			want = min(limit, 2*want)
		}
	}
}

func TestRetriesOfManyClustersAreSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		seen[(&attempt{}).failed(epoch, 0, youngRetryCap)] = true
	}
	NewWithT(t).Expect(len(seen)).To(BeNumerically(">", 10))
}

func TestTheMoreAreWaitedForTheLongerEachWaits(t *testing.T) {
	const seconds = 10
	for _, tt := range []struct{ clusters, fewest, most int }{
		{1, 4, 5},
		{10, 45, 50},
		{100, 190, 210},
		{1000, 950, 1050},
	} {
		t.Run(strconv.Itoa(tt.clusters), func(t *testing.T) {
			var all attempts
			next := make([]time.Time, tt.clusters)
			tries := 0
			for at := epoch; at.Before(epoch.Add(2 * seconds * time.Second)); at = at.Add(time.Millisecond) {
				for i := range next {
					if next[i].After(at) {
						continue
					}
					next[i] = at.Add(all.eagerPause(at))
					if !at.Before(epoch.Add(seconds * time.Second)) {
						tries++
					}
				}
			}
			g := NewWithT(t)
			g.Expect(tries / seconds).To(BeNumerically(">=", tt.fewest))
			g.Expect(tries / seconds).To(BeNumerically("<=", tt.most))
		})
	}
}

func TestNobodyWaitsForAClockThatWasSetBack(t *testing.T) {
	g := NewWithT(t)
	var all attempts
	for range 1000 {
		all.eagerPause(epoch.Add(time.Hour))
	}
	g.Expect(all.eagerPause(epoch)).To(Equal(eagerRetryFloor))
}

func TestAHintMakesTheNextTryDueAndStartsAnew(t *testing.T) {
	g := NewWithT(t)
	a := &attempt{}
	g.Expect(a.wait("old", epoch)).To(BeZero())
	for range 10 {
		a.failed(epoch, 0, oldRetryCap)
	}
	g.Expect(a.wait("old", epoch)).To(BeNumerically(">", time.Minute))

	g.Expect(a.wait("new", epoch)).To(BeZero())
	g.Expect(a.failed(epoch, 0, oldRetryCap)).To(BeNumerically("<", time.Second))
	g.Expect(a.wait("new", epoch)).NotTo(BeZero(), "the same hint is no news")
}

func TestTheSecretIsReadNowAndThenAlthoughTheEndpointIsSilent(t *testing.T) {
	g := NewWithT(t)
	a := &attempt{}
	var reads []time.Duration
	for at := time.Duration(0); at < 100*time.Second; at += time.Second {
		if a.slowDue(epoch.Add(at)) {
			reads = append(reads, at)
		}
	}
	g.Expect(reads).To(Equal([]time.Duration{30 * time.Second, 60 * time.Second, 90 * time.Second}))
}

func TestAttemptsAreKeptByCluster(t *testing.T) {
	g := NewWithT(t)
	var all attempts
	one, two := types.NamespacedName{Namespace: "a", Name: "x"}, types.NamespacedName{Namespace: "b", Name: "x"}
	all.get(one).failed(epoch, 0, youngRetryCap)
	g.Expect(all.get(one).failures).To(Equal(1))
	g.Expect(all.get(two).failures).To(BeZero())

	all.forget(one)
	g.Expect(all.get(one).failures).To(BeZero())
}

func TestATryThatHangsRestsForTenTimesAsLong(t *testing.T) {
	g := NewWithT(t)
	a := &attempt{}
	delay := a.failed(epoch, 10*time.Second, oldRetryCap)
	g.Expect(delay).To(BeNumerically("~", 100*time.Second, 20*time.Second))
	g.Expect(a.wait("", epoch)).To(Equal(delay))
	g.Expect(a.failed(epoch, 30*time.Second, oldRetryCap)).To(BeNumerically("<=", oldRetryCap*12/10))
}

func TestTheRevisionFollowsEveryChangeOfItsInput(t *testing.T) {
	g := NewWithT(t)
	a := &attempt{}
	input := agent.Input{RegistrationID: "id", ClusterNamespace: "one", TokenDir: "/a", Agent: fleetv1.AgentSpec{Image: "fleet-agent:1"}}
	first := a.revisionOf(input)
	g.Expect(first).To(Equal(agent.Revision(input)))
	g.Expect(a.revisionOf(input)).To(Equal(first))

	for _, change := range []func(*agent.Input){
		func(in *agent.Input) { in.Agent.Image = "fleet-agent:2" },
		func(in *agent.Input) { in.Agent.NodeSelector = map[string]fleetv1.LabelValue{"a": "b"} },
		func(in *agent.Input) { in.ClusterNamespace = "two" },
		func(in *agent.Input) { in.TokenDir = "/b" },
		func(in *agent.Input) { in.Agent.Placement = fleetv1.PlacementManagement },
	} {
		before := a.revisionOf(input)
		change(&input)
		g.Expect(a.revisionOf(input)).To(Equal(agent.Revision(input)))
		g.Expect(a.revisionOf(input)).NotTo(Equal(before))
	}
}

func TestAYoungClusterIsTriedOftenUnlessItWasRegisteredAndHangs(t *testing.T) {
	for name, tc := range map[string]struct {
		revision string
		took     time.Duration
		want     time.Duration
	}{
		"not registered, drops packets": {"", 2 * time.Second, firstRetry},
		"registered, refuses":           {"r1", 0, firstRetry},
		"registered, hangs":             {"r1", 10 * time.Second, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := &Reconciler{Clock: testclock.NewFakePassiveClock(epoch.Add(tc.took))}
			s := &scope{
				now: epoch, attempt: &attempt{}, registration: &fleetv1.FleetRegistration{},
				cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(epoch)}},
			}
			s.registration.Status.Agent.Revision = tc.revision
			g.Expect(r.failedVisit(s)).To(BeNumerically("~", tc.want, tc.want/5))
		})
	}
}
