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

package release

import (
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/metrics"
)

// described finds the name and the labels of a metric in the text of its description,
// which has no other way to tell them.
var described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// registered returns the labels of every metric that the manager serves, by name.
func registered(g *WithT) map[string][]string {
	registry, ok := ctrlmetrics.Registry.(prometheus.Collector)
	g.Expect(ok).To(BeTrue(), "the registry cannot be asked what it holds")
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		registry.Describe(descriptions)
		collector().Describe(descriptions)
	}()
	labels := map[string][]string{}
	for description := range descriptions {
		match := described.FindStringSubmatch(description.String())
		if match == nil {
			continue
		}
		labels[match[1]] = nil
		if match[2] != "" {
			labels[match[1]] = strings.Split(match[2], ",")
		}
	}
	g.Expect(labels).To(HaveKey("capi_fleet_pushes_total"))
	return labels
}

// collector is the manager's collector, without any registration.
func collector() prometheus.Collector {
	return metrics.NewCollector(clock.RealClock{},
		func(context.Context) ([]fleetv1.FleetRegistration, error) { return nil, nil },
		func(context.Context) (metrics.Orphans, error) { return metrics.Orphans{}, nil })
}

// rule is one alert.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func readRules(g *WithT, t *testing.T) []rule {
	t.Helper()
	file := struct {
		Spec struct {
			Groups []struct {
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}{}
	g.Expect(yaml.Unmarshal(readFile(t, "config/prometheus/rules.yaml"), &file)).To(Succeed())
	var rules []rule
	for _, group := range file.Spec.Groups {
		rules = append(rules, group.Rules...)
	}
	g.Expect(rules).NotTo(BeEmpty())
	return rules
}

// readQueries returns the queries of the dashboard.
func readQueries(g *WithT, t *testing.T) []string {
	t.Helper()
	dashboard := struct {
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}{}
	g.Expect(json.Unmarshal(readFile(t, "config/prometheus/dashboard.json"), &dashboard)).To(Succeed())
	var queries []string
	ids := map[int]bool{}
	for _, panel := range dashboard.Panels {
		g.Expect(ids).NotTo(HaveKey(panel.ID))
		ids[panel.ID] = true
		g.Expect(panel.Targets).NotTo(BeEmpty(), panel.Title)
		for _, target := range panel.Targets {
			queries = append(queries, target.Expr)
		}
	}
	return queries
}

var (
	matchers = regexp.MustCompile(`\{[^}]*\}`)
	matcher  = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	ranges   = regexp.MustCompile(`\[[^\]]*\]`)
	word     = regexp.MustCompile(`[a-z][a-z0-9_]*\s*\(?`)
)

// metricsOf returns the metrics that a query names, and the labels.
func metricsOf(query string) (names, labels []string) {
	for _, match := range matcher.FindAllStringSubmatch(query, -1) {
		labels = append(labels, match[1])
	}
	for _, match := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(match[1], ",") {
			labels = append(labels, strings.TrimSpace(label))
		}
	}
	for _, pattern := range []*regexp.Regexp{matchers, grouping, ranges} {
		query = pattern.ReplaceAllString(query, "")
	}
	for _, found := range word.FindAllString(query, -1) {
		if !strings.HasSuffix(found, "(") {
			names = append(names, strings.TrimSpace(found))
		}
	}
	return names, labels
}

func TestAlertsAndDashboardAskForMetricsThatTheManagerHas(t *testing.T) {
	g := NewWithT(t)
	metrics := registered(g)
	panels := readQueries(g, t)
	queries := slices.Clone(panels)
	for _, rule := range readRules(g, t) {
		queries = append(queries, rule.Expr)
	}
	shown := map[string]bool{}
	for i, query := range queries {
		names, labels := metricsOf(query)
		g.Expect(names).To(HaveLen(1), query)
		name := names[0]
		if strings.HasPrefix(query, "histogram_quantile(") {
			name = strings.TrimSuffix(name, "_bucket")
		}
		g.Expect(metrics).To(HaveKey(name), query)
		shown[name] = shown[name] || i < len(panels)
		// Prometheus adds the job, and histograms have the bound of the bucket.
		known := append([]string{"job", "le"}, metrics[name]...)
		g.Expect(known).To(ContainElements(labels), query)
	}
	for name := range metrics {
		if strings.HasPrefix(name, "capi_fleet_") {
			g.Expect(shown).To(HaveKeyWithValue(name, true), "no panel shows it")
		}
	}
}

func TestAlertsAskForStatesThatAreCounted(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector())
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	var states []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				states = append(states, label.GetValue())
			}
		}
	}
	asked := 0
	for _, rule := range readRules(g, t) {
		for _, match := range matcher.FindAllStringSubmatch(rule.Expr, -1) {
			if match[1] == "state" {
				g.Expect(states).To(ContainElement(match[2]), rule.Alert)
				asked++
			}
		}
	}
	g.Expect(asked).NotTo(BeZero())
}

func TestEveryAlertIsDocumented(t *testing.T) {
	g := NewWithT(t)
	page := string(readFile(t, "docs/operations/monitoring.md"))
	var documented, alerts []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(CapiFleet[A-Za-z]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(page, -1) {
		documented = append(documented, row[1]+" "+row[2])
	}
	for _, rule := range readRules(g, t) {
		alerts = append(alerts, rule.Alert+" "+rule.Labels["severity"])
		g.Expect(rule.Annotations).To(And(HaveKey("summary"), HaveKey("description")), rule.Alert)
		if !strings.HasSuffix(rule.For, "d") {
			_, err := time.ParseDuration(rule.For)
			g.Expect(err).NotTo(HaveOccurred(), rule.Alert)
		}
	}
	g.Expect(documented).To(Equal(alerts))
}

// The ServiceMonitor must find the Service, and the job must be the one of the queries.
func TestPrometheusFindsTheManager(t *testing.T) {
	g := NewWithT(t)
	service := &corev1.Service{}
	services := ofKind(render(t, "config/default"), "Service")
	g.Expect(services).To(HaveLen(1))
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(services[0].Object, service)).To(Succeed())

	monitoring := render(t, filepath.Join("config", "monitoring"))
	monitor := ofKind(monitoring, "ServiceMonitor")
	g.Expect(monitor).To(HaveLen(1))
	g.Expect(monitor[0].GetNamespace()).To(Equal(service.Namespace))
	selector, _, err := unstructured.NestedStringMap(monitor[0].Object, "spec", "selector", "matchLabels")
	g.Expect(err).NotTo(HaveOccurred())
	for key, value := range selector {
		g.Expect(service.Labels).To(HaveKeyWithValue(key, value))
	}
	endpoints, _, err := unstructured.NestedSlice(monitor[0].Object, "spec", "endpoints")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(endpoints).To(ConsistOf(And(HaveKeyWithValue("port", service.Spec.Ports[0].Name), HaveKeyWithValue("scheme", "https"))))

	jobs := 0
	queries := readQueries(g, t)
	for _, rule := range readRules(g, t) {
		queries = append(queries, rule.Expr)
	}
	for _, query := range queries {
		for _, match := range matcher.FindAllStringSubmatch(query, -1) {
			if match[1] == "job" {
				g.Expect(match[2]).To(Equal(service.Name), "the job is named after the Service")
				jobs++
			}
		}
		names, _ := metricsOf(query)
		g.Expect(strings.HasPrefix(names[0], "capi_fleet_") || strings.Contains(query, "job=")).To(BeTrue(), "other controllers have %s too", names[0])
	}
	g.Expect(jobs).NotTo(BeZero())
	for _, kind := range []string{"PrometheusRule", "ConfigMap"} {
		g.Expect(ofKind(monitoring, kind)).To(HaveLen(1))
	}
}
