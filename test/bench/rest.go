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
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// empty is what a manager without a registration has in memory, in MiB.
type empty struct{ rss, heap float64 }

// rest looks at the manager while nothing happens but heartbeats.
func (b *bench) rest(ctx context.Context, l *light, registered int, besides string, without empty) (*usage, error) {
	if _, err := l.idle(ctx, 0); err != nil {
		return nil, err
	}
	window := b.size.window
	if registered == 0 {
		// Only to know where memory begins.
		window = min(window, 15*time.Second)
	}
	l.log("looking at the manager at rest for %s, with %d clusters%s", window, registered, besides)
	m, err := l.startMeter(ctx)
	if err != nil {
		return nil, err
	}
	pause(ctx, window)
	u, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	with := fmt.Sprintf("%d clusters%s", registered, besides)
	f := b.figure(4)
	// The bar is for 1,000 clusters.
	barCPU, barMemory := "", ""
	if registered == 1000 {
		barCPU = "< 1"
	}
	if registered > 0 {
		barMemory = fmt.Sprintf("≤ %.0f", 60+60*float64(registered)/1024)
	}
	f.add(with, fmt.Sprintf("writes in %s", window), float64(len(u.writes)), "", "0")
	watches := count(u.requests, func(e kube.Event) bool { return e.Verb == "watch" })
	f.add(with, "requests", float64(len(u.requests)), "", "")
	f.add(with, "of these, watches that the API server had ended", float64(watches), "", "")
	f.add(with, "connections to workload clusters", float64(u.dials), "", "")
	f.add(with, "CPU", u.cpu, "s", "")
	f.add(with, "CPU, share of a core", 100*u.cpu/u.elapsed.Seconds(), "%", barCPU)
	f.add(with, "memory (RSS)", u.rss, "MiB", barMemory)
	f.add(with, "heap in use", u.heap, "MiB", "")
	if registered > 0 {
		f.add(with, "growth of RSS per cluster", (u.rss-without.rss)*1024/float64(registered), "KiB", "")
		f.add(with, "growth of heap per cluster", (u.heap-without.heap)*1024/float64(registered), "KiB", "")
	}
	return u, nil
}

func count(events []kube.Event, counts func(kube.Event) bool) int {
	n := 0
	for _, e := range events {
		if counts(e) {
			n++
		}
	}
	return n
}

// restart measures what a manager does that finds everything as it should be.
func (b *bench) restart(ctx context.Context, l *light, registered int) error {
	l.log("restarting the manager with %d clusters", registered)
	if _, err := l.idle(ctx, 0); err != nil {
		return err
	}
	if err := l.manager.Stop(); err != nil {
		return err
	}
	m, err := l.startMeter(ctx)
	if err != nil {
		return err
	}
	if err := l.manager.Start(ctx); err != nil {
		return err
	}
	ready := time.Since(m.began)
	idle, err := l.idle(ctx, float64(registered))
	if err != nil {
		return err
	}
	u, err := m.read(ctx)
	if err != nil {
		return err
	}
	f := b.figure(5)
	with := fmt.Sprintf("%d clusters", registered)
	bar := ""
	if registered == 1000 {
		bar = "≤ 10"
	}
	f.add(with, "start ► ready", ready.Seconds(), "s", "")
	f.add(with, "start ► idle", idle.Sub(m.began).Seconds(), "s", bar)
	f.add(with, "writes", float64(len(u.writes)), "", "0")
	f.add(with, "connections to workload clusters", float64(u.dials), "", "0")
	f.add(with, "requests", float64(len(u.requests)), "", "")
	for _, verb := range []string{"list", "watch", "get"} {
		n := count(u.requests, func(e kube.Event) bool { return e.Verb == verb })
		f.add(with, "requests: "+verb, float64(n), "", "")
	}
	f.add(with, "CPU until idle", u.cpu, "s", "")
	f.add(with, "memory (RSS) when idle", u.rss, "MiB", "")
	f.add(with, "heap in use when idle", u.heap, "MiB", "")
	return nil
}

// addSecrets makes Secrets that have nothing to do with us, as big as those of Helm's smaller
// releases.
func (l *light) addSecrets(ctx context.Context, number int) error {
	l.log("adding %d Secrets", number)
	data := map[string][]byte{"release": make([]byte, 2048)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(hands)
	for i := range number {
		group.Go(func() error {
			return l.Client.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%02d", i%teams), Name: fmt.Sprintf("unrelated-%05d", i)},
				Data:       data,
			})
		})
	}
	return group.Wait()
}
