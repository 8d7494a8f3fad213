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

package remote

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Bounds of an answer, next to its size. A few bytes of JSON can become a kilobyte of
// memory each: `{}` in a list of pods does. The largest answer that is asked for is a
// page of 500 Secrets' metadata, with about 40 values and 2 entries of lists each, one
// of 20 pods comes next with 500 values and 100 entries of lists each, and a release is
// one long string. So each bound leaves three times of what is needed, or more.
const (
	maxValues  = 100_000
	maxEntries = 10_000
	maxDepth   = 64
)

// withinBounds says whether body, if it is JSON, has no more values, entries of lists
// and nesting than the bounds allow. It only looks at what separates values, allocates
// nothing, and does not care whether body is JSON: what is not, no decoder builds
// anything from.
func withinBounds(body []byte) bool {
	var values, entries, depth int
	var inList [maxDepth + 1]bool
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i = endOfString(body, i)
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return false
			}
			inList[depth] = body[i] == '['
		case '}', ']':
			depth = max(depth-1, 0)
			continue
		case ',':
		default:
			continue
		}
		// A value begins here: the first of an object or a list, or the next.
		values++
		if inList[depth] {
			entries++
		}
		if values > maxValues || entries > maxEntries {
			return false
		}
	}
	return true
}

// endOfString returns where the string ends that begins at start.
func endOfString(body []byte, start int) int {
	for i := start + 1; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(body)
}

// asked says whether kind is what the request asked for.
func asked(req *http.Request, kind schema.GroupVersionKind) bool {
	if req.Method == http.MethodDelete && kind == metav1.Unversioned.WithKind("Status") {
		return true
	}
	want, list := target(req)
	if list {
		want.Kind += "List"
	}
	if kind == want && want.Kind != "" {
		return true
	}
	partial := "PartialObjectMetadata"
	if list {
		partial += "List"
	}
	return strings.Contains(req.Header.Get("Accept"), "as="+partial+";") && kind == metav1.SchemeGroupVersion.WithKind(partial)
}

// target returns the kind of the resource in the path of a request, none for one that
// newMapper does not list, and whether the answer is a list of it.
func target(req *http.Request) (kind schema.GroupVersionKind, list bool) {
	path := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	var resource schema.GroupVersionResource
	switch {
	case len(path) > 2 && path[0] == "api":
		resource.Version, path = path[1], path[2:]
	case len(path) > 3 && path[0] == "apis":
		resource.Group, resource.Version, path = path[1], path[2], path[3:]
	default:
		return schema.GroupVersionKind{}, false
	}
	if len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}
	resource.Resource = path[0]
	if len(path) == 3 && path[0] == "serviceaccounts" && path[2] == "token" {
		return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), false
	}
	kind, err := mapper.KindFor(resource)
	if err != nil {
		return schema.GroupVersionKind{}, false
	}
	return kind, len(path) == 1 && req.Method != http.MethodPost
}
