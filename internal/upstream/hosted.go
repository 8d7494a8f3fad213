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
	"fmt"
	"net/netip"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
)

// RestartOwner owns what agent.Restart writes, so that no apply takes it away, which would
// be another restart.
const RestartOwner = FieldOwner + "-restart"

// HostedDeployment returns the Deployment of the registration's hosted agent, read without
// a cache; nil where there is none. It returns a *Refusal where one of its name is not
// ours.
func (w *Writer) HostedDeployment(ctx context.Context, r Registration) (*appsv1.Deployment, error) {
	if r.Namespace == "" {
		return nil, nil
	}
	live, err := w.read(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ManagerNamespace, Name: r.Namespace}})
	if err != nil || live == nil {
		return nil, err
	}
	if !r.ours(live) {
		return nil, notOurs(fleetv1.HostedObjectForeignReason, live)
	}
	return live.(*appsv1.Deployment), nil
}

// HostedSecret returns the Secret of the registration's hosted agent, nil where there is
// none that is ours.
func (w *Writer) HostedSecret(ctx context.Context, r Registration) (*corev1.Secret, error) {
	live, err := w.read(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ManagerNamespace, Name: r.Namespace}})
	if err != nil || live == nil || !r.ours(live) {
		return nil, err
	}
	return live.(*corev1.Secret), nil
}

// MayHost returns a *Refusal where an object of the name of one of the registration's hosted
// agent is there and not ours.
func (w *Writer) MayHost(ctx context.Context, r Registration) error {
	for _, obj := range agent.HostedLeftovers(w.ManagerNamespace, r.Namespace) {
		live, err := w.read(ctx, obj)
		if err != nil {
			return err
		}
		if live != nil && !r.ours(live) {
			return notOurs(fleetv1.HostedObjectForeignReason, live)
		}
	}
	return nil
}

// HasHosted tells, by the cache, whether the registration has the Deployment of a hosted
// agent.
func (w *Writer) HasHosted(ctx context.Context, r Registration) (bool, error) {
	if r.Namespace == "" {
		return false, nil
	}
	key := client.ObjectKey{Namespace: w.ManagerNamespace, Name: r.Namespace}
	cached := hostedMetadata()
	switch err := w.Cache.Get(ctx, key, cached); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading Deployment %s: %w", key, err)
	}
	return r.ours(cached), nil
}

func hostedMetadata() *metav1.PartialObjectMetadata {
	deployment := &metav1.PartialObjectMetadata{}
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return deployment
}

// ApplyHosted applies an object of a hosted agent where it differs from what is there, or
// only where it is missing, and tells whether it did. It returns a *Refusal where what is
// there is not ours.
func (w *Writer) ApplyHosted(ctx context.Context, r Registration, obj client.Object, onlyMissing bool) (wrote bool, err error) {
	desired, err := agent.ToUnstructured(obj)
	if err != nil {
		return false, fmt.Errorf("building %s %s: %w", kind(obj), client.ObjectKeyFromObject(obj), err)
	}
	live, err := w.read(ctx, obj)
	if err != nil {
		return false, err
	}
	if live != nil {
		if !r.ours(live) {
			return false, notOurs(fleetv1.HostedObjectForeignReason, live)
		}
		live.GetObjectKind().SetGroupVersionKind(desired.GroupVersionKind())
		present, err := agent.ToUnstructured(live)
		if err != nil {
			return false, fmt.Errorf("reading %s %s: %w", kind(obj), client.ObjectKeyFromObject(obj), err)
		}
		if onlyMissing || agent.Contains(present.Object, desired.Object) {
			return false, nil
		}
	}
	err = w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err != nil {
		return false, fmt.Errorf("applying %s %s: %w", kind(obj), client.ObjectKeyFromObject(obj), err)
	}
	return true, nil
}

// StopHosted scales the registration's hosted agent to nothing, which uninstalls nothing.
// It tells whether there is one, and whether it is seen to run no more.
//
// A Deployment that is there is proof that no agent of ours runs in the workload cluster:
// it is made after that was seen stopped, and removed before one is started there.
func (w *Writer) StopHosted(ctx context.Context, r Registration) (there, stopped bool, err error) {
	deployment, err := w.HostedDeployment(ctx, r)
	if err != nil {
		return false, false, err
	}
	if deployment != nil {
		if err := w.scaleToNothing(ctx, deployment); err != nil {
			return true, false, err
		}
	}
	if !agent.Stopped(deployment) {
		return true, false, nil
	}
	remains, err := w.hasHostedPod(ctx, r.Namespace)
	return deployment != nil, err == nil && !remains, err
}

func (w *Writer) hasHostedPod(ctx context.Context, clusterNamespace string) (bool, error) {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := w.Reader.List(ctx, pods, client.InNamespace(w.ManagerNamespace), client.MatchingLabels(agent.HostedPodLabels(clusterNamespace)), client.Limit(1)); err != nil {
		return false, fmt.Errorf("listing the pods of the agent hosted for %s: %w", clusterNamespace, err)
	}
	return len(pods.Items) > 0, nil
}

func (w *Writer) scaleToNothing(ctx context.Context, deployment *appsv1.Deployment) error {
	if ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"replicas":0}}`, deployment.UID))
	if err := w.Client.Patch(ctx, deployment, patch, client.FieldOwner(FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("stopping Deployment %s: %w", client.ObjectKeyFromObject(deployment), err)
	}
	return nil
}

// RestartHosted gives a hosted agent a new pod, and tells whether there is one.
func (w *Writer) RestartHosted(ctx context.Context, r Registration, now time.Time) (bool, error) {
	deployment, err := w.HostedDeployment(ctx, r)
	if err != nil || deployment == nil || !agent.Complete(deployment) {
		return false, err
	}
	if err := w.Client.Patch(ctx, deployment, agent.Restart(now), client.FieldOwner(RestartOwner)); err != nil {
		return false, fmt.Errorf("restarting Deployment %s: %w", client.ObjectKeyFromObject(deployment), err)
	}
	return true, nil
}

// RemoveHosted removes all that a hosted agent of the registration has on the management
// cluster but its service account, and tells whether that is done: while a pod of it is
// there, what binds that stays, unless all is to go at once.
func (w *Writer) RemoveHosted(ctx context.Context, r Registration, atOnce bool) (done bool, err error) {
	names, err := w.placedNames(ctx, r)
	if err != nil {
		return false, err
	}
	done = true
	for _, name := range names {
		gone, err := w.removeHosted(ctx, r, name, atOnce)
		if err != nil {
			return false, err
		}
		done = done && gone
	}
	return done, nil
}

func (w *Writer) removeHosted(ctx context.Context, r Registration, name string, atOnce bool) (done bool, err error) {
	var present []client.Object
	for _, obj := range agent.HostedLeftovers(w.ManagerNamespace, name) {
		live, err := w.read(ctx, obj)
		if err != nil {
			return false, err
		}
		if live != nil && r.ours(live) {
			present = append(present, live)
		}
	}
	if len(present) == 0 {
		return true, nil
	}
	if deployment, ok := present[0].(*appsv1.Deployment); ok {
		present = present[1:]
		if err := w.deleteLive(ctx, deployment); err != nil {
			return false, err
		}
	}
	if !atOnce {
		if remains, err := w.hasHostedPod(ctx, name); err != nil || remains {
			return false, err
		}
	}
	for _, live := range present {
		if err := w.deleteLive(ctx, live); err != nil {
			return false, err
		}
	}
	return true, nil
}

// HostedOf returns the names of the Deployments of agents that are hosted for a
// FleetRegistration, by the cache.
func (w *Writer) HostedOf(ctx context.Context, registration types.NamespacedName) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	if err := w.Cache.List(ctx, list, client.InNamespace(w.ManagerNamespace), client.MatchingLabels{ManagedByLabel: FieldOwner}); err != nil {
		return nil, fmt.Errorf("listing the Deployments of hosted agents: %w", err)
	}
	var names []string
	for i := range list.Items {
		if HostedFor(&list.Items[i]) == registration {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// ParkHosted scales a Deployment to nothing that is of a FleetRegistration which is gone:
// it was moved to another management cluster, or somebody took it away. Whether it is gone
// is for the caller to know.
func (w *Writer) ParkHosted(ctx context.Context, registration types.NamespacedName, name string) error {
	live, err := w.read(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ManagerNamespace, Name: name}})
	if err != nil || live == nil || HostedFor(live) != registration {
		return err
	}
	return w.scaleToNothing(ctx, live.(*appsv1.Deployment))
}

// HostedFor returns the key of the FleetRegistration that an object of a hosted agent is
// for; empty where it does not say.
func HostedFor(obj metav1.Object) types.NamespacedName {
	namespace, name, found := strings.Cut(obj.GetAnnotations()[fleetv1.HostedForAnnotation], "/")
	if !found {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// APIServers returns where the API servers of the management cluster answer, by the
// endpoints of its Service "kubernetes". Where network policies count what a Service was
// resolved to, an address that leads there is of no use.
func (w *Writer) APIServers(ctx context.Context) ([]agent.Destination, error) {
	slice := &discoveryv1.EndpointSlice{}
	err := w.Reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, slice)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the endpoints of the management cluster: %w", err)
	}
	var all []agent.Destination
	for _, port := range slice.Ports {
		destination := agent.Destination{Port: uint16(ptr.Deref(port.Port, 0))} //nolint:gosec // The API server keeps ports in their bounds.
		for _, endpoint := range slice.Endpoints {
			for _, text := range endpoint.Addresses {
				if address, err := netip.ParseAddr(text); err == nil {
					destination.Addresses = append(destination.Addresses, address)
				}
			}
		}
		all = append(all, destination)
	}
	return all, nil
}
