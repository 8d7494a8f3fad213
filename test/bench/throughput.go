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
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// noLimit lifts the manager's own limit of requests, which the bare client does not have.
var noLimit = []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}

// effort is what registrations took.
type effort struct {
	registrations int
	took          time.Duration
	others
	// cpu, in seconds, requests, writes and dials are the manager's.
	cpu                     float64
	requests, writes, dials int
}

func (e *effort) add(more *effort) {
	e.registrations += more.registrations
	e.took += more.took
	e.cpu += more.cpu
	e.server += more.server
	e.harness += more.harness
	e.requests += more.requests
	e.writes += more.writes
	e.dials += more.dials
}

// bare registers clusters with a bare client, when the manager's last writes have had their
// effect. The manager must not run: it would take them for its own.
func (l *light) bare(ctx context.Context, writer *bare, clusters []clusterv1.Cluster) (*effort, error) {
	pause(ctx, quietTime)
	before, err := l.others()
	if err != nil {
		return nil, err
	}
	took, err := writer.register(ctx, clusters)
	if err != nil {
		return nil, fmt.Errorf("registering with a bare client: %w", err)
	}
	after, err := l.others()
	if err != nil {
		return nil, err
	}
	spent := others{server: after.server - before.server, harness: after.harness - before.harness}
	if err := writer.remove(ctx, clusters); err != nil {
		return nil, fmt.Errorf("removing what the bare client made: %w", err)
	}
	return &effort{registrations: len(clusters), took: took, others: spent}, nil
}

// managed has the manager register clusters that are all there.
func (l *light) managed(ctx context.Context, policy string, keys []client.ObjectKey) (*effort, error) {
	m, err := l.startMeter(ctx)
	if err != nil {
		return nil, err
	}
	took, err := l.register(ctx, policy, keys)
	if err != nil {
		return nil, err
	}
	u, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	return &effort{
		registrations: len(keys), took: took, cpu: u.cpu, others: u.others,
		requests: len(u.requests), writes: len(u.writes), dials: u.dials,
	}, nil
}

// throughput adds what registrations took to figure 3.
func (b *bench) throughput(with string, e *effort) {
	f := b.figure(3)
	count := float64(e.registrations)
	f.add(with, "throughput", count/e.took.Seconds(), "registrations/s", "")
	f.add(with, "CPU of the API server and etcd for each", e.server*1000/count, "ms", "")
	f.add(with, "CPU of this program for each", e.harness*1000/count, "ms", "")
}

// managerThroughput adds what registrations of the manager took to figure 3.
func (b *bench) managerThroughput(with string, e *effort) {
	b.throughput(with, e)
	f := b.figure(3)
	count := float64(e.registrations)
	f.add(with, "CPU of the manager for each", e.cpu*1000/count, "ms", "")
	f.add(with, "requests for each", float64(e.requests)/count, "", "")
	f.add(with, "writes for each", float64(e.writes)/count, "", "≤ 14")
	f.add(with, "connections to each workload cluster", float64(e.dials)/count, "", "")
}

// quietTime is how long a manager has nothing to do before it counts as idle.
const quietTime = 3 * time.Second

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
		return done >= reconciles && time.Since(changed) >= quietTime, nil
	})
	return changed, err
}

// throughputs measures what a manager does with the flags that it has by default, and then how
// near one without a limit of its own comes to a bare client, in a lab of their own.
func (b *bench) throughputs(ctx context.Context) (err error) {
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
	took, err := l.managed(ctx, policy, keys)
	if err != nil {
		return err
	}
	b.managerThroughput(fmt.Sprintf("manager, %d clusters, with its own limit of 100 requests a second", len(keys)), took)
	if !b.wants(3) {
		return nil
	}
	return b.share(ctx, l, keys[0], len(came)+len(keys))
}

// turns is how often the bare client and the manager take turns, an odd number.
const turns = 5

// share compares a manager without a limit of its own with a bare client that makes the same
// writes, those for the example. They take turns, since a machine that others use as well can
// become twice as slow within seconds. So many clusters are there already.
func (b *bench) share(ctx context.Context, l *light, example client.ObjectKey, have int) error {
	writer, err := newBare(ctx, l, example)
	if err != nil {
		return err
	}
	var written, managed effort
	var shares []float64
	for i := range turns {
		first, end := b.size.clusters[0]*i/turns, b.size.clusters[0]*(i+1)/turns
		twice, once, err := l.turn(ctx, writer, fmt.Sprintf("turn-%d", i), have+first, end-first)
		if err != nil {
			return err
		}
		written.add(twice)
		managed.add(once)
		shares = append(shares, twice.took.Seconds()/2/once.took.Seconds())
	}
	b.throughput(fmt.Sprintf("bare client, %d clusters in %d turns, twice each", managed.registrations, turns), &written)
	with := fmt.Sprintf("manager, %d clusters in %d turns", managed.registrations, turns)
	b.managerThroughput(with, &managed)
	slices.Sort(shares)
	f := b.figure(3)
	f.add(with, "share of the bare client, median of the turns", 100*shares[turns/2], "%", "≥ 70")
	f.add(with, "lowest share", 100*shares[0], "%", "")
	f.add(with, "highest share", 100*shares[turns-1], "%", "")
	return nil
}

// turn has the manager register clusters, and the bare client before and after it. It returns
// what both times took the client, and what it took the manager.
func (l *light) turn(ctx context.Context, writer *bare, policy string, first, count int) (twice, once *effort, err error) {
	keys, err := l.add(ctx, policy, first, count, initialized)
	if err != nil {
		return nil, nil, err
	}
	clusters := &clusterv1.ClusterList{}
	if err := l.Client.List(ctx, clusters, client.MatchingLabels{selectedLabel: policy}); err != nil {
		return nil, nil, err
	}
	if err := l.stopManager(); err != nil {
		return nil, nil, err
	}
	twice, err = l.bare(ctx, writer.named(policy+"-before"), clusters.Items)
	if err != nil {
		return nil, nil, err
	}
	if err := l.startManager(ctx, policy, noLimit...); err != nil {
		return nil, nil, err
	}
	if _, err := l.idle(ctx, 0); err != nil {
		return nil, nil, err
	}
	once, err = l.managed(ctx, policy, keys)
	if err != nil {
		return nil, nil, err
	}
	if err := l.stopManager(); err != nil {
		return nil, nil, err
	}
	after, err := l.bare(ctx, writer.named(policy+"-after"), clusters.Items)
	if err != nil {
		return nil, nil, err
	}
	twice.add(after)
	return twice, once, nil
}

// unlimitedManager measures what a manager without a limit of its own is like that has many
// light clusters, in one lab: it grows from an empty one to the largest number of clusters.
func (b *bench) unlimitedManager(ctx context.Context) (err error) {
	if !b.wants(4, 5, 6) {
		return nil
	}
	l, err := startLight(ctx, b.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.startManager(ctx, "unlimited", noLimit...); err != nil {
		return err
	}
	nothing, err := b.rest(ctx, l, 0, "", empty{})
	if err != nil {
		return err
	}
	without := empty{rss: nothing.rss, heap: nothing.heap}

	keys, err := b.registerMore(ctx, l, 0, b.size.clusters[0])
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

// registerMore registers so many clusters more than the ones there are.
func (b *bench) registerMore(ctx context.Context, l *light, have, count int) ([]client.ObjectKey, error) {
	policy := fmt.Sprintf("from-%d", have)
	keys, err := l.add(ctx, policy, have, count, initialized)
	if err != nil {
		return nil, err
	}
	took, err := l.managed(ctx, policy, keys)
	if err != nil {
		return nil, err
	}
	b.managerThroughput(fmt.Sprintf("manager, %d clusters beside %d", count, have), took)
	return keys, nil
}
