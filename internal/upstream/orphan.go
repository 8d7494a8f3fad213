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

package upstream

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// MadeForRegistration tells whether a Fleet Cluster was made for a registration, is still
// ours and is there to stay. Without that registration it is an orphan.
func MadeForRegistration(cluster *fleet.Cluster) bool {
	return !handedOver(cluster) && cluster.Annotations[fleetv1.RegistrationIDAnnotation] != "" && cluster.DeletionTimestamp.IsZero()
}

// IDsInUse returns the IDs of registrations and of Fleet Clusters. What bears another one
// is left over.
func IDsInUse(registrations []fleetv1.FleetRegistration, clusters []fleet.Cluster) sets.Set[string] {
	used := sets.New[string]()
	for i := range registrations {
		used.Insert(registrations[i].Spec.RegistrationID)
	}
	for i := range clusters {
		used.Insert(clusters[i].Annotations[fleetv1.RegistrationIDAnnotation])
	}
	return used
}

// OrphanRegistration returns the registration that a Fleet Cluster of ours was made for, as
// far as that shows.
func (w *Writer) OrphanRegistration(ctx context.Context, cluster *fleet.Cluster) (Registration, error) {
	r := Registration{ID: cluster.Annotations[fleetv1.RegistrationIDAnnotation], FleetCluster: client.ObjectKeyFromObject(cluster)}
	var err error
	r.Namespace, err = w.ownNamespace(ctx, r, cluster.Status.Namespace)
	return r, err
}

// EndAccess deletes the service accounts of an orphan's agent, with all of their tokens:
// the one in the manager's namespace, and the one in the cluster namespace that an agent is
// left which is to work without capi-fleet. It returns since when there is none, which it
// keeps on the Fleet Cluster: watches that the agent has open go on for a time. It is zero
// where there is no Fleet Cluster that is ours to write.
func (w *Writer) EndAccess(ctx context.Context, r Registration) (since time.Time, err error) {
	cluster, err := w.ourFleetCluster(ctx, r)
	if err != nil || cluster == nil {
		return time.Time{}, err
	}
	accounts, err := w.accounts(ctx, r)
	if err != nil {
		return time.Time{}, err
	}
	since = AccessEnded(cluster)
	if len(accounts) > 0 && !since.IsZero() {
		// That was an earlier account. It is forgotten before this one goes, so that a
		// call which breaks off lets nobody believe it.
		if err := w.forgetAccessEnded(ctx, cluster); err != nil {
			return time.Time{}, err
		}
		since = time.Time{}
	}
	for _, account := range accounts {
		if err := w.deleteLive(ctx, account); err != nil {
			return time.Time{}, err
		}
	}
	// As precise as it is kept.
	now := w.Clock.Now().Truncate(time.Second)
	if !since.IsZero() && !since.After(now) {
		return since, nil
	}
	return now, w.patchMeta(ctx, cluster, object{"annotations": object{fleetv1.AccessEndedAnnotation: now.UTC().Format(time.RFC3339)}})
}

// ForgetAccessEnded takes away what EndAccess kept on the Fleet Cluster, so that its time
// begins anew.
func (w *Writer) ForgetAccessEnded(ctx context.Context, r Registration) error {
	cluster, err := w.ourFleetCluster(ctx, r)
	if err != nil || cluster == nil {
		return err
	}
	return w.forgetAccessEnded(ctx, cluster)
}

func (w *Writer) forgetAccessEnded(ctx context.Context, cluster *fleet.Cluster) error {
	return w.patchMeta(ctx, cluster, object{"annotations": object{fleetv1.AccessEndedAnnotation: nil}})
}

// AccessEnded returns what EndAccess kept on a Fleet Cluster, zero where it did not.
func AccessEnded(cluster *fleet.Cluster) time.Time {
	ended, err := time.Parse(time.RFC3339, cluster.Annotations[fleetv1.AccessEndedAnnotation])
	if err != nil {
		return time.Time{}
	}
	return ended
}

// accounts returns the service accounts of the registration's agent that are there.
func (w *Writer) accounts(ctx context.Context, r Registration) ([]client.Object, error) {
	names, err := w.placedNames(ctx, r)
	if err != nil {
		return nil, err
	}
	var found []client.Object
	for _, name := range names {
		for _, namespace := range []string{w.ManagerNamespace, name} {
			live, err := w.read(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
			if err != nil {
				return nil, err
			}
			if live != nil && r.ours(live) {
				found = append(found, live)
			}
		}
	}
	return found, nil
}

// DeleteAccount deletes the service account in the manager's namespace of a registration of
// which nothing else is left.
func (w *Writer) DeleteAccount(ctx context.Context, r Registration) error {
	return w.deleteAccount(ctx, r, r.Namespace)
}
