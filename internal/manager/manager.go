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

// Package manager is the program that cmd/manager runs: its flags, the
// controller-runtime manager with its cache, and what the leader does beside the
// controllers, which is to wait until the APIs that they need are served and to
// keep the agents' right to read contents in place. It reconciles no Cluster and
// no registration itself, and never talks to a workload cluster.
package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capiremote "sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	capiflags "sigs.k8s.io/cluster-api/util/flags"
	"sigs.k8s.io/cluster-api/version"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// managerName is the user agent, and who reports Events.
	managerName = "capi-fleet"

	// leaderElectionID is the name of the lease, after the custom of Cluster API's
	// providers.
	leaderElectionID = "controller-leader-election-fleet"

	// minimumKubernetesVersion is the oldest management cluster that we support.
	minimumKubernetesVersion = "v1.32.0"

	// gcPercent is how much garbage, as a share of what is in use, may gather on the heap.
	gcPercent = 50

	// cacheSyncTimeout is how long a controller waits for its first list. Large
	// installations need more than the default.
	cacheSyncTimeout = 5 * time.Minute
)

// Run reads the command line, without the name of the program, and runs the
// manager until the context ends. It returns nil after an orderly stop and after
// --help, whose text goes to out. It sets up the logging of the whole process, so
// a process can call it once.
func Run(ctx context.Context, args []string, out io.Writer) error {
	opts, usage, err := ParseFlags(args)
	if errors.Is(err, pflag.ErrHelp) {
		_, err := fmt.Fprintf(out, "Registers Cluster API clusters in Rancher Fleet.\n\nFlags:\n%s", usage)
		return err
	}
	if err != nil {
		return err
	}

	if err := logsv1.ValidateAndApply(opts.logging, nil); err != nil {
		return err
	}
	defer klog.Flush()
	ctrl.SetLogger(klog.Background())
	if opts.contentionProfiling {
		goruntime.SetBlockProfileRate(1)
	}

	// Nearly all that is on the heap is the cache, and stays. Go's own default would let
	// garbage grow to as much again before it looks.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}

	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the management cluster: %w", err)
	}
	restConfig.QPS = opts.kubeAPIQPS
	restConfig.Burst = opts.kubeAPIBurst
	restConfig.UserAgent = capiremote.DefaultClusterAPIUserAgent(managerName)
	restConfig.WarningHandler = apiwarnings.DefaultHandler(klog.Background().WithName("API Server Warning"))

	if err := version.CheckKubernetesVersion(restConfig, minimumKubernetesVersion); err != nil {
		return fmt.Errorf("checking the management cluster: %w", err)
	}

	mgr, err := newManager(restConfig, opts)
	if err != nil {
		return err
	}
	ctrl.Log.WithName("setup").Info("Starting manager", "version", version.Get().String())
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// The diagnostics endpoint asks the API server who a token is, and whether they may
// read the metrics.
//+kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
//+kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// newManager returns a manager with everything that does not depend on APIs which
// may be missing. The controllers join it when it runs.
func newManager(restConfig *rest.Config, opts *Options) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	_, metricsOptions, err := capiflags.GetManagerOptions(opts.manager)
	if err != nil {
		return nil, fmt.Errorf("reading the flags of the diagnostics endpoint: %w", err)
	}

	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                        scheme,
		MapperProvider:                newRESTMapper,
		Cache:                         cacheOptions(opts),
		Client:                        clientOptions(),
		Controller:                    config.Controller{CacheSyncTimeout: cacheSyncTimeout},
		LeaderElection:                opts.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       opts.ManagerNamespace,
		LeaderElectionResourceLock:    resourcelock.LeasesResourceLock,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &opts.leaderElectLeaseDuration,
		RenewDeadline:                 &opts.leaderElectRenewDeadline,
		RetryPeriod:                   &opts.leaderElectRetryPeriod,
		Metrics:                       *metricsOptions,
		HealthProbeBindAddress:        opts.healthAddr,
		PprofBindAddress:              opts.profilerAddress,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}

	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the liveness check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}

	if err := mgr.Add(&contentsBinding{
		reader:    mgr.GetAPIReader(),
		writer:    client.WithFieldOwner(mgr.GetClient(), upstream.FieldOwner),
		namespace: opts.ManagerNamespace,
		clock:     clock.RealClock{},
	}); err != nil {
		return nil, fmt.Errorf("adding the binding of the agents: %w", err)
	}

	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(restConfig, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making the discovery client: %w", err)
	}
	if err := mgr.Add(&apiWaiter{
		discovery: discoveryClient,
		interval:  apiPollInterval,
		clock:     clock.RealClock{},
		setup:     func(ctx context.Context) error { return startWork(ctx, mgr, opts) },
	}); err != nil {
		return nil, fmt.Errorf("adding the wait for APIs: %w", err)
	}
	return mgr, nil
}

// newScheme returns a scheme with the kinds of the management cluster that the
// manager reads or writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		clusterv1.AddToScheme,
		fleetv1.AddToScheme,
		fleet.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}
