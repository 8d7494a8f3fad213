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

// Command docgen writes what the reference repeats of manifests and code: whole pages, and
// tables in pages that people write. Run it by make generate.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/capi-fleet/capi-fleet/internal/cli"
)

const begin = "<!-- Written by make generate. Do not edit. -->\n\n"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run() error {
	for page, write := range map[string]func() (string, error){
		"fields.md":  fields,
		"reasons.md": troubles,
		"rules.md":   rules,
		"cli.md":     func() (string, error) { return cli.Reference(), nil },
	} {
		content, err := write()
		if err != nil {
			return fmt.Errorf("writing %s: %w", page, err)
		}
		if err := os.WriteFile(reference(page), []byte(content), 0o600); err != nil {
			return err
		}
	}
	for page, write := range map[string]func() (tables, error){
		"conditions.md": conditions,
		"flags.md":      flags,
		"keys.md":       keys,
		"metrics.md":    metricTables,
	} {
		if err := update(reference(page), write); err != nil {
			return fmt.Errorf("writing %s: %w", page, err)
		}
	}
	return nil
}

func reference(page string) string { return filepath.Join("docs", "reference", page) }

// tables are what is written into a page, by the names of their places there.
type tables map[string]string

// place finds where a table belongs, and the table that is there.
var place = regexp.MustCompile(`(?s)<!-- make generate: ([^>]+) -->\n.*?<!-- end -->`)

func update(page string, write func() (tables, error)) error {
	content, err := os.ReadFile(page) //nolint:gosec // One of our own files.
	if err != nil {
		return err
	}
	made, err := write()
	if err != nil {
		return err
	}
	filled, err := fill(string(content), made)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(filled), 0o600) //nolint:gosec // As above.
}

// fill puts the tables into their places. It is an error if one has no place, or a place
// no table.
func fill(page string, made tables) (string, error) {
	left, unknown := maps.Clone(made), []string{}
	page = place.ReplaceAllStringFunc(page, func(found string) string {
		name := place.FindStringSubmatch(found)[1]
		table, ok := left[name]
		if !ok {
			unknown = append(unknown, name)
		}
		delete(left, name)
		return fmt.Sprintf("<!-- make generate: %s -->\n\n%s\n<!-- end -->", name, table)
	})
	if len(left)+len(unknown) > 0 {
		return "", fmt.Errorf("tables that the page has no place for: %q; places that have no table, or one twice: %q",
			slices.Sorted(maps.Keys(left)), unknown)
	}
	return page, nil
}
