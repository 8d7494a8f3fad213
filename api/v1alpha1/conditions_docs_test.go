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

package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// conditionsPage explains every condition and reason, each in a row of a table.
var conditionsPage = filepath.Join("..", "..", "docs", "reference", "conditions.md")

func TestEveryConditionAndReasonIsDocumented(t *testing.T) {
	constants := stringConstants(t, "conditions.go")
	rows := tableRows(t, conditionsPage)

	for _, kind := range []struct{ suffix, heading string }{
		{"Condition", "Conditions"},
		{"Reason", "Reasons"},
	} {
		var declared, documented []string
		for name, value := range constants {
			if strings.HasSuffix(name, kind.suffix) {
				declared = append(declared, value)
			}
		}
		for heading, names := range rows {
			if strings.HasPrefix(heading, kind.heading) {
				documented = append(documented, names...)
			}
		}
		slices.Sort(declared)
		slices.Sort(documented)
		if len(declared) == 0 {
			t.Errorf("no constant is named …%s", kind.suffix)
		}
		for _, value := range declared {
			if !slices.Contains(documented, value) {
				t.Errorf("%s has no row for %s under %q", conditionsPage, value, kind.heading)
			}
		}
		for i, value := range documented {
			if !slices.Contains(declared, value) {
				t.Errorf("%s has a row for %s, and there is no such constant", conditionsPage, value)
			}
			if i > 0 && documented[i-1] == value {
				t.Errorf("%s has more than one row for %s", conditionsPage, value)
			}
		}
	}
}

func TestEveryRowOfAReasonSaysWhatItMeans(t *testing.T) {
	for line := range strings.Lines(readFile(t, conditionsPage)) {
		if firstCell.MatchString(line) && strings.TrimSpace(strings.Split(line, "|")[2]) == "" {
			t.Errorf("nothing is said in: %s", line)
		}
	}
}

// stringConstants returns the values of a file's constants by their names.
func stringConstants(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	for _, decl := range parsed.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			values := spec.(*ast.ValueSpec)
			for i, name := range values.Names {
				literal, ok := values.Values[i].(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s is no literal", name.Name)
				}
				if constants[name.Name], err = strconv.Unquote(literal.Value); err != nil {
					t.Fatalf("reading %s: %v", name.Name, err)
				}
			}
		}
	}
	return constants
}

// firstCell finds a row of a table whose first cell is code.
var firstCell = regexp.MustCompile("^\\| `([^`]+)` \\|")

// tableRows returns the first cells of a page's tables by the heading above them.
func tableRows(t *testing.T, page string) map[string][]string {
	t.Helper()
	rows, heading := map[string][]string{}, ""
	for line := range strings.Lines(readFile(t, page)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.TrimSpace(title)
		}
		if match := firstCell.FindStringSubmatch(line); match != nil {
			rows[heading] = append(rows[heading], match[1])
		}
	}
	return rows
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
