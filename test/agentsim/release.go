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

package agentsim

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// Statuses of a release.
const (
	statusDeployed   = "deployed"
	statusSuperseded = "superseded"
)

// release is the part of a Helm 3 release that Fleet goes by, with Helm's JSON
// tags.
type release struct {
	Name      string      `json:"name"`
	Namespace string      `json:"namespace"`
	Version   int         `json:"version"` // the revision, from 1 on
	Info      releaseInfo `json:"info"`
	Chart     chart       `json:"chart"`
}

type releaseInfo struct {
	Status string `json:"status"`
	// Description is the ID of the deployment that the release is of.
	Description string `json:"description,omitempty"`
}

type chart struct {
	Metadata chartMetadata `json:"metadata"`
}

type chartMetadata struct {
	Name        string            `json:"name"`
	Version     string            `json:"version,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// newRelease returns the first revision of the release of a BundleDeployment.
func newRelease(key types.NamespacedName, bundle, agentNamespace, deploymentID string) release {
	return release{
		Name:      key.Name,
		Namespace: key.Namespace,
		Version:   1,
		Info:      releaseInfo{Status: statusDeployed, Description: deploymentID},
		Chart: chart{Metadata: chartMetadata{
			Name:    bundle,
			Version: "0.0.0",
			Annotations: map[string]string{
				fleet.BundleIDAnnotation:       bundle,
				fleet.AgentNamespaceAnnotation: agentNamespace,
			},
		}},
	}
}

// ReleaseSecret returns the Secret of a Helm release as an agent in agentNamespace
// leaves it behind for the BundleDeployment called bundle, for tests of what
// becomes of such releases.
func ReleaseSecret(bundle, agentNamespace string) (*corev1.Secret, error) {
	return newRelease(types.NamespacedName{Namespace: deployNamespace, Name: bundle}, bundle, agentNamespace, "").secret()
}

func (r release) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

func (r release) bundleID() string {
	return r.Chart.Metadata.Annotations[fleet.BundleIDAnnotation]
}

// secret returns the Secret that Helm stores the release in.
func (r release) secret() (*corev1.Secret, error) {
	plain, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write(plain); err != nil {
		return nil, err
	}
	if err := packer.Close(); err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace,
			Name:      fmt.Sprintf("sh.helm.release.v1.%s.v%d", r.Name, r.Version),
			Labels: map[string]string{
				"owner": "helm", "name": r.Name, "status": r.Info.Status, "version": strconv.Itoa(r.Version),
			},
		},
		Type: "helm.sh/release.v1",
		Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))},
	}, nil
}

// readRelease reads a release from the Secret that Helm stored it in.
func readRelease(secret *corev1.Secret) (release, error) {
	var r release
	packed, err := base64.StdEncoding.DecodeString(string(secret.Data["release"]))
	if err != nil {
		return r, err
	}
	unpacker, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return r, err
	}
	plain, err := io.ReadAll(unpacker)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(plain, &r); err != nil {
		return r, err
	}
	// Helm goes by where the Secret lies.
	r.Namespace = secret.Namespace
	return r, nil
}

// releases returns the newest revision of every release, by namespace and name.
// What cannot be read is left out, as by Helm.
func (a *Agent) releases(ctx context.Context, options ...client.ListOption) ([]release, error) {
	list := &corev1.SecretList{}
	if err := a.workload.List(ctx, list, append(options, client.MatchingLabels{"owner": "helm"})...); err != nil {
		return nil, fmt.Errorf("listing releases: %w", err)
	}
	var all []release
	for i := range list.Items {
		r, err := readRelease(&list.Items[i])
		if err != nil {
			a.log.Error(err, "Failed to read a release", "secret", client.ObjectKeyFromObject(&list.Items[i]))
			continue
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(x, y release) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(y.Version, x.Version))
	})
	return slices.CompactFunc(all, func(x, y release) bool { return x.Namespace == y.Namespace && x.Name == y.Name }), nil
}

// fleetReleases returns the releases that an agent in this namespace made.
func (a *Agent) fleetReleases(ctx context.Context) ([]release, error) {
	all, err := a.releases(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(r release) bool {
		return r.bundleID() == "" || r.Chart.Metadata.Annotations[fleet.AgentNamespaceAnnotation] != a.options.Namespace
	}), nil
}

// newestRelease returns nil if there is none of that name.
func (a *Agent) newestRelease(ctx context.Context, namespace, name string) (*release, error) {
	all, err := a.releases(ctx, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Name == name {
			return &r, nil
		}
	}
	return nil, nil
}

func (a *Agent) createRelease(ctx context.Context, r release) error {
	secret, err := r.secret()
	if err != nil {
		return fmt.Errorf("packing release %s: %w", r.Name, err)
	}
	if err := a.workload.Create(ctx, secret); err != nil {
		return fmt.Errorf("storing release %s: %w", r.Name, err)
	}
	return nil
}

// supersede marks a revision as no longer the one that is deployed.
func (a *Agent) supersede(ctx context.Context, r release) error {
	r.Info.Status = statusSuperseded
	secret, err := r.secret()
	if err != nil {
		return fmt.Errorf("packing release %s: %w", r.Name, err)
	}
	if err := a.workload.Update(ctx, secret); err != nil {
		return fmt.Errorf("superseding release %s: %w", r.Name, err)
	}
	return nil
}

// deleteRelease deletes every revision.
func (a *Agent) deleteRelease(ctx context.Context, r release) error {
	list := &corev1.SecretList{}
	err := a.workload.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabels{"owner": "helm", "name": r.Name})
	if err != nil {
		return fmt.Errorf("listing the revisions of release %s: %w", r.Name, err)
	}
	for i := range list.Items {
		if err := a.workload.Delete(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting a revision of release %s: %w", r.Name, err)
		}
	}
	return nil
}
