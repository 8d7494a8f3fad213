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

package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// meter measures what the manager uses from its start on.
type meter struct {
	light *light
	began time.Time
	mark  kube.Mark
	cpu   float64
	dials int
	others
}

// usage is what the manager used between the start of a meter and its reading.
type usage struct {
	elapsed time.Duration
	// cpu is in seconds, rss and heap are in MiB. The heap is what Go has for it, with
	// what is not collected yet.
	cpu, rss, heap float64
	// requests and writes are those on the management cluster.
	requests, writes []kube.Event
	// dials is the number of connections to workload clusters.
	dials int
	others
}

const mebibyte = 1 << 20

func (l *light) startMeter(ctx context.Context) (*meter, error) {
	mark, err := l.Management().AuditLog().Mark(ctx)
	if err != nil {
		return nil, err
	}
	m := &meter{light: l, mark: mark, dials: l.dials()}
	if m.others, err = l.others(); err != nil {
		return nil, err
	}
	if l.manager != nil && l.manager.Running() {
		metrics, err := l.manager.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		m.cpu = metric(metrics, "process_cpu_seconds_total")
	}
	m.began = time.Now()
	return m, nil
}

func (m *meter) read(ctx context.Context) (*usage, error) {
	u := &usage{elapsed: time.Since(m.began), dials: m.light.dials() - m.dials}
	now, err := m.light.others()
	if err != nil {
		return nil, err
	}
	u.server, u.harness = now.server-m.server, now.harness-m.harness
	metrics, err := m.light.manager.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	u.cpu = metric(metrics, "process_cpu_seconds_total") - m.cpu
	u.rss = metric(metrics, "process_resident_memory_bytes") / mebibyte
	u.heap = metric(metrics, "go_memstats_heap_inuse_bytes") / mebibyte
	events, err := m.light.Management().AuditLog().Since(ctx, m.mark)
	if err != nil {
		return nil, err
	}
	u.requests = requests(events)
	u.writes = kube.Writes(u.requests)
	return u, nil
}

// dials counts the connections that workload clusters have accepted.
func (l *light) dials() int {
	total := 0
	for _, w := range l.Workloads() {
		accepted, _ := w.Light().Connections()
		total += accepted
	}
	return total
}

// metric adds up the values of all labels.
func metric(families map[string]*dto.MetricFamily, name string) float64 {
	var sum float64
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
	}
	return sum
}

// byManager tells the manager by its user agent.
func byManager(userAgent string) bool { return strings.Contains(userAgent, " capi-fleet (") }

// requests returns what the manager asked for, also in the names of the agents, whose tokens
// it tries. The second event of a watch, which comes when it ends, is left out.
func requests(events []kube.Event) []kube.Event {
	return slices.DeleteFunc(events, func(e kube.Event) bool {
		return !byManager(e.UserAgent) || e.Verb == "watch" && e.Stage != "ResponseStarted"
	})
}

// kind is a kind of request or object, by its name.
type kind struct {
	name  string
	count int
}

// kinds counts requests by verb and resource, the most frequent first.
func kinds(events []kube.Event) []kind {
	names := make([]string, 0, len(events))
	for _, e := range events {
		resource := e.Resource
		if e.Group != "" {
			resource += "." + e.Group
		}
		if e.Subresource != "" {
			resource += "/" + e.Subresource
		}
		names = append(names, e.Verb+" "+resource)
	}
	return tally(names)
}

// tally counts equal names, the most frequent first.
func tally(names []string) []kind {
	counts := map[string]int{}
	for _, name := range names {
		counts[name]++
	}
	list := make([]kind, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, kind{name, counts[name]})
	}
	slices.SortStableFunc(list, func(a, b kind) int { return cmp.Compare(b.count, a.count) })
	return list
}
