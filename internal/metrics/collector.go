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

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// listTimeout bounds the listing of one scrape.
const listTimeout = 5 * time.Second

// The states of a registration. Each registration counts in the first that fits,
// from top to bottom.
const (
	stateDeleting = "deleting"
	statePaused   = "paused"
	stateReady    = "ready"
	stateNotReady = "not_ready"
)

var states = []string{stateDeleting, statePaused, stateReady, stateNotReady}

// collector looks at all registrations whenever it is scraped.
type collector struct {
	list           func(context.Context) ([]fleetv1.FleetRegistration, error)
	registrations  *prometheus.Desc
	earliestExpiry *prometheus.Desc
}

// NewCollector returns a collector of the number of registrations by state and of
// the earliest end of a credential. At each scrape it calls list, which has five
// seconds and should read from a cache; what it returns is only read. When list
// fails the collector yields nothing for that scrape, and the other metrics are
// served all the same. The caller registers the collector.
func NewCollector(list func(context.Context) ([]fleetv1.FleetRegistration, error)) prometheus.Collector {
	return &collector{
		list: list,
		registrations: prometheus.NewDesc(
			prometheus.BuildFQName(prefix, "", "registrations"),
			"Number of FleetRegistrations by state: deleting, paused, ready or not_ready.",
			[]string{"state"}, nil),
		earliestExpiry: prometheus.NewDesc(
			prometheus.BuildFQName(prefix, "", "earliest_credential_expiry_timestamp_seconds"),
			"Unix time in seconds at which the first of the agents' credentials ends. "+
				"Missing while no agent has a credential.",
			nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.registrations
	ch <- c.earliestExpiry
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	registrations, err := c.list(ctx)
	if err != nil {
		return
	}

	counts := map[string]int{}
	var earliest time.Time
	for i := range registrations {
		registration := &registrations[i]
		counts[state(registration)]++
		expiry := registration.Status.Credential.ExpirationTime.Time
		if !expiry.IsZero() && (earliest.IsZero() || expiry.Before(earliest)) {
			earliest = expiry
		}
	}
	for _, s := range states {
		ch <- prometheus.MustNewConstMetric(c.registrations, prometheus.GaugeValue, float64(counts[s]), s)
	}
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
