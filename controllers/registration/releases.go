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

package registration

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/remote"
)

const (
	releasePage = 500
	// maxReleasePages bounds what one visit looks through, whatever the workload
	// cluster says of further pages.
	maxReleasePages = 20
	// maxReleaseSize bounds, in bytes, what a release may unpack to.
	maxReleaseSize = 16 << 20
	// maxUnpacking bounds how many releases are unpacked at once.
	maxUnpacking = 4
)

// unpacking has an entry for each release that is being unpacked, by whichever worker:
// a small Secret can unpack to a lot, and all workers might meet such ones together.
var unpacking = make(chan struct{}, maxUnpacking)

// fleetReleases returns each release in the workload cluster that a Fleet agent in our
// agent's namespace made. Helm keeps a Secret for each revision
// of a release; the newest of each says what it is (Helm 3, storage driver
// "secret").
func fleetReleases(ctx context.Context, workload *remote.Client) ([]decide.Release, error) {
	newest := map[types.NamespacedName]storedRevision{}
	next := ""
	for range maxReleasePages {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
		if err := workload.List(ctx, page, client.MatchingLabels{"owner": "helm"}, client.Limit(releasePage), client.Continue(next)); err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			release := types.NamespacedName{Namespace: item.Namespace, Name: item.Labels["name"]}
			if revision := releaseRevision(item); newest[release].name == "" || revision > newest[release].revision {
				newest[release] = storedRevision{name: item.Name, revision: revision}
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	if next != "" {
		return nil, &refusal{fleetv1.WaitingForBundlesReason,
			"The workload cluster has more Helm releases than can be looked through, so whether an agent would uninstall any is not known"}
	}
	var releases []decide.Release
	for name, stored := range newest {
		release := &corev1.Secret{}
		found, err := get(ctx, workload, types.NamespacedName{Namespace: name.Namespace, Name: stored.name}, release)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		bundle, err := fleetBundleInTurn(ctx, release.Data["release"])
		if err != nil {
			return nil, err
		}
		if bundle != "" {
			releases = append(releases, decide.Release{NamespacedName: name, Bundle: bundle})
		}
	}
	return releases, nil
}

// storedRevision is the Secret of one revision of a release.
type storedRevision struct {
	name     string
	revision int
}

func releaseRevision(item metav1.PartialObjectMetadata) int {
	revision, err := strconv.Atoi(item.Labels["version"])
	if err != nil {
		return -1
	}
	return revision
}

// fleetBundleInTurn is fleetBundle, once few enough others are at it.
func fleetBundleInTurn(ctx context.Context, encoded []byte) (string, error) {
	select {
	case unpacking <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-unpacking }()
	return fleetBundle(encoded)
}

// fleetBundle returns the bundle of a Helm release that Fleet's agent made in our
// agent's namespace, else "". Releases of the agent's own name are never
// uninstalled by it. What Helm could not read is no release; what is too large to
// unpack here, Helm can read, and so it is a *refusal.
func fleetBundle(encoded []byte) (string, error) {
	content, err := base64.StdEncoding.DecodeString(string(encoded))
	if err != nil {
		return "", nil
	}
	// Helm itself tells the two forms apart in this way.
	if bytes.HasPrefix(content, []byte{0x1f, 0x8b, 0x08}) {
		unpacked, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return "", nil
		}
		if content, err = io.ReadAll(io.LimitReader(unpacked, maxReleaseSize+1)); err != nil {
			return "", nil
		}
		if len(content) > maxReleaseSize {
			return "", &refusal{fleetv1.WaitingForBundlesReason,
				"The workload cluster has a Helm release that is too large to be looked into, so whether an agent would uninstall it is not known"}
		}
	}
	var release helmRelease
	if err := json.Unmarshal(content, &release); err != nil {
		return "", nil
	}
	annotations := release.Chart.Metadata.Annotations
	if annotations.AgentNamespace != agent.Namespace || strings.HasPrefix(annotations.BundleID, agent.Name) {
		return "", nil
	}
	return annotations.BundleID, nil
}

// helmRelease is what we read of a release. The annotations are fields and not a
// map, so that a workload cluster cannot make us hold any others.
type helmRelease struct {
	Chart struct {
		Metadata struct {
			Annotations struct {
				BundleID       string `json:"fleet.cattle.io/bundle-id"`
				AgentNamespace string `json:"fleet.cattle.io/agent-namespace"`
			} `json:"annotations"`
		} `json:"metadata"`
	} `json:"chart"`
}
