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
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// inPlaceRow is what figure 1 is about.
const inPlaceRow = "API answers ► in place"

// comeUp has light clusters begin to answer at once and measures how long it then takes until
// all is in place. Their control planes never count as initialized.
func (b *bench) comeUp(ctx context.Context, l *light) ([]client.ObjectKey, error) {
	const policy = "come-up"
	keys, err := l.add(ctx, policy, 0, b.size.atOnce, env.ClusterOptions{StartLater: true, InitializedAfter: -1})
	if err != nil {
		return nil, err
	}
	l.log("having %d workload APIs answer at once", len(keys))
	if err := l.choose(ctx, policy); err != nil {
		return nil, err
	}
	if err := waitForFleetClusters(ctx, l.Lab, keys); err != nil {
		return nil, err
	}

	answers := make([]time.Time, len(keys))
	var group errgroup.Group
	for i, key := range keys {
		group.Go(func() error {
			answers[i] = time.Now()
			return l.Workload(key).StartAPI(ctx)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if _, err := l.waitFor(ctx, keys, env.Registered); err != nil {
		return nil, err
	}
	var inPlace []time.Duration
	for i, key := range keys {
		server := l.Workload(key).Light()
		credential, hasSecret := managerWrote(server, "secrets", answers[i])
		deployment, hasDeployment := managerWrote(server, "deployments", answers[i])
		if !hasSecret || !hasDeployment {
			return nil, fmt.Errorf("the requests to %s do not show how it was registered", key)
		}
		inPlace = append(inPlace, max(credential.Sub(answers[i]), deployment.Sub(answers[i])))
	}
	b.figure(1).addSpread(fmt.Sprintf("test/lightapi, %d at once", len(keys)), inPlaceRow, inPlace, "p50 ≤ 1, p99 ≤ 3")
	return keys, nil
}

// waitForFleetClusters waits until the place on the management cluster is ready for all.
func waitForFleetClusters(ctx context.Context, lab *env.Lab, keys []client.ObjectKey) error {
	return poll(ctx, func() (bool, error) {
		list := &fleetv1.FleetRegistrationList{}
		if err := lab.Client.List(ctx, list); err != nil {
			return false, err
		}
		ready := map[client.ObjectKey]bool{}
		for i := range list.Items {
			r := &list.Items[i]
			ready[client.ObjectKeyFromObject(r)] = meta.IsStatusConditionTrue(r.Status.Conditions, fleetv1.FleetClusterReadyCondition)
		}
		for _, key := range keys {
			if !ready[key] {
				return false, nil
			}
		}
		return true, nil
	})
}

// realClusters measures registrations of clusters with real API servers: figure 1 and all of
// figure 2.
func (b *bench) realClusters(ctx context.Context) (err error) {
	if !b.wants(1, 2) {
		return nil
	}
	steps := &recorder{}
	lab, err := env.Start(ctx, env.Options{Log: b.log, OnEvent: steps.record})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if _, err := idle(ctx, lab.Manager(), 0); err != nil {
		return err
	}
	start, err := lab.Management().AuditLog().Mark(ctx)
	if err != nil {
		return err
	}
	var inPlace []time.Duration
	for i := range b.size.singles {
		b.log("a real API server, %d of %d", i+1, b.size.singles)
		w, err := lab.AddCluster(ctx, fmt.Sprintf("single-%d", i), env.ClusterOptions{Register: true})
		if err != nil {
			return err
		}
		took, err := joined(ctx, lab, steps, w)
		if err != nil {
			return err
		}
		inPlace = append(inPlace, took)
		// An API server at rest is work too.
		if err := w.StopAPI(); err != nil {
			return err
		}
	}
	b.figure(1).addSpread("real API servers, one after the other", inPlaceRow, inPlace, "p50 ≤ 1, p99 ≤ 3")
	if b.wants(2) {
		if err := b.cost(ctx, lab, start, b.size.singles); err != nil {
			return err
		}
	}
	if !b.wants(1) {
		return nil
	}
	if inPlace, err = b.openAtOnce(ctx, lab, steps); err != nil {
		return err
	}
	b.figure(1).addSpread(fmt.Sprintf("real API servers that have started, whose addresses %d at once begin to lead to them", b.size.real), inPlaceRow, inPlace, "p50 ≤ 1, p99 ≤ 3")
	b.log("%d real API servers at once", b.size.real)
	if inPlace, err = addAtOnce(ctx, lab, steps, "real", b.size.real); err != nil {
		return err
	}
	with := fmt.Sprintf("real API servers, %d that start at once", b.size.real)
	b.figure(1).addSpread(with, inPlaceRow, inPlace, "p50 ≤ 1, p99 ≤ 3")
	b.log("%d more, with a bare client", b.size.real)
	if inPlace, err = pushAtOnce(ctx, lab, steps, b.size.real); err != nil {
		return err
	}
	b.figure(1).addSpread(with, "the same by a bare client, with no manager in between", inPlace, "")
	return nil
}

// openAtOnce registers clusters whose API servers have started before, which takes a machine
// more than all that we do, and returns how long each took from when its address began to
// lead to it.
func (b *bench) openAtOnce(ctx context.Context, lab *env.Lab, steps *recorder) (inPlace []time.Duration, err error) {
	b.log("starting %d real API servers", b.size.real)
	gates := make([]*kube.Gate, b.size.real)
	defer func() {
		for _, gate := range gates {
			if gate != nil {
				err = errors.Join(err, gate.Close())
			}
		}
	}()
	workloads := make([]*env.Workload, b.size.real)
	keys := make([]client.ObjectKey, b.size.real)
	starting, startCtx := errgroup.WithContext(ctx)
	for i := range gates {
		if gates[i], err = kube.NewGate(); err != nil {
			return nil, err
		}
		starting.Go(func() (err error) {
			workloads[i], err = startBehind(startCtx, lab, fmt.Sprintf("opened-%d", i), gates[i])
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, err
	}
	for i, w := range workloads {
		keys[i] = w.Key()
	}
	if err := waitForFleetClusters(ctx, lab, keys); err != nil {
		return nil, err
	}
	pause(ctx, settleTime)

	b.log("having %d real API servers answer at once", b.size.real)
	inPlace = make([]time.Duration, len(gates))
	joining, joinCtx := errgroup.WithContext(ctx)
	for i, w := range workloads {
		joining.Go(func() error {
			answers := time.Now()
			if err := gates[i].Open(joinCtx, strings.TrimPrefix(w.Config().Host, "https://")); err != nil {
				return err
			}
			if _, err := joined(joinCtx, lab, steps, w); err != nil {
				return err
			}
			placed, _ := steps.at(w.Key(), env.CredentialInPlace)
			inPlace[i] = placed.Sub(answers)
			return nil
		})
	}
	if err := joining.Wait(); err != nil {
		return nil, err
	}
	for _, w := range workloads {
		if err := w.StopAPI(); err != nil {
			return nil, err
		}
	}
	return inPlace, nil
}

// settleTime is what API servers that have just started go on with.
const settleTime = 10 * time.Second

// startBehind adds a cluster whose Cluster and kubeconfig name a gate that is closed, and
// starts its API server.
func startBehind(ctx context.Context, lab *env.Lab, name string, gate *kube.Gate) (*env.Workload, error) {
	w, err := lab.AddCluster(ctx, name, env.ClusterOptions{
		Register: true, StartLater: true, NoKubeconfig: true,
		Modify: func(cluster *clusterv1.Cluster) { cluster.Spec.ControlPlaneEndpoint.Port = int32(gate.Port()) },
	})
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(w.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", w.Key(), err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + gate.Address()
	}
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of %s: %w", w.Key(), err)
	}
	if err := w.WriteKubeconfig(ctx, kubeconfig); err != nil {
		return nil, err
	}
	return w, w.StartAPI(ctx)
}

// addAtOnce adds clusters together, and returns how long each took from the first answer of
// its API server until all was in place.
func addAtOnce(ctx context.Context, lab *env.Lab, steps *recorder, name string, count int) ([]time.Duration, error) {
	took := make([]time.Duration, count)
	group, ctx := errgroup.WithContext(ctx)
	for i := range count {
		group.Go(func() error {
			w, err := lab.AddCluster(ctx, fmt.Sprintf("%s-%d", name, i), env.ClusterOptions{Register: true})
			if err != nil {
				return err
			}
			took[i], err = joined(ctx, lab, steps, w)
			return err
		})
	}
	return took, group.Wait()
}

// joined waits until a cluster is in Fleet and its Cluster says so, and returns the time from
// the first answer of its API server until all was in place, as a watch there saw it.
func joined(ctx context.Context, lab *env.Lab, steps *recorder, w *env.Workload) (time.Duration, error) {
	err := poll(ctx, func() (bool, error) {
		cluster := &clusterv1.Cluster{}
		err := lab.Client.Get(ctx, w.Key(), cluster)
		return meta.IsStatusConditionTrue(cluster.Status.Conditions, fleetv1.FleetRegisteredCondition), err
	})
	if err != nil {
		return 0, fmt.Errorf("waiting for %s: %w", w.Key(), err)
	}
	return steps.inPlace(w.Key())
}

// genuineClusters compares with a registrar that waits for Cluster API to call the control
// plane initialized, on clusters that Cluster API makes.
func (b *bench) genuineClusters(ctx context.Context) (err error) {
	if !b.wants(1) {
		return nil
	}
	steps := &recorder{}
	lab, err := env.Start(ctx, env.Options{Log: b.log, ClusterAPI: env.ClusterAPIInMemory, OnEvent: steps.record})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	b.log("having Cluster API make %d clusters", b.size.genuine)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	initialized := map[client.ObjectKey]time.Time{}
	var unseen error
	group.Go(func() { unseen = watchInitialized(watching, lab, initialized, b.size.genuine) })
	inPlace, err := addAtOnce(ctx, lab, steps, "genuine", b.size.genuine)
	if err != nil {
		return err
	}
	if group.Wait(); unseen != nil {
		return fmt.Errorf("waiting until the control planes are initialized: %w", unseen)
	}
	var waits []time.Duration
	for _, w := range lab.Workloads() {
		answers, ok := steps.at(w.Key(), env.APIAnswers)
		at, seen := initialized[w.Key()]
		if !ok || !seen {
			return fmt.Errorf("nobody saw when %s was initialized", w.Key())
		}
		waits = append(waits, at.Sub(answers))
	}
	f := b.figure(1)
	with := fmt.Sprintf("clusters that Cluster API makes, %d at once", b.size.genuine)
	f.addSpread(with, inPlaceRow, inPlace, "")
	f.addSpread(with, "API answers ► ControlPlaneInitialized, before which a registrar that waits for it cannot begin", waits, "")
	return nil
}

// watchInitialized notes when Cluster API calls which control plane initialized, until that
// has happened to all.
func watchInitialized(ctx context.Context, lab *env.Lab, at map[client.ObjectKey]time.Time, all int) error {
	return poll(ctx, func() (bool, error) {
		list := &clusterv1.ClusterList{}
		if err := lab.Client.List(ctx, list); err != nil {
			return false, err
		}
		for i := range list.Items {
			c := &list.Items[i]
			key := client.ObjectKeyFromObject(c)
			if _, known := at[key]; !known && meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition) {
				at[key] = time.Now()
			}
		}
		return len(at) >= all, nil
	})
}
