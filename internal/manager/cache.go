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
	"fmt"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/endpoint"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// keptConditions are the conditions of a Cluster that the cache keeps: ours, and
// those that hint at a control plane which can be reached now.
var keptConditions = []string{
	fleetv1.FleetRegisteredCondition,
	clusterv1.ClusterControlPlaneInitializedCondition,
	clusterv1.ClusterControlPlaneAvailableCondition,
	clusterv1.ClusterRemoteConnectionProbeCondition,
}

// cacheOptions says what of the management cluster the manager holds in memory: no
// more than it watches. A read of anything else fails and does not quietly start a
// watch; such reads go to mgr.GetAPIReader().
func cacheOptions(opts *Options) cache.Options {
	ours := labels.SelectorFromSet(labels.Set{upstream.ManagedByLabel: upstream.FieldOwner})
	everywhere := map[string]cache.Config{cache.AllNamespaces: {}}
	byObject := map[client.Object]cache.ByObject{
		&clusterv1.Cluster{}: {Transform: stripCluster},
		// Wherever Clusters are looked for, their Fleet Clusters can be in another namespace,
		// and with them the Roles of their agents. ClusterClasses can be anywhere as well.
		&fleet.Cluster{}: {
			Label:      labels.SelectorFromSet(labels.Set{fleet.ClusterManagementLabel: upstream.ManagementLabelValue}),
			Namespaces: everywhere,
		},
		&fleet.ClusterGroup{}:           {Namespaces: everywhere},
		&fleet.BundleNamespaceMapping{}: {Namespaces: everywhere},
		&clusterv1.ClusterClass{}:       {Namespaces: everywhere},
		&rbacv1.Role{}:                  {Label: ours, Namespaces: everywhere},
		// One of each agent is in its cluster namespace.
		&rbacv1.RoleBinding{}:    {Label: ours, Namespaces: everywhere},
		&appsv1.Deployment{}:     {Label: ours, Namespaces: map[string]cache.Config{opts.ManagerNamespace: {}}},
		&corev1.ServiceAccount{}: {Label: ours, Namespaces: map[string]cache.Config{opts.ManagerNamespace: {}}},
		&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{
				opts.FleetNamespace:           {FieldSelector: named(endpoint.FleetConfigMap)},
				endpoint.ClusterInfoNamespace: {FieldSelector: named(endpoint.ClusterInfoConfigMap)},
			},
		},
	}
	var namespaces map[string]cache.Config
	if opts.Namespace != "" {
		namespaces = map[string]cache.Config{opts.Namespace: {}}
	}
	return cache.Options{
		SyncPeriod:                  &opts.SyncPeriod,
		ReaderFailOnMissingInformer: true,
		DefaultNamespaces:           namespaces,
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject:                    byObject,
	}
}

func named(name string) fields.Selector {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name)
}

// clientOptions keeps Secrets out of the cache whatever a controller asks for.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
}

// stripCluster drops from a Cluster what no controller reads, and what no policy can name
// as a value for templates. Cluster API changes
// much of it often, and it is most of the object. An object from the cache must
// therefore never be written with an update.
func stripCluster(in any) (any, error) {
	cluster, ok := in.(*clusterv1.Cluster)
	if !ok {
		return in, nil
	}
	cluster.ManagedFields = nil
	delete(cluster.Annotations, corev1.LastAppliedConfigAnnotation)

	cluster.Spec.AvailabilityGates = nil
	cluster.Spec.Topology.ControlPlane = clusterv1.ControlPlaneTopology{}
	cluster.Spec.Topology.Workers = clusterv1.WorkersTopology{}

	cluster.Status.ControlPlane = nil
	cluster.Status.Workers = nil
	cluster.Status.FailureDomains = nil
	cluster.Status.Deprecated = nil
	cluster.Status.Conditions = slices.DeleteFunc(cluster.Status.Conditions, func(c metav1.Condition) bool {
		return !slices.Contains(keptConditions, c.Type)
	})
	return cluster, nil
}

// newRESTMapper returns a mapper that knows the kinds in the cache from the start
// and asks discovery for others. Without that a manager could not be made while
// some of those kinds are not served, since its cache is told about them beforehand.
func newRESTMapper(restConfig *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	dynamic, err := apiutil.NewDynamicRESTMapper(restConfig, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making the REST mapper: %w", err)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{cachedKinds(), dynamic}}, nil
}

func cachedKinds() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	mapper.Add(rbacv1.SchemeGroupVersion.WithKind("Role"), meta.RESTScopeNamespace)
	mapper.Add(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), meta.RESTScopeNamespace)
	mapper.Add(clusterv1.GroupVersion.WithKind("Cluster"), meta.RESTScopeNamespace)
	mapper.Add(clusterv1.GroupVersion.WithKind("ClusterClass"), meta.RESTScopeNamespace)
	mapper.Add(fleet.GroupVersion.WithKind("Cluster"), meta.RESTScopeNamespace)
	mapper.Add(fleet.GroupVersion.WithKind("ClusterGroup"), meta.RESTScopeNamespace)
	mapper.Add(fleet.GroupVersion.WithKind("BundleNamespaceMapping"), meta.RESTScopeNamespace)
	mapper.Add(fleetv1.GroupVersion.WithKind("FleetRegistration"), meta.RESTScopeNamespace)
	mapper.Add(fleetv1.GroupVersion.WithKind("FleetRegistrationPolicy"), meta.RESTScopeRoot)
	return mapper
}
