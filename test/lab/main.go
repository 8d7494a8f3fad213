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

// Command lab runs a management cluster with the manager of this source, and workload
// clusters beside it, as local processes:
//
//	go run ./test/lab demo
//	go run ./test/lab up --clusters 2
//
// It is for people: package env does the work, and tests call that.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// defaultDir is where a lab is unless --dir says.
const defaultDir = ".lab"

func main() {
	ctrl.SetLogger(log.Log.WithSink(log.NullLogSink{})) // the processes have logs of their own
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once, and with it its processes.
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lab",
		Short: "Run a management cluster and workload clusters as local processes",
		// Without a verb there is nothing to do.
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("say what to do: up, add, remove, status, down, demo or tools; --help says more")
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	dir := root.PersistentFlags().String("dir", defaultDir, "folder of the lab; everything is written there")
	root.AddCommand(
		newUpCommand(dir), newAddCommand(dir), newRemoveCommand(dir), newStatusCommand(dir), newDownCommand(dir),
		newDemoCommand(dir), newToolsCommand(),
	)
	return root
}

// programs are the flags that say which agents and controllers of Fleet run, and where.
type programs struct{ controller, agent, placement string }

func (p *programs) addFlags(command *cobra.Command) {
	command.Flags().StringVar(&p.controller, "fleet-controller", "",
		"Fleet's controller to run in place of the stand-in; FLEET_CRDS must name a file with Fleet's CRDs")
	command.Flags().StringVar(&p.agent, "fleet-agent", "", "Fleet's agent to run in place of agentsim")
	command.Flags().StringVar(&p.placement, "placement", "workload", "where agents run: workload or management")
}

// check finds a wrong value before anything is started.
func (p *programs) check() error {
	if p.placement != "workload" && p.placement != "management" {
		return fmt.Errorf("--placement: must be workload or management, is %q", p.placement)
	}
	for flag, path := range map[string]string{"--fleet-controller": p.controller, "--fleet-agent": p.agent} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return fmt.Errorf("%s: %s is not a program", flag, path)
		}
	}
	return nil
}

// where returns where agents run, for the lab.
func (p *programs) where() fleetv1.AgentPlacement {
	if p.placement == "management" {
		return fleetv1.PlacementManagement
	}
	return ""
}

// printer prints lines with the time since the start.
type printer struct {
	command *cobra.Command
	start   time.Time
}

func newPrinter(command *cobra.Command) *printer {
	return &printer{command: command, start: time.Now()}
}

func (p *printer) printf(format string, args ...any) { p.at(time.Now(), fmt.Sprintf(format, args...)) }

func (p *printer) at(when time.Time, line string) {
	fmt.Fprintf(p.command.OutOrStdout(), "%6.1fs  %s\n", when.Sub(p.start).Seconds(), line)
}

func (p *printer) event(event env.Event) {
	p.at(event.Time, event.Cluster.Name+": "+string(event.Step))
}

// absolute makes dir one that is the same in all processes.
func absolute(dir string) (string, error) {
	if dir == "" {
		return "", fmt.Errorf("--dir is empty")
	}
	return filepath.Abs(dir)
}
