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
