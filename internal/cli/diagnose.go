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

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capi-fleet/capi-fleet/internal/remote"
)

// lookupFlags are the flags of commands that gather all facts.
type lookupFlags struct {
	lookup
	ranges string
}

func (l *lookupFlags) add(command *cobra.Command) {
	addManagerNamespace(command, &l.managerNamespace)
	addFleetNamespace(command, &l.fleetNamespace)
	command.Flags().StringVar(&l.ranges, "denied-ranges", remote.DefaultDeniedRanges,
		"address ranges in CIDR notation, divided by commas, that are never connected to for a workload cluster; empty allows all")
}

func (l *lookupFlags) complete() error {
	var err error
	if l.denied, err = remote.ParseDeniedRanges(l.ranges); err != nil {
		return usagef("--denied-ranges: %v", err)
	}
	return nil
}

// factsCommand completes a command that gathers all facts of one Cluster, and then shows
// them.
func (a *app) factsCommand(command *cobra.Command, show func(*facts, lookup, *outputFlag) error) *cobra.Command {
	var output outputFlag
	var where lookupFlags
	command.Args = exactly("CLUSTER")
	command.ValidArgsFunction = a.completeClusters
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := where.complete(); err != nil {
			return err
		}
		f, err := a.facts(command.Context(), args[0], where.lookup)
		if err != nil {
			return err
		}
		return show(f, where.lookup, &output)
	}
	output.add(command, formatTable, formatJSON, formatYAML)
	where.add(command)
	return command
}

// facts gathers what is known of a Cluster.
func (a *app) facts(ctx context.Context, name string, where lookup) (*facts, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	key, err := a.clusterKey(name)
	if err != nil {
		return nil, err
	}
	return gatherFacts(ctx, c, where, key, a.clock.Now())
}

// diagnosis is what diagnose finds.
type diagnosis struct {
	Cluster string  `json:"cluster"`
	Checks  []check `json:"checks"`
	// Wrong is the first thing that is wrong, nil where nothing is.
	Wrong *check `json:"wrong,omitempty"`
}

func newDiagnoseCommand(a *app) *cobra.Command {
	return a.factsCommand(&cobra.Command{
		Use:   "diagnose CLUSTER",
		Short: "Look for what keeps a Cluster from being joined, and say what to do",
		Long: `Look at all that a person would look at, on the management cluster and on the workload
cluster, and say the first thing that is wrong. Nothing is changed.

The workload cluster is reached from here, with the kubeconfig that Cluster API keeps. Where
this machine does not reach it but the manager did when it last tried, that is no fault, and
the rest goes by what the manager found. The exit code is 3 where something is wrong.`,
		Example: `  clusterctl fleet diagnose edge-1 --namespace team-a`,
	}, a.diagnose)
}

func (a *app) diagnose(f *facts, _ lookup, output *outputFlag) error {
	found := diagnosis{Cluster: f.key.String(), Checks: runChecks(f)}
	found.Wrong = firstWrong(found.Checks)
	var err error
	if output.structured() {
		err = output.print(a.Out, found)
	} else {
		err = a.printDiagnosis(found)
	}
	if err == nil && found.Wrong != nil {
		err = errFinding
	}
	return err
}

func (a *app) printDiagnosis(found diagnosis) error {
	painter := styleFor(a.Out)
	colours := map[verdict]string{verdictOK: green, verdictWrong: red, verdictUnknown: yellow}
	rows := make([][]string, 0, len(found.Checks))
	for _, c := range found.Checks {
		row := []string{c.Name, painter.paint(colours[c.Verdict], string(c.Verdict))}
		// What is wrong is said below, at length.
		if c.Message != "" && c.Verdict != verdictWrong {
			row = append(row, oneLine(c.Message))
		}
		rows = append(rows, row)
	}
	if err := table(a.Out, rows); err != nil {
		return err
	}
	if found.Wrong == nil {
		fmt.Fprintf(a.Out, "\nNothing is wrong with %s as far as can be seen.\n", found.Cluster)
		return nil
	}
	fmt.Fprintf(a.Out, "\n%s: %s\n", found.Wrong.Name, oneLine(found.Wrong.Message))
	return nil
}
