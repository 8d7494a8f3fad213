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
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/internal/written"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// workers is the manager's --registration-concurrency by default.
const workers = 50

// bare is a client that makes the manager's writes and nothing else: it watches nothing,
// decides nothing and knows no workload cluster.
type bare struct {
	client client.Client
	light  *light
	// example is a registration that the manager has made: each is like it.
	example *fleetv1.FleetRegistration
	// prefix is that of the names of all registrations and Fleet Clusters: those of the
	// Clusters are the manager's.
	prefix string
}

// newBare returns a client with the manager's rights.
func newBare(ctx context.Context, l *light, example client.ObjectKey) (*bare, error) {
	account, err := l.AsManager(ctx)
	if err != nil {
		return nil, err
	}
	b := &bare{client: account, light: l, example: &fleetv1.FleetRegistration{}}
	return b, l.Client.Get(ctx, example, b.example)
}

// named returns the client for registrations of other names.
func (b *bare) named(prefix string) *bare {
	named := *b
	named.prefix = prefix
	return &named
}

// register makes the writes of a registration for each of the Clusters, as many at once as
// the manager does, and returns how long that took.
func (b *bare) register(ctx context.Context, clusters []clusterv1.Cluster) (time.Duration, error) {
	b.light.log("making the same writes with a bare client, for %d clusters", len(clusters))
	start := time.Now()
	err := each(ctx, clusters, b.registerOne)
	return time.Since(start), err
}

func each(ctx context.Context, clusters []clusterv1.Cluster, do func(context.Context, *clusterv1.Cluster) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range clusters {
		group.Go(func() error { return do(ctx, &clusters[i]) })
	}
	return group.Wait()
}

func (b *bare) registerOne(ctx context.Context, cluster *clusterv1.Cluster) error {
	registration := b.registration(cluster)
	if err := b.client.Create(ctx, registration, client.FieldOwner(upstream.FieldOwner)); err != nil {
		return err
	}
	objects := b.objects(registration)
	for _, o := range objects {
		if err := b.client.Create(ctx, o, client.FieldOwner(upstream.FieldOwner)); err != nil {
			return err
		}
	}
	namespace := clusterNamespace(registration)
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"namespace":%q}}`, objects[0].GetUID(), namespace)
	if err := b.client.Status().Patch(ctx, objects[0], client.RawPatch(types.MergePatchType, patch), client.FieldOwner(upstream.FieldOwner)); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: namespace}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(72 * 60 * 60))}}
	if err := b.client.SubResource("token").Create(ctx, account, token); err != nil {
		return err
	}
	// The agent was not heard yet, and then it was.
	for _, heard := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} {
		status := b.example.Status.DeepCopy()
		status.Namespace = namespace
		for _, kind := range []string{fleetv1.AgentConnectedCondition, fleetv1.ReadyCondition} {
			meta.FindStatusCondition(status.Conditions, kind).Status = heard
		}
		if err := written.ApplyStatus(ctx, b.client, registration, status, upstream.FieldOwner); err != nil {
			return err
		}
	}
	return b.tell(ctx, cluster, metav1.Condition{
		Type: bareRegistered, Status: metav1.ConditionTrue, Reason: "Measured", LastTransitionTime: metav1.Now(),
	})
}

// registration returns one like the example, without its status.
func (b *bare) registration(cluster *clusterv1.Cluster) *fleetv1.FleetRegistration {
	like := b.example.DeepCopy()
	registration := &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: b.prefix + "-" + cluster.Name, Labels: like.Labels,
			Finalizers: like.Finalizers, OwnerReferences: []metav1.OwnerReference{decide.OwnerReference(cluster)},
		},
		Spec: like.Spec,
	}
	registration.Spec.RegistrationID = upstream.NewID()
	registration.Spec.ClusterUID = cluster.UID
	registration.Spec.FleetCluster = fleetv1.FleetClusterReference(client.ObjectKeyFromObject(registration))
	return registration
}

// clusterNamespace returns the name of the cluster namespace.
func clusterNamespace(registration *fleetv1.FleetRegistration) string {
	return fleet.ClusterNamespace(registration.Namespace, registration.Name)
}

func (b *bare) objects(registration *fleetv1.FleetRegistration) []client.Object {
	return upstream.Registration{
		ID: registration.Spec.RegistrationID, ClusterUID: registration.Spec.ClusterUID,
		FleetCluster: client.ObjectKeyFromObject(registration), Namespace: clusterNamespace(registration),
	}.Objects(env.ManagerNamespace, "")
}

// bareRegistered stands for the condition that the manager writes to Clusters, and bareOwner
// for the manager as the owner of fields: what is the manager's stays as it is.
const (
	bareRegistered = "BareRegistered"
	bareOwner      = client.FieldOwner("bare-client")
)

// tell writes conditions to the Cluster, or takes them away.
func (b *bare) tell(ctx context.Context, cluster *clusterv1.Cluster, conditions ...metav1.Condition) error {
	status := &struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	}{conditions}
	named := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
	return written.ApplyStatus(ctx, b.client, named, status, bareOwner)
}

// remove takes away what register made, but for the cluster namespaces, whose end takes
// Kubernetes longer than all the rest.
func (b *bare) remove(ctx context.Context, clusters []clusterv1.Cluster) error {
	return each(ctx, clusters, func(ctx context.Context, cluster *clusterv1.Cluster) error {
		registration := b.registration(cluster)
		released := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := b.light.Client.Patch(ctx, registration, released); err != nil {
			return err
		}
		for _, o := range append(b.objects(registration), registration) {
			if _, stays := o.(*corev1.Namespace); stays {
				continue
			}
			if err := b.light.Client.Delete(ctx, o); err != nil {
				return err
			}
		}
		b.light.steps.forget(client.ObjectKeyFromObject(registration))
		return b.tell(ctx, cluster)
	})
}
