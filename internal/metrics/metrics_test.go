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

package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func registration(expiry time.Time, trueConditions ...string) fleetv1.FleetRegistration {
	r := fleetv1.FleetRegistration{}
	if !expiry.IsZero() {
		r.Status.Credential.ExpirationTime = metav1.NewTime(expiry)
	}
	for _, condition := range trueConditions {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	return r
}

func listOf(registrations ...fleetv1.FleetRegistration) func(context.Context) ([]fleetv1.FleetRegistration, error) {
	return func(context.Context) ([]fleetv1.FleetRegistration, error) { return registrations, nil }
}

// orphans stands in for a management cluster with n orphaned Fleet Clusters, and one
// more service account.
func orphans(n int) func(context.Context) (Orphans, error) {
	return func(context.Context) (Orphans, error) { return Orphans{FleetClusters: n, ServiceAccounts: n + 1}, nil }
}

// clockAt is a clock that stands.
func clockAt(now time.Time) *testclock.FakePassiveClock { return testclock.NewFakePassiveClock(now) }

func TestCollectorCountsEachRegistrationInOneState(t *testing.T) {
	g := NewWithT(t)
	first := time.Unix(1_900_000_000, 0)
	deleting := registration(first.Add(time.Hour), fleetv1.ReadyCondition, fleetv1.PausedCondition)
	deleting.DeletionTimestamp = &metav1.Time{Time: first}
	failing := registration(time.Time{})
	failing.Status.Conditions = []metav1.Condition{
		{Type: fleetv1.ReadyCondition, Status: metav1.ConditionFalse},
		{Type: fleetv1.PausedCondition, Status: metav1.ConditionFalse},
	}
	c := NewCollector(clockAt(first), listOf(
		registration(time.Time{}),
		failing,
		registration(first.Add(2*time.Hour), fleetv1.ReadyCondition),
		registration(first, fleetv1.ReadyCondition),
		registration(first.Add(time.Minute), fleetv1.ReadyCondition),
		registration(time.Time{}, fleetv1.ReadyCondition, fleetv1.PausedCondition),
		deleting,
	), orphans(2))

	g.Expect(testutil.CollectAndCompare(c, strings.NewReader(`
# HELP capi_fleet_credentials_expiring Number of FleetRegistrations whose agent's credential ends within six hours, or within a third of its life where that is less, or has ended.
# TYPE capi_fleet_credentials_expiring gauge
capi_fleet_credentials_expiring 4
# HELP capi_fleet_credentials_overdue Number of FleetRegistrations whose agent's credential has less than a third of its life left. It should have been renewed when half was left.
# TYPE capi_fleet_credentials_overdue gauge
capi_fleet_credentials_overdue 4
# HELP capi_fleet_earliest_credential_expiry_timestamp_seconds Unix time in seconds at which the first of the agents' credentials ends. Missing while no agent has a credential.
# TYPE capi_fleet_earliest_credential_expiry_timestamp_seconds gauge
capi_fleet_earliest_credential_expiry_timestamp_seconds 1.9e+09
# HELP capi_fleet_orphaned_fleet_clusters Number of Fleet Clusters that were made for a FleetRegistration which is gone.
# TYPE capi_fleet_orphaned_fleet_clusters gauge
capi_fleet_orphaned_fleet_clusters 2
# HELP capi_fleet_orphaned_service_accounts Number of agents' service accounts that have neither a FleetRegistration nor a Fleet Cluster.
# TYPE capi_fleet_orphaned_service_accounts gauge
capi_fleet_orphaned_service_accounts 3
# HELP capi_fleet_registrations Number of FleetRegistrations by state: deleting, paused, ready or not_ready.
# TYPE capi_fleet_registrations gauge
capi_fleet_registrations{state="deleting"} 1
capi_fleet_registrations{state="not_ready"} 2
capi_fleet_registrations{state="paused"} 1
capi_fleet_registrations{state="ready"} 3
`))).To(Succeed())
}

func TestCollectorReportsZeroRegistrationsAndNoExpiry(t *testing.T) {
	g := NewWithT(t)

	g.Expect(testutil.CollectAndCompare(NewCollector(clockAt(time.Unix(1_900_000_000, 0)), listOf(), orphans(0)), strings.NewReader(`
# HELP capi_fleet_credentials_expiring Number of FleetRegistrations whose agent's credential ends within six hours, or within a third of its life where that is less, or has ended.
# TYPE capi_fleet_credentials_expiring gauge
capi_fleet_credentials_expiring 0
# HELP capi_fleet_credentials_overdue Number of FleetRegistrations whose agent's credential has less than a third of its life left. It should have been renewed when half was left.
# TYPE capi_fleet_credentials_overdue gauge
capi_fleet_credentials_overdue 0
# HELP capi_fleet_orphaned_fleet_clusters Number of Fleet Clusters that were made for a FleetRegistration which is gone.
# TYPE capi_fleet_orphaned_fleet_clusters gauge
capi_fleet_orphaned_fleet_clusters 0
# HELP capi_fleet_orphaned_service_accounts Number of agents' service accounts that have neither a FleetRegistration nor a Fleet Cluster.
# TYPE capi_fleet_orphaned_service_accounts gauge
capi_fleet_orphaned_service_accounts 1
# HELP capi_fleet_registrations Number of FleetRegistrations by state: deleting, paused, ready or not_ready.
# TYPE capi_fleet_registrations gauge
capi_fleet_registrations{state="deleting"} 0
capi_fleet_registrations{state="not_ready"} 0
capi_fleet_registrations{state="paused"} 0
capi_fleet_registrations{state="ready"} 0
`))).To(Succeed())
}

func TestFailingListLeavesTheScrapeIntact(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewPedanticRegistry()
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "other_total", Help: "Other."})
	failing := errors.New("not cached yet")
	registry.MustRegister(other, NewCollector(clockAt(time.Unix(1_900_000_000, 0)),
		func(context.Context) ([]fleetv1.FleetRegistration, error) { return nil, failing },
		func(context.Context) (Orphans, error) { return Orphans{}, failing },
	))

	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(families).To(HaveLen(1))
	g.Expect(families[0].GetName()).To(Equal("other_total"))
}

func TestCredentialsAreOverdueAndExpiringByTheirLife(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	for name, c := range map[string]struct {
		left, life        time.Duration
		overdue, expiring string
	}{
		"72 h, to be renewed now":        {36 * time.Hour, 72 * time.Hour, "0", "0"},
		"72 h, a third left":             {24 * time.Hour, 72 * time.Hour, "0", "0"},
		"72 h, less than a third left":   {24*time.Hour - time.Second, 72 * time.Hour, "1", "0"},
		"72 h, more than six hours left": {6*time.Hour + time.Second, 72 * time.Hour, "1", "0"},
		"72 h, six hours left":           {6 * time.Hour, 72 * time.Hour, "1", "1"},
		"72 h, ended":                    {-30 * 24 * time.Hour, 72 * time.Hour, "1", "1"},
		"1 h, just issued":               {time.Hour, time.Hour, "0", "0"},
		"1 h, to be renewed now":         {30 * time.Minute, time.Hour, "0", "0"},
		"1 h, more than a third left":    {20*time.Minute + time.Second, time.Hour, "0", "0"},
		"1 h, less than a third left":    {20*time.Minute - time.Second, time.Hour, "1", "1"},
		"1 h, ended":                     {-time.Second, time.Hour, "1", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			issued := registration(now.Add(c.left))
			issued.Status.Credential.IssuedTime = metav1.NewTime(now.Add(c.left - c.life))
			expectCredentials(t, now, issued, c.overdue, c.expiring)
		})
	}
}

func TestCredentialsOfAllStatesCount(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	expectCredentials(t, now, registration(now.Add(time.Hour), fleetv1.PausedCondition), "1", "1")
	expectCredentials(t, now, registration(now.Add(time.Hour), fleetv1.ReadyCondition), "1", "1")
	expectCredentials(t, now, registration(now.Add(7*time.Hour)), "1", "0") // of an unknown life
	expectCredentials(t, now, registration(time.Time{}), "0", "0")          // none was issued
}

func expectCredentials(t *testing.T, now time.Time, one fleetv1.FleetRegistration, overdue, expiring string) {
	t.Helper()
	NewWithT(t).Expect(testutil.CollectAndCompare(NewCollector(clockAt(now), listOf(one), orphans(0)), strings.NewReader(`
# HELP capi_fleet_credentials_expiring Number of FleetRegistrations whose agent's credential ends within six hours, or within a third of its life where that is less, or has ended.
# TYPE capi_fleet_credentials_expiring gauge
capi_fleet_credentials_expiring `+expiring+`
# HELP capi_fleet_credentials_overdue Number of FleetRegistrations whose agent's credential has less than a third of its life left. It should have been renewed when half was left.
# TYPE capi_fleet_credentials_overdue gauge
capi_fleet_credentials_overdue `+overdue+`
`), "capi_fleet_credentials_expiring", "capi_fleet_credentials_overdue")).To(Succeed())
}

func TestPushesAreCountedByOutcome(t *testing.T) {
	g := NewWithT(t)
	pushed := testutil.ToFloat64(pushes)
	failed := testutil.ToFloat64(pushFailures.WithLabelValues(fleetv1.ConnectionFailedReason))

	Pushed()
	PushFailed(fleetv1.ConnectionFailedReason)
	PushFailed(fleetv1.ConnectionFailedReason)

	g.Expect(testutil.ToFloat64(pushes)).To(Equal(pushed + 1))
	g.Expect(testutil.ToFloat64(pushFailures.WithLabelValues(fleetv1.ConnectionFailedReason))).To(Equal(failed + 2))
}

func TestUnknownDurationsAreNotObserved(t *testing.T) {
	g := NewWithT(t)
	answerCount, answerSum := histogram(g, apiAnswerToRegistered)
	selectedCount, selectedSum := histogram(g, selectionToRegistered)

	ObserveRegistered(250*time.Millisecond, 4*time.Second)
	ObserveRegistered(-1, 2*time.Second)

	count, sum := histogram(g, apiAnswerToRegistered)
	g.Expect(count - answerCount).To(Equal(uint64(1)))
	g.Expect(sum - answerSum).To(BeNumerically("~", 0.25, 1e-9))
	count, sum = histogram(g, selectionToRegistered)
	g.Expect(count - selectedCount).To(Equal(uint64(2)))
	g.Expect(sum - selectedSum).To(BeNumerically("~", 6, 1e-9))
}

func histogram(g *WithT, h prometheus.Histogram) (count uint64, sum float64) {
	m := &dto.Metric{}
	g.Expect(h.Write(m)).To(Succeed())
	return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
}

func TestNamesAndHelpTextsFollowTheConventionsOfPrometheus(t *testing.T) {
	g := NewWithT(t)
	Pushed()
	PushFailed(fleetv1.ConnectionFailedReason)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(
		NewCollector(clockAt(time.Unix(1_900_000_000, 0)), listOf(registration(time.Unix(1_900_000_000, 0))), orphans(1)),
		apiAnswerToRegistered, selectionToRegistered, pushes, pushFailures,
	)

	problems, err := testutil.GatherAndLint(registry)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).To(BeEmpty())
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(families).To(HaveLen(10))
}

func TestMetricsAreInTheRegistryThatTheManagerServes(t *testing.T) {
	g := NewWithT(t)
	PushFailed(fleetv1.ConnectionFailedReason)

	count, err := testutil.GatherAndCount(ctrlmetrics.Registry,
		"capi_fleet_api_answer_to_registered_seconds",
		"capi_fleet_selection_to_registered_seconds",
		"capi_fleet_pushes_total",
		"capi_fleet_push_failures_total")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(count).To(BeNumerically(">=", 4))
}
