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
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

const (
	// watchInterval is the time between two looks of --watch.
	watchInterval = 2 * time.Second
	// watchRetryCap is the longest time until it looks again after an error.
	watchRetryCap = 30 * time.Second
)

// notRegistered is the reason of a Cluster without a registration.
const notRegistered = "NotRegistered"

// statusRow is the line of one Cluster.
type statusRow struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Joined is the status of the registration's condition Ready, empty without a
	// registration.
	Joined  string `json:"joined,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// AgentImage is what the agent runs: the image with which it last checked in.
	AgentImage   string `json:"agentImage,omitempty"`
	AgentVersion string `json:"agentVersion,omitempty"`
	// WantedAgentImage is what it is to run.
	WantedAgentImage   string `json:"wantedAgentImage,omitempty"`
	WantedAgentVersion string `json:"wantedAgentVersion,omitempty"`

	Paused           bool         `json:"paused,omitempty"`
	LastSeen         *metav1.Time `json:"lastSeen,omitempty"`
	CredentialExpiry *metav1.Time `json:"credentialExpiry,omitempty"`
	// Bundles is missing where they are not known.
	Bundles          *bundleCount `json:"bundles,omitempty"`
	Policy           string       `json:"policy,omitempty"`
	FleetCluster     string       `json:"fleetCluster,omitempty"`
	ClusterNamespace string       `json:"clusterNamespace,omitempty"`
}

type statusOptions struct {
	*app
	output        outputFlag
	allNamespaces bool
	selector      string
	watch         bool

	names  []string
	parsed labels.Selector
}

func newStatusCommand(a *app) *cobra.Command {
	o := &statusOptions{app: a}
	command := &cobra.Command{
		Use:   "status [CLUSTER...]",
		Short: "Show for each Cluster whether it joined Fleet, or why not",
		Long: `Show for each Cluster whether it joined Fleet, or why not, with the version that its agent
runs and the one that it is to run where that differs, its last heartbeat, the end of its
credential, and its bundles (ready/all).

The exit code is 3 where a Cluster that is to join has not joined, or where a named one is
not registered.

--watch goes on until it is interrupted. It says once when the management cluster does not
answer, and tries again after 2 seconds at first and 30 at most. It ends where trying again
does not help, for lack of rights for example.`,
		Example: `  clusterctl fleet status
  clusterctl fleet status --all-namespaces --output wide
  clusterctl fleet status edge-1 --namespace team-a --watch`,
		ValidArgsFunction: a.completeClusters,
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(command.Context())
		},
	}
	o.output.add(command, formatTable, formatWide, formatJSON, formatYAML)
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the Clusters of all namespaces")
	command.Flags().StringVarP(&o.selector, "selector", "l", "", "show only Clusters whose labels match, such as env=prod (default: all)")
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on, and print the line of a Cluster again when something in it changes, heartbeats aside")
	return command
}

func (o *statusOptions) complete(args []string) error {
	o.names = args
	var err error
	switch o.parsed, err = labels.Parse(o.selector); {
	case err != nil:
		return usagef("--selector: %v", err)
	case len(args) > 0 && o.selector != "":
		return usagef("name Clusters or use --selector, not both")
	case len(args) > 0 && o.allNamespaces:
		return usagef("name Clusters or use --all-namespaces, not both")
	case o.watch && o.output.structured():
		return usagef("--watch goes with --output table or wide only")
	}
	return nil
}

func (o *statusOptions) run(ctx context.Context) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	look := func(ctx context.Context) ([]statusRow, error) { return o.rows(ctx, c) }
	rows, err := look(ctx)
	if err != nil {
		return err
	}
	if o.watch {
		return o.follow(ctx, rows, look)
	}
	if err := o.print(rows); err != nil {
		return err
	}
	return judgeRows(rows, len(o.names) > 0)
}

// judgeRows returns errFinding where a Cluster has not joined that is to.
func judgeRows(rows []statusRow, named bool) error {
	for i := range rows {
		if rows[i].Joined != string(metav1.ConditionTrue) && (named || rows[i].Joined != "") {
			return errFinding
		}
	}
	return nil
}

func (o *statusOptions) rows(ctx context.Context, c client.Client) ([]statusRow, error) {
	namespace := ""
	if !o.allNamespaces {
		var err error
		if namespace, err = o.namespace(); err != nil {
			return nil, err
		}
	}
	found, err := listRegistered(ctx, c, namespace, o.parsed)
	if err != nil {
		return nil, err
	}
	rows := make([]statusRow, 0, len(found))
	for i := range found {
		if len(o.names) == 0 || slices.Contains(o.names, found[i].cluster.Name) {
			rows = append(rows, rowOf(&found[i]))
		}
	}
	for _, name := range o.names {
		if !slices.ContainsFunc(rows, func(r statusRow) bool { return r.Name == name }) {
			return nil, noClusterError{Namespace: namespace, Name: name}
		}
	}
	return rows, nil
}

// noClusterError says that a Cluster is not there.
type noClusterError client.ObjectKey

func (e noClusterError) Error() string { return "there is no Cluster " + client.ObjectKey(e).String() }

// rowOf returns the line of a Cluster.
func rowOf(r *registered) statusRow {
	row := statusRow{Namespace: r.cluster.Namespace, Name: r.cluster.Name, Reason: notRegistered}
	reg := r.registration
	if reg == nil {
		row.Message = "Nothing selects the Cluster: see " + programName + " diagnose"
		return row
	}
	row.Joined, row.Reason = string(metav1.ConditionUnknown), "NotLookedAt"
	if ready := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.ReadyCondition); ready != nil {
		row.Joined, row.Reason, row.Message = string(ready.Status), ready.Reason, ready.Message
	}
	row.Paused = meta.IsStatusConditionTrue(reg.Status.Conditions, fleetv1.PausedCondition)
	row.AgentImage, row.AgentVersion = reg.Status.Agent.Image, imageVersion(reg.Status.Agent.Image)
	row.WantedAgentImage, row.WantedAgentVersion = reg.Spec.Agent.Image, imageVersion(reg.Spec.Agent.Image)
	row.CredentialExpiry = timeOrNil(reg.Status.Credential.ExpirationTime)
	row.Policy = reg.Spec.SelectedBy.Policy
	row.FleetCluster = reg.Spec.FleetCluster.Namespace + "/" + reg.Spec.FleetCluster.Name
	row.ClusterNamespace = reg.Status.Namespace
	row.Bundles = r.bundles
	if r.fleetCluster != nil {
		row.LastSeen = timeOrNil(r.fleetCluster.Status.Agent.LastSeen)
	}
	return row
}

// imageVersion returns the tag of an image, or the start of its digest.
func imageVersion(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		return name[i+1:]
	}
	if len(digest) > 19 {
		digest = digest[:19]
	}
	return digest
}

func (o *statusOptions) print(rows []statusRow) error {
	if o.output.structured() {
		return o.output.print(o.Out, map[string]any{"clusters": rows})
	}
	if len(rows) == 0 {
		warnf(o.ErrOut, "There is no Cluster.")
		return nil
	}
	return table(o.Out, append([][]string{o.header()}, o.cells(rows)...))
}

func (o *statusOptions) header() []string {
	header := []string{"NAME", styleFor(o.Out).paint(plain, "JOINED"), "REASON", "AGENT", "LAST SEEN", "EXPIRES", "BUNDLES"}
	if o.allNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if o.output.format == formatWide {
		header = append(header, "POLICY", "FLEET CLUSTER", "CLUSTER NAMESPACE", "MESSAGE")
	}
	return header
}

func (o *statusOptions) cells(rows []statusRow) [][]string {
	now, painter := o.clock.Now(), styleFor(o.Out)
	lines := make([][]string, 0, len(rows))
	for i := range rows {
		r := &rows[i]
		line := []string{r.Name, painter.status(r.Joined), reasonCell(r), agentCell(r),
			ago(now, r.LastSeen), until(now, r.CredentialExpiry), bundlesCell(r.Bundles)}
		if o.allNamespaces {
			line = append([]string{r.Namespace}, line...)
		}
		if o.output.format == formatWide {
			line = append(line, orNothing(r.Policy), orNothing(r.FleetCluster), orNothing(r.ClusterNamespace), orNothing(oneLine(r.Message)))
		}
		lines = append(lines, line)
	}
	return lines
}

func reasonCell(r *statusRow) string {
	if r.Paused {
		return r.Reason + " (paused)"
	}
	return r.Reason
}

// agentCell shows what runs, and what is to run where that is something else.
func agentCell(r *statusRow) string {
	switch {
	case r.AgentImage == r.WantedAgentImage:
		return orNothing(r.AgentVersion)
	case r.AgentVersion == r.WantedAgentVersion:
		// The same from somewhere else.
		return fmt.Sprintf("%s (to be %s)", orNothing(r.AgentVersion), r.WantedAgentImage)
	}
	return fmt.Sprintf("%s (to be %s)", orNothing(r.AgentVersion), orNothing(r.WantedAgentVersion))
}

func bundlesCell(count *bundleCount) string {
	if count == nil {
		return nothing
	}
	return fmt.Sprintf("%d/%d", count.Ready, count.Total)
}

// follow prints all lines, and from then on those that change, until the context ends or an
// error comes that does not pass. One that may pass is said once.
func (o *statusOptions) follow(ctx context.Context, rows []statusRow, look func(context.Context) ([]statusRow, error)) error {
	shown := map[string]string{}
	changed(shown, rows)
	if err := o.print(rows); err != nil {
		return err
	}
	for wait, failing := watchInterval, false; o.sleep(ctx, wait) == nil; {
		rows, err := look(ctx)
		switch {
		case err != nil && lasting(err):
			return err
		case err != nil:
			if !failing && ctx.Err() == nil {
				warnf(o.ErrOut, "Error: %s; trying again", err)
			}
			wait, failing = min(2*wait, watchRetryCap), true
			continue
		}
		wait, failing = watchInterval, false
		if lines := changed(shown, rows); len(lines) > 0 {
			if err := table(o.Out, o.cells(lines)); err != nil {
				return err
			}
		}
	}
	return nil
}

// lasting tells whether an error does not pass by itself.
func lasting(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || meta.IsNoMatchError(err) ||
		errors.As(err, new(noClusterError)) || errors.As(err, new(*usageError))
}

// changed returns the rows in which something is new, times aside, and notes them.
func changed(shown map[string]string, rows []statusRow) []statusRow {
	var news []statusRow
	for _, row := range rows {
		state := fmt.Sprint(row.Joined, reasonCell(&row), row.Message, agentCell(&row), bundlesCell(row.Bundles), row.ClusterNamespace)
		if key := row.Namespace + "/" + row.Name; shown[key] != state {
			shown[key] = state
			news = append(news, row)
		}
	}
	return news
}
