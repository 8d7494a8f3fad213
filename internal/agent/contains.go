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
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Contains tells whether all of desired, an object as ToUnstructured returns it, is in
// live, an object as the API server returned it: then an apply would change nothing.
// The API server and others add fields, but not to a list: that is compared entry by
// entry.
func Contains(live, desired map[string]any) bool {
	for field, want := range desired {
		have, found := live[field]
		if !found || !containsValue(have, want) {
			return false
		}
	}
	return true
}

// Merged returns what live should become where an API server knows no server-side apply,
// which alone can tell who set a field. It has all of desired; fields that are not in it stay,
// but for those of a Deployment that settings of an agent can set, and so can withdraw. A list
// is desired as a whole: what it has no entry for goes, and an entry keeps the fields that
// live has for one of the same name.
func Merged(live, desired map[string]any) map[string]any {
	return merge(withoutSettings(live), desired)
}

// What settings of an agent put into a Deployment, its pod and its container. An API server
// fills in again what it has a default for.
var (
	ofDeployment = []string{"strategy"}
	ofPod        = []string{"affinity", "dnsPolicy", "hostNetwork", "imagePullSecrets", "nodeSelector", "priorityClassName", "tolerations"}
	ofContainer  = []string{"env", "imagePullPolicy", "livenessProbe", "resources"}
)

// withoutSettings returns a copy of an object without those fields.
func withoutSettings(live map[string]any) map[string]any {
	rest := runtime.DeepCopyJSON(live)
	if rest["kind"] != "Deployment" {
		return rest
	}
	for _, field := range ofDeployment {
		unstructured.RemoveNestedField(rest, "spec", field)
	}
	for _, field := range ofPod {
		unstructured.RemoveNestedField(rest, "spec", "template", "spec", field)
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(rest, "spec", "template", "spec", "containers")
	list, _ := containers.([]any)
	for _, container := range list {
		if fields, ok := container.(map[string]any); ok {
			maps.DeleteFunc(fields, func(field string, _ any) bool { return slices.Contains(ofContainer, field) })
		}
	}
	return rest
}

func mergedList(have, want []any) []any {
	named := map[any]map[string]any{}
	for _, entry := range have {
		if entry, ok := entry.(map[string]any); ok {
			if name, ok := entry["name"].(string); ok {
				named[name] = entry
			}
		}
	}
	merged := make([]any, 0, len(want))
	for _, entry := range want {
		if wanted, ok := entry.(map[string]any); ok {
			if name, ok := wanted["name"].(string); ok {
				entry = merge(named[name], wanted)
			}
		}
		merged = append(merged, entry)
	}
	return merged
}

// merge returns want with what else is in have.
func merge(have, want map[string]any) map[string]any {
	merged := maps.Clone(want)
	for field, value := range have {
		wanted, found := want[field]
		if !found {
			merged[field] = value
			continue
		}
		switch wanted := wanted.(type) {
		case map[string]any:
			if value, ok := value.(map[string]any); ok {
				merged[field] = merge(value, wanted)
			}
		case []any:
			if value, ok := value.([]any); ok {
				merged[field] = mergedList(value, wanted)
			}
		}
	}
	return merged
}

func containsValue(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		return ok && Contains(have, want)
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !containsValue(have[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(have, want)
}
