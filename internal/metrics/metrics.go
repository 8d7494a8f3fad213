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

// Package metrics holds the Prometheus metrics of capi-fleet, beside those that
// controller-runtime has. They are registered with controller-runtime's registry,
// which the manager serves. The controllers report to it what they did; the
// manager registers the collector that counts registrations. It never asks an API
// server for anything.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// prefix begins the name of every metric.
const prefix = "capi_fleet"

// joinBuckets are the upper bounds, in seconds, for the time that a cluster takes
// to join: 50 ms to 10 min.
var joinBuckets = []float64{
	0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600,
}

var (
	apiAnswerToRegistered = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: prefix,
		Name:      "api_answer_to_registered_seconds",
		Help: "Seconds from the first answer of a workload cluster's API server " +
			"until the agent was in place there, once for each new registration.",
		Buckets: joinBuckets,
	})

	selectionToRegistered = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: prefix,
		Name:      "selection_to_registered_seconds",
		Help: "Seconds from the selection of a Cluster until the agent was in place " +
			"in its workload cluster, once for each new registration.",
		Buckets: joinBuckets,
	})

	pushes = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: prefix,
		Name:      "pushes_total",
		Help:      "Number of times that the agent or its credential was written into a workload cluster.",
	})

	pushFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: prefix,
		Name:      "push_failures_total",
		Help: "Number of times that writing the agent or its credential into a " +
			"workload cluster failed, by the reason that the condition gives.",
	}, []string{"reason"})
)

func init() {
	ctrlmetrics.Registry.MustRegister(apiAnswerToRegistered, selectionToRegistered, pushes, pushFailures)
}

// Pushed counts one successful push: the agent or its credential was written into
// a workload cluster.
func Pushed() {
	pushes.Inc()
}

// PushFailed counts one failed push. The reason is one of the constants for
// conditions in api/v1alpha1, never text from a workload cluster: each value makes
// a time series that stays.
func PushFailed(reason string) {
	pushFailures.WithLabelValues(reason).Inc()
}

// ObserveRegistered records how long one new registration took: since the API
// server of the workload cluster first answered, and since the Cluster was
// selected. A negative duration means unknown, as for the first after a restart of
// the manager, and is left out.
func ObserveRegistered(apiAnswered, selected time.Duration) {
	observe(apiAnswerToRegistered, apiAnswered)
	observe(selectionToRegistered, selected)
}

func observe(histogram prometheus.Observer, d time.Duration) {
	if d < 0 {
		return
	}
	histogram.Observe(d.Seconds())
}
