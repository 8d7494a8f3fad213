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
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

func TestAFigureThatNothingWasGivenForSaysSoAndIsNoFailure(t *testing.T) {
	g := NewWithT(t)
	b := &bench{wanted: []int{7}}
	g.Expect(b.besideStock(t.Context())).To(Succeed())
	r := &Report{Figures: b.sorted()}
	g.Expect(r.check(1)).To(Succeed())
	var out bytes.Buffer
	r.write(&out)
	g.Expect(out.String()).To(ContainSubstring("\nNot measured: give Fleet's own programs with `--fleet-controller` and `--fleet-agent`.\n"))
	g.Expect(out.String()).NotTo(ContainSubstring("| With |"))
}

func TestProgramsAreLookedForBeforeAnythingIsMeasured(t *testing.T) {
	g := NewWithT(t)
	program := filepath.Join(t.TempDir(), "program")
	g.Expect(os.WriteFile(program, nil, 0o700)).To(Succeed())
	crds := filepath.Join(t.TempDir(), "crds.yaml")
	g.Expect(os.WriteFile(crds, nil, 0o600)).To(Succeed())

	g.Expect((&programs{crds: crds}).check()).To(Succeed(), "figure 7 is left out")
	g.Expect((&programs{controller: program, agent: program, crds: crds}).check()).To(Succeed())
	g.Expect((&programs{controller: program, crds: crds}).check()).To(MatchError(ContainSubstring("--fleet-agent")))
	g.Expect((&programs{controller: program, agent: crds, crds: crds}).check()).To(MatchError(ContainSubstring("--fleet-agent")), "no program")
	g.Expect((&programs{controller: program, agent: program}).check()).To(MatchError(ContainSubstring("--fleet-crds")))
}

func TestAWriterIsToldByItsUserAgent(t *testing.T) {
	g := NewWithT(t)
	for agent, name := range map[string]string{
		"manager/v0.1.0 capi-fleet (linux/amd64) cluster.x-k8s.io/abc":                          "capi-fleet",
		"fleet-agentmanagement/v0.0.0 (linux/amd64) kubernetes/$Format":                         "Fleet's agent management",
		"fleet-controller/v0.0.0 (linux/amd64) kubernetes/$Format":                              "Fleet's controller",
		"fleet-agent-default_side-0/v0.0.0 (linux/amd64) kubernetes/$Format":                    "Fleet's agent",
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/abc/system:serviceaccount:ns": "Kubernetes' controllers",
		"capi-fleet-lab": "",
		"newcomer/v1":    "newcomer",
	} {
		g.Expect(writer(kube.Event{UserAgent: agent})).To(Equal(name), agent)
	}
	g.Expect(writer(kube.Event{UserAgent: "kube-apiserver/v1.36.3", User: "system:apiserver"})).To(BeEmpty())
}

func TestSidesAreAveragedAndCompared(t *testing.T) {
	g := NewWithT(t)
	event := func(agent, verb, resource string) kube.Event {
		return kube.Event{UserAgent: agent, Verb: verb, Resource: resource}
	}
	stock := &side{
		count:      2,
		credential: []time.Duration{6 * time.Second, 8 * time.Second},
		heartbeat:  []time.Duration{20 * time.Second, 22 * time.Second},
		last:       []time.Duration{40 * time.Second, 50 * time.Second},
		management: account{
			writes: []kube.Event{
				event("fleet-controller/v0", "create", "roles"), event("fleet-controller/v0", "create", "roles"),
				event("fleet-agentmanagement/v0", "create", "secrets"),
			},
			objects: []string{"roles", "roles", "secrets", "secrets"},
		},
		workload: account{writes: []kube.Event{event("fleet-agent-x/v0", "create", "leases")}, objects: []string{"secrets"}},
	}
	ours := &side{
		count:      1,
		credential: []time.Duration{2 * time.Second}, heartbeat: []time.Duration{20 * time.Second}, last: []time.Duration{20 * time.Second},
		management: account{writes: []kube.Event{event("manager/v0 capi-fleet (x)", "create", "roles")}, objects: []string{"roles"}},
		workload:   account{writes: []kube.Event{event("manager/v0 capi-fleet (x)", "create", "secrets")}, objects: []string{"secrets"}},
	}
	f := &Figure{}
	f.addSide("stock", stock)
	f.addRatios("stock to ours", stock, ours)
	g.Expect(f.check()).To(Succeed())

	values := map[string]float64{}
	for _, row := range f.Rows {
		if row.Value != nil {
			values[row.With+": "+row.What] = *row.Value
		}
	}
	g.Expect(values).To(Equal(map[string]float64{
		"stock, each of 2, on the management cluster: writes":                             1.5,
		"stock, each of 2, on the management cluster: writes of Fleet's controller":       1,
		"stock, each of 2, on the management cluster: writes of Fleet's agent management": 0.5,
		"stock, each of 2, on the management cluster: writes: create roles":               1,
		"stock, each of 2, on the management cluster: writes: create secrets":             0.5,
		"stock, each of 2, on the management cluster: objects left":                       2,
		"stock, each of 2, on the management cluster: objects: roles":                     1,
		"stock, each of 2, on the management cluster: objects: secrets":                   1,
		"stock, each of 2, in the workload cluster: writes":                               0.5,
		"stock, each of 2, in the workload cluster: writes of Fleet's agent":              0.5,
		"stock, each of 2, in the workload cluster: writes: create leases":                0.5,
		"stock, each of 2, in the workload cluster: objects left":                         0.5,
		"stock, each of 2, in the workload cluster: objects: secrets":                     0.5,

		"stock to ours: " + credentialRow + ", p50":             3,
		"stock to ours: " + heartbeatRow + ", p50":              1,
		"stock to ours: " + lastRow + ", p50":                   2,
		"stock to ours: writes on the management cluster":       1.5,
		"stock to ours: writes in the workload cluster":         0.5,
		"stock to ours: objects left on the management cluster": 2,
		"stock to ours: objects left in the workload cluster":   0.5,
	}))
}
