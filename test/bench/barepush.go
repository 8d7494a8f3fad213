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

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// pushAtOnce starts API servers together of clusters that nobody registers, and makes the
// requests of a push to each as soon as it answers: what a machine takes at least that has to
// start them at the same time.
func pushAtOnce(ctx context.Context, lab *env.Lab, steps *recorder, count int) ([]time.Duration, error) {
	took := make([]time.Duration, count)
	group, ctx := errgroup.WithContext(ctx)
	for i := range count {
		group.Go(func() error {
			w, err := lab.AddCluster(ctx, fmt.Sprintf("bare-%d", i), env.ClusterOptions{StartLater: true})
			if err != nil {
				return err
			}
			starting, startCtx := errgroup.WithContext(ctx)
			starting.Go(func() error { return w.StartAPI(startCtx) })
			starting.Go(func() error { return pushBare(startCtx, w) })
			if err := starting.Wait(); err != nil {
				return err
			}
			return poll(ctx, func() (bool, error) {
				// The lab sees it a moment later.
				took[i], err = steps.inPlace(w.Key())
				return err == nil, nil
			})
		})
	}
	return took, group.Wait()
}

// pushBare makes the requests of a push, from the first on again where one fails.
func pushBare(ctx context.Context, w *env.Workload) error {
	input := agent.Input{
		RegistrationID: upstream.NewID(), FleetCluster: w.Key(), ClusterNamespace: "bare",
		Agent: fleetv1.AgentSpec{Image: "bare", ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: "https://127.0.0.1:1"}},
	}
	objects := agent.Objects(input, "")
	// No agent of it is to run.
	objects[len(objects)-1].(*appsv1.Deployment).Spec.Replicas = ptr.To[int32](0)
	objects = slices.Insert(objects, 1, client.Object(agent.Secret(input, "")))
	workload, err := (&remote.Dialer{}).Connect(w.Kubeconfig())
	if err != nil {
		return err
	}
	defer workload.Close()
	var last error
	err = poll(ctx, func() (bool, error) {
		last = pushOnce(ctx, workload, objects)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("pushing to %s: %w", w.Key(), errors.Join(err, last))
	}
	return nil
}

func pushOnce(ctx context.Context, workload *remote.Client, objects []client.Object) error {
	if err := workload.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{}); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}
	for _, obj := range []client.Object{&corev1.Secret{}, &appsv1.Deployment{}} {
		if err := workload.Get(ctx, key, obj); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	releases := &metav1.PartialObjectMetadataList{}
	releases.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := workload.List(ctx, releases, client.Limit(500)); err != nil {
		return err
	}
	for _, obj := range objects {
		content, err := agent.ToUnstructured(obj)
		if err != nil {
			return err
		}
		if err := workload.Apply(ctx, client.ApplyConfigurationFromUnstructured(content), bareOwner, client.ForceOwnership); err != nil {
			return err
		}
	}
	return nil
}
