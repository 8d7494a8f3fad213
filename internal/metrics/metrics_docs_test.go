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
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// metricsPage explains every metric, each in a row of a table.
var metricsPage = filepath.Join("..", "..", "docs", "reference", "metrics.md")

func TestEveryMetricIsDocumented(t *testing.T) {
	g := NewWithT(t)
	registry, ok := ctrlmetrics.Registry.(prometheus.Collector)
	g.Expect(ok).To(BeTrue(), "the registry cannot be asked what it holds")
	var registered []string
	for _, name := range append(names(registry), names(NewCollector(clockAt(time.Unix(0, 0)), listOf(), orphans(0)))...) {
		if strings.HasPrefix(name, prefix) {
			registered = append(registered, name)
		}
	}

	content, err := os.ReadFile(metricsPage)
	g.Expect(err).NotTo(HaveOccurred())
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `("+prefix+"[^`]+)` \\|").FindAllStringSubmatch(string(content), -1) {
		documented = append(documented, row[1])
	}

	g.Expect(registered).NotTo(BeEmpty())
	g.Expect(documented).To(ConsistOf(registered))
}

// fqName finds the name in the text of a description, which has no other way to
// tell it.
var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

// names returns the names of a collector's metrics, also of those that have no
// sample yet.
func names(collector prometheus.Collector) []string {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		collector.Describe(descriptions)
	}()
	var names []string
	for description := range descriptions {
		if match := fqName.FindStringSubmatch(description.String()); match != nil {
			names = append(names, match[1])
		}
	}
	return names
}
