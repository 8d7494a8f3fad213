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
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

const (
	joining = "edge-1" // has the label
	apart   = "edge-2" // has not

	// realFirstHeartbeat is when the real agent sends its first heartbeat. The
	// simulated one does the same here, so that the figures are true.
	realFirstHeartbeat = 15 * time.Second
)

func newDemoCommand(dir *string) *cobra.Command {
	var programs programs
	var limit time.Duration
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show a labelled cluster joining Fleet beside one without the label, and clean up",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := programs.check(); err != nil {
				return err
			}
			folder := "" // a temporary one
			if command.Flags().Changed("dir") {
				folder = *dir
			}
			return demo(command, folder, programs, limit)
		},
	}
	programs.addFlags(command)
	command.Flags().DurationVar(&limit, "timeout", 3*time.Minute, "time limit, once the programs are built")
	return command
}

func demo(command *cobra.Command, dir string, programs programs, limit time.Duration) (err error) {
	out := newPrinter(command)
	out.printf("finding the programs of Kubernetes, or building them, once")
	if _, err := kube.FindAssets(command.Context(), command.OutOrStdout()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(command.Context(), limit, fmt.Errorf("the demo took longer than %s", limit))
	defer cancel()

	out.printf("starting the management cluster and the manager")
	joined := make(chan struct{})
	steps := newSteps(func() { close(joined) }, env.Registered, env.BundleDeployed)
	lab, err := env.Start(ctx, env.Options{
		Dir: dir, Log: out.printf, FirstHeartbeat: realFirstHeartbeat,
		FleetController: programs.controller, FleetAgent: programs.agent, Placement: programs.where(),
		OnEvent: func(event env.Event) {
			out.event(event)
			if event.Cluster.Name == joining {
				steps.take(event.Step)
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		out.printf("cleaning up")
		err = errors.Join(err, lab.Close())
	}()

	out.printf("adding %s with the label %s, and %s without", joining, fleetv1.RegisterLabel, apart)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return addDemoClusters(groupCtx, lab) })
	group.Go(func() error {
		err := deployBundle(groupCtx, lab)
		if err == nil {
			out.printf("bundle made for every cluster in Fleet")
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	select {
	case <-joined:
	case <-ctx.Done():
		out.printf("%s", context.Cause(ctx))
	}
	// The state is worth seeing also when the time is over.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return concludeDemo(ctx, command, lab)
}

// addDemoClusters adds both at once and returns when they answer.
func addDemoClusters(ctx context.Context, lab *env.Lab) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, register := range map[string]bool{joining: true, apart: false} {
		group.Go(func() error {
			_, err := lab.AddCluster(ctx, name, env.ClusterOptions{Register: register})
			return err
		})
	}
	return group.Wait()
}

// deployBundle makes a Bundle for every Fleet Cluster, in the namespace where that of
// the labelled Cluster is.
func deployBundle(ctx context.Context, lab *env.Lab) error {
	registration := &fleetv1.FleetRegistration{}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: joining}
	for {
		err := lab.Client.Get(ctx, key, registration)
		if err == nil {
			break
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading the registration: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s was not selected: %w", joining, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return lab.Client.Create(ctx, &fleet.Bundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: registration.Spec.FleetCluster.Namespace, Name: "demo"},
		Spec: fleet.BundleSpec{
			Resources: []fleet.BundleResource{{
				Name:    "demo.yaml",
				Content: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: demo\n  namespace: default\n",
			}},
			Targets: []fleet.BundleTarget{{ClusterSelector: &metav1.LabelSelector{}}},
		},
	})
}

// concludeDemo prints what came of it, and fails unless one cluster joined and the
// other was left alone.
func concludeDemo(ctx context.Context, command *cobra.Command, lab *env.Lab) error {
	statuses, err := lab.Status(ctx)
	if err != nil {
		return err
	}
	out := command.OutOrStdout()
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if err := printFigures(out, statuses); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	var errs []error
	for i := range statuses {
		switch s := &statuses[i]; s.Name {
		case joining:
			if s.Ready != metav1.ConditionTrue || s.BundlesReady == 0 {
				errs = append(errs, fmt.Errorf("%s did not join: %s %s", s.Name, s.Reason, s.Message))
			}
		case apart:
			errs = append(errs, checkLeftAlone(ctx, lab, s))
		}
	}
	return errors.Join(errs...)
}

// checkLeftAlone fails if there is anything of Fleet's in the workload cluster, or of
// ours on the management cluster.
func checkLeftAlone(ctx context.Context, lab *env.Lab, status *env.ClusterStatus) error {
	if status.Registered || status.Writes > 0 {
		return fmt.Errorf("%s was not left alone: the manager made %d writes", status.Name, status.Writes)
	}
	workload := lab.Workload(client.ObjectKey{Namespace: status.Namespace, Name: status.Name})
	err := workload.Client.Get(ctx, client.ObjectKey{Name: fleet.DefaultAgentNamespace}, &corev1.Namespace{})
	if err == nil {
		return fmt.Errorf("%s was not left alone: it has namespace %s", status.Name, fleet.DefaultAgentNamespace)
	}
	return client.IgnoreNotFound(err)
}

// steps calls done once all of a set were taken. It is used by one goroutine at a time.
type steps struct {
	open map[env.Step]bool
	done func()
}

func newSteps(done func(), wanted ...env.Step) *steps {
	s := &steps{open: map[env.Step]bool{}, done: done}
	for _, step := range wanted {
		s.open[step] = true
	}
	return s
}

func (s *steps) take(step env.Step) {
	if !s.open[step] {
		return
	}
	delete(s.open, step)
	if len(s.open) == 0 {
		s.done()
	}
}
