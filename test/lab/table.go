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
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// nothing stands in a table where there is nothing to say.
const nothing = "-"

// printTable prints a line for each cluster.
func printTable(out io.Writer, statuses []env.ClusterStatus) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if _, err := fmt.Fprintln(table, "CLUSTER\tLABEL\tREADY\tREASON\tAGENT SEEN\tBUNDLES\tWRITES\tOBJECTS"); err != nil {
		return err
	}
	for i := range statuses {
		s := &statuses[i]
		seen := nothing
		if s.AgentLastSeen != nil {
			seen = time.Since(*s.AgentLastSeen).Round(time.Second).String() + " ago"
		}
		_, err := fmt.Fprintf(table, "%s/%s\t%s\t%s\t%s\t%s\t%d/%d\t%d\t%d\n", s.Namespace, s.Name, orNothing(s.Label),
			orNothing(string(s.Ready)), orNothing(s.Reason), seen, s.BundlesReady, s.Bundles, s.Writes, s.Objects)
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

// printFigures prints how long joining took, a line for each figure and a column for
// each cluster.
func printFigures(out io.Writer, statuses []env.ClusterStatus) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(title string, cell func(*env.ClusterStatus) string) error {
		var line strings.Builder
		line.WriteString(title)
		for i := range statuses {
			line.WriteString("\t" + cell(&statuses[i]))
		}
		_, err := fmt.Fprintln(table, line.String())
		return err
	}
	between := func(from, to env.Step) func(*env.ClusterStatus) string {
		return func(s *env.ClusterStatus) string {
			if d, ok := s.Between(from, to); ok {
				return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
			}
			return nothing
		}
	}
	for _, r := range []struct {
		title string
		cell  func(*env.ClusterStatus) string
	}{
		{"cluster", func(s *env.ClusterStatus) string { return s.Name }},
		{"label register", func(s *env.ClusterStatus) string { return orNothing(s.Label) }},
		{"in Fleet", func(s *env.ClusterStatus) string { return yesNo(s.Ready == "True") }},
		{"bundles deployed", func(s *env.ClusterStatus) string { return fmt.Sprintf("%d of %d", s.BundlesReady, s.Bundles) }},
		{"API server answers to credential in place", between(env.APIAnswers, env.CredentialInPlace)},
		{"agent started to its first heartbeat", between(env.AgentStarted, env.AgentConnected)},
		{"API server answers to registered", between(env.APIAnswers, env.Registered)},
		{"selected to registered", between(env.Selected, env.Registered)},
		{"writes on the management cluster", func(s *env.ClusterStatus) string { return strconv.Itoa(s.Writes) }},
		{"objects on the management cluster", func(s *env.ClusterStatus) string { return strconv.Itoa(s.Objects) }},
	} {
		if err := row(r.title, r.cell); err != nil {
			return err
		}
	}
	return table.Flush()
}

func orNothing(s string) string {
	if s == "" {
		return nothing
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
