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
	"cmp"
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// registered is a Cluster with what stands for it.
type registered struct {
	cluster clusterv1.Cluster
	// registration is nil where there is none.
	registration *fleetv1.FleetRegistration
	// fleetCluster is nil where there is none, or where it may not be read.
	fleetCluster *fleet.Cluster
	// bundles is nil where they are not known.
	bundles *bundleCount
}

// bundleCount counts BundleDeployments.
type bundleCount struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
}

// get reads an object and tells whether it is there.
func get(ctx context.Context, c client.Reader, key client.ObjectKey, obj client.Object) (bool, error) {
	err := c.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// mergePatch merges a patch into an object.
func mergePatch(ctx context.Context, c client.Client, obj client.Object, patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data))
}

// ignoreNoMatch drops the error of a kind that is not installed.
func ignoreNoMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// listRegistered lists the Clusters of a namespace, all where it is empty, with what
// stands for each, sorted.
func listRegistered(ctx context.Context, c client.Client, namespace string, selector labels.Selector) ([]registered, error) {
	clusters := &clusterv1.ClusterList{}
	if err := c.List(ctx, clusters, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	registrations := &fleetv1.FleetRegistrationList{}
	if err := c.List(ctx, registrations, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	// Fleet Clusters and BundleDeployments lie in other namespaces, which not everybody
	// may read.
	fleetClusters := &fleet.ClusterList{}
	if err := c.List(ctx, fleetClusters); err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	deployments := &fleet.BundleDeploymentList{}
	err := c.List(ctx, deployments)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	return join(clusters.Items, registrations.Items, fleetClusters.Items, deployments.Items, err == nil), nil
}

// join puts together what belongs together.
func join(clusters []clusterv1.Cluster, registrations []fleetv1.FleetRegistration, fleetClusters []fleet.Cluster, deployments []fleet.BundleDeployment, counted bool) []registered {
	byName := map[types.NamespacedName]*fleetv1.FleetRegistration{}
	for i := range registrations {
		byName[client.ObjectKeyFromObject(&registrations[i])] = &registrations[i]
	}
	inFleet := map[types.NamespacedName]*fleet.Cluster{}
	for i := range fleetClusters {
		inFleet[client.ObjectKeyFromObject(&fleetClusters[i])] = &fleetClusters[i]
	}
	counts := count(deployments)

	joined := make([]registered, 0, len(clusters))
	for _, cluster := range clusters {
		r := registered{cluster: cluster, registration: byName[client.ObjectKeyFromObject(&cluster)]}
		if r.registration != nil {
			r.fleetCluster = inFleet[types.NamespacedName(r.registration.Spec.FleetCluster)]
			if found := counts[r.registration.Status.Namespace]; counted {
				r.bundles = &found
			}
		}
		joined = append(joined, r)
	}
	slices.SortFunc(joined, func(a, b registered) int {
		return cmp.Or(cmp.Compare(a.cluster.Namespace, b.cluster.Namespace), cmp.Compare(a.cluster.Name, b.cluster.Name))
	})
	return joined
}

// count counts BundleDeployments by namespace.
func count(deployments []fleet.BundleDeployment) map[string]bundleCount {
	counts := map[string]bundleCount{}
	for i := range deployments {
		found := counts[deployments[i].Namespace]
		found.Total++
		if deployments[i].Status.Ready {
			found.Ready++
		}
		counts[deployments[i].Namespace] = found
	}
	return counts
}
