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

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// noLimit lifts the manager's own limit of requests, which the bare client does not have.
var noLimit = []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}

// bareThroughput returns how many registrations a second a bare client gets done. The manager
// must not run: it would take them for its own.
func (b *bench) bareThroughput(ctx context.Context, l *light, keys []client.ObjectKey) (float64, error) {
	account, err := l.AsManager(ctx)
	if err != nil {
		return 0, err
	}
	client := &bare{client: account, light: l}
	before, err := l.others()
	if err != nil {
		return 0, err
	}
	took, err := client.register(ctx, keys)
	if err != nil {
		return 0, fmt.Errorf("registering with a bare client: %w", err)
	}
	after, err := l.others()
	if err != nil {
		return 0, err
	}
	rate := float64(len(keys)) / took.Seconds()
	f := b.figure(3)
	with := fmt.Sprintf("bare client, %d clusters", len(keys))
	f.add(with, "throughput", rate, "registrations/s", "")
	after.server, after.harness = after.server-before.server, after.harness-before.harness
	addOthers(f, with, after, len(keys))
	if err := client.remove(ctx, keys); err != nil {
		return 0, fmt.Errorf("removing what the bare client made: %w", err)
	}
	return rate, nil
}

// throughput registers clusters that are all there, and returns how many a second.
func (b *bench) throughput(ctx context.Context, l *light, policy string, keys []client.ObjectKey, how string) (float64, error) {
	m, err := l.startMeter(ctx)
	if err != nil {
		return 0, err
	}
	took, err := l.register(ctx, policy, keys)
	if err != nil {
		return 0, err
	}
	u, err := m.read(ctx)
	if err != nil {
		return 0, err
	}
	count := float64(len(keys))
	with := fmt.Sprintf("manager, %d clusters%s", len(keys), how)
	f := b.figure(3)
	f.add(with, "throughput", count/took.Seconds(), "registrations/s", "")
	f.add(with, "CPU of the manager for each", u.cpu*1000/count, "ms", "")
	addOthers(f, with, u.others, len(keys))
	f.add(with, "requests for each", float64(len(u.requests))/count, "", "")
	f.add(with, "writes for each", float64(len(u.writes))/count, "", "≤ 14")
	f.add(with, "connections to each workload cluster", float64(u.dials)/count, "", "")
	return count / took.Seconds(), nil
}

func addOthers(f *Figure, with string, o others, registrations int) {
	f.add(with, "CPU of the API server and etcd for each", o.server*1000/float64(registrations), "ms", "")
	f.add(with, "CPU of this program for each", o.harness*1000/float64(registrations), "ms", "")
}

// idle waits until the manager has had nothing to do for a while, and returns when it last
// had. Agents that have been heard are not heard meanwhile.
func (l *light) idle(ctx context.Context, reconciles float64) (time.Time, error) {
	l.quiet.Store(true)
	defer l.quiet.Store(false)
	return idle(ctx, l.manager, reconciles)
}

// idle waits until a manager has reconciled at least so often, and then nothing for a while.
// It returns when it last did.
func idle(ctx context.Context, manager *env.Manager, reconciles float64) (time.Time, error) {
	const enough = 3 * time.Second
	var last float64
	changed := time.Now()
	err := poll(ctx, func() (bool, error) {
		// Reading the metrics is work for the manager too, the more the more it has registered.
		pause(ctx, 500*time.Millisecond)
		metrics, err := manager.Metrics(ctx)
		if err != nil {
			return false, err
		}
		done := metric(metrics, "controller_runtime_reconcile_total")
		waiting := metric(metrics, "workqueue_depth") + metric(metrics, "controller_runtime_active_workers")
		if done != last || waiting > 0 {
			last, changed = done, time.Now()
		}
		return done >= reconciles && time.Since(changed) >= enough, nil
	})
	return changed, err
}

// limitedManager measures what a manager does with the flags that it has by default, in a lab
// of its own.
func (b *bench) limitedManager(ctx context.Context) (err error) {
	if !b.wants(1, 3) {
		return nil
	}
	l, err := startLight(ctx, b.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.startManager(ctx, "limited"); err != nil {
		return err
	}
	came, err := b.comeUp(ctx, l)
	if err != nil {
		return err
	}
	const policy = "limited"
	keys, err := l.add(ctx, policy, len(came), b.size.atOnce, initialized)
	if err != nil {
		return err
	}
	_, err = b.throughput(ctx, l, policy, keys, ", with its own limit of 100 requests a second")
	return err
}

// unlimitedManager measures all that has light clusters alone and a manager without a limit
// of its own, in one lab: it grows from an empty one to the largest number of clusters.
func (b *bench) unlimitedManager(ctx context.Context) (err error) {
	if !b.wants(3, 4, 5, 6) {
		return nil
	}
	l, err := startLight(ctx, b.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.startManager(ctx, "empty", noLimit...); err != nil {
		return err
	}
	nothing, err := b.rest(ctx, l, 0, "", empty{})
	if err != nil {
		return err
	}
	without := empty{rss: nothing.rss, heap: nothing.heap}

	keys, err := b.firstRegistrations(ctx, l)
	if err != nil {
		return err
	}
	if _, err := b.rest(ctx, l, len(keys), "", without); err != nil {
		return err
	}
	if b.wants(5) {
		if err := b.restart(ctx, l, len(keys)); err != nil {
			return err
		}
		if _, err := b.rest(ctx, l, len(keys), ", after a restart", without); err != nil {
			return err
		}
	}
	if b.wants(6) {
		if err := b.renewals(ctx, l, keys); err != nil {
			return err
		}
	}
	for _, count := range b.size.clusters[1:] {
		more, err := b.registerMore(ctx, l, len(keys), count-len(keys))
		if err != nil {
			return err
		}
		keys = append(keys, more...)
		if _, err := b.rest(ctx, l, len(keys), "", without); err != nil {
			return err
		}
	}
	if !b.wants(4) {
		return nil
	}
	if err := l.addSecrets(ctx, b.size.secrets); err != nil {
		return err
	}
	_, err = b.rest(ctx, l, len(keys), fmt.Sprintf(" and %d unrelated Secrets", b.size.secrets), without)
	return err
}

// initialized are clusters whose control planes are.
var initialized = env.ClusterOptions{InitializedAfter: time.Nanosecond}

// firstRegistrations registers the first number of clusters, first with a bare client and then
// with the manager.
func (b *bench) firstRegistrations(ctx context.Context, l *light) ([]client.ObjectKey, error) {
	const policy = "first"
	keys, err := l.add(ctx, policy, 0, b.size.clusters[0], initialized)
	if err != nil {
		return nil, err
	}
	if err := l.stopManager(); err != nil {
		return nil, err
	}
	bare, err := b.bareThroughput(ctx, l, keys)
	if err != nil {
		return nil, err
	}
	if err := l.startManager(ctx, "unlimited", noLimit...); err != nil {
		return nil, err
	}
	if _, err := l.idle(ctx, 0); err != nil {
		return nil, err
	}
	managed, err := b.throughput(ctx, l, policy, keys, "")
	if err != nil {
		return nil, err
	}
	b.figure(3).add(fmt.Sprintf("manager, %d clusters", len(keys)), "share of the bare client", 100*managed/bare, "%", "≥ 70")
	return keys, nil
}

func (b *bench) registerMore(ctx context.Context, l *light, have, count int) ([]client.ObjectKey, error) {
	policy := fmt.Sprintf("more-%d", have)
	keys, err := l.add(ctx, policy, have, count, initialized)
	if err != nil {
		return nil, err
	}
	_, err = b.throughput(ctx, l, policy, keys, fmt.Sprintf(" more than %d", have))
	return keys, err
}
