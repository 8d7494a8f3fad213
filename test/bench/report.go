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
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is all that one run found out, as JSON has it.
type Report struct {
	Machine Machine   `json:"machine"`
	Date    time.Time `json:"date"`
	Commit  string    `json:"commit"`
	// Arguments are those of the command line.
	Arguments []string  `json:"arguments"`
	Figures   []*Figure `json:"figures"`
}

// Machine says what the figures were measured on.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memoryBytes"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
}

// Figure is one set of numbers that are read together.
type Figure struct {
	Number int    `json:"number"`
	Title  string `json:"title"`
	// Harness is what it was measured on.
	Harness string `json:"harness"`
	// User is the one whose requests to the management cluster count.
	User string `json:"user"`
	// Verbs says which of its requests count.
	Verbs string `json:"verbs"`
	// Load is the machine's load average over a minute, before and after.
	Load [2]float64 `json:"load"`
	// NotMeasured says what the program would need to have rows, empty where it has that.
	NotMeasured string `json:"notMeasured,omitempty"`
	Rows        []Row  `json:"rows"`
}

// Row is a single number, Value, or a distribution, Spread.
type Row struct {
	// With is what it was measured with.
	With   string   `json:"with"`
	What   string   `json:"what"`
	Value  *float64 `json:"value,omitempty"`
	Spread *Spread  `json:"spread,omitempty"`
	Unit   string   `json:"unit"`
	// Bar is what it should be, empty where nothing is said.
	Bar string `json:"bar,omitempty"`
}

// Spread describes many values of one kind.
type Spread struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// What the requests that count are, in the words of the report.
const (
	managerUser = "requests of the manager, by its user agent: as its service account, and trials of tokens as the agents"
	allWrites   = "create, update, patch and delete are writes, but for Events, Leases, reviews and the status of policies"
	allVerbs    = "all verbs are requests, a watch counts when it begins; " + allWrites
)

func (f *Figure) add(with, what string, value float64, unit, bar string) {
	f.Rows = append(f.Rows, Row{With: with, What: what, Value: &value, Unit: unit, Bar: bar})
}

func (f *Figure) addSpread(with, what string, values []time.Duration, bar string) {
	spread := spreadOf(values)
	f.Rows = append(f.Rows, Row{With: with, What: what, Spread: &spread, Unit: "s", Bar: bar})
}

// spreadOf returns the nearest-rank percentiles in seconds. None are those of nothing: NaN.
func spreadOf(values []time.Duration) Spread {
	sorted := slices.Sorted(slices.Values(values))
	at := func(percent float64) float64 {
		if len(sorted) == 0 {
			return math.NaN()
		}
		return sorted[max(int(math.Ceil(percent/100*float64(len(sorted)))), 1)-1].Seconds()
	}
	return Spread{Count: len(sorted), P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

// check fails where a number of the figure is missing, and not where nothing was given to
// measure it with.
func (f *Figure) check() error {
	if f.NotMeasured != "" {
		return nil
	}
	if len(f.Rows) == 0 {
		return fmt.Errorf("figure %d, %s: nothing was measured", f.Number, f.Title)
	}
	for _, row := range f.Rows {
		var values []float64
		if row.Spread != nil {
			values = []float64{row.Spread.P50, row.Spread.P90, row.Spread.P99, row.Spread.Max}
		} else {
			values = []float64{*row.Value}
		}
		for _, value := range values {
			if math.IsNaN(value) || math.IsInf(value, 0) {
				return fmt.Errorf("figure %d, %s: no value for %s: %s", f.Number, f.Title, row.With, row.What)
			}
		}
	}
	return nil
}

// writeTable prints the figure as Markdown.
func (f *Figure) writeTable(out io.Writer) {
	fmt.Fprintf(out, "\n## %d. %s\n\n", f.Number, f.Title)
	if f.NotMeasured != "" {
		fmt.Fprintf(out, "Not measured: %s.\n", f.NotMeasured)
		return
	}
	fmt.Fprintf(out, "- Harness: %s.\n- Counted user: %s.\n- Counted verbs: %s.\n- Load average: %.1f before, %.1f after.\n\n",
		f.Harness, f.User, f.Verbs, f.Load[0], f.Load[1])
	fmt.Fprint(out, "| With | What | Measured | Bar |\n| --- | --- | --- | --- |\n")
	last := ""
	for _, row := range f.Rows {
		with := row.With
		if with == last {
			with = ""
		}
		last = row.With
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", with, row.What, row.measured(), row.Bar)
	}
}

func (r *Row) measured() string {
	if s := r.Spread; s != nil {
		return fmt.Sprintf("p50 %s, p90 %s, p99 %s, longest %s %s (%d)", number(s.P50), number(s.P90), number(s.P99), number(s.Max), r.Unit, s.Count)
	}
	return strings.TrimSpace(number(*r.Value) + " " + r.Unit)
}

// number prints three digits, and never fewer than those before the point.
func number(value float64) string {
	if magnitude := math.Abs(value); magnitude >= 100 || value == math.Trunc(value) {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}

// check fails where a figure or a number is missing.
func (r *Report) check(figures int) error {
	if len(r.Figures) != figures {
		return fmt.Errorf("%d of %d figures came about", len(r.Figures), figures)
	}
	for _, figure := range r.Figures {
		if err := figure.check(); err != nil {
			return err
		}
	}
	return nil
}

// write prints all figures as a page of Markdown.
func (r *Report) write(out io.Writer) {
	m := r.Machine
	fmt.Fprintf(out, "# As measured\n\nMeasured on %s with commit %s: %d cores of %s, %d GiB, Linux %s, %s; `go run ./test/bench %s`.\n",
		r.Date.Format(time.DateOnly), r.Commit, m.Cores, m.CPU, m.MemoryBytes>>30, m.Kernel, m.Go, strings.Join(r.Arguments, " "))
	for _, figure := range r.Figures {
		figure.writeTable(out)
	}
}

func (r *Report) writeJSON(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o600)
}

func newReport() *Report {
	return &Report{Machine: thisMachine(), Date: time.Now().UTC(), Commit: commit(), Arguments: os.Args[1:]}
}

// thisMachine reads what Linux says. What it does not say stays empty.
func thisMachine() Machine {
	machine := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: field("/proc/cpuinfo", "model name")}
	if kibibytes, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		machine.MemoryBytes = kibibytes << 10
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	machine.Kernel = strings.TrimSpace(string(release))
	return machine
}

func field(path, name string) string {
	content, _ := os.ReadFile(path)
	for line := range strings.Lines(string(content)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func loadAverage() float64 {
	content, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(content), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// commit names the source, empty where git does not know it.
func commit() string {
	described, _ := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	return strings.TrimSpace(string(described))
}
