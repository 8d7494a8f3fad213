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

// Command agentsim runs a stand-in for Fleet's agent as a process, for the lab. It
// is given what the real one is: KUBECONFIG (the workload cluster, as its admin),
// NAMESPACE and CHECKIN_INTERVAL.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/capi-fleet/capi-fleet/test/agentsim"
)

func main() {
	report := flag.String("report", "", "File to keep the agent's report in, as JSON. Empty means none.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *report)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentsim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, reportFile string) error {
	workload, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("reading KUBECONFIG: %w", err)
	}
	options := agentsim.Options{
		Workload:  workload,
		Namespace: os.Getenv("NAMESPACE"),
		Logger:    klog.Background(),
	}
	if interval := os.Getenv("CHECKIN_INTERVAL"); interval != "" {
		if options.CheckinInterval, err = time.ParseDuration(interval); err != nil {
			return fmt.Errorf("reading CHECKIN_INTERVAL: %w", err)
		}
	}
	if reportFile != "" {
		options.OnReport = func(report agentsim.Report) {
			if err := writeReport(reportFile, report); err != nil {
				klog.ErrorS(err, "Failed to write the report")
			}
		}
	}
	agent := agentsim.New(options)
	if options.OnReport != nil {
		options.OnReport(agent.Report())
	}
	return agent.Run(ctx)
}

// writeReport replaces path at once, so that a reader never sees half a report.
func writeReport(path string, report agentsim.Report) error {
	out, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(append(out, '\n'))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
