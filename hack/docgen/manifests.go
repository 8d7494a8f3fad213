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

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// fields describes every field of our kinds, with the texts of the CRDs.
func fields() (string, error) {
	files, err := filepath.Glob(filepath.Join("config", "crd", "bases", "*.yaml"))
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(begin + "# Fields\n\nEvery field, as `kubectl explain` shows it too. What they are for is in [API](api.md).\n")
	for _, file := range files {
		content, err := os.ReadFile(file) //nolint:gosec // One of our own files.
		if err != nil {
			return "", err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return "", fmt.Errorf("reading %s: %w", file, err)
		}
		for _, version := range crd.Spec.Versions {
			fmt.Fprintf(&page, "\n## %s %s\n\n| Field | Type | Meaning |\n| --- | --- | --- |\n", crd.Spec.Names.Kind, version.Name)
			for _, part := range []string{"spec", "status"} {
				schema := version.Schema.OpenAPIV3Schema.Properties[part]
				describe(&page, part, &schema)
			}
		}
	}
	return page.String(), nil
}

// describe writes a row for each field below path.
func describe(page *strings.Builder, path string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		below := path + "." + name
		fmt.Fprintf(page, "| `%s` | %s | %s |\n", below, typeOf(&field), cell(field.Description))
		switch {
		case name == "affinity": // Kubernetes' own, and larger than all of ours
		case field.Items != nil && field.Items.Schema != nil:
			describe(page, below+"[]", field.Items.Schema)
		default:
			describe(page, below, &field)
		}
	}
}

func typeOf(field *apiextensionsv1.JSONSchemaProps) string {
	name := field.Type
	switch {
	case field.XIntOrString:
		name = "integer or string"
	case field.Items != nil && field.Items.Schema != nil:
		name = "list of " + field.Items.Schema.Type
	}
	var values []string
	for _, value := range field.Enum {
		values = append(values, "`"+strings.Trim(string(value.Raw), `"`)+"`")
	}
	if len(values) > 0 {
		name += ": " + strings.Join(values, ", ")
	}
	return name
}

// cell makes one line of a text, for a table. Long explanations of Kubernetes' own
// fields are cut after the first paragraph.
func cell(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// rules lists the rules of the shipped roles.
func rules() (string, error) {
	files, err := filepath.Glob(filepath.Join("config", "rbac", "*role*.yaml"))
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(begin + "# Rules of the roles\n\nAll roles as they are shipped. Why each right is needed is in [Rights](rbac.md).\n")
	for _, file := range files {
		content, err := os.ReadFile(file) //nolint:gosec // One of our own files.
		if err != nil {
			return "", err
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			role := &rbacv1.ClusterRole{}
			if err := yaml.Unmarshal(document, role); err != nil {
				return "", fmt.Errorf("reading %s: %w", file, err)
			}
			if role.Kind == "ClusterRole" || role.Kind == "Role" {
				writeRole(&page, role)
			}
		}
	}
	return page.String(), nil
}

func writeRole(page *strings.Builder, role *rbacv1.ClusterRole) {
	// The overlay gives the manager's ClusterRole this name: the markers cannot.
	if role.Kind == "ClusterRole" && role.Name == "capi-fleet-manager-role" {
		role.Name = "capi-fleet-system-manager"
	}
	fmt.Fprintf(page, "\n## %s `%s`\n\n| Group | Resources | Names | Verbs |\n| --- | --- | --- | --- |\n", role.Kind, role.Name)
	for _, rule := range role.Rules {
		resources := rule.Resources
		if len(rule.NonResourceURLs) > 0 {
			resources = rule.NonResourceURLs
		}
		fmt.Fprintf(page, "| %s | %s | %s | %s |\n", code(rule.APIGroups), code(resources), code(rule.ResourceNames), strings.Join(rule.Verbs, ", "))
	}
}

func code(words []string) string {
	var quoted []string
	for _, word := range words {
		if word == "" {
			word = "core"
		}
		quoted = append(quoted, "`"+word+"`")
	}
	return strings.Join(quoted, ", ")
}
