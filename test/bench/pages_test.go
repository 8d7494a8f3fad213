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
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const measuredPage = "../../docs/operations/measured.md"

func TestThePageOfFiguresHasWhatTheProgramSaysOfThem(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(measuredPage)
	g.Expect(err).NotTo(HaveOccurred())
	parts := strings.Split(string(content), "\n## ")[1:]
	g.Expect(parts).NotTo(BeEmpty())
	for _, part := range parts {
		heading, rest, _ := strings.Cut(part, "\n")
		var number int
		_, err := fmt.Sscanf(heading, "%d.", &number)
		g.Expect(err).NotTo(HaveOccurred(), heading)
		f := definitions[number]
		g.Expect(heading).To(Equal(fmt.Sprintf("%d. %s", number, f.Title)))
		if !strings.Contains(rest, "Not measured: ") {
			// The version of Fleet follows what figure 7 is measured with.
			g.Expect(rest).To(ContainSubstring("- Harness: " + f.Harness))
			g.Expect(rest).To(ContainSubstring(fmt.Sprintf(".\n- Counted user: %s.\n- Counted verbs: %s.\n", f.User, f.Verbs)))
		}
	}
}

func TestTheReadmeHasNoFigureThatIsNotOnThePage(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../README.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, readme, _ := strings.Cut(string(content), "\n## In figures\n")
	readme, _, _ = strings.Cut(readme, "\n## ")

	p50 := regexp.MustCompile("^p50 ([0-9.]+)")
	for _, figure := range []struct {
		number             int
		with, what, format string
	}{
		{1, "clusters that Cluster API makes, 10 at once", inPlaceRow, "| p50 %s s;"},
		{1, "clusters that Cluster API makes, 10 at once", "API answers ► ControlPlaneInitialized, before which a registrar that waits for it cannot begin", "at p50 %s s |"},
		{2, "each of ", "writes", "| %s writes,"},
		{2, "each of ", "objects left", " %s objects,"},
		{4, "1000 clusters", "writes in ", "| %s writes,"},
		{4, "1000 clusters", "CPU, share of a core", " %s of a core,"},
		{4, "1000 clusters", "memory (RSS)", " %s |"},
	} {
		value := measuredOn(g, figure.number, figure.with, figure.what)
		if found := p50.FindStringSubmatch(value); found != nil {
			value = found[1]
		}
		g.Expect(readme).To(ContainSubstring(fmt.Sprintf(figure.format, value)))
	}
}

// measuredOn returns what the page of figures has in the first row that begins so.
func measuredOn(g *WithT, number int, with, what string) string {
	content, err := os.ReadFile(measuredPage)
	g.Expect(err).NotTo(HaveOccurred())
	_, part, found := strings.Cut(string(content), fmt.Sprintf("\n## %d. ", number))
	g.Expect(found).To(BeTrue(), "figure %d", number)
	part, _, _ = strings.Cut(part, "\n## ")
	current := ""
	for line := range strings.Lines(part) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) < 3 || !strings.HasPrefix(line, "| ") {
			continue
		}
		if w := strings.TrimSpace(strings.TrimPrefix(cells[0], "|")); w != "" {
			current = w
		}
		if strings.HasPrefix(current, with) && strings.HasPrefix(cells[1], what) {
			return cells[2]
		}
	}
	g.Expect(part).To(ContainSubstring(what), "no row of figure %d begins so", number)
	return ""
}
