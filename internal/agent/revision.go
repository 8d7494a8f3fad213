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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	bearer := deployment
	if in.Agent.Hosted() {
		bearer = func(in Input) *appsv1.Deployment { return hostedDeployment(in, Hosting{}) }
	}
	in.ClusterNamespaceUID = ""
	var contents []any
	for _, obj := range append(surroundings(in), Secret(in, ""), bearer(in)) {
		contents = append(contents, must(ToUnstructured(obj)).Object)
	}
	return hash(contents)
}

// Manifests returns the version of what these builders make for every agent alike, for
// AgentSpec.Manifests: it differs where another version of capi-fleet, or another folder
// for the token, makes other objects of the same settings.
func Manifests(tokenDir string) string { return manifests(tokenDir, Revision) }

// manifests takes the revision of agents of every kind. A change of the builders that
// shows in none of them would reach all agents that it concerns at once, or never.
func manifests(tokenDir string, revision func(Input) string) string {
	var revisions []string
	for _, settings := range kinds() {
		revisions = append(revisions, revision(Input{
			RegistrationID:   some,
			FleetCluster:     types.NamespacedName{Namespace: some, Name: some},
			ClusterNamespace: some,
			TokenDir:         tokenDir,
			Agent:            settings,
		}))
	}
	return hash(revisions)
}

const some = "some"

// kinds returns settings that lead through all branches of the builders: none and all of
// them, for each network and in each cluster.
func kinds() []fleetv1.AgentSpec {
	with := func(settings fleetv1.AgentSpec, change func(*fleetv1.AgentSpec)) fleetv1.AgentSpec {
		change(&settings)
		return settings
	}
	host := func(a *fleetv1.AgentSpec) { a.Network = fleetv1.NetworkHost }
	bootstrap := func(a *fleetv1.AgentSpec) { a.Preset = fleetv1.PresetBootstrap }
	hosted := func(a *fleetv1.AgentSpec) { a.Placement = fleetv1.PlacementManagement }
	var all []fleetv1.AgentSpec
	for _, settings := range []fleetv1.AgentSpec{{}, everySetting()} {
		all = append(all, settings, with(settings, host), with(settings, bootstrap), with(settings, hosted))
	}
	return all
}

// everySetting returns settings of an agent in the workload cluster, of which none is left
// out but the network and the preset.
func everySetting() fleetv1.AgentSpec {
	one := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(1, resource.DecimalSI)}
	return fleetv1.AgentSpec{
		ManagementCluster:         fleetv1.ManagementClusterEndpoint{Server: some, CertificateAuthorityData: []byte(some)},
		Image:                     some,
		ImagePullPolicy:           some,
		ImagePullSecrets:          []string{some},
		Env:                       []fleetv1.EnvVar{{Name: some, Value: some}},
		Proxy:                     fleetv1.ProxySettings{HTTPProxy: some, HTTPSProxy: some, NoProxy: some},
		Resources:                 fleetv1.AgentResources{Requests: one, Limits: one},
		NodeSelector:              map[string]fleetv1.LabelValue{some: some},
		Tolerations:               []corev1.Toleration{{Key: some}},
		Affinity:                  &corev1.Affinity{},
		PriorityClassName:         some,
		CheckinInterval:           metav1.Duration{Duration: 1},
		GarbageCollectionInterval: metav1.Duration{Duration: 1},
		Workers:                   fleetv1.AgentWorkers{BundleDeployment: 1, Drift: 1},
		AdditionalCAData:          []byte(some),
	}
}

// podRevision returns a hash of what the agent reads only when it starts, and what
// does not show in its pod template.
func podRevision(in Input) string {
	reads := []any{Secret(in, "").Data, config(in)}
	if ca := in.Agent.AdditionalCAData; len(ca) > 0 {
		reads = append(reads, ca)
	}
	return hash(reads)
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

// Before returns what has to be applied before desired, nil where that is nothing. An
// API server fills in how a Deployment rolls, and refuses that beside the strategy
// Recreate. An apply takes away only what its owner has applied before.
func Before(live, desired *unstructured.Unstructured) *unstructured.Unstructured {
	wanted, _, _ := unstructured.NestedString(desired.Object, "spec", "strategy", "type")
	present, _, err := unstructured.NestedMap(live.Object, "spec", "strategy")
	if err != nil || wanted != string(appsv1.RecreateDeploymentStrategyType) || present["rollingUpdate"] == nil {
		return nil
	}
	first := desired.DeepCopy()
	if err := unstructured.SetNestedMap(first.Object, present, "spec", "strategy"); err != nil {
		return nil
	}
	return first
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
