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

// Package cli is the command line "clusterctl fleet". Each command gathers what it needs
// from the management cluster, and at most from one workload cluster; pure functions turn
// that into rows, trees, findings and manifests, which are then printed.
//
// Workload clusters may be hostile: they are reached with package remote alone, and
// nothing that they send is printed but names of ours and counts.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// Exit codes.
const (
	// ExitOK means that it was done, and that nothing is wrong.
	ExitOK = 0
	// ExitFailed means that it could not be done.
	ExitFailed = 1
	// ExitUsage means that the command line is wrong.
	ExitUsage = 2
	// ExitFinding means that it was done, and that something is wrong with a cluster, or
	// is still to be done for it.
	ExitFinding = 3
)

// programName is how people call the program.
const programName = "clusterctl fleet"

// userAgent is how the program names itself to API servers, and as the owner of fields.
const userAgent = "clusterctl-fleet"

// defaultManagerNamespace is where clusterctl installs the manager.
const defaultManagerNamespace = "capi-fleet-system"

// errFinding ends a command that has said all: something is wrong with a cluster.
var errFinding = errors.New("something is wrong with a cluster")

// usageError is what is wrong with a command line, in one line.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// app is what all commands share.
type app struct {
	genericiooptions.IOStreams
	config *genericclioptions.ConfigFlags
	clock  clock.Clock
}

// Run runs the command line, without the name of the program, and returns the exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	ctrl.SetLogger(log.Log.WithSink(log.NullLogSink{}))
	root := NewCommand(streams) //nolint:contextcheck // Commands get theirs when they are run.
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	switch usage := (*usageError)(nil); {
	case err == nil:
		return ExitOK
	case errors.Is(err, errFinding):
		return ExitFinding
	case errors.As(err, &usage):
		fmt.Fprintf(streams.ErrOut, "Error: %s; see %s --help\n", oneLine(usage.message), displayPath(command))
		return ExitUsage
	default:
		fmt.Fprintf(streams.ErrOut, "Error: %s\n", oneLine(explain(err)))
		return ExitFailed
	}
}

// displayPath is how people call a command.
func displayPath(command *cobra.Command) string {
	return strings.TrimSpace(programName + " " + strings.TrimPrefix(strings.TrimPrefix(command.CommandPath(), command.Root().Name()), " "))
}

// oneLine makes a text that others may have written fit for a person's terminal: one line, and
// nothing in it that a terminal obeys, or that shows letters in another order.
func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || !unicode.In(r, unicode.Cc, unicode.Cf) {
			return r
		}
		return -1
	}, text)), " ")
}

// explain says what to do about errors that do not.
func explain(err error) string {
	switch {
	case clientcmd.IsEmptyConfig(err):
		return "there is no kubeconfig: set KUBECONFIG or --kubeconfig to that of the management cluster"
	case meta.IsNoMatchError(err):
		return fmt.Sprintf("this is not a management cluster with Cluster API, Fleet and capi-fleet (%v): check --context and --kubeconfig", err)
	}
	return err.Error()
}

// NewCommand returns the command with all its subcommands.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(&app{IOStreams: streams, config: genericclioptions.NewConfigFlags(true), clock: clock.RealClock{}})
}

func newCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "clusterctl-fleet",
		Short: "See and mend how Cluster API clusters are registered in Rancher Fleet",
		Long: `See and mend how Cluster API clusters are registered in Rancher Fleet.

clusterctl runs this program, clusterctl-fleet, as "clusterctl fleet" where it finds it in
the PATH. The kubeconfig is that of the management cluster.

Exit codes: 0 all is well, 1 it could not be done, 2 the command line is wrong, 3 it was
done, and something is wrong with a cluster or is still to be done.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: programName},
		Args:          func(_ *cobra.Command, args []string) error { return unknownCommand(args) },
		RunE:          func(*cobra.Command, []string) error { return usagef("say what to do: status, describe, diagnose, ...") },
		SilenceErrors: true,
		SilenceUsage:  true,
		// A suggestion would be a second line.
		DisableSuggestions: true,
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%v", err) })
	root.AddCommand(newStatusCommand(a), newDescribeCommand(a), newDiagnoseCommand(a), newRotateCommand(a), newRenderCommand(a),
		newOrphansCommand(a), newHandbackCommand(a))
	root.SetHelpCommand(newHelpCommand(root))
	a.config.AddFlags(root.PersistentFlags())
	hideRareFlags(root.PersistentFlags())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	refuseWrongShells(root)
	return root
}

// refuseWrongShells has "completion" refuse what cobra lets pass.
func refuseWrongShells(root *cobra.Command) {
	completion, _, err := root.Find([]string{"completion"})
	utilruntime.Must(err)
	const shells = "bash, zsh, fish or powershell"
	completion.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("there is no completion for %q, only for %s", args[0], shells)
		}
		return nil
	}
	completion.RunE = func(*cobra.Command, []string) error { return usagef("name a shell: %s", shells) }
	for _, shell := range completion.Commands() {
		shell.Args = exactly()
	}
}

// newHelpCommand returns a "help" that refuses what there is no help for.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show how a command is used",
		RunE: func(_ *cobra.Command, args []string) error {
			command, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("there is no command %q", strings.Join(args, " "))
			}
			return command.Help()
		},
	}
}

func unknownCommand(args []string) error {
	if len(args) > 0 {
		return usagef("there is no command %q", args[0])
	}
	return nil
}

// usedFlags are the flags of kubectl that most people use.
var usedFlags = map[string]string{
	"kubeconfig": "kubeconfig file of the management cluster (default: $KUBECONFIG, else ~/.kube/config)",
	"context":    "context of the kubeconfig (default: the current one)",
	"namespace":  "namespace of the Clusters (default: that of the context, else \"default\")",
}

// hideRareFlags leaves in the help of every command what most people use.
func hideRareFlags(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		usage, used := usedFlags[f.Name]
		f.Hidden = !used
		if used {
			f.Usage = usage
		}
	})
}

// namespaceFlag is a flag that names a namespace.
type namespaceFlag string

// String implements pflag.Value.
func (n *namespaceFlag) String() string { return string(*n) }

// Type implements pflag.Value.
func (n *namespaceFlag) Type() string { return "string" }

// Set implements pflag.Value.
func (n *namespaceFlag) Set(value string) error {
	if len(validation.IsDNS1123Label(value)) > 0 {
		return errors.New("is not the name of a namespace")
	}
	*n = namespaceFlag(value)
	return nil
}

func addManagerNamespace(command *cobra.Command, into *string) {
	addNamespace(command, into, "manager-namespace", defaultManagerNamespace, "namespace of capi-fleet's manager, and of the agents' accounts")
}

func addFleetNamespace(command *cobra.Command, into *string) {
	addNamespace(command, into, "fleet-namespace", fleet.DefaultAgentNamespace, "namespace of Fleet's controller")
}

func addNamespace(command *cobra.Command, into *string, name, preset, usage string) {
	*into = preset
	command.Flags().Var((*namespaceFlag)(into), name, usage)
}

// exactly demands one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// scheme has all kinds that the commands read and write on the management cluster.
var scheme = newScheme()

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, fleet.AddToScheme, fleetv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// client returns a client of the management cluster, which reads live.
func (a *app) client() (client.Client, error) {
	config, err := a.restConfig()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// restConfig returns how the management cluster is reached.
func (a *app) restConfig() (*rest.Config, error) {
	// Without any configuration client-go would try a port of this machine.
	raw, err := a.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, err
	}
	if clientcmdapi.IsConfigEmpty(&raw) && *a.config.APIServer == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, clientcmd.ErrEmptyConfig
	}
	config, err := a.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent
	config.QPS, config.Burst = 50, 100
	return config, nil
}

// sleep waits, and fails where the context ends before.
func (a *app) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-a.clock.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eventually asks until something is done, or the time is over, and tells which.
func (a *app) eventually(ctx context.Context, timeout, interval time.Duration, done func() (bool, error)) (bool, error) {
	for deadline := a.clock.Now().Add(timeout); ; {
		if ok, err := done(); err != nil || ok {
			return ok, err
		}
		if !a.clock.Now().Before(deadline) {
			return false, nil
		}
		if err := a.sleep(ctx, interval); err != nil {
			return false, err
		}
	}
}

// namespace returns the namespace of the flags, else that of the kubeconfig's context.
func (a *app) namespace() (string, error) {
	namespace, _, err := a.config.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// clusterKey returns the key of the Cluster that an argument names.
func (a *app) clusterKey(name string) (client.ObjectKey, error) {
	namespace, err := a.namespace()
	return client.ObjectKey{Namespace: namespace, Name: name}, err
}

// completeClusters offers the names of Clusters.
func (a *app) completeClusters(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeNames(command.Context(), &clusterv1.ClusterList{})
}

// completeNames offers the names of objects in the namespace.
func (a *app) completeNames(ctx context.Context, list client.ObjectList, opts ...client.ListOption) ([]string, cobra.ShellCompDirective) {
	names, err := a.names(ctx, list, opts...)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) names(ctx context.Context, list client.ObjectList, opts ...client.ListOption) ([]string, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	namespace, err := a.namespace()
	if err != nil {
		return nil, err
	}
	if err := c.List(ctx, list, append(opts, client.InNamespace(namespace))...); err != nil {
		return nil, err
	}
	var names []string
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		names = append(names, obj.(client.Object).GetName())
		return nil
	})
	return names, err
}

// warnf tells a person what is no result.
func warnf(out io.Writer, format string, args ...any) {
	fmt.Fprintln(out, oneLine(fmt.Sprintf(format, args...)))
}
