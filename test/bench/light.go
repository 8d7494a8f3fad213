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
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	// checkin is the time between two heartbeats of an agent, Fleet's default.
	checkin = 15 * time.Minute
	// teams is the number of namespaces that the Clusters are in.
	teams = 20
	// hands is how much the program itself does at once.
	hands = 20
	// selectedLabel is on the Clusters that a policy takes, with the policy's name.
	selectedLabel = "bench"
)

// light is a lab whose workload clusters are of test/lightapi. Nothing runs in them: the
// program sends the heartbeats.
type light struct {
	*env.Lab
	manager *env.Manager
	log     func(format string, args ...any)

	steps recorder

	mu   sync.Mutex
	dead map[client.ObjectKey]bool

	// beats takes the Clusters whose agent is due to be heard.
	beats chan client.ObjectKey
	// quiet stops the heartbeats of agents that have been heard.
	quiet atomic.Bool
	stop  context.CancelFunc
	group sync.WaitGroup
}

// startLight starts the lab, without a manager.
func startLight(ctx context.Context, log func(string, ...any)) (*light, error) {
	l := &light{log: log, beats: make(chan client.ObjectKey, 1<<16)}
	lab, err := env.Start(ctx, env.Options{
		Log: log, NoManager: true, NoFleetController: true, CheckinInterval: checkin, OnEvent: l.record,
	})
	if err != nil {
		return nil, err
	}
	l.Lab = lab
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	for range hands {
		l.group.Go(func() { l.sendBeats(running) })
	}
	l.group.Go(func() { l.keepBeating(running) })
	return l, nil
}

// startManager starts another manager, with these flags, in place of the one that runs.
func (l *light) startManager(ctx context.Context, name string, args ...string) error {
	if err := l.stopManager(); err != nil {
		return err
	}
	var err error
	if l.manager, err = l.NewManager(ctx, name, args...); err != nil {
		return err
	}
	return l.manager.Start(ctx)
}

func (l *light) stopManager() error {
	if l.manager == nil {
		return nil
	}
	return l.manager.Stop()
}

func (l *light) close() error {
	l.stop()
	l.group.Wait()
	return l.Close()
}

// record notes a step. An agent is heard for the first time as soon as it is in place.
func (l *light) record(event env.Event) {
	l.steps.record(event)
	if event.Step == env.CredentialInPlace {
		l.beats <- event.Cluster
	}
}

// waitFor waits until all clusters took the step and returns when the last one did.
func (l *light) waitFor(ctx context.Context, keys []client.ObjectKey, step env.Step) (time.Time, error) {
	var last time.Time
	err := poll(ctx, func() (bool, error) {
		for _, key := range keys {
			at, taken := l.steps.at(key, step)
			if !taken {
				return false, nil
			}
			if at.After(last) {
				last = at
			}
		}
		return true, nil
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("waiting for %q: %w", step, err)
	}
	return last, nil
}

func (l *light) sendBeats(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-l.beats:
			if err := l.beat(ctx, key); err != nil && ctx.Err() == nil {
				l.log("heartbeat of %s: %v", key, err)
			}
		}
	}
}

// beat does what an agent does. A Fleet Cluster has the key of its Cluster here.
func (l *light) beat(ctx context.Context, key client.ObjectKey) error {
	patch := fmt.Appendf(nil, `[{"op":"add","path":"/status/agent","value":{"lastSeen":%q,"namespace":%q}}]`,
		time.Now().UTC().Format(time.RFC3339), fleet.DefaultAgentNamespace)
	cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return l.Client.Status().Patch(ctx, cluster, client.RawPatch(types.JSONPatchType, patch))
}

// keepBeating lets the agents be heard one after the other, each once in the interval.
func (l *light) keepBeating(ctx context.Context) {
	for next := 0; ctx.Err() == nil; next++ {
		connected := l.steps.all(env.AgentConnected)
		if len(connected) == 0 {
			pause(ctx, time.Second)
			continue
		}
		slices.SortFunc(connected, compareKeys)
		if !l.quiet.Load() {
			l.beats <- connected[next%len(connected)]
		}
		pause(ctx, checkin/time.Duration(len(connected)))
	}
}

// add makes clusters whose API servers answer and whose control planes are initialized. The
// policy of this name takes them, once there is one.
func (l *light) add(ctx context.Context, policy string, first, count int, opts env.ClusterOptions) ([]client.ObjectKey, error) {
	l.log("adding %d clusters", count)
	keys := make([]client.ObjectKey, count)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(hands)
	for i := range count {
		group.Go(func() error {
			opts := opts
			opts.Namespace = fmt.Sprintf("team-%02d", (first+i)%teams)
			opts.Labels = map[string]string{selectedLabel: policy}
			opts.NoKubelet = true
			opts.Light = &lightapi.Options{}
			w, err := l.AddCluster(groupCtx, fmt.Sprintf("edge-%05d", first+i), opts)
			if err == nil {
				keys[i] = w.Key()
			}
			return err
		})
	}
	return keys, group.Wait()
}

// register makes a policy that takes the clusters which bear its name, and waits until all
// are Ready. It returns how long that took.
func (l *light) register(ctx context.Context, policy string, keys []client.ObjectKey) (time.Duration, error) {
	l.log("registering %d clusters", len(keys))
	start := time.Now()
	if err := l.choose(ctx, policy); err != nil {
		return 0, err
	}
	end, err := l.waitFor(ctx, keys, env.Registered)
	return end.Sub(start), err
}

// choose makes a policy that takes the clusters which bear its name.
func (l *light) choose(ctx context.Context, policy string) error {
	return l.Client.Create(ctx, &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec:       fleetv1.FleetRegistrationPolicySpec{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{selectedLabel: policy}}},
	})
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// pollInterval is the time between two looks at something that tells nobody when it is done.
const pollInterval = 20 * time.Millisecond

// patience is how long the program waits for what should come about by itself.
const patience = 15 * time.Minute

// poll looks again and again until done says that it is enough.
func poll(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not come about in %s", patience))
	defer cancel()
	for {
		enough, err := done()
		if err != nil || enough {
			return err
		}
		if pause(ctx, pollInterval); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
