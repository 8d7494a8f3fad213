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
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-fleet/capi-fleet/internal/token"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

func TestPercentilesAreOfTheNearestRank(t *testing.T) {
	g := NewWithT(t)
	var values []time.Duration
	for i := range 200 {
		values = append(values, time.Duration(200-i)*time.Second)
	}
	g.Expect(spreadOf(values)).To(Equal(Spread{Count: 200, P50: 100, P90: 180, P99: 198, Max: 200}))
	g.Expect(spreadOf(values[:1])).To(Equal(Spread{Count: 1, P50: 200, P90: 200, P99: 200, Max: 200}))
}

func TestAReportWithoutAllNumbersFails(t *testing.T) {
	g := NewWithT(t)
	f := &Figure{Number: 1}
	r := &Report{Figures: []*Figure{f}}
	g.Expect(r.check(1)).To(MatchError(ContainSubstring("nothing was measured")))
	f.add("1 cluster", "writes", 0, "", "0")
	g.Expect(r.check(1)).To(Succeed(), "none is a number too")
	g.Expect(r.check(2)).To(MatchError(ContainSubstring("1 of 2 figures")))
	f.addSpread("1 cluster", "latency", nil, "")
	g.Expect(r.check(1)).To(MatchError(ContainSubstring("latency")))
	f.Rows = f.Rows[:1]
	f.add("1 cluster", "share", math.Inf(1), "%", "")
	g.Expect(r.check(1)).To(MatchError(ContainSubstring("share")))
}

func TestAReportIsATableAndJSON(t *testing.T) {
	g := NewWithT(t)
	f := &Figure{Number: 2, Title: "Cost", Harness: "this", User: "somebody", Verbs: "all", Load: [2]float64{0.5, 1}}
	f.add("10 clusters", "writes", 12.345, "", "≤ 14")
	f.addSpread("10 clusters", "latency", []time.Duration{1500 * time.Millisecond}, "")
	r := &Report{Commit: "abc", Figures: []*Figure{f}}

	var out bytes.Buffer
	r.write(&out)
	g.Expect(out.String()).To(ContainSubstring("## 2. Cost\n\n- Harness: this.\n- Counted user: somebody.\n- Counted verbs: all.\n"))
	g.Expect(out.String()).To(ContainSubstring("| 10 clusters | writes | 12.3 | ≤ 14 |\n|  | latency | p50 1.5, p90 1.5, p99 1.5, longest 1.5 s (1) |  |\n"))

	path := filepath.Join(t.TempDir(), "report.json")
	g.Expect(r.writeJSON(path)).To(Succeed())
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	back := &Report{}
	g.Expect(json.Unmarshal(content, back)).To(Succeed())
	g.Expect(back).To(Equal(r))
}

func TestOnlyTheManagersRequestsCountAndAWatchOnce(t *testing.T) {
	g := NewWithT(t)
	const manager = "manager/v0.1.0 capi-fleet (linux/amd64) cluster.x-k8s.io/abc"
	events := requests([]kube.Event{
		{UserAgent: manager, Verb: "watch", Stage: "ResponseStarted"},
		{UserAgent: manager, Verb: "watch", Stage: "ResponseComplete"},
		{UserAgent: manager, Verb: "list", Stage: "ResponseComplete", Group: "fleet.cattle.io", Resource: "bundledeployments", User: "an agent"},
		{UserAgent: "capi-fleet-lab", Verb: "create", Stage: "ResponseComplete"},
	})
	g.Expect(kinds(events)).To(ConsistOf(kind{"watch ", 1}, kind{"list bundledeployments.fleet.cattle.io", 1}))
}

func TestObjectsThatWereTakenAwayAreNotLeft(t *testing.T) {
	g := NewWithT(t)
	left := created([]kube.Event{
		{Verb: "create", Resource: "roles", Name: "a", Code: 201},
		{Verb: "create", Resource: "roles", Name: "b", Code: 201},
		{Verb: "create", Resource: "roles", Name: "c", Code: 409},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: "a", Code: 201},
		{Verb: "delete", Resource: "roles", Name: "b", Code: 200},
	})
	g.Expect(left).To(HaveLen(1))
	g.Expect(left[0].Name).To(Equal("a"))
}

func TestATokenThatWasMadeOlderSaysSo(t *testing.T) {
	g := NewWithT(t)
	const header, signature = "e30", "c2lnbmF0dXJl"
	value := header + ".eyJpYXQiOjEsImV4cCI6Miwic3ViIjoic29tZWJvZHkifQ." + signature
	issued := time.Unix(1000, 0)
	older, err := aged(value, issued, issued.Add(time.Hour))
	g.Expect(err).NotTo(HaveOccurred())
	claims, ok := token.Read(older)
	g.Expect(ok).To(BeTrue())
	g.Expect(claims.Subject).To(Equal("somebody"))
	g.Expect(claims.Issued).To(BeTemporally("==", issued))
	g.Expect(claims.Expires).To(BeTemporally("==", issued.Add(time.Hour)))
	_, err = aged("no token", issued, issued)
	g.Expect(err).To(HaveOccurred())
}

func TestAReportSaysNothingOfThisMachinesFolders(t *testing.T) {
	g := NewWithT(t)
	g.Expect(withoutFolders([]string{"--figures", "3,4", "--fleet-agent", "/home/me/agent", "--json=out/a.json", "--renewals=1h"})).
		To(Equal([]string{"--figures", "3,4", "--fleet-agent", "agent", "--json=a.json", "--renewals=1h"}))
}
