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

package manager

import (
	goflag "flag"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/pflag"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capiflags "sigs.k8s.io/cluster-api/util/flags"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/remote"
)

const (
	// podNamespaceEnv names the variable that says in which namespace the manager
	// runs.
	podNamespaceEnv = "POD_NAMESPACE"

	// defaultManagerNamespace is the manager's namespace where nothing else says.
	defaultManagerNamespace = "capi-fleet-system"

	// maxVerbosity is the highest level of logging. From level 8 on, client-go logs
	// the bodies of requests and answers, and with them tokens and kubeconfigs.
	maxVerbosity = 7

	// minTokenLifetime is the shortest life that API servers grant a token (Kubernetes,
	// validation of TokenRequest).
	minTokenLifetime = 10 * time.Minute

	// maxImageLength is the limit of the API for the agent's image.
	maxImageLength = 512
)

// Options is what the flags say. ParseFlags makes it, and what it returns is
// valid.
type Options struct {
	// Namespace is the only one whose Clusters are looked at. Empty means all.
	Namespace string

	// WatchFilter is the value that the watch label of Cluster API must have on
	// Clusters and registrations. Empty takes all.
	WatchFilter string

	// SyncPeriod is the time after which everything is reconciled anew.
	SyncPeriod time.Duration

	// FleetNamespace is where Fleet runs on the management cluster.
	FleetNamespace string

	// ManagerNamespace is where the manager runs and keeps the service accounts of
	// the agents.
	ManagerNamespace string

	// BuiltInPolicy says whether labelled Clusters join without a
	// FleetRegistrationPolicy.
	BuiltInPolicy bool

	// DeniedRanges are the addresses that the manager must not connect to for a
	// workload cluster. Nil allows all.
	DeniedRanges remote.DeniedRanges

	// AgentImage is the agent's image where Fleet's configuration names none. Empty
	// means that there is no default.
	AgentImage string

	// AgentCheckinInterval is the time between two heartbeats of an agent where
	// Fleet's configuration does not say. Zero leaves it to the agent.
	AgentCheckinInterval time.Duration

	// AgentTokenDir is the directory of the agent's token file, as the agent sees
	// it. A "{namespace}" in it stands for the cluster namespace.
	AgentTokenDir string

	// MaxTokenLifetime is the longest life that is asked for with an agent's token.
	// Zero sets no limit.
	MaxTokenLifetime time.Duration

	// WorkloadResyncInterval is the time after which the agent's objects in a workload
	// cluster are looked at although nothing calls for it. Zero means never.
	WorkloadResyncInterval time.Duration

	// RegistrationConcurrency is the number of registrations handled at once.
	RegistrationConcurrency int

	// SelectionConcurrency is the number of Clusters handled at once by the
	// controller that selects them.
	SelectionConcurrency int

	leaderElect              bool
	leaderElectLeaseDuration time.Duration
	leaderElectRenewDeadline time.Duration
	leaderElectRetryPeriod   time.Duration
	kubeAPIQPS               float32
	kubeAPIBurst             int
	healthAddr               string
	profilerAddress          string
	contentionProfiling      bool
	deniedRanges             string
	manager                  capiflags.ManagerOptions
	logging                  *logsv1.LoggingConfiguration
}

// ParseFlags reads the command line, without the name of the program. The error of
// a wrong flag or value is one line; pflag.ErrHelp means that --help was asked for,
// and the second result is then the text to print.
func ParseFlags(args []string) (*Options, string, error) {
	o := newOptions()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.Usage = func() {}
	for _, set := range o.flags().FlagSets {
		fs.AddFlagSet(set)
	}

	if err := fs.Parse(args); err != nil {
		return nil, fs.FlagUsages(), err
	}
	if fs.NArg() > 0 {
		return nil, "", fmt.Errorf("unexpected argument %q: the manager takes flags only", fs.Arg(0))
	}
	if err := o.complete(); err != nil {
		return nil, "", err
	}
	return o, "", nil
}

// Flags returns the flags with their defaults in the groups "capi-fleet", "Cluster API",
// which are those that every manager of Cluster API has, and "logging".
func Flags() cliflag.NamedFlagSets { return newOptions().flags() }

func newOptions() *Options {
	o := &Options{logging: logsv1.NewLoggingConfiguration()}
	// Cluster API's managers log at this level by default.
	o.logging.Verbosity = 2
	return o
}

func (o *Options) flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	o.addOwnFlags(sets.FlagSet("capi-fleet"))
	o.addManagerFlags(sets.FlagSet("Cluster API"))
	logsv1.AddFlags(o.logging, sets.FlagSet("logging"))
	return sets
}

func (o *Options) addManagerFlags(fs *pflag.FlagSet) {
	capiflags.AddManagerOptions(fs, &o.manager)

	// Only --kubeconfig; the process-wide set may hold flags of other packages.
	goFlags := goflag.NewFlagSet("", goflag.ContinueOnError)
	config.RegisterFlags(goFlags)
	fs.AddGoFlagSet(goFlags)

	fs.BoolVar(&o.leaderElect, "leader-elect", false,
		"Elect a leader among several managers. Only the leader works. The shipped Deployment sets it.")
	fs.DurationVar(&o.leaderElectLeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"How long the others wait for a silent leader before one of them takes over.")
	fs.DurationVar(&o.leaderElectRenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"How long a leader tries to renew its lease before it gives up.")
	fs.DurationVar(&o.leaderElectRetryPeriod, "leader-elect-retry-period", 2*time.Second,
		"Time between two tries to get or renew the lease.")
	fs.StringVar(&o.Namespace, "namespace", "",
		"Look only at the Clusters of this namespace. Empty means all.")
	fs.StringVar(&o.WatchFilter, "watch-filter", "",
		fmt.Sprintf("Look only at Clusters and FleetRegistrations whose label %s has this value. Empty means all.", clusterv1.WatchLabel))
	fs.DurationVar(&o.SyncPeriod, "sync-period", 10*time.Minute,
		"Time after which everything is reconciled anew.")
	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 100,
		"Requests per second to the management cluster.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 200,
		"Requests to the management cluster allowed in one burst.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440",
		"Address that serves /healthz and /readyz.")
	fs.StringVar(&o.profilerAddress, "profiler-address", "",
		"Address that serves pprof without authentication, such as localhost:6060. Empty means none.")
	fs.BoolVar(&o.contentionProfiling, "contention-profiling", false,
		"Profile where goroutines block.")
}

func (o *Options) addOwnFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.FleetNamespace, "fleet-namespace", fleet.DefaultAgentNamespace,
		"Namespace of Fleet on the management cluster.")
	fs.StringVar(&o.ManagerNamespace, "manager-namespace", managerNamespace(),
		"Namespace of the manager, which keeps the service accounts of the agents. "+
			"The default is taken from "+podNamespaceEnv+" where that is set.")
	fs.BoolVar(&o.BuiltInPolicy, "built-in-policy", true,
		"Let labelled Clusters join without a FleetRegistrationPolicy.")
	fs.StringVar(&o.deniedRanges, "denied-ranges", remote.DefaultDeniedRanges,
		"Address ranges in CIDR notation, divided by commas, that the manager never connects to for a workload cluster. Empty allows all.")
	fs.StringVar(&o.AgentImage, "agent-image", "",
		"Image of the agent where Fleet's configuration names none.")
	fs.DurationVar(&o.AgentCheckinInterval, "agent-checkin-interval", 0,
		"Time between two heartbeats of an agent where Fleet's configuration does not say. 0 leaves it to the agent.")
	fs.StringVar(&o.AgentTokenDir, "agent-token-dir", agent.DefaultTokenDir,
		"Directory of the token file as the agent sees it. {namespace} in it stands for the cluster namespace. A change makes new pods.")
	fs.DurationVar(&o.MaxTokenLifetime, "max-token-lifetime", 0,
		"Longest life that is asked for with an agent's token, whatever a policy says, at least 10m, which is the least that API servers grant. 0 sets no limit.")
	fs.DurationVar(&o.WorkloadResyncInterval, "workload-resync-interval", 10*time.Hour,
		"Time after which the agent's objects in a workload cluster are looked at although nothing calls for it, a tenth more or less at random; at least 1m. 0 turns it off.")
	fs.IntVar(&o.RegistrationConcurrency, "registration-concurrency", 50,
		"Number of registrations handled at once.")
	fs.IntVar(&o.SelectionConcurrency, "selection-concurrency", 10,
		"Number of Clusters that are looked at for selection at once.")
}

func managerNamespace() string {
	if namespace := os.Getenv(podNamespaceEnv); namespace != "" {
		return namespace
	}
	return defaultManagerNamespace
}

// complete checks every value and derives the fields that no flag sets. It returns
// all that is wrong, in one line.
func (o *Options) complete() error {
	var errs []error
	failf := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	namespaces := []struct {
		flag, value string
		optional    bool
	}{
		{"--namespace", o.Namespace, true},
		{"--fleet-namespace", o.FleetNamespace, false},
		{"--manager-namespace", o.ManagerNamespace, false},
	}
	for _, n := range namespaces {
		if n.optional && n.value == "" {
			continue
		}
		if problems := validation.IsDNS1123Label(n.value); len(problems) > 0 {
			failf("%s: %q is not the name of a namespace", n.flag, n.value)
		}
	}
	if problems := validation.IsValidLabelValue(o.WatchFilter); len(problems) > 0 {
		failf("--watch-filter: %q is not the value of a label", o.WatchFilter)
	}

	counts := []struct {
		flag  string
		value int
	}{
		{"--kube-api-burst", o.kubeAPIBurst},
		{"--registration-concurrency", o.RegistrationConcurrency},
		{"--selection-concurrency", o.SelectionConcurrency},
	}
	for _, c := range counts {
		if c.value < 1 {
			failf("%s: must be at least 1, is %d", c.flag, c.value)
		}
	}
	if !(o.kubeAPIQPS > 0) {
		failf("--kube-api-qps: must be more than 0, is %v", o.kubeAPIQPS)
	}
	if o.SyncPeriod <= 0 {
		failf("--sync-period: must be more than 0, is %v", o.SyncPeriod)
	}
	if o.AgentCheckinInterval < 0 {
		failf("--agent-checkin-interval: must not be negative, is %v", o.AgentCheckinInterval)
	}
	if o.MaxTokenLifetime != 0 && o.MaxTokenLifetime < minTokenLifetime {
		failf("--max-token-lifetime: must be 0 or at least %v, is %v", minTokenLifetime, o.MaxTokenLifetime)
	}
	if o.WorkloadResyncInterval != 0 && o.WorkloadResyncInterval < time.Minute {
		failf("--workload-resync-interval: must be 0 or at least 1m, is %v", o.WorkloadResyncInterval)
	}
	if o.leaderElectRetryPeriod <= 0 {
		failf("--leader-elect-retry-period: must be more than 0, is %v", o.leaderElectRetryPeriod)
	}
	// client-go demands this distance: the pause between two tries is jittered.
	if o.leaderElectRenewDeadline <= o.leaderElectRetryPeriod*6/5 {
		failf("--leader-elect-renew-deadline: must be more than 1.2 times --leader-elect-retry-period, is %v", o.leaderElectRenewDeadline)
	}
	if o.leaderElectLeaseDuration <= o.leaderElectRenewDeadline {
		failf("--leader-elect-lease-duration: must be more than --leader-elect-renew-deadline, is %v", o.leaderElectLeaseDuration)
	}
	if len(o.AgentImage) > maxImageLength || strings.ContainsAny(o.AgentImage, " \t\r\n") {
		failf("--agent-image: must have at most %d characters and no spaces", maxImageLength)
	}
	if !path.IsAbs(o.AgentTokenDir) {
		failf("--agent-token-dir: %q is not an absolute path", o.AgentTokenDir)
	}

	o.logging.Verbosity = min(o.logging.Verbosity, maxVerbosity)
	for i := range o.logging.VModule {
		o.logging.VModule[i].Verbosity = min(o.logging.VModule[i].Verbosity, maxVerbosity)
	}

	var err error
	if o.DeniedRanges, err = remote.ParseDeniedRanges(o.deniedRanges); err != nil {
		failf("--denied-ranges: %w", err)
	}
	return kerrors.NewAggregate(errs)
}
