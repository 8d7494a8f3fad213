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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

const (
	// removeTimeout bounds the removal of a cluster.
	removeTimeout = 2 * time.Minute

	// downTimeout bounds the end of a lab.
	downTimeout = time.Minute
)

// upOptions are the flags of the verb up.
type upOptions struct {
	clusters   int
	programs   programs
	clusterAPI string
	bare       bool
}

// check finds a wrong value before anything is started.
func (o *upOptions) check() error {
	if o.clusters < 0 {
		return fmt.Errorf("--clusters: must not be negative, is %d", o.clusters)
	}
	if o.bare && o.programs.where() != "" {
		return errors.New("--bare: there is no kind yet for the policy that --placement management makes")
	}
	return o.programs.check()
}

func newUpCommand(dir *string) *cobra.Command {
	var opts upOptions
	command := &cobra.Command{
		Use:   "up",
		Short: "Run a lab in the foreground, until Ctrl-C or the verb down",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := opts.check(); err != nil {
				return err
			}
			return up(command, *dir, opts)
		},
	}
	command.Flags().IntVar(&opts.clusters, "clusters", 0, "number of labelled clusters to begin with: edge-1, edge-2 and so on")
	command.Flags().StringVar(&opts.clusterAPI, "capi", "", "controllers of Cluster API to run: "+
		"core, over the lab's workload clusters, or in-memory, which makes the workload clusters and all about them itself")
	command.Flags().BoolVar(&opts.bare, "bare", false, "leave capi-fleet out; the manager starts once clusterctl has installed it")
	opts.programs.addFlags(command)
	return command
}

func up(command *cobra.Command, dir string, opts upOptions) (err error) {
	dir, err = absolute(dir)
	if err != nil {
		return err
	}
	if err := checkSocketPath(filepath.Join(dir, socketName)); err != nil {
		return err
	}
	ctx := command.Context()
	out := newPrinter(command)
	options := env.Options{
		Dir: dir, Log: out.printf, OnEvent: out.event, FleetController: opts.programs.controller, FleetAgent: opts.programs.agent,
		ClusterAPI: env.ClusterAPI(opts.clusterAPI), Placement: opts.programs.where(),
	}
	if opts.bare {
		options.NoManager, options.ConfigDir = true, env.BareConfig
	}
	lab, err := env.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	control, err := serveControl(lab.Dir, labOperations{lab})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.close()) }()
	if opts.bare {
		stop := follow(ctx, lab)
		defer func() { err = errors.Join(err, stop()) }()
	}

	var group errgroup.Group
	for i := range opts.clusters {
		group.Go(func() error {
			_, err := lab.AddCluster(ctx, "edge-"+strconv.Itoa(i+1), env.ClusterOptions{Register: true})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	out.printf("up; from another terminal:\n"+
		"    export KUBECONFIG=%s\n"+
		"    kubectl get clusters.cluster.x-k8s.io,fleetregistrations -A\n"+
		"    kubectl --kubeconfig %s get deployments -A\n"+
		"    go run ./test/lab add NAME --dir %s   # or remove NAME, status, down",
		lab.Management().AdminKubeconfigPath(), filepath.Join(lab.Dir, "clusters", "default", "NAME", "admin.kubeconfig"), lab.Dir)
	select {
	case <-ctx.Done():
	case <-control.down:
	}
	out.printf("ending; the logs stay in %s until the next up, or down", lab.Dir)
	return nil
}

// follow runs the manager once it is installed. stop ends it.
func follow(ctx context.Context, lab *env.Lab) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return lab.FollowInstallation(ctx) })
	return func() error {
		cancel()
		return group.Wait()
	}
}

// oneName wants the name of one cluster.
func oneName(command *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s wants the NAME of one cluster", command.CommandPath())
	}
	return nil
}

func newAddCommand(dir *string) *cobra.Command {
	var wanted cluster
	var noLabel bool
	command := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a cluster to the running lab",
		Args:  oneName,
		RunE: func(command *cobra.Command, args []string) error {
			wanted.Name, wanted.Register = args[0], !noLabel
			if err := wanted.validate(); err != nil {
				return err
			}
			return ask(command.Context(), *dir, http.MethodPost, "/clusters", wanted, &struct{}{})
		},
	}
	command.Flags().StringVarP(&wanted.Namespace, "namespace", "n", "default", "namespace of the Cluster")
	command.Flags().BoolVar(&noLabel, "no-label", false, "leave the opt-in label out")
	return command
}

func newRemoveCommand(dir *string) *cobra.Command {
	wanted := cluster{}
	command := &cobra.Command{
		Use:   "remove NAME",
		Short: "Delete a cluster of the running lab and wait until its registration is gone",
		Args:  oneName,
		RunE: func(command *cobra.Command, args []string) error {
			wanted.Name = args[0]
			if err := wanted.validate(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), removeTimeout)
			defer cancel()
			return ask(ctx, *dir, http.MethodDelete, "/clusters/"+wanted.Namespace+"/"+wanted.Name, nil, &struct{}{})
		},
	}
	command.Flags().StringVarP(&wanted.Namespace, "namespace", "n", "default", "namespace of the Cluster")
	return command
}

func newStatusCommand(dir *string) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "status",
		Short: "Show how far the clusters of the running lab are",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if format != "" && format != "json" {
				return fmt.Errorf("--output: must be json or nothing, is %q", format)
			}
			var statuses []env.ClusterStatus
			if err := ask(command.Context(), *dir, http.MethodGet, "/status", nil, &statuses); err != nil {
				return err
			}
			if format == "json" {
				encoder := json.NewEncoder(command.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(statuses)
			}
			return printTable(command.OutOrStdout(), statuses)
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "", "json, or empty for a table")
	return command
}

func newDownCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the lab and remove its files, also those of one that was killed",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), downTimeout)
			defer cancel()
			return down(ctx, *dir)
		},
	}
}

func down(ctx context.Context, dir string) error {
	dir, err := absolute(dir)
	if err != nil {
		return err
	}
	if err := ask(ctx, dir, http.MethodPost, "/down", nil, &struct{}{}); err != nil && !errors.Is(err, errNoLab) {
		return err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := env.Clean(dir)
		if !errors.Is(err, env.ErrInUse) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the lab to end: %w", err)
		case <-ticker.C:
		}
	}
}

func newToolsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tools",
		Short: "Print where kubectl and clusterctl are, as for PATH; what is missing is built first",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			kubectl, err := kube.FindKubectl(command.Context())
			if err != nil {
				return err
			}
			clusterctl, err := kube.FindClusterctl(command.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s%c%s\n", filepath.Dir(kubectl), filepath.ListSeparator, filepath.Dir(clusterctl))
			return err
		},
	}
}

// ask sends a request to the lab in dir.
func ask(ctx context.Context, dir, method, path string, body, result any) error {
	client, err := newControlClient(dir)
	if err != nil {
		return err
	}
	return client.do(ctx, method, path, body, result)
}
