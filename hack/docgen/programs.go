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
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/manager"
	"github.com/capi-fleet/capi-fleet/internal/metrics"
)

// flags makes a table of each group of the manager's flags.
func flags() (tables, error) {
	if err := os.Unsetenv("POD_NAMESPACE"); err != nil { // a default depends on it
		return nil, err
	}
	made := tables{}
	for group, set := range manager.Flags().FlagSets {
		table := &strings.Builder{}
		table.WriteString("| Flag | Default | Meaning |\n| --- | --- | --- |\n")
		set.VisitAll(func(f *pflag.Flag) {
			value := ""
			if f.DefValue != "" {
				value = "`" + f.DefValue + "` "
			}
			_, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(table, "| `--%s` | %s| %s |\n", f.Name, value, cell(usage))
		})
		made[group] = table.String()
	}
	return made, nil
}

// metricTables makes a table of our metrics, as a scrape has them.
func metricTables() (tables, error) {
	metrics.PushFailed(fleetv1.InternalErrorReason) // a counter with labels has no sample before
	registry := prometheus.NewRegistry()
	err := registry.Register(metrics.NewCollector(clock.RealClock{},
		func(context.Context) ([]fleetv1.FleetRegistration, error) {
			registration := fleetv1.FleetRegistration{}
			registration.Status.Credential.ExpirationTime = metav1.Time{Time: time.Unix(1, 0)}
			return []fleetv1.FleetRegistration{registration}, nil
		},
		func(context.Context) (metrics.Orphans, error) { return metrics.Orphans{}, nil }))
	if err != nil {
		return nil, err
	}
	families, err := prometheus.Gatherers{registry, ctrlmetrics.Registry}.Gather()
	if err != nil {
		return nil, err
	}
	var table strings.Builder
	table.WriteString("| Metric | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n")
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "capi_fleet_") {
			fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", family.GetName(),
				strings.ToLower(family.GetType().String()), labels(family), cell(family.GetHelp()))
		}
	}
	return tables{"Metrics": table.String()}, nil
}

func labels(family *dto.MetricFamily) string {
	var names []string
	for _, pair := range family.GetMetric()[0].GetLabel() {
		names = append(names, pair.GetName())
	}
	return code(names)
}
