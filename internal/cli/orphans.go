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
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// watchTime is the longest time that a watch stays open to which nobody comes back:
	// client-go asks for ten minutes at most.
	watchTime = 15 * time.Minute
	// silentTime is how long an agent has to be silent before it is taken to be gone.
	silentTime = time.Hour
	// heartbeatSlack is how long after the end of its account a heartbeat can arrive: the
	// API server remembers for some seconds whom it let in.
	heartbeatSlack = time.Minute
)

// Kinds of orphans.
const (
	orphanedCluster = "Cluster"
	orphanedAccount = "ServiceAccount"
)

// orphan is an object of ours whose registration is gone.
type orphan struct {
	Kind           string `json:"kind"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	RegistrationID string `json:"registrationID"`
	// The rest is of Fleet Clusters alone.

	// Reported tells whether the manager has labelled it.
	Reported         bool         `json:"reported,omitempty"`
	ClusterNamespace string       `json:"clusterNamespace,omitempty"`
	LastSeen         *metav1.Time `json:"lastSeen,omitempty"`
	// Bundles is the number of BundleDeployments.
	Bundles int `json:"bundles,omitempty"`
	// AccessEnded is when a removal that has begun deleted the agent's account.
	AccessEnded *metav1.Time `json:"accessEnded,omitempty"`
	// Obstacle says why it is not removed, empty where it can be.
	Obstacle string `json:"obstacle,omitempty"`
}

func (o *orphan) key() string { return o.Namespace + "/" + o.Name }

type orphanOptions struct {
	*app
	output           outputFlag
	managerNamespace string
	allNamespaces    bool
	remove, all      bool
	dryRun           bool
	silentFor, wait  time.Duration
}

func newOrphansCommand(a *app) *cobra.Command {
	o := &orphanOptions{app: a}
	command := &cobra.Command{
		Use:   "orphans [NAME...]",
		Short: "List what is left of registrations that are gone, and remove it",
		Long: `List the Fleet Clusters that capi-fleet made for a registration which is gone, and the
service accounts of which nothing else is left. Those are in the manager's namespace.

--delete removes those that are named, or with --all those that would be listed. What Fleet
deployed there goes on running: first the agent's service account is deleted, and an agent on
the management cluster stopped; --wait later, when the agent has no watch open any more, the
Fleet Cluster. Fleet then deletes the cluster namespace. Where this breaks off, run it again:
it does not wait anew.

It leaves those whose agent still reports, and says why; the exit code is 3 then.`,
		Example: `  clusterctl fleet orphans --all-namespaces
  clusterctl fleet orphans --delete edge-1 --namespace team-a
  clusterctl fleet orphans --delete --all --all-namespaces --dry-run`,
		ValidArgsFunction: a.completeOrphans,
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(command.Context(), args)
		},
	}
	o.output.add(command, formatTable, formatJSON, formatYAML)
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "look into all namespaces")
	addManagerNamespace(command, &o.managerNamespace)
	flags.BoolVar(&o.remove, "delete", false, "remove those that are named, or all with --all")
	flags.BoolVar(&o.all, "all", false, "with --delete: remove all that would be listed")
	flags.BoolVar(&o.dryRun, "dry-run", false, "with --delete: say what would be done, and do nothing")
	flags.DurationVar(&o.silentFor, "silent-for", silentTime, "with --delete: leave those whose agent reported within this time, such as 30m; 0 takes them too")
	flags.DurationVar(&o.wait, "wait", watchTime, "with --delete: time from the end of the account to that of the Fleet Cluster, such as 15m; where it is shorter, an agent whose watch is still open uninstalls everything")
	return command
}

func (o *orphanOptions) complete(args []string) error {
	switch {
	case len(args) > 0 && o.allNamespaces:
		return usagef("name orphans or use --all-namespaces, not both")
	case !o.remove && (o.all || o.dryRun):
		return usagef("--all and --dry-run go with --delete")
	case !o.remove:
		return nil
	case o.output.format != formatTable:
		return usagef("--output goes without --delete")
	case len(args) > 0 && o.all:
		return usagef("name orphans or use --all, not both")
	case len(args) == 0 && !o.all:
		return usagef("name the orphans to --delete, or use --all")
	case o.silentFor < 0:
		return usagef("--silent-for must not be less than 0")
	case o.wait < 0:
		return usagef("--wait must not be less than 0")
	}
	return nil
}

func (o *orphanOptions) run(ctx context.Context, names []string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	namespace := ""
	if !o.allNamespaces {
		if namespace, err = o.namespace(); err != nil {
			return err
		}
	}
	found, err := o.list(ctx, c)
	if err != nil {
		return err
	}
	found, err = pickOrphans(found, namespace, names)
	switch {
	case err != nil:
		return err
	case o.remove:
		return o.removal(c).run(ctx, found)
	}
	return o.print(found)
}

// list lists all orphans of the management cluster.
func (o *orphanOptions) list(ctx context.Context, c client.Client) ([]orphan, error) {
	registrations, clusters := &fleetv1.FleetRegistrationList{}, &fleet.ClusterList{}
	deployments, accounts := &fleet.BundleDeploymentList{}, &corev1.ServiceAccountList{}
	// Registrations last: one that is made meanwhile is seen.
	for _, list := range []client.ObjectList{accounts, clusters, deployments, registrations} {
		var opts []client.ListOption
		if list == client.ObjectList(accounts) {
			opts = []client.ListOption{client.InNamespace(o.managerNamespace), client.MatchingLabels{upstream.ManagedByLabel: upstream.FieldOwner}}
		}
		if err := c.List(ctx, list, opts...); err != nil {
			return nil, err
		}
	}
	found := orphansAmong(registrations.Items, clusters.Items, accounts.Items, count(deployments.Items))
	for i := range found {
		found[i].Obstacle = found[i].obstacle(o.clock.Now(), o.silentFor)
	}
	return found, nil
}

// orphansAmong returns the orphans among objects, sorted.
func orphansAmong(registrations []fleetv1.FleetRegistration, clusters []fleet.Cluster, accounts []corev1.ServiceAccount, bundles map[string]bundleCount) []orphan {
	registered, used := upstream.IDsInUse(registrations, nil), upstream.IDsInUse(registrations, clusters)
	var found []orphan
	for i := range clusters {
		if o := orphanOf(&clusters[i]); upstream.MadeForRegistration(&clusters[i]) && !registered.Has(o.RegistrationID) {
			o.Bundles = bundles[o.ClusterNamespace].Total
			found = append(found, o)
		}
	}
	for i := range accounts {
		account := &accounts[i]
		if id := account.Annotations[fleetv1.RegistrationIDAnnotation]; id != "" && !used.Has(id) {
			found = append(found, orphan{Kind: orphanedAccount, Namespace: account.Namespace, Name: account.Name, RegistrationID: id})
		}
	}
	slices.SortFunc(found, func(a, b orphan) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
}

func orphanOf(cluster *fleet.Cluster) orphan {
	return orphan{
		Kind:             orphanedCluster,
		Namespace:        cluster.Namespace,
		Name:             cluster.Name,
		RegistrationID:   cluster.Annotations[fleetv1.RegistrationIDAnnotation],
		Reported:         cluster.Labels[fleetv1.OrphanLabel] == "true",
		ClusterNamespace: cluster.Status.Namespace,
		LastSeen:         timeOrNil(cluster.Status.Agent.LastSeen),
		AccessEnded:      timeOrNil(metav1.NewTime(upstream.AccessEnded(cluster))),
	}
}

// obstacle says why an orphan is not to be removed now, empty where it may be.
func (o *orphan) obstacle(now time.Time, silentFor time.Duration) string {
	switch {
	case o.Kind == orphanedAccount:
		return ""
	case !o.Reported:
		return "the manager has not labelled it " + fleetv1.OrphanLabel + ": its registration may come back, or the manager does not run"
	case o.LastSeen == nil || silentFor == 0:
		return ""
	case o.AccessEnded != nil && o.LastSeen.After(o.AccessEnded.Add(heartbeatSlack)):
		return fmt.Sprintf("its agent reported at %s, after its account ended, so it has another credential; stop it first, or it uninstalls everything", o.LastSeen.UTC().Format(time.RFC3339))
	case o.AccessEnded == nil && o.LastSeen.After(now.Add(-silentFor)):
		return fmt.Sprintf("its agent reported at %s, less than %s ago; stop it first, or name another time with --silent-for", o.LastSeen.UTC().Format(time.RFC3339), silentFor)
	}
	return ""
}

// pickOrphans returns those of a namespace, all where it is empty, that are named, all
// where none are.
func pickOrphans(all []orphan, namespace string, names []string) ([]orphan, error) {
	var picked []orphan
	for _, o := range all {
		if (namespace == "" || o.Namespace == namespace) && (len(names) == 0 || slices.Contains(names, o.Name)) {
			picked = append(picked, o)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(picked, func(o orphan) bool { return o.Name == name }) {
			return nil, fmt.Errorf("there is no orphan %s/%s: %s orphans --all-namespaces lists all", namespace, name, programName)
		}
	}
	return picked, nil
}

func (o *orphanOptions) print(found []orphan) error {
	if o.output.structured() {
		return o.output.print(o.Out, map[string]any{"orphans": found})
	}
	if len(found) == 0 {
		warnf(o.ErrOut, "There is no orphan.")
		return nil
	}
	rows := [][]string{{"NAMESPACE", "KIND", "NAME", "CLUSTER NAMESPACE", "BUNDLES", "LAST SEEN", "OBSTACLE"}}
	for i := range found {
		r, bundles := &found[i], nothing
		if r.Kind == orphanedCluster {
			bundles = fmt.Sprint(r.Bundles)
		}
		rows = append(rows, []string{r.Namespace, r.Kind, r.Name, orNothing(r.ClusterNamespace), bundles, ago(o.clock.Now(), r.LastSeen), orNothing(r.Obstacle)})
	}
	return table(o.Out, rows)
}

// completeOrphans offers the names of Fleet Clusters that are labelled as orphans.
func (a *app) completeOrphans(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeNames(command.Context(), &fleet.ClusterList{}, client.MatchingLabels{fleetv1.OrphanLabel: "true"})
}

// plan says what a removal does.
func (o *orphan) plan(managerNamespace string, wait time.Duration) string {
	if o.Kind == orphanedAccount {
		return fmt.Sprintf("service account %s goes", o.key())
	}
	steps := []string{"its agent's service account and rights go, and what an agent in namespace " + managerNamespace + " has there",
		fmt.Sprintf("%s after the account Fleet Cluster %s goes", wait, o.key())}
	if o.ClusterNamespace != "" {
		steps = append(steps, fmt.Sprintf("and by Fleet namespace %s with %d BundleDeployments", oneLine(o.ClusterNamespace), o.Bundles))
	}
	return strings.Join(steps, "; ")
}
