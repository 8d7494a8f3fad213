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

package agentsim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// name is that of the Secret and the ConfigMap that the agent reads.
const name = "fleet-agent"

// Options are what an Agent is started with, as the real one is with its
// environment.
type Options struct {
	// Workload is how the agent reaches the cluster that it runs in, as its admin.
	Workload *rest.Config

	// Namespace is where the agent runs. Empty means cattle-fleet-system.
	Namespace string

	// CheckinInterval is the time between heartbeats. 0 means 15 minutes.
	CheckinInterval time.Duration

	// InitialHeartbeat is the time before the first heartbeat. 0 means 15 seconds.
	InitialHeartbeat time.Duration

	// Retry is the time after which a credential that failed is read again. 0 means
	// 3 seconds. (The real agent takes a minute.)
	Retry time.Duration

	// OnReport is called with every new report, one call at a time. It must not
	// call the Agent. Nil means never.
	OnReport func(Report)

	// Logger gets what the agent would log. The zero value discards it.
	Logger logr.Logger
}

// Agent is one run of an agent.
type Agent struct {
	options  Options
	log      logr.Logger
	reporter *reporter

	// acting keeps garbage collection and the reconciler apart.
	acting sync.Mutex

	workload   client.Client
	management *management // set once the credential works
	collected  sync.Once
	interval   time.Duration // of garbage collection
}

// New returns an Agent that Run will start.
func New(options Options) *Agent {
	options.Namespace = cmp.Or(options.Namespace, fleet.DefaultAgentNamespace)
	options.CheckinInterval = cmp.Or(options.CheckinInterval, 15*time.Minute)
	options.InitialHeartbeat = cmp.Or(options.InitialHeartbeat, 15*time.Second)
	options.Retry = cmp.Or(options.Retry, 3*time.Second)
	if options.Logger.IsZero() {
		options.Logger = logr.Discard()
	}
	return &Agent{
		options:  options,
		log:      options.Logger,
		reporter: newReporter(options.OnReport),
	}
}

// Run runs a new Agent until ctx ends.
func Run(ctx context.Context, options Options) error {
	return New(options).Run(ctx)
}

// Report returns what the agent has done so far.
func (a *Agent) Report() Report {
	return a.reporter.snapshot()
}

// Run does an agent's work until ctx ends. An Agent runs once. The error says that
// the workload cluster's configuration is of no use.
func (a *Agent) Run(ctx context.Context) error {
	workload, closeWorkload, err := a.newClient(a.options.Workload, "workload")
	if err != nil {
		return fmt.Errorf("making a client of the workload cluster: %w", err)
	}
	defer closeWorkload()
	a.workload = workload

	a.management = a.connectUntilItWorks(ctx)
	if a.management == nil {
		return nil
	}
	defer a.management.close()

	config, err := a.readConfig(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		a.log.Error(err, "Failed to start, staying a leader that does nothing")
		a.reporter.setState(Idle, err.Error())
		<-ctx.Done()
		return nil
	}
	a.interval = cmp.Or(config.GarbageCollectionInterval.Duration, 15*time.Minute)

	a.reporter.setState(Running, "")
	a.log.Info("Listening for BundleDeployments", "namespace", a.management.namespace)
	var work sync.WaitGroup
	work.Go(func() { a.beat(ctx) })
	work.Go(func() { a.follow(ctx, &work) })
	work.Wait()
	return nil
}

// agentConfig is what the agent uses of its ConfigMap.
type agentConfig struct {
	GarbageCollectionInterval metav1.Duration `json:"garbageCollectionInterval"`
}

// readConfig reads the ConfigMap. The real agent does so once, after the
// credential worked, and gives up if that fails.
func (a *Agent) readConfig(ctx context.Context) (agentConfig, error) {
	var config agentConfig
	object := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: a.options.Namespace, Name: name}
	if err := a.workload.Get(ctx, key, object); err != nil {
		return config, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	if err := json.Unmarshal([]byte(object.Data["config"]), &config); err != nil {
		return config, fmt.Errorf("reading the config of ConfigMap %s: %w", key, err)
	}
	return config, nil
}

// beat sends heartbeats until ctx ends.
func (a *Agent) beat(ctx context.Context) {
	for wait := a.options.InitialHeartbeat; sleep(ctx, wait); wait = a.options.CheckinInterval {
		now := metav1.Now().Rfc3339Copy()
		patch, err := json.Marshal([]map[string]any{{
			"op":    "add",
			"path":  "/status/agent",
			"value": fleet.AgentStatus{LastSeen: now, Namespace: a.options.Namespace},
		}})
		if err == nil {
			cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: a.management.clusterNamespace, Name: a.management.clusterName,
			}}
			err = a.management.client.Status().Patch(ctx, cluster, client.RawPatch(types.JSONPatchType, patch))
		}
		if err != nil {
			a.log.Error(err, "Failed to send a heartbeat")
			continue
		}
		a.reporter.heartbeat(now)
	}
}

// follow reconciles every BundleDeployment that comes, changes or goes, until ctx
// ends. Garbage collection, once begun, belongs to work.
func (a *Agent) follow(ctx context.Context, work *sync.WaitGroup) {
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 10*time.Second))
	informer, err := a.management.newInformer(queue, a.log)
	if err != nil {
		a.log.Error(err, "Failed to watch BundleDeployments")
		return
	}
	work.Go(func() { informer.RunWithContext(ctx) })
	work.Go(func() {
		<-ctx.Done()
		queue.ShutDown()
	})
	select {
	case <-informer.HasSyncedChecker().Done():
	case <-ctx.Done():
		return
	}
	for {
		name, stop := queue.Get()
		if stop {
			return
		}
		// The real agent also begins to collect at the first one that it sees.
		a.collected.Do(func() {
			work.Go(func() { a.collect(ctx, informer.GetStore()) })
		})
		if err := a.reconcile(ctx, informer.GetStore(), name); err != nil && ctx.Err() == nil {
			a.log.Error(err, "Failed to reconcile", "bundleDeployment", name)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// sleep returns false if ctx ended before d was over.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
