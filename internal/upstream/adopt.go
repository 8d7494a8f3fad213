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
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

const (
	// touchInterval is the least time between two touches of a namespace for one
	// Fleet Cluster.
	touchInterval = 30 * time.Second

	// agentBundlePrefix begins the name of the Bundle that Fleet deploys its own agent
	// with (Fleet 0.13 to 0.16, agentmanagement's manageagent controller).
	agentBundlePrefix = "fleet-agent"

	// clusterNamespacePrefix begins the name of every cluster namespace that an agent's
	// account may be named after: the admission policy on agents goes by it.
	clusterNamespacePrefix = "cluster-"

	// objectSetPrefix begins the annotations of Rancher on what it keeps as it wants it.
	objectSetPrefix = "objectset.rio.cattle.io/"
)

// mayAdopt tells whether a Fleet Cluster that is not ours may become so: it stands for
// no registration.
func (r Registration) mayAdopt(cluster client.Object) bool {
	annotations := cluster.GetAnnotations()
	return r.Adopt != nil && annotations[fleetv1.RegistrationIDAnnotation] == "" && annotations[fleetv1.ClusterUIDAnnotation] == ""
}

// beginAdoption marks a Fleet Cluster that Fleet registered by itself as ours, which
// keeps Fleet's agent management away from now on. It always returns an error, a
// *Refusal unless the API server failed: the next try finishes what it began.
func (w *Writer) beginAdoption(ctx context.Context, r Registration, cluster *fleet.Cluster) error {
	if err := w.mayBeAdopted(ctx, r, cluster); err != nil {
		return err
	}
	if err := r.Adopt(ctx, cluster.Status.Namespace); err != nil {
		return err
	}
	err := w.patchAsRead(ctx, cluster, object{"metadata": object{
		"labels": object{fleet.ClusterManagementLabel: ManagementLabelValue},
		"annotations": object{
			fleetv1.RegistrationIDAnnotation: r.ID,
			fleetv1.ClusterUIDAnnotation:     r.ClusterUID,
			fleetv1.AdoptingAnnotation:       "true",
		},
	}})
	if err != nil {
		return err
	}
	// Fleet has to see the mark before the namespace is touched, so that is left to the
	// next try.
	return waitingForAdoption("Fleet Cluster %s is being taken over from Fleet's own registration", r.FleetCluster)
}

// mayBeAdopted returns a *Refusal where the Fleet Cluster is someone's who would go on
// managing it, or where its agent would not find what it deployed before.
func (w *Writer) mayBeAdopted(ctx context.Context, r Registration, cluster *fleet.Cluster) error {
	if r.FleetCluster.Namespace != r.Home {
		// Whoever may make Clusters in any namespace of a shared workspace could take the
		// cluster of another one by giving theirs its name.
		return &Refusal{fleetv1.AdoptionBlockedReason, fmt.Sprintf("Fleet Cluster %s is not in the namespace of the Cluster", r.FleetCluster)}
	}
	if manager := managerOf(cluster); manager != "" {
		return &Refusal{fleetv1.AdoptionBlockedReason, fmt.Sprintf("Fleet Cluster %s is still managed: it has %s", r.FleetCluster, manager)}
	}
	for _, namespace := range []string{cluster.Spec.AgentNamespace, cluster.Status.Agent.Namespace} {
		if namespace != "" && namespace != fleet.DefaultAgentNamespace {
			// An agent knows only the releases of its own namespace.
			return &Refusal{fleetv1.AdoptionBlockedReason, fmt.Sprintf("The agent of Fleet Cluster %s is not in namespace %s", r.FleetCluster, fleet.DefaultAgentNamespace)}
		}
	}
	name := cluster.Status.Namespace
	if name == "" {
		return &Refusal{fleetv1.AdoptionUnprovenReason, fmt.Sprintf("No agent has joined as Fleet Cluster %s: it has no cluster namespace", r.FleetCluster)}
	}
	if !IsClusterNamespace(name) {
		return &Refusal{fleetv1.NamespaceForeignReason, fmt.Sprintf("The name in status.namespace of Fleet Cluster %s is not one of a cluster namespace", r.FleetCluster)}
	}
	namespace, err := w.readNamespace(ctx, r, name)
	switch {
	case err != nil:
		return err
	case namespace == nil, r.Namespace != "" && r.Namespace != name:
		return &Refusal{fleetv1.NamespaceForeignReason, fmt.Sprintf("Namespace %s, which Fleet Cluster %s names, is missing or not the one of this registration", name, r.FleetCluster)}
	case !namespace.DeletionTimestamp.IsZero():
		return &Refusal{fleetv1.NamespaceTerminatingReason, fmt.Sprintf("Waiting for namespace %s to be gone", name)}
	}
	return nil
}

// managerOf says by what a Fleet Cluster shows that someone goes on managing it; empty
// where nothing does. Whoever made it chose those words, so only names are repeated.
func managerOf(cluster *fleet.Cluster) string {
	if len(cluster.OwnerReferences) > 0 {
		owner := cluster.OwnerReferences[0]
		if !kindName.MatchString(owner.Kind) || len(validation.IsDNS1123Subdomain(owner.Name)) > 0 {
			return "an owner reference"
		}
		return fmt.Sprintf("an owner reference to %s %s", owner.Kind, owner.Name)
	}
	if cluster.Labels[fleet.ClusterManagementLabel] != "" {
		return "the label " + fleet.ClusterManagementLabel
	}
	for key := range cluster.Annotations {
		if strings.HasPrefix(key, objectSetPrefix) {
			return "Rancher's annotations " + objectSetPrefix + "*"
		}
	}
	return ""
}

var kindName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

// IsClusterNamespace tells whether a namespace of that name can hold the
// BundleDeployments of a Fleet Cluster of ours.
func IsClusterNamespace(name string) bool {
	return strings.HasPrefix(name, clusterNamespacePrefix) && len(validation.IsDNS1123Label(name)) == 0
}

// finishAdoption ends what beginAdoption began, once Fleet has taken away what it
// deploys its own agent with: until then Fleet's old agent would put back what we
// change. It returns a *Refusal until it is done.
func (w *Writer) finishAdoption(ctx context.Context, r Registration, cluster *fleet.Cluster) error {
	left, err := w.agentBundle(ctx, r, cluster.Status.Namespace)
	if err != nil {
		return err
	}
	if left != "" {
		if err := w.touch(ctx, r); err != nil {
			return err
		}
		return waitingForAdoption("Waiting for Fleet to delete %s", left)
	}
	// Whoever knows the old clientID and a registration token could still get an account
	// in the cluster namespace.
	if err := w.patchAsRead(ctx, cluster, object{
		"metadata": object{"annotations": object{fleetv1.AdoptingAnnotation: nil}},
		"spec":     object{"clientID": newClientID()},
	}); err != nil {
		return err
	}
	w.touches.forget(r.FleetCluster)
	return nil
}

// agentBundle names what is left of the Bundle that Fleet deploys its own agent with;
// empty where nothing is.
func (w *Writer) agentBundle(ctx context.Context, r Registration, namespace string) (string, error) {
	name := fleet.SafeConcatName(agentBundlePrefix, r.FleetCluster.Name)
	for _, object := range []struct{ kind, namespace string }{
		{"Bundle", r.FleetCluster.Namespace},
		{"BundleDeployment", namespace},
	} {
		if object.namespace == "" {
			continue
		}
		key := types.NamespacedName{Namespace: object.namespace, Name: name}
		live := &metav1.PartialObjectMetadata{}
		live.SetGroupVersionKind(fleet.GroupVersion.WithKind(object.kind))
		err := w.Reader.Get(ctx, key, live)
		if err == nil {
			return object.kind + " " + key.String(), nil
		}
		if !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("reading %s %s: %w", object.kind, key, err)
		}
	}
	return "", nil
}

// touch changes the namespace of the Fleet Cluster: only when a namespace changes does
// Fleet look which of its agents' Bundles there it needs no more.
func (w *Writer) touch(ctx context.Context, r Registration) error {
	now := w.Clock.Now()
	if !w.touches.due(r.FleetCluster, now) {
		return nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.FleetCluster.Namespace}}
	// The name keeps two Fleet Clusters from writing the same, which would change nothing.
	value := r.FleetCluster.Name + " " + now.UTC().Format(time.RFC3339)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, fleetv1.AdoptingAnnotation, value))
	if err := w.Client.Patch(ctx, namespace, patch, client.FieldOwner(FieldOwner)); err != nil {
		w.touches.forget(r.FleetCluster)
		return fmt.Errorf("touching namespace %s: %w", namespace.Name, err)
	}
	return nil
}

// patchAsRead merges a patch into a Fleet Cluster as it was read: one that has changed
// since is judged anew.
func (w *Writer) patchAsRead(ctx context.Context, cluster *fleet.Cluster, patch object) error {
	key := client.ObjectKeyFromObject(cluster)
	patch["metadata"].(object)["resourceVersion"] = cluster.ResourceVersion
	err := w.merge(ctx, cluster, patch)
	if apierrors.IsConflict(err) {
		return waitingForAdoption("Fleet Cluster %s has changed meanwhile", key)
	}
	return err
}

func waitingForAdoption(format string, args ...any) *Refusal {
	return &Refusal{fleetv1.WaitingForAdoptionReason, fmt.Sprintf(format, args...)}
}

// newClientID returns at least 128 random bits.
func newClientID() string { return rand.Text() + rand.Text() }

// touches remembers when namespaces were touched, by the Fleet Cluster that it was
// for. It is lost with the process, which costs one early touch.
type touches struct {
	mu   sync.Mutex
	last map[types.NamespacedName]time.Time
}

// due tells whether the next touch is due, and notes it.
func (t *touches) due(cluster types.NamespacedName, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.last[cluster]; ok && now.Sub(last) < touchInterval {
		return false
	}
	if t.last == nil {
		t.last = map[types.NamespacedName]time.Time{}
	}
	t.last[cluster] = now
	return true
}

func (t *touches) forget(cluster types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, cluster)
}
