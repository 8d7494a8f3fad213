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

package env

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// fleetStandIn does on the management cluster what Fleet's own controller does, as
// far as a registration depends on it: it deletes the namespace that a deleted Fleet
// Cluster names, and keeps a BundleDeployment for each pair of a Bundle and a Fleet
// Cluster in one namespace where a target matches. It knows Fleet Clusters by what
// they say, as Fleet does, and not by who made them.
type fleetStandIn struct {
	client client.WithWatch
	report func(error)

	mu sync.Mutex
	// namespaces holds the newest status.namespace of each Fleet Cluster that was
	// seen and whose namespace was not deleted yet.
	namespaces map[types.UID]clusterNamespace
}

type clusterNamespace struct {
	name string
	gone bool // The Fleet Cluster is deleted or being deleted.
}

// run works until ctx ends.
func (f *fleetStandIn) run(ctx context.Context) {
	f.namespaces = map[types.UID]clusterNamespace{}
	changed := newTrigger()
	var group sync.WaitGroup
	group.Go(func() {
		follow(ctx, f.client, &fleet.ClusterList{}, func(event watch.Event) {
			f.remember(event)
			changed.fire()
		})
	})
	group.Go(func() { follow(ctx, f.client, &fleet.BundleList{}, changed.fired) })
	group.Go(func() { follow(ctx, f.client, &fleet.BundleDeploymentList{}, changed.fired) })
	changed.loop(ctx, f.report, f.round)
	group.Wait()
}

func (f *fleetStandIn) remember(event watch.Event) {
	cluster, ok := event.Object.(*fleet.Cluster)
	if !ok || cluster.Status.Namespace == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.namespaces[cluster.UID] = clusterNamespace{
		name: cluster.Status.Namespace,
		gone: event.Type == watch.Deleted || !cluster.DeletionTimestamp.IsZero(),
	}
}

func (f *fleetStandIn) round(ctx context.Context) error {
	// Before the list, which a Fleet Cluster that was made after it is not in.
	f.mu.Lock()
	seen := maps.Clone(f.namespaces)
	f.mu.Unlock()
	var clusters fleet.ClusterList
	if err := f.client.List(ctx, &clusters); err != nil {
		return fmt.Errorf("listing Fleet Clusters: %w", err)
	}
	return errors.Join(
		f.deleteNamespaces(ctx, seen, clusters.Items),
		f.target(ctx, clusters.Items),
	)
}

// deleteNamespaces deletes the namespaces of those Fleet Clusters of seen that are gone,
// whatever namespace that is: Fleet does not look at it either.
func (f *fleetStandIn) deleteNamespaces(ctx context.Context, seen map[types.UID]clusterNamespace, clusters []fleet.Cluster) error {
	alive := map[types.UID]bool{}
	for i := range clusters {
		alive[clusters[i].UID] = clusters[i].DeletionTimestamp.IsZero()
	}
	doomed := map[types.UID]string{}
	for uid, namespace := range seen {
		if namespace.gone || !alive[uid] {
			doomed[uid] = namespace.name
		}
	}

	var errs []error
	for uid, name := range doomed {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := f.client.Delete(ctx, namespace); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting namespace %s: %w", name, err))
			continue
		}
		f.mu.Lock()
		delete(f.namespaces, uid)
		f.mu.Unlock()
	}
	return errors.Join(errs...)
}

// target makes the BundleDeployments what Bundles and Fleet Clusters ask for.
func (f *fleetStandIn) target(ctx context.Context, clusters []fleet.Cluster) error {
	var bundles fleet.BundleList
	if err := f.client.List(ctx, &bundles); err != nil {
		return fmt.Errorf("listing Bundles: %w", err)
	}
	var deployments fleet.BundleDeploymentList
	if err := f.client.List(ctx, &deployments, client.HasLabels{fleet.BundleNameLabel, fleet.BundleNamespaceLabel}); err != nil {
		return fmt.Errorf("listing BundleDeployments: %w", err)
	}
	desired, contents, err := bundleDeployments(bundles.Items, clusters)
	if err != nil {
		return err
	}

	var errs []error
	for name, content := range contents {
		if err := f.client.Create(ctx, content); client.IgnoreAlreadyExists(err) != nil {
			errs = append(errs, fmt.Errorf("creating Content %s: %w", name, err))
		}
	}
	existing := map[client.ObjectKey]*fleet.BundleDeployment{}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		key := client.ObjectKeyFromObject(deployment)
		existing[key] = deployment
		if _, wanted := desired[key]; !wanted && deployment.DeletionTimestamp.IsZero() {
			if err := f.client.Delete(ctx, deployment); client.IgnoreNotFound(err) != nil {
				errs = append(errs, fmt.Errorf("deleting BundleDeployment %s: %w", key, err))
			}
		}
	}
	for key, deployment := range desired {
		if err := f.write(ctx, deployment, existing[key]); err != nil {
			errs = append(errs, fmt.Errorf("writing BundleDeployment %s: %w", key, err))
		}
	}
	return errors.Join(append(errs, f.collectContents(ctx, contents))...)
}

// write creates or patches a BundleDeployment. A namespace that is gone or going
// takes none, which is no fault.
func (f *fleetStandIn) write(ctx context.Context, desired, existing *fleet.BundleDeployment) error {
	if existing == nil {
		err := f.client.Create(ctx, desired)
		if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		return err
	}
	if desired.Spec.Paused {
		// The agent goes on with what it was given before.
		desired.Spec.Options, desired.Spec.DeploymentID = existing.Spec.Options, existing.Spec.DeploymentID
	}
	if equality.Semantic.DeepEqual(existing.Spec, desired.Spec) {
		return nil
	}
	before := existing.DeepCopy()
	existing.Spec = desired.Spec
	return client.IgnoreNotFound(f.client.Patch(ctx, existing, client.MergeFrom(before)))
}

// collectContents deletes the Contents that the stand-in made and nothing needs any
// more.
func (f *fleetStandIn) collectContents(ctx context.Context, needed map[string]*fleet.Content) error {
	var contents fleet.ContentList
	if err := f.client.List(ctx, &contents, client.MatchingLabels{standInLabel: "true"}); err != nil {
		return fmt.Errorf("listing Contents: %w", err)
	}
	var errs []error
	for i := range contents.Items {
		content := &contents.Items[i]
		if needed[content.Name] != nil {
			continue
		}
		if err := f.client.Delete(ctx, content); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting Content %s: %w", content.Name, err))
		}
	}
	return errors.Join(errs...)
}

// standInLabel marks the Contents of the stand-in.
const standInLabel = "lab.capi-fleet/stand-in"

// bundleDeployments returns the BundleDeployments for bundles on clusters, and by
// name the Contents that they refer to.
func bundleDeployments(bundles []fleet.Bundle, clusters []fleet.Cluster) (map[client.ObjectKey]*fleet.BundleDeployment, map[string]*fleet.Content, error) {
	deployments := map[client.ObjectKey]*fleet.BundleDeployment{}
	contents := map[string]*fleet.Content{}
	for i := range bundles {
		bundle := &bundles[i]
		if !bundle.DeletionTimestamp.IsZero() {
			continue
		}
		content, err := contentOf(bundle)
		if err != nil {
			return nil, nil, fmt.Errorf("Bundle %s: %w", client.ObjectKeyFromObject(bundle), err)
		}
		for j := range clusters {
			cluster := &clusters[j]
			if cluster.Namespace != bundle.Namespace || cluster.Status.Namespace == "" || !cluster.DeletionTimestamp.IsZero() {
				continue
			}
			matches, err := targets(bundle, cluster)
			if err != nil {
				return nil, nil, fmt.Errorf("Bundle %s: %w", client.ObjectKeyFromObject(bundle), err)
			}
			if !matches {
				continue
			}
			spec, err := deploymentSpec(bundle, cluster, content.Name)
			if err != nil {
				return nil, nil, fmt.Errorf("Bundle %s: %w", client.ObjectKeyFromObject(bundle), err)
			}
			contents[content.Name] = content
			deployments[client.ObjectKey{Namespace: cluster.Status.Namespace, Name: bundle.Name}] = &fleet.BundleDeployment{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: cluster.Status.Namespace,
					Name:      bundle.Name,
					Labels: map[string]string{
						fleet.BundleNameLabel:      bundle.Name,
						fleet.BundleNamespaceLabel: bundle.Namespace,
					},
				},
				Spec: spec,
			}
		}
	}
	return deployments, contents, nil
}

// targets says whether a target of bundle names or selects cluster. A target without
// either matches nothing, an empty selector everything.
func targets(bundle *fleet.Bundle, cluster *fleet.Cluster) (bool, error) {
	for _, target := range bundle.Spec.Targets {
		if target.ClusterName != "" && target.ClusterName == cluster.Name {
			return true, nil
		}
		if target.ClusterSelector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(target.ClusterSelector)
		if err != nil {
			return false, err
		}
		if selector.Matches(labels.Set(cluster.Labels)) {
			return true, nil
		}
	}
	return false, nil
}

// deploymentSpec stages what a bundle asks for, and lets the agent have it unless the
// Bundle or the Fleet Cluster is paused.
func deploymentSpec(bundle *fleet.Bundle, cluster *fleet.Cluster, content string) (fleet.BundleDeploymentSpec, error) {
	options, err := json.Marshal(bundle.Spec.BundleDeploymentOptions)
	if err != nil {
		return fleet.BundleDeploymentSpec{}, err
	}
	spec := fleet.BundleDeploymentSpec{
		Paused:             bundle.Spec.Paused || cluster.Spec.Paused,
		StagedOptions:      bundle.Spec.BundleDeploymentOptions,
		StagedDeploymentID: content + ":" + digest(options),
	}
	if !spec.Paused {
		spec.Options, spec.DeploymentID = spec.StagedOptions, spec.StagedDeploymentID
	}
	return spec, nil
}

// contentOf packs the resources of bundle the way that Fleet does: gzipped JSON under
// a name made from its hash.
func contentOf(bundle *fleet.Bundle) (*fleet.Content, error) {
	manifest, err := json.Marshal(struct {
		Resources []fleet.BundleResource `json:"resources"`
	}{bundle.Spec.Resources})
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(manifest); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	sum := digest(manifest)
	name := "s-" + sum
	const longest = 63
	return &fleet.Content{
		ObjectMeta: metav1.ObjectMeta{Name: strings.TrimRight(name[:longest], "-"), Labels: map[string]string{standInLabel: "true"}},
		Content:    packed.Bytes(),
		SHA256Sum:  sum,
	}, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
