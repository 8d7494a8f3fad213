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

package lightapi

import (
	"fmt"
	"net/http"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// mergePatch returns object with patch merged in, as RFC 7396 says. It changes
// neither. Directives of a strategic merge patch are left out.
func mergePatch(object, patch map[string]any) map[string]any {
	out := map[string]any{}
	if object != nil {
		out = runtime.DeepCopyJSON(object)
	}
	merge(out, patch)
	return out
}

func merge(object, patch map[string]any) {
	for key, value := range patch {
		if strings.HasPrefix(key, "$") {
			continue
		}
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			below, ok := object[key].(map[string]any)
			if !ok {
				below = map[string]any{}
				object[key] = below
			}
			merge(below, value)
		default:
			object[key] = runtime.DeepCopyJSONValue(value)
		}
	}
}

// jsonPatch returns object changed by the operations of RFC 6902 in patch.
func jsonPatch(object map[string]any, patch []byte) (map[string]any, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the patch: %v", err))
	}
	before, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	var out map[string]any
	if err := json.Unmarshal(after, &out); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the patched object: %v", err))
	}
	return out, nil
}

// prune removes from object what a field manager applied last and applies no more,
// unless another manager applied it too. It changes object.
func prune(object, last, next map[string]any, others []map[string]any) {
	for key, lastValue := range last {
		nextValue, kept := next[key]
		lastMap, isMap := lastValue.(map[string]any)
		if !isMap {
			if !kept && !anyHas(others, key) {
				delete(object, key)
			}
			continue
		}
		below, ok := object[key].(map[string]any)
		if !ok {
			continue
		}
		nextMap, _ := nextValue.(map[string]any)
		prune(below, lastMap, nextMap, fieldOf(others, key))
		if !kept && len(below) == 0 && !anyHas(others, key) {
			delete(object, key)
		}
	}
}

func anyHas(objects []map[string]any, key string) bool {
	for _, object := range objects {
		if _, found := object[key]; found {
			return true
		}
	}
	return false
}

func fieldOf(objects []map[string]any, key string) []map[string]any {
	var out []map[string]any
	for _, object := range objects {
		if field, ok := object[key].(map[string]any); ok {
			out = append(out, field)
		}
	}
	return out
}
