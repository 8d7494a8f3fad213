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

// Difference returns the merge patch (RFC 7396) that makes live contain desired, empty
// where it does already. It leaves alone all fields that are not in desired. A list is
// desired as a whole: what it has no entry for goes, and an entry keeps the fields that
// live has for one of the same name.
func Difference(live, desired map[string]any) map[string]any {
	patch := map[string]any{}
	for field, want := range desired {
		have, found := live[field]
		if found && containsValue(have, want) {
			continue
		}
		patch[field] = difference(have, want)
	}
	return patch
}

func difference(have, want any) any {
	switch want := want.(type) {
	case map[string]any:
		if have, ok := have.(map[string]any); ok {
			return Difference(have, want)
		}
	case []any:
		have, _ := have.([]any)
		return mergedList(have, want)
	}
	return want
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
