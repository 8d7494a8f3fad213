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
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/utils/clock"
	capiremote "sigs.k8s.io/cluster-api/controllers/remote"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/capi-fleet/capi-fleet/controllers/class"
	"github.com/capi-fleet/capi-fleet/controllers/orphan"
	"github.com/capi-fleet/capi-fleet/controllers/registration"
	"github.com/capi-fleet/capi-fleet/controllers/selection"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/endpoint"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/token"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// orphanGrace is how long a Fleet Cluster is without a registration before it is
// reported.
const orphanGrace = 30 * time.Second

// setupControllers adds the controllers to the running manager. It is called once,
// on the leader, when all APIs that they watch are served; the context ends with
// the manager.
func setupControllers(ctx context.Context, mgr ctrl.Manager, opts *Options) error {
	c, live, now := mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}
	manifests := agent.Manifests(opts.AgentTokenDir)
	selectionController := &selection.Reconciler{
		Client:    c,
		APIReader: live,
		Endpoint: &endpoint.Resolver{
			Reader:           &configReader{cached: c, live: live, managerNamespace: opts.ManagerNamespace, clock: now},
			ManagerNamespace: opts.ManagerNamespace,
			FleetNamespace:   opts.FleetNamespace,
			Defaults:         endpoint.AgentDefaults{Image: opts.AgentImage, CheckinInterval: opts.AgentCheckinInterval, Manifests: manifests},
		},
		Recorder:      mgr.GetEventRecorder(managerName),
		Clock:         now,
		BuiltInPolicy: opts.BuiltInPolicy,
		Namespace:     opts.Namespace,
		WatchFilter:   opts.WatchFilter,
	}
	if err := selectionController.SetupWithManager(ctx, mgr, concurrency(opts.SelectionConcurrency)); err != nil {
		return fmt.Errorf("selection: %w", err)
	}
	trial, err := token.NewTrial(mgr.GetConfig())
	if err != nil {
		return err
	}
	writer := &upstream.Writer{Client: c, Reader: live, Cache: c, ManagerNamespace: opts.ManagerNamespace, Clock: now}
	registrationController := &registration.Reconciler{
		Client:    c,
		APIReader: live,
		Upstream:  writer,
		Tokens:    &token.Issuer{Client: c, Clock: now, Namespace: opts.ManagerNamespace, MaxLifetime: opts.MaxTokenLifetime},
		TryToken:  trial.Try,
		Dialer: &remote.Dialer{
			Denied:    opts.DeniedRanges,
			UserAgent: capiremote.DefaultClusterAPIUserAgent(managerName),
		},
		Recorder:       mgr.GetEventRecorder(managerName),
		Clock:          now,
		ResyncInterval: opts.WorkloadResyncInterval,
		TokenDir:       opts.AgentTokenDir,
		Manifests:      manifests,
		Namespace:      opts.Namespace,
		WatchFilter:    opts.WatchFilter,
	}
	if err := registrationController.SetupWithManager(ctx, mgr, concurrency(opts.RegistrationConcurrency)); err != nil {
		return fmt.Errorf("registration: %w", err)
	}
	classController := &class.Reconciler{
		Client:      c,
		APIReader:   live,
		Upstream:    writer,
		Recorder:    mgr.GetEventRecorder(managerName),
		WatchFilter: opts.WatchFilter,
	}
	if err := classController.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("class: %w", err)
	}
	orphanController := &orphan.Reconciler{
		Client:    c,
		APIReader: live,
		Upstream:  writer,
		Recorder:  mgr.GetEventRecorder(managerName),
		Clock:     now,
		Grace:     orphanGrace,
		Namespace: opts.Namespace,
	}
	if err := orphanController.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("orphan: %w", err)
	}
	return nil
}

func concurrency(n int) controller.Options {
	return controller.Options{MaxConcurrentReconciles: n}
}

// configReader reads what policies name in the manager's namespace from the API
// server, which no cache holds, and the ConfigMaps of Fleet and of the cluster
// from the cache that watches them. It is read for every Cluster, so what came from the
// API server counts for a second.
type configReader struct {
	cached, live     client.Reader
	managerNamespace string
	clock            clock.PassiveClock

	mu     sync.Mutex
	recent map[string]recentRead // by type and key
}

type recentRead struct {
	object client.Object
	time   time.Time
}

// recentInterval is how long a read counts.
const recentInterval = time.Second

// Get implements client.Reader.
func (r *configReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if key.Namespace != r.managerNamespace {
		return r.cached.Get(ctx, key, obj, opts...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name, now := fmt.Sprintf("%T %s", obj, key), r.clock.Now()
	if read, ok := r.recent[name]; ok && now.Sub(read.time) < recentInterval {
		// Both are of the type that is in the name.
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(read.object.DeepCopyObject()).Elem())
		return nil
	}
	delete(r.recent, name)
	if err := r.live.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	if r.recent == nil {
		r.recent = map[string]recentRead{}
	}
	r.recent[name] = recentRead{obj.DeepCopyObject().(client.Object), now}
	return nil
}

// List implements client.Reader.
func (r *configReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.cached.List(ctx, list, opts...)
}
