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
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/metrics"
)

// nowhere is an address at which nothing listens.
var nowhere = &rest.Config{Host: "https://127.0.0.1:1"}

func parse(g *WithT, args ...string) *Options {
	opts, _, err := ParseFlags(append([]string{"--health-addr=0", "--diagnostics-address=0"}, args...))
	g.Expect(err).NotTo(HaveOccurred())
	return opts
}

// byObject returns the cache's settings for the kind of obj.
func byObject(g *WithT, opts cache.Options, obj client.Object) cache.ByObject {
	scheme, err := newScheme()
	g.Expect(err).NotTo(HaveOccurred())
	want, err := apiutil.GVKForObject(obj, scheme)
	g.Expect(err).NotTo(HaveOccurred())
	for key, settings := range opts.ByObject {
		got, err := apiutil.GVKForObject(key, scheme)
		g.Expect(err).NotTo(HaveOccurred())
		if got == want {
			return settings
		}
	}
	return cache.ByObject{}
}

func TestManagerIsMadeBeforeAnyAPIIsServed(t *testing.T) {
	for name, args := range map[string][]string{
		"all namespaces": nil,
		"one namespace":  {"--namespace=edge"},
		"leader":         {"--leader-elect"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)

			mgr, err := newManager(rest.CopyConfig(nowhere), parse(g, args...))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(mgr).NotTo(BeNil())
		})
	}
}

func TestReadsOutsideTheCacheFailInsteadOfStartingAWatch(t *testing.T) {
	g := NewWithT(t)
	mgr, err := newManager(rest.CopyConfig(nowhere), parse(g))
	g.Expect(err).NotTo(HaveOccurred())

	err = mgr.GetClient().Get(t.Context(), client.ObjectKey{Namespace: "edge", Name: "a"}, &corev1.Pod{})

	notCached := &cache.ErrResourceNotCached{}
	g.Expect(err).To(BeAssignableToTypeOf(notCached))
}

func TestTLSFlagsAreChecked(t *testing.T) {
	g := NewWithT(t)

	_, err := newManager(rest.CopyConfig(nowhere), parse(g, "--tls-min-version=VersionTLS9"))

	g.Expect(err).To(MatchError(ContainSubstring("VersionTLS9")))
}

func TestCacheHoldsOnlyWhatIsWatched(t *testing.T) {
	g := NewWithT(t)

	opts := cacheOptions(parse(g, "--fleet-namespace=fleet"))

	g.Expect(opts.DefaultNamespaces).To(BeNil())
	g.Expect(byObject(g, opts, &fleet.Cluster{}).Label.String()).To(Equal("fleet.cattle.io/cluster-management=capi-fleet"))
	configMaps := byObject(g, opts, &corev1.ConfigMap{}).Namespaces
	g.Expect(configMaps).To(HaveLen(2))
	g.Expect(configMaps["fleet"].FieldSelector.String()).To(Equal("metadata.name=fleet-controller"))
	g.Expect(configMaps["kube-public"].FieldSelector.String()).To(Equal("metadata.name=cluster-info"))
	for _, obj := range []client.Object{&rbacv1.Role{}, &rbacv1.RoleBinding{}, &corev1.ServiceAccount{}} {
		g.Expect(byObject(g, opts, obj).Label.String()).To(Equal("app.kubernetes.io/managed-by=capi-fleet"), "%T", obj)
	}
	g.Expect(byObject(g, opts, &corev1.ServiceAccount{}).Namespaces).To(And(HaveLen(1), HaveKey("capi-fleet-system")))
}

func TestNamespaceFlagLimitsTheCache(t *testing.T) {
	g := NewWithT(t)

	opts := cacheOptions(parse(g, "--namespace=edge"))

	g.Expect(opts.DefaultNamespaces).To(HaveLen(1))
	g.Expect(opts.DefaultNamespaces).To(HaveKey("edge"))
	g.Expect(byObject(g, opts, &rbacv1.RoleBinding{}).Namespaces).To(And(HaveLen(1), HaveKey(cache.AllNamespaces)), "one is in the cluster namespace")
	for _, obj := range []client.Object{&fleet.Cluster{}, &rbacv1.Role{}, &fleet.ClusterGroup{}, &fleet.BundleNamespaceMapping{}, &clusterv1.ClusterClass{}} {
		g.Expect(byObject(g, opts, obj).Namespaces).To(And(HaveLen(1), HaveKey(cache.AllNamespaces)), "%T can be in another namespace", obj)
	}
	g.Expect(byObject(g, opts, &corev1.ConfigMap{}).Namespaces).To(HaveLen(2))
}

func TestCachedClusterKeepsWhatControllersRead(t *testing.T) {
	g := NewWithT(t)
	full := func() *clusterv1.Cluster {
		return &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{
				Name: "a", Namespace: "edge", UID: "1", ResourceVersion: "7", Generation: 3,
				Labels:      map[string]string{fleetv1.RegisterLabel: "true"},
				Annotations: map[string]string{clusterv1.PausedAnnotation: ""},
				Finalizers:  []string{clusterv1.ClusterFinalizer},
			},
			Spec: clusterv1.ClusterSpec{
				Paused:               ptr.To(true),
				ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443},
				ClusterNetwork:       clusterv1.ClusterNetwork{ServiceDomain: "cluster.local"},
				Topology: clusterv1.Topology{
					ClassRef: clusterv1.ClusterClassRef{Name: "small"}, Version: "v1.36.3",
					Variables: []clusterv1.ClusterVariable{{Name: "size"}},
				},
			},
			Status: clusterv1.ClusterStatus{
				Phase:          "Provisioned",
				Initialization: clusterv1.ClusterInitializationStatus{ControlPlaneInitialized: ptr.To(true)},
				Conditions: []metav1.Condition{
					{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue},
					{Type: clusterv1.ClusterRemoteConnectionProbeCondition, Status: metav1.ConditionTrue},
				},
			},
		}
	}
	cluster := full()
	cluster.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "capi"}}
	cluster.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	cluster.Spec.AvailabilityGates = []clusterv1.ClusterAvailabilityGate{{ConditionType: "X"}}
	cluster.Spec.Topology.ControlPlane.Replicas = ptr.To[int32](3)
	cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Name: "md"}}
	cluster.Status.ControlPlane = &clusterv1.ClusterControlPlaneStatus{}
	cluster.Status.Workers = &clusterv1.WorkersStatus{}
	cluster.Status.FailureDomains = []clusterv1.FailureDomain{{Name: "a"}}
	cluster.Status.Deprecated = &clusterv1.ClusterDeprecatedStatus{}
	cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{Type: "RollingOut"})

	got, err := stripCluster(cluster)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(full()))
}

func TestOnlyRegistrationsOfTheWatchFilterAreCounted(t *testing.T) {
	g := NewWithT(t)
	scheme, err := newScheme()
	g.Expect(err).NotTo(HaveOccurred())
	registration := func(name, filter string) *fleetv1.FleetRegistration {
		return &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{
			Namespace: "edge", Name: name, Labels: map[string]string{clusterv1.WatchLabel: filter},
		}}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(registration("a", "blue"), registration("b", "green"), registration("c", "")).Build()
	count := func(filter string) int {
		registrations, err := listRegistrations(reader, filter)(context.Background())
		g.Expect(err).NotTo(HaveOccurred())
		return len(registrations)
	}

	g.Expect(count("blue")).To(Equal(1))
	g.Expect(count("")).To(Equal(3))
}

func TestOrphansAreCounted(t *testing.T) {
	g := NewWithT(t)
	named := func(name, id string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels, Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: id}}
	}
	account := func(name, id string) client.Object {
		return &corev1.ServiceAccount{ObjectMeta: named(name, id, nil)}
	}
	scheme, err := newScheme()
	g.Expect(err).NotTo(HaveOccurred())
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "registered"}, Spec: fleetv1.FleetRegistrationSpec{RegistrationID: "1"}},
		&fleet.Cluster{ObjectMeta: named("orphan", "2", map[string]string{fleetv1.OrphanLabel: "true"})},
		account("of-a-registration", "1"), account("of-an-orphan", "2"), account("of-nothing", "3"),
	).Build()

	found, err := countOrphans(reader, "")(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(Equal(metrics.Orphans{FleetClusters: 1, ServiceAccounts: 1}))

	found, err = countOrphans(reader, "ns")(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(Equal(metrics.Orphans{FleetClusters: 1}), "others may have a registration that is not seen")
}
