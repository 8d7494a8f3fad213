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

package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// crdsEnv names a file with Fleet's full CRDs.
const crdsEnv = "FLEET_CRDS"

// fields are those that we use, with their type in Fleet's CRDs (Fleet 0.16).
var fields = map[string]map[string]string{
	"Cluster": {
		"spec":                   "object",
		"spec.agentNamespace":    "string",
		"spec.clientID":          "string",
		"spec.paused":            "boolean",
		"spec.templateValues":    "object",
		"status":                 "object",
		"status.agent":           "object",
		"status.agent.lastSeen":  "string",
		"status.agent.namespace": "string",
		"status.conditions":      "array", "status.conditions[].status": "string", "status.conditions[].type": "string",
		"status.namespace": "string",
	},
	"ClusterGroup": {
		"spec":          "object",
		"spec.selector": "object",
	},
	"BundleNamespaceMapping": {
		"bundleSelector":    "object",
		"namespaceSelector": "object",
	},
	"Bundle": {
		"spec":                           "object",
		"spec.defaultNamespace":          "string",
		"spec.helm":                      "object",
		"spec.helm.releaseName":          "string",
		"spec.namespace":                 "string",
		"spec.paused":                    "boolean",
		"spec.resources":                 "array",
		"spec.resources[].content":       "string",
		"spec.resources[].name":          "string",
		"spec.targets":                   "array",
		"spec.targets[].clusterName":     "string",
		"spec.targets[].clusterSelector": "object",
	},
	"BundleDeployment": {
		"spec":                                "object",
		"spec.deploymentID":                   "string",
		"spec.options":                        "object",
		"spec.options.defaultNamespace":       "string",
		"spec.options.helm":                   "object",
		"spec.options.helm.releaseName":       "string",
		"spec.options.namespace":              "string",
		"spec.paused":                         "boolean",
		"spec.stagedDeploymentID":             "string",
		"spec.stagedOptions":                  "object",
		"spec.stagedOptions.defaultNamespace": "string",
		"spec.stagedOptions.helm":             "object",
		"spec.stagedOptions.helm.releaseName": "string",
		"spec.stagedOptions.namespace":        "string",
		"status":                              "object",
		"status.appliedDeploymentID":          "string",
		"status.ready":                        "boolean",
		"status.release":                      "string",
	},
	"Content": {
		"content":   "string",
		"sha256sum": "string",
	},
}

func TestTypesHaveTheFieldsOfFleetsCRDs(t *testing.T) {
	declared := map[string]map[string]string{}
	for _, object := range []any{Cluster{}, ClusterGroup{}, BundleNamespaceMapping{}, Bundle{}, BundleDeployment{}, Content{}} {
		kind := reflect.TypeOf(object)
		declared[kind.Name()] = map[string]string{}
		collect(declared[kind.Name()], "", kind)
	}
	if diff := cmp.Diff(fields, declared); diff != "" {
		t.Errorf("the types differ from the list of this test (-list +types):\n%s", diff)
	}
	if file := os.Getenv(crdsEnv); file != "" {
		testAgainst(t, file)
	}
}

// collect adds the JSON fields of a struct, with their types in a CRD.
func collect(into map[string]string, prefix string, kind reflect.Type) {
	for field := range kind.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if options == "inline" && strings.HasPrefix(field.Type.PkgPath(), kind.PkgPath()) {
			collect(into, prefix, field.Type)
		}
		if name == "" || name == "metadata" {
			continue
		}
		path, fieldType := prefix+name, field.Type
		if fieldType.Kind() == reflect.Pointer {
			fieldType = fieldType.Elem()
		}
		switch {
		case fieldType == reflect.TypeFor[metav1.Time](), fieldType == reflect.TypeFor[[]byte](), fieldType.Kind() == reflect.String:
			into[path] = "string"
		case fieldType == reflect.TypeFor[metav1.LabelSelector](), fieldType.Kind() == reflect.Map:
			into[path] = "object"
		case fieldType.Kind() == reflect.Bool:
			into[path] = "boolean"
		case fieldType.Kind() == reflect.Struct:
			into[path] = "object"
			collect(into, path+".", fieldType)
		case fieldType.Kind() == reflect.Slice:
			into[path] = "array"
			collect(into, path+"[].", fieldType.Elem())
		default:
			into[path] = fieldType.String()
		}
	}
}

func testAgainst(t *testing.T, file string) {
	t.Helper()
	schemas, err := readSchemas(file)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range fields {
		schema, ok := schemas[kind]
		if !ok {
			t.Errorf("%s has no %s", file, kind)
			continue
		}
		got := maps.Clone(want)
		for path := range want {
			got[path] = typeAt(schema, path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is not as Fleet's CRD has it (-ours +Fleet's):\n%s", kind, diff)
		}
	}
}

func readSchemas(file string) (map[string]apiextensionsv1.JSONSchemaProps, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the file that %s names: %w", crdsEnv, err)
	}
	schemas := map[string]apiextensionsv1.JSONSchemaProps{}
	for decoder := yaml.NewYAMLToJSONDecoder(bytes.NewReader(content)); ; {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return schemas, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := json.Unmarshal(raw, crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if len(crd.Spec.Versions) > 0 && crd.Spec.Group == GroupVersion.Group {
			schemas[crd.Spec.Names.Kind] = *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
	}
}

func typeAt(schema apiextensionsv1.JSONSchemaProps, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		name, inArray := strings.CutSuffix(name, "[]")
		next, ok := schema.Properties[name]
		if !ok {
			return "missing"
		}
		if schema = next; inArray {
			schema = *next.Items.Schema
		}
	}
	return schema.Type
}

func TestAHeartbeatThatIsNoTimeKeepsNoClusterFromBeingRead(t *testing.T) {
	for _, tt := range []struct {
		name, agent string
		want        AgentStatus
	}{
		{"a time", `{"lastSeen":"2026-01-01T12:00:00Z","namespace":"x"}`,
			AgentStatus{LastSeen: metav1.NewTime(time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)), Namespace: "x"}},
		{"none", `{"namespace":"x"}`, AgentStatus{Namespace: "x"}},
		{"null", `{"lastSeen":null,"namespace":null}`, AgentStatus{}},
		{"small letters", `{"lastSeen":"2026-01-01t12:00:00z","namespace":"x"}`, AgentStatus{Namespace: "x"}},
		{"an offset that there is not", `{"lastSeen":"2026-01-01T12:00:00+99:99"}`, AgentStatus{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var list ClusterList
			if err := json.Unmarshal([]byte(`{"items":[{"status":{"agent":`+tt.agent+`}}]}`), &list); err != nil {
				t.Fatal(err)
			}
			got := list.Items[0].Status.Agent
			if !got.LastSeen.Equal(&tt.want.LastSeen) || got.Namespace != tt.want.Namespace {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
