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
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/token"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/internal/written"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	// shortestRenewals is what it takes to keep the manager's least age of a token, a
	// minute, out of it.
	shortestRenewals = 30 * time.Second

	// lifeOfWindow is the part of a token's life in which renewals are spread.
	lifeOfWindow = 6

	// deadShare is one in how many clusters that are dead.
	deadShare = 5
)

// renewals lets all tokens fall due in each of the times, and in the last one again with every
// fifth cluster dead, and measures how late those of the living are renewed.
func (b *bench) renewals(ctx context.Context, l *light, keys []client.ObjectKey) error {
	for _, window := range b.size.renewals {
		if err := b.renewAll(ctx, l, keys, nil, window, fmt.Sprintf("%d clusters alive", len(keys))); err != nil {
			return err
		}
	}
	var alive, dead []client.ObjectKey
	for i, key := range keys {
		if i%deadShare == 0 {
			dead = append(dead, key)
		} else {
			alive = append(alive, key)
		}
	}
	if err := l.kill(dead); err != nil {
		return err
	}
	defer l.revive(dead)
	last := b.size.renewals[len(b.size.renewals)-1]
	return b.renewAll(ctx, l, alive, dead, last, fmt.Sprintf("%d of %d dead", len(dead), len(keys)))
}

func (b *bench) renewAll(ctx context.Context, l *light, alive, dead []client.ObjectKey, window time.Duration, how string) error {
	all := len(alive) + len(dead)
	// What is aged too late, on a slow machine, is due only then, and what it cost is missed.
	lead := 5*time.Second + time.Duration(all)*100*time.Millisecond
	begin := time.Now().Add(lead).Truncate(time.Second)
	with := fmt.Sprintf("%s, all due in %s", how, window)
	l.log("letting %d tokens fall due: %s", all, with)
	due, err := l.ageTokens(ctx, slices.Concat(alive, dead), begin, window)
	if err != nil {
		return fmt.Errorf("aging the tokens: %w", err)
	}
	pause(ctx, time.Until(begin))
	m, err := l.startMeter(ctx)
	if err != nil {
		return err
	}
	pause(ctx, time.Until(begin.Add(window)))
	var renewed map[client.ObjectKey]time.Time
	err = poll(ctx, func() (bool, error) {
		renewed = l.renewed(alive, begin)
		return len(renewed) == len(alive), nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d tokens were renewed: %w", len(renewed), len(alive), err)
	}
	u, err := m.read(ctx)
	if err != nil {
		return err
	}
	b.reportRenewals(with, alive, begin, window, due, renewed, u)
	b.figure(6).add(with, "Deployments written", float64(l.deploymentWrites(alive, begin)), "", "0")
	return nil
}

func (b *bench) reportRenewals(with string, alive []client.ObjectKey, begin time.Time, window time.Duration, due, renewed map[client.ObjectKey]time.Time, u *usage) {
	var late []time.Duration
	var tenths [10]float64
	for _, key := range alive {
		// A renewal that is due within the second counts as in time: tokens know no less.
		late = append(late, max(0, renewed[key].Sub(due[key])))
		tenths[min(max(int(10*renewed[key].Sub(begin)/window), 0), 9)]++
	}
	f := b.figure(6)
	f.addSpread(with, "due ► new token in place, the living", late, "")
	f.add(with, "renewals of the living", float64(len(alive)), "", "")
	f.add(with, "fewest renewals in a tenth of the time", slices.Min(tenths[:]), "", "")
	f.add(with, "most renewals in a tenth of the time", slices.Max(tenths[:]), "", "")
	f.add(with, "CPU", u.cpu, "s", "")
	f.add(with, "requests", float64(len(u.requests)), "", "")
	f.add(with, "writes", float64(len(u.writes)), "", "")
	f.add(with, "tokens requested", float64(count(u.writes, func(e kube.Event) bool { return e.Subresource == "token" })), "", "")
	f.add(with, "connections that workload clusters took", float64(u.dials), "", "")
	f.add(with, "memory (RSS)", u.rss, "MiB", "")
}

// ageTokens makes the tokens older than they are, in the agents' Secrets and in the
// registrations, so that all are due in the window. It returns when which one is.
//
// The manager believes what a token says of its own age: renewing one too early does no harm.
func (l *light) ageTokens(ctx context.Context, keys []client.ObjectKey, begin time.Time, window time.Duration) (map[client.ObjectKey]time.Time, error) {
	life := lifeOfWindow * window
	issued := begin.Add(-life / 3)
	dues := make([]time.Time, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(hands)
	for i, key := range keys {
		group.Go(func() (err error) {
			dues[i], err = l.ageToken(ctx, key, issued, issued.Add(life))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	due := map[client.ObjectKey]time.Time{}
	for i, key := range keys {
		due[key] = dues[i]
	}
	return due, nil
}

func (l *light) ageToken(ctx context.Context, key client.ObjectKey, issued, expires time.Time) (time.Time, error) {
	workload := l.Workload(key)
	if !l.isDead(key) {
		secret := &corev1.Secret{}
		if err := workload.Client.Get(ctx, client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret); err != nil {
			return time.Time{}, err
		}
		aged, err := aged(agent.Token(secret), issued, expires)
		if err != nil {
			return time.Time{}, err
		}
		secret.Data = agent.Renewed(secret, aged)
		if err := workload.Client.Update(ctx, secret); err != nil {
			return time.Time{}, err
		}
	}
	registration := &fleetv1.FleetRegistration{}
	if err := l.Client.Get(ctx, key, registration); err != nil {
		return time.Time{}, err
	}
	status := &registration.Status
	status.Credential.IssuedTime, status.Credential.ExpirationTime = metav1.NewTime(issued), metav1.NewTime(expires)
	// As the manager, who would find a conflict with another owner of the fields.
	err := written.ApplyStatus(ctx, l.Client, registration, status, upstream.FieldOwner, client.ForceOwnership)
	due := token.RenewTime(issued, expires, registration.Spec.RegistrationID)
	if now := time.Now(); now.After(due) {
		due = now
	}
	return due, err
}

// aged returns the token with other times. Its signature is good no more.
func aged(value string, issued, expires time.Time) (string, error) {
	parts := strings.Split(value, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("a token of %d parts", len(parts))
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	claims := map[string]any{}
	if err := json.Unmarshal(content, &claims); err != nil {
		return "", err
	}
	claims["iat"], claims["nbf"], claims["exp"] = issued.Unix(), issued.Unix(), expires.Unix()
	if content, err = json.Marshal(claims); err != nil {
		return "", err
	}
	parts[1] = base64.RawURLEncoding.EncodeToString(content)
	return strings.Join(parts, "."), nil
}

// renewed returns when which cluster got a new token after begin.
func (l *light) renewed(keys []client.ObjectKey, begin time.Time) map[client.ObjectKey]time.Time {
	renewed := map[client.ObjectKey]time.Time{}
	for _, key := range keys {
		if at, ok := managerWrote(l.Workload(key).Light(), "secrets", begin); ok {
			renewed[key] = at
		}
	}
	return renewed
}

func (l *light) deploymentWrites(keys []client.ObjectKey, begin time.Time) int {
	n := 0
	for _, key := range keys {
		if _, ok := managerWrote(l.Workload(key).Light(), "deployments", begin); ok {
			n++
		}
	}
	return n
}

// managerWrote returns when the manager first wrote the agent's object of that resource after
// begin, or rather when its request for that came in.
func managerWrote(server *lightapi.Server, resource string, begin time.Time) (time.Time, bool) {
	for _, r := range server.Writes() {
		// The first credential is created, which the path of its collection is for.
		_, name, found := strings.Cut(r.Path, "/"+resource)
		written := r.Code > 0 && r.Code < http.StatusMultipleChoices && r.Time.After(begin)
		if written && byManager(r.UserAgent) && found && (name == "" || name == "/"+agent.Name) {
			return r.Time, true
		}
	}
	return time.Time{}, false
}

// kill has half of the clusters refuse connections, and the others take them and say nothing.
func (l *light) kill(keys []client.ObjectKey) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = map[client.ObjectKey]bool{}
	for i, key := range keys {
		l.dead[key] = true
		server := l.Workload(key).Light()
		if i%2 == 0 {
			server.SetFault(lightapi.Hang())
		} else if err := server.Stop(); err != nil {
			return err
		}
	}
	return nil
}

func (l *light) revive(keys []client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = nil
	for _, key := range keys {
		server := l.Workload(key).Light()
		server.SetFault(nil)
		if err := server.Start(); err != nil {
			l.log("reviving %s: %v", key, err)
		}
	}
}

func (l *light) isDead(key client.ObjectKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead[key]
}
