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

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// stopTimeout is how long an agent on the management cluster has to stop.
	stopTimeout  = 2 * time.Minute
	stopInterval = time.Second
)

// orphanRemoval removes orphans. Each step can be done again.
type orphanRemoval struct {
	*app
	client          client.Client
	writer          *upstream.Writer
	dryRun          bool
	silentFor, wait time.Duration
}

func (o *orphanOptions) removal(c client.Client) *orphanRemoval {
	writer := &upstream.Writer{Client: c, Reader: c, Cache: c, ManagerNamespace: o.managerNamespace, Clock: o.clock}
	return &orphanRemoval{app: o.app, client: c, writer: writer, dryRun: o.dryRun, silentFor: o.silentFor, wait: o.wait}
}

// disarmed is an orphan whose agent has no credential any more.
type disarmed struct {
	orphan

	since time.Time
	// reported is the agent's last report before that, nil where there was none.
	reported *metav1.Time
}

// errLeft says that an orphan was left, and why.
type errLeft struct{ why string }

func (e *errLeft) Error() string { return e.why }

// run removes the orphans. What is in the way of one is said, and leaves the others alone.
func (r *orphanRemoval) run(ctx context.Context, found []orphan) error {
	left := 0
	leave := func(o *orphan, err error) error {
		why := (*errLeft)(nil)
		if !errors.As(err, &why) {
			return fmt.Errorf("removing %s: %w", o.key(), err)
		}
		warnf(r.ErrOut, "%s: left as it is: %s", o.key(), why.why)
		left++
		return nil
	}
	var waiting []disarmed
	for i := range found {
		begun, err := r.begin(ctx, &found[i])
		switch {
		case err != nil:
			if err := leave(&found[i], err); err != nil {
				return err
			}
		case begun != nil && !begun.since.IsZero():
			waiting = append(waiting, *begun)
		}
	}
	for i := range waiting {
		if err := r.await(ctx, &waiting[i]); err != nil {
			return err
		}
		if err := r.finish(ctx, &waiting[i]); err != nil {
			if err := leave(&waiting[i].orphan, err); err != nil {
				return err
			}
		}
	}
	if left > 0 {
		return errFinding
	}
	return nil
}

// begin takes the credential of an orphan's agent away. It returns nil where nothing is left
// to be done.
func (r *orphanRemoval) begin(ctx context.Context, o *orphan) (*disarmed, error) {
	if o.Obstacle != "" {
		return nil, &errLeft{o.Obstacle}
	}
	if r.dryRun {
		fmt.Fprintf(r.Out, "%s: would be removed: %s.\n", o.key(), o.plan(r.writer.ManagerNamespace, r.wait))
		return nil, nil
	}
	fmt.Fprintf(r.Out, "%s: %s.\n", o.key(), o.plan(r.writer.ManagerNamespace, r.wait))
	if o.Kind == orphanedAccount {
		reg := upstream.Registration{ID: o.RegistrationID, Namespace: o.Name}
		if err := r.writer.DeleteAccount(ctx, reg); err != nil {
			return nil, err
		}
		return nil, r.removeHosted(ctx, reg)
	}
	cluster, err := r.read(ctx, o)
	if err != nil {
		return nil, err
	}
	reg, err := r.writer.OrphanRegistration(ctx, cluster)
	if err != nil {
		return nil, err
	}
	since, err := r.writer.EndAccess(ctx, reg)
	if err != nil {
		return nil, err
	}
	if err := r.removeHosted(ctx, reg); err != nil {
		return nil, err
	}
	return &disarmed{orphan: *o, since: since, reported: orphanOf(cluster).LastSeen}, r.writer.Orphan(ctx, reg)
}

// read reads an orphan's Fleet Cluster again, and judges it anew.
func (r *orphanRemoval) read(ctx context.Context, o *orphan) (*fleet.Cluster, error) {
	cluster := &fleet.Cluster{}
	found, err := get(ctx, r.client, client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, cluster)
	if err != nil {
		return nil, err
	}
	now := orphanOf(cluster)
	if !found || !upstream.MadeForRegistration(cluster) || now.RegistrationID != o.RegistrationID {
		return nil, &errLeft{"its Fleet Cluster is gone or another one by now"}
	}
	registrations := &fleetv1.FleetRegistrationList{}
	if err := r.client.List(ctx, registrations); err != nil {
		return nil, err
	}
	if upstream.IDsInUse(registrations.Items, nil).Has(o.RegistrationID) {
		return nil, &errLeft{"its registration is back"}
	}
	if obstacle := now.obstacle(r.clock.Now(), r.silentFor); obstacle != "" {
		return nil, &errLeft{obstacle}
	}
	return cluster, nil
}

// removeHosted stops the agent that runs on the management cluster, where there is one, and
// then takes away what it has there.
func (r *orphanRemoval) removeHosted(ctx context.Context, reg upstream.Registration) error {
	stopped, err := r.eventually(ctx, stopTimeout, stopInterval, func() (bool, error) {
		_, stopped, err := r.writer.StopHosted(ctx, reg)
		return stopped, err
	})
	switch {
	case err != nil:
		return err
	case !stopped:
		return &errLeft{fmt.Sprintf("its agent in namespace %s has not stopped; run this again", r.writer.ManagerNamespace)}
	}
	_, err = r.writer.RemoveHosted(ctx, reg, true)
	return err
}

// await waits until the watches of an agent have ended.
func (r *orphanRemoval) await(ctx context.Context, d *disarmed) error {
	end := d.since.Add(r.wait)
	left := end.Sub(r.clock.Now())
	if left <= 0 {
		return nil
	}
	fmt.Fprintf(r.Out, "%s: waiting until %s for the agent's watches to end. After a break run this again.\n", d.key(), end.Local().Format(time.TimeOnly))
	return r.sleep(ctx, left)
}

// heardSince tells whether the agent has reported again by the time when its Fleet
// Cluster was read. Its reports are compared with one another: its clock may be wrong.
func (d *disarmed) heardSince(read *fleet.Cluster) bool {
	now := orphanOf(read).LastSeen
	return now != nil && (d.reported == nil || now.After(d.reported.Time))
}

// finish removes the Fleet Cluster, unless something has happened while it was waited for.
func (r *orphanRemoval) finish(ctx context.Context, d *disarmed) error {
	cluster, err := r.read(ctx, &d.orphan)
	if err != nil {
		return err
	}
	if !upstream.AccessEnded(cluster).Equal(d.since) {
		return &errLeft{"its agent had an account again meanwhile; run this again"}
	}
	reg, err := r.writer.OrphanRegistration(ctx, cluster)
	if err != nil {
		return err
	}
	if r.silentFor > 0 && d.heardSince(cluster) {
		if err := r.writer.ForgetAccessEnded(ctx, reg); err != nil {
			return err
		}
		return &errLeft{"its agent reported while this waited, so it has another credential; stop it first, or it uninstalls everything"}
	}
	if _, err := r.writer.Delete(ctx, reg, upstream.DeleteOptions{Abandon: true}); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "%s: removed.\n", d.key())
	return nil
}
