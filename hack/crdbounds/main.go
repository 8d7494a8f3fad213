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

// Crdbounds gives the schemas of Kubernetes' own types in our CRDs the bounds that the API
// server of a pod would check: markers in our code do not reach into them. It is run after
// controller-gen, with the files of the CRDs as arguments.
package main

import (
	"fmt"
	"os"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const (
	// maxItems is the length of a list, and of a map of labels.
	maxItems = 16
	// A label's name, which may have a prefix, and its value (Kubernetes, validation.IsQualifiedName
	// and validation.IsValidLabelValue).
	labelName       = `([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
	maxLabelName    = 253 + 1 + 63
	labelValue      = `(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?`
	maxLabelValue   = 63
	maxWeight       = 100
	needsValues     = "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : self.operator in ['Gt', 'Lt'] || !has(self.values) || size(self.values) == 0"
	needsNumber     = "!(self.operator in ['Gt', 'Lt']) || has(self.values) && size(self.values) == 1 && self.values[0].matches('^[0-9]+$')"
	namesOfLabels   = "self.all(k, !format.qualifiedName().validate(k).hasValue())"
	selectsByFields = "metadata.name"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := rewrite(file); err != nil {
			fmt.Fprintln(os.Stderr, "crdbounds:", err)
			os.Exit(1)
		}
	}
}

func rewrite(file string) error {
	content, err := os.ReadFile(file) //nolint:gosec // One of our own files.
	if err != nil {
		return err
	}
	// What is not bounded stays as controller-gen wrote it.
	crd := map[string]any{}
	if err := yaml.UnmarshalStrict(content, &crd); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	typed := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, typed); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	versions := crd["spec"].(map[string]any)["versions"].([]any)
	for i, version := range typed.Spec.Versions {
		schema := version.Schema.OpenAPIV3Schema
		agent := schema.Properties["spec"].Properties["agent"]
		bound(agent.Properties, "tolerations")
		bound(agent.Properties, "affinity")
		versions[i].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": schema}
	}
	written, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return os.WriteFile(file, append([]byte("---\n"), written...), 0o600) //nolint:gosec // One of our own files.
}

// bound bounds one of the properties of a schema, and all below it.
func bound(properties map[string]apiextensionsv1.JSONSchemaProps, name string) {
	schema, ok := properties[name]
	if !ok {
		return
	}
	limit(&schema, name)
	properties[name] = schema
}

// limit bounds the schema of the property name, and all below it.
func limit(schema *apiextensionsv1.JSONSchemaProps, path string) {
	switch name := path[strings.LastIndex(path, ".")+1:]; {
	case schema.Type == "array":
		limitArray(schema, path)
	case name == "matchLabels":
		schema.MaxProperties = new(int64(maxItems))
		schema.XValidations = rules(namesOfLabels, "matchLabels must have valid names of labels")
		pattern(schema.AdditionalProperties.Schema, labelValue, 0, maxLabelValue)
	case name == "weight":
		schema.Minimum, schema.Maximum = new(float64(1)), new(float64(maxWeight))
	case name == "operator":
		schema.Enum = choices(operators(path)...)
	case name == "effect":
		schema.Enum = choices("", "NoSchedule", "PreferNoSchedule", "NoExecute")
	case strings.HasSuffix(path, "matchFields.key"):
		schema.Enum = choices(selectsByFields)
	case path == "tolerations.key":
		pattern(schema, "("+labelName+")?", 0, maxLabelName)
	case name == "key", name == "topologyKey":
		pattern(schema, labelName, 1, maxLabelName)
	case path == "tolerations.value":
		pattern(schema, labelValue, 0, maxLabelValue)
	}
	for name := range schema.Properties {
		property := schema.Properties[name]
		limit(&property, path+"."+name)
		schema.Properties[name] = property
	}
}

func limitArray(schema *apiextensionsv1.JSONSchemaProps, path string) {
	item := schema.Items.Schema
	schema.MaxItems = new(int64(maxItems))
	switch name := path[strings.LastIndex(path, ".")+1:]; {
	case name == "nodeSelectorTerms":
		schema.MinItems = new(int64(1))
	case strings.HasSuffix(path, "matchFields.values"):
		schema.MinItems, schema.MaxItems = new(int64(1)), new(int64(1))
		item.MinLength, item.MaxLength = new(int64(1)), new(int64(253))
	case name == "values":
		pattern(item, labelValue, 0, maxLabelValue)
	case name == "matchExpressions":
		item.XValidations = rules(needsValues, "values must be there with operator In or NotIn, and must not with Exists or DoesNotExist")
		if strings.Contains(path, "nodeAffinity") {
			item.XValidations = append(item.XValidations, rules(needsNumber, "values must be one number with operator Gt or Lt")...)
		}
	case name == "matchFields":
		item.Required = append(item.Required, "values")
	case name == "matchLabelKeys", name == "mismatchLabelKeys":
		pattern(item, labelName, 1, maxLabelName)
	case name == "namespaces":
		pattern(item, `[a-z0-9]([-a-z0-9]*[a-z0-9])?`, 1, 63)
	}
	limit(item, path)
}

// operators returns those of a selector or a toleration.
func operators(path string) []string {
	switch {
	case strings.HasPrefix(path, "tolerations."):
		return []string{"", "Equal", "Exists"}
	case strings.Contains(path, "matchFields."):
		return []string{"In", "NotIn"}
	case strings.Contains(path, "nodeAffinity."):
		return []string{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}
	}
	return []string{"In", "NotIn", "Exists", "DoesNotExist"}
}

func choices(values ...string) []apiextensionsv1.JSON {
	var all []apiextensionsv1.JSON
	for _, value := range values {
		all = append(all, apiextensionsv1.JSON{Raw: fmt.Appendf(nil, "%q", value)})
	}
	return all
}

func rules(rule, message string) []apiextensionsv1.ValidationRule {
	return []apiextensionsv1.ValidationRule{{Rule: rule, Message: message}}
}

func pattern(schema *apiextensionsv1.JSONSchemaProps, expression string, least, most int64) {
	schema.Pattern, schema.MaxLength = "^"+expression+"$", &most
	if least > 0 {
		schema.MinLength = &least
	}
}
