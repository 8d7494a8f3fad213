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

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// revisionDigits is the length of a revision, 128 bits in hex.
const revisionDigits = 32

// Revision returns a name for all that Objects and Secret make of in, the token
// and the UID of the cluster namespace aside: 32 hex digits that differ where
// something has to be written again. A change of these builders changes it too.
func Revision(in Input) string {
	in.ClusterNamespaceUID = ""
	all := append(surroundings(in), Secret(in, ""), deployment(in))
	contents := make([]any, 0, len(all))
	for _, obj := range all {
		contents = append(contents, must(ToUnstructured(obj)).Object)
	}
	return hash(contents)
}

// Manifests returns the version of what these builders make for every agent alike, for
// AgentSpec.Manifests: it differs where another version of capi-fleet, or another folder
// for the token, makes other objects of the same settings.
func Manifests(tokenDir string) string {
	const some = "some"
	return Revision(Input{
		RegistrationID:   some,
		FleetCluster:     types.NamespacedName{Namespace: some, Name: some},
		ClusterNamespace: some,
		TokenDir:         tokenDir,
		Agent: fleetv1.AgentSpec{
			ManagementCluster:         fleetv1.ManagementClusterEndpoint{Server: some, CertificateAuthorityData: []byte(some)},
			Image:                     some,
			ImagePullPolicy:           some,
			CheckinInterval:           metav1.Duration{Duration: 1},
			GarbageCollectionInterval: metav1.Duration{Duration: 1},
			Workers:                   fleetv1.AgentWorkers{BundleDeployment: 1, Drift: 1},
		},
	})
}

// podRevision returns a hash of what the agent reads only when it starts, and what
// does not show in its pod template.
func podRevision(in Input) string {
	secret := Secret(in, "")
	return hash([]any{secret.Data, config(in)})
}

func setRevision(obj metav1.Object, revision string) {
	annotations := obj.GetAnnotations()
	annotations[fleetv1.RevisionAnnotation] = revision
	obj.SetAnnotations(annotations)
}

// hash relies on encoding/json, which sorts the keys of maps.
func hash(v any) string {
	sum := sha256.Sum256(must(json.Marshal(v)))
	return hex.EncodeToString(sum[:])[:revisionDigits]
}

// ToUnstructured returns obj as a server-side apply should send it: without the
// fields that its Go type marshals although nobody set them, which the field owner
// would then own. It fails only for an object that is no API type.
func ToUnstructured(obj client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	dropEmpty(content, "metadata", "creationTimestamp")
	dropEmpty(content, "spec", "strategy")
	dropEmpty(content, "spec", "template", "metadata", "creationTimestamp")
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind == "Namespace" {
		dropEmpty(content, "spec")
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(content, "spec", "template", "spec", "containers")
	if list, ok := containers.([]any); ok {
		for _, container := range list {
			if fields, ok := container.(map[string]any); ok {
				dropEmpty(fields, "resources")
			}
		}
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// dropEmpty removes the field at path where it is null or an empty object. Where
// such a field has a meaning, as with emptyDir, it must stay: so path by path.
func dropEmpty(content map[string]any, path ...string) {
	value, found, err := unstructured.NestedFieldNoCopy(content, path...)
	if err != nil || !found {
		return
	}
	if fields, isObject := value.(map[string]any); value == nil || isObject && len(fields) == 0 {
		unstructured.RemoveNestedField(content, path...)
	}
}
