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
	"time"

	"github.com/spf13/cobra"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func newRotateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate CLUSTER",
		Short: "Renew the credential of a cluster's agent",
		Long: `Ask the manager to renew the credential of a cluster's agent. The agent is not restarted.
The earlier credential stays valid until it ends. The manager does this once a minute at most.`,
		Example:           `  clusterctl fleet rotate edge-1 --namespace team-a`,
		Args:              exactly("CLUSTER"),
		ValidArgsFunction: a.completeClusters,
		RunE: func(command *cobra.Command, args []string) error {
			return a.rotate(command.Context(), args[0])
		},
	}
}

func (a *app) rotate(ctx context.Context, name string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	key, err := a.clusterKey(name)
	if err != nil {
		return err
	}
	reg := &fleetv1.FleetRegistration{}
	switch found, err := get(ctx, c, key, reg); {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("the Cluster %s is not registered: %s diagnose %s says why", key, programName, name)
	}
	now := a.clock.Now().UTC().Format(time.RFC3339)
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{fleetv1.RotateAnnotation: now}}}
	if err := mergePatch(ctx, c, reg, patch); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Asked for a new credential of %s.\n", key)
	return nil
}
