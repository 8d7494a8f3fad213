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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// listTimeout bounds the listing of one scrape.
const listTimeout = 5 * time.Second

// expiringWithin is how soon a credential ends that counts as expiring, unless a third of
// its life is less.
const expiringWithin = 6 * time.Hour

// unknownLife stands for the life of a credential that does not say when it was issued.
const unknownLife = 72 * time.Hour

// The states of a registration. Each registration counts in the first that fits,
// from top to bottom.
const (
	stateDeleting = "deleting"
	statePaused   = "paused"
	stateReady    = "ready"
	stateNotReady = "not_ready"
)

var states = []string{stateDeleting, statePaused, stateReady, stateNotReady}

// collector looks at all registrations and orphans whenever it is scraped.
type collector struct {
	clock          clock.PassiveClock
	list           func(context.Context) ([]fleetv1.FleetRegistration, error)
	count          func(context.Context) (Orphans, error)
	registrations  *prometheus.Desc
	earliestExpiry *prometheus.Desc
	overdue        *prometheus.Desc
	expiring       *prometheus.Desc
	fleetClusters  *prometheus.Desc
	accounts       *prometheus.Desc
}

// Orphans are numbers of objects whose FleetRegistration is gone.
type Orphans struct {
	FleetClusters, ServiceAccounts int
}

// NewCollector returns a collector of the number of registrations by state, of the
// ends of their credentials, and of the number of orphans. At each
// scrape it calls registrations and orphans, which have five seconds together and
// should read from a cache; what they return is only read. What one of them fails to
// give is left out of that scrape, and the other metrics are served all the same. The
// caller registers the collector.
func NewCollector(
	now clock.PassiveClock,
	registrations func(context.Context) ([]fleetv1.FleetRegistration, error),
	orphans func(context.Context) (Orphans, error),
) prometheus.Collector {
	return &collector{
		clock: now,
		list:  registrations,
		count: orphans,
		registrations: prometheus.NewDesc(
			prometheus.BuildFQName(prefix, "", "registrations"),
			"Number of FleetRegistrations by state: deleting, paused, ready or not_ready.",
			[]string{"state"}, nil),
		earliestExpiry: prometheus.NewDesc(
			prometheus.BuildFQName(prefix, "", "earliest_credential_expiry_timestamp_seconds"),
			"Unix time in seconds at which the first of the agents' credentials ends. "+
				"Missing while no agent has a credential.",
			nil, nil),
		overdue: prometheus.NewDesc(
			prometheus.BuildFQName(prefix, "", "credentials_overdue"),
			"Number of FleetRegistrations whose agent's credential has less than a third of its life left. "+
				"It should have been renewed when half was left.",
			nil, nil),
		expiring: prometheus.NewDesc(
			prometheus.BuildFQName(prefix, "", "credentials_expiring"),
			"Number of FleetRegistrations whose agent's credential ends within six hours, "+
				"or within a third of its life where that is less, or has ended.",
			nil, nil),
		fleetClusters: prometheus.NewDesc(
			prometheus.BuildFQName(prefix, "", "orphaned_fleet_clusters"),
			"Number of Fleet Clusters that were made for a FleetRegistration which is gone.",
			nil, nil),
		accounts: prometheus.NewDesc(
			prometheus.BuildFQName(prefix, "", "orphaned_service_accounts"),
			"Number of agents' service accounts that have neither a FleetRegistration nor a Fleet Cluster.",
			nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.registrations
	ch <- c.earliestExpiry
	ch <- c.overdue
	ch <- c.expiring
	ch <- c.fleetClusters
	ch <- c.accounts
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	if orphans, err := c.count(ctx); err == nil {
		ch <- prometheus.MustNewConstMetric(c.fleetClusters, prometheus.GaugeValue, float64(orphans.FleetClusters))
		ch <- prometheus.MustNewConstMetric(c.accounts, prometheus.GaugeValue, float64(orphans.ServiceAccounts))
	}
	if registrations, err := c.list(ctx); err == nil {
		c.collectRegistrations(ch, registrations)
	}
}

func (c *collector) collectRegistrations(ch chan<- prometheus.Metric, registrations []fleetv1.FleetRegistration) {
	counts := map[string]int{}
	var earliest time.Time
	overdue, expiring, now := 0, 0, c.clock.Now()
	for i := range registrations {
		registration := &registrations[i]
		counts[state(registration)]++
		credential := registration.Status.Credential
		expiry := credential.ExpirationTime.Time
		if expiry.IsZero() {
			continue
		}
		if earliest.IsZero() || expiry.Before(earliest) {
			earliest = expiry
		}
		life := unknownLife
		if !credential.IssuedTime.IsZero() {
			life = expiry.Sub(credential.IssuedTime.Time)
		}
		left := expiry.Sub(now)
		if left < life/3 {
			overdue++
		}
		if left <= min(expiringWithin, life/3) {
			expiring++
		}
	}
	for _, s := range states {
		ch <- prometheus.MustNewConstMetric(c.registrations, prometheus.GaugeValue, float64(counts[s]), s)
	}
	ch <- prometheus.MustNewConstMetric(c.overdue, prometheus.GaugeValue, float64(overdue))
	ch <- prometheus.MustNewConstMetric(c.expiring, prometheus.GaugeValue, float64(expiring))
	if !earliest.IsZero() {
		ch <- prometheus.MustNewConstMetric(c.earliestExpiry, prometheus.GaugeValue, float64(earliest.Unix()))
	}
}

func state(registration *fleetv1.FleetRegistration) string {
	conditions := registration.Status.Conditions
	switch {
	case !registration.DeletionTimestamp.IsZero():
		return stateDeleting
	case meta.IsStatusConditionTrue(conditions, fleetv1.PausedCondition):
		return statePaused
	case meta.IsStatusConditionTrue(conditions, fleetv1.ReadyCondition):
		return stateReady
	default:
		return stateNotReady
	}
}
