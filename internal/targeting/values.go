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

package targeting

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// valueLimit is the longest string that is copied, in bytes.
const valueLimit = 4096

// resolveValues returns the values that can be had, and names the others.
func resolveValues(values []fleetv1.TemplateValue, cluster *clusterv1.Cluster) (map[string]apiextensionsv1.JSON, *Problem) {
	resolved := map[string]apiextensionsv1.JSON{}
	var missing []string
	var fields map[string]any
	for _, value := range values {
		if value.FieldPath == "" {
			resolved[value.Name] = literal(value.Value)
			continue
		}
		if fields == nil {
			var err error
			if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(cluster); err != nil {
				fields = map[string]any{}
			}
		}
		content, problem := scalar(find(fields, value.FieldPath))
		if problem != "" {
			missing = append(missing, fmt.Sprintf("%s (%s %s)", value.Name, value.FieldPath, problem))
			continue
		}
		resolved[value.Name] = content
	}
	if len(missing) == 0 {
		return resolved, nil
	}
	return resolved, &Problem{fleetv1.ValuesIncompleteReason,
		"The Cluster does not have these values: " + strings.Join(missing, "; ")}
}

func literal(value any) apiextensionsv1.JSON {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err) // Strings, numbers and booleans only.
	}
	return apiextensionsv1.JSON{Raw: content}
}

// scalar returns a string, a number or a boolean as it is, or says why not: what a whole
// list or object holds nobody has listed.
func scalar(value any) (content apiextensionsv1.JSON, problem string) {
	switch value := value.(type) {
	case nil:
		return content, "is not there"
	case string:
		if len(value) > valueLimit {
			return content, fmt.Sprintf("is longer than %d bytes", valueLimit)
		}
		return literal(value), ""
	case bool, int64, float64:
		return literal(value), ""
	case []any:
		return content, "is a list"
	}
	return content, "is an object"
}

// step is one part of a field path: a name, a quoted key, or an index.
var step = regexp.MustCompile(`^(?:\.?([-A-Za-z0-9_]+)|\['([^']+)'\]|\[([0-9]{1,4})\])`)

// find returns the field of that path, nil where there is none.
func find(fields any, path string) any {
	for path != "" {
		match := step.FindStringSubmatch(path)
		if match == nil {
			return nil
		}
		path = path[len(match[0]):]
		if match[3] != "" {
			fields = at(fields, match[3])
		} else {
			fields = under(fields, match[1]+match[2])
		}
	}
	return fields
}

func at(fields any, digits string) any {
	list, ok := fields.([]any)
	index, err := strconv.Atoi(digits)
	if !ok || err != nil || index >= len(list) {
		return nil
	}
	return list[index]
}

// under returns the field of that name, or of a list of variables the value of that one.
func under(fields any, name string) any {
	switch fields := fields.(type) {
	case map[string]any:
		return fields[name]
	case []any:
		for _, item := range fields {
			if variable, ok := item.(map[string]any); ok && variable["name"] == name {
				return variable["value"]
			}
		}
	}
	return nil
}
