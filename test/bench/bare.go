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
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
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
}

// register makes the writes of a registration for each of the Clusters, as many at once as
// the manager does, and returns how long that took.
func (b *bare) register(ctx context.Context, clusters []client.ObjectKey) (time.Duration, error) {
	b.light.log("making the same writes with a bare client, for %d clusters", len(clusters))
	start := time.Now()
	err := b.each(ctx, clusters, b.registerOne)
	return time.Since(start), err
}

func (b *bare) each(ctx context.Context, clusters []client.ObjectKey, do func(context.Context, client.ObjectKey) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, key := range clusters {
		group.Go(func() error { return do(ctx, key) })
	}
	return group.Wait()
}

// key of the registration and of the Fleet Cluster: not the Cluster's own, which is the
// manager's later.
func (b *bare) key(cluster client.ObjectKey) client.ObjectKey {
	return client.ObjectKey{Namespace: cluster.Namespace, Name: "bare-" + cluster.Name}
}

func (b *bare) registerOne(ctx context.Context, cluster client.ObjectKey) error {
	key := b.key(cluster)
	registration := bareRegistration(key)
	if err := b.client.Create(ctx, registration, client.FieldOwner(upstream.FieldOwner)); err != nil {
		return err
	}
	objects := b.objects(key, registration.Spec.RegistrationID)
	for _, o := range objects {
		if err := b.client.Create(ctx, o, client.FieldOwner(upstream.FieldOwner)); err != nil {
			return err
		}
	}
	namespace := fleet.ClusterNamespace(key.Namespace, key.Name)
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"namespace":%q}}`, objects[0].GetUID(), namespace)
	if err := b.client.Status().Patch(ctx, objects[0], client.RawPatch(types.MergePatchType, patch), client.FieldOwner(upstream.FieldOwner)); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: namespace}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(72 * 60 * 60))}}
	if err := b.client.SubResource("token").Create(ctx, account, token); err != nil {
		return err
	}
	if err := b.report(ctx, registration, metav1.ConditionFalse); err != nil {
		return err
	}
	if err := b.report(ctx, registration, metav1.ConditionTrue); err != nil {
		return err
	}
	return b.tell(ctx, cluster, condition(fleetv1.FleetRegisteredCondition, metav1.ConditionTrue))
}

// bareRegistration is one like the manager's.
func bareRegistration(key client.ObjectKey) *fleetv1.FleetRegistration {
	return &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: key.Name}},
		Spec: fleetv1.FleetRegistrationSpec{
			RegistrationID: strconv.FormatUint(rand.Uint64(), 36) + "01234567890123456789012345678901234567"[:38],
			FleetCluster:   fleetv1.FleetClusterReference(key),
			SelectedBy:     fleetv1.SelectedBy{Policy: "bare"},
			Agent: fleetv1.AgentSpec{
				Image:             "rancher/fleet-agent:v0.15.0",
				ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: "https://127.0.0.1:6443", CertificateAuthorityData: make([]byte, 800)},
			},
		},
	}
}

func (b *bare) objects(key client.ObjectKey, id string) []client.Object {
	return upstream.Registration{
		ID: id, FleetCluster: key, Namespace: fleet.ClusterNamespace(key.Namespace, key.Name),
	}.Objects(env.ManagerNamespace, "")
}

// report writes a status as large as the manager's.
func (b *bare) report(ctx context.Context, registration *fleetv1.FleetRegistration, value metav1.ConditionStatus) error {
	status := fleetv1.FleetRegistrationStatus{
		Namespace:    fleet.ClusterNamespace(registration.Namespace, registration.Name),
		NamespaceUID: registration.UID,
		Workload:     fleetv1.WorkloadStatus{SystemNamespaceUID: registration.UID},
		Agent:        fleetv1.AgentStatus{Revision: registration.Spec.RegistrationID, NamespaceUID: registration.UID, PushedTime: metav1.Now()},
		Credential:   fleetv1.CredentialStatus{IssuedTime: metav1.Now(), ExpirationTime: metav1.Now(), ServiceAccountUID: registration.UID},
	}
	for _, kind := range []string{
		fleetv1.ReadyCondition, fleetv1.FleetClusterReadyCondition, fleetv1.WorkloadReachableCondition, fleetv1.AgentDeployedCondition,
		fleetv1.CredentialsValidCondition, fleetv1.AgentConnectedCondition, fleetv1.SelectedCondition,
	} {
		status.Conditions = append(status.Conditions, condition(kind, value))
	}
	return written.ApplyStatus(ctx, b.client, registration, &status, upstream.FieldOwner)
}

// tell writes conditions of capi-fleet to the Cluster, or takes them away.
func (b *bare) tell(ctx context.Context, key client.ObjectKey, conditions ...metav1.Condition) error {
	status := &struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	}{conditions}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return written.ApplyStatus(ctx, b.client, cluster, status, upstream.FieldOwner, client.ForceOwnership)
}

func condition(kind string, value metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: kind, Status: value, Reason: "Measured", Message: "Written by the bare client", LastTransitionTime: metav1.Now()}
}

// remove takes away what register made, but for the cluster namespaces, whose end takes
// Kubernetes longer than all the rest.
func (b *bare) remove(ctx context.Context, clusters []client.ObjectKey) error {
	return b.each(ctx, clusters, func(ctx context.Context, cluster client.ObjectKey) error {
		registration := bareRegistration(b.key(cluster))
		for _, o := range append(b.objects(b.key(cluster), registration.Spec.RegistrationID), registration) {
			if _, stays := o.(*corev1.Namespace); stays {
				continue
			}
			if err := b.light.Client.Delete(ctx, o); err != nil {
				return err
			}
		}
		b.light.steps.forget(b.key(cluster))
		return b.tell(ctx, cluster)
	})
}
