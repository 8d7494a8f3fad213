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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/metrics"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// startWork sets up what needs all APIs to be served: the controllers, and the
// metrics that count registrations and orphans, until the context ends. Only the leader
// counts, so the sum over all managers is right.
func startWork(ctx context.Context, mgr ctrl.Manager, opts *Options) error {
	if err := setupControllers(ctx, mgr, opts); err != nil {
		return fmt.Errorf("setting up the controllers: %w", err)
	}

	collector := metrics.NewCollector(clock.RealClock{}, listRegistrations(mgr.GetCache(), opts.WatchFilter), countOrphans(mgr.GetCache(), opts.Namespace))
	if err := ctrlmetrics.Registry.Register(collector); err != nil {
		// Clusters join all the same.
		mgr.GetLogger().Error(err, "Failed to register the metrics of registrations")
		return nil
	}
	context.AfterFunc(ctx, func() { ctrlmetrics.Registry.Unregister(collector) })
	return nil
}

// listRegistrations lists the registrations that this manager is responsible for.
// The objects are the cache's own: only to be read.
func listRegistrations(cache client.Reader, watchFilter string) func(context.Context) ([]fleetv1.FleetRegistration, error) {
	opts := []client.ListOption{client.UnsafeDisableDeepCopy}
	if watchFilter != "" {
		opts = append(opts, client.MatchingLabels{clusterv1.WatchLabel: watchFilter})
	}
	return func(ctx context.Context) ([]fleetv1.FleetRegistration, error) {
		list := &fleetv1.FleetRegistrationList{}
		if err := cache.List(ctx, list, opts...); err != nil {
			return nil, fmt.Errorf("listing FleetRegistrations: %w", err)
		}
		return list.Items, nil
	}
}

// countOrphans counts the Fleet Clusters of the cache that are labelled as orphans, and
// the service accounts of which nothing else is left. A manager that sees only one
// namespace cannot tell whose those are.
func countOrphans(cache client.Reader, namespace string) func(context.Context) (metrics.Orphans, error) {
	return func(ctx context.Context) (metrics.Orphans, error) {
		clusters, registrations := &fleet.ClusterList{}, &fleetv1.FleetRegistrationList{}
		accounts := &metav1.PartialObjectMetadataList{}
		accounts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
		for _, list := range []client.ObjectList{accounts, registrations, clusters} {
			if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
				return metrics.Orphans{}, fmt.Errorf("looking for orphans: %w", err)
			}
		}
		found, used := metrics.Orphans{}, upstream.IDsInUse(registrations.Items, clusters.Items)
		for i := range clusters.Items {
			if clusters.Items[i].Labels[fleetv1.OrphanLabel] == "true" {
				found.FleetClusters++
			}
		}
		for i := range accounts.Items {
			if namespace == "" && !used.Has(accounts.Items[i].Annotations[fleetv1.RegistrationIDAnnotation]) {
				found.ServiceAccounts++
			}
		}
		return found, nil
	}
}
