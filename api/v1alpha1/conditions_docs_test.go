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
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// conditionsPage explains every condition and reason, each in a row of a table.
var conditionsPage = filepath.Join("..", "..", "docs", "reference", "conditions.md")

func TestEveryConditionAndReasonIsDocumented(t *testing.T) {
	g := NewWithT(t)
	constants := stringConstants(g, "conditions.go")
	rows := tableRows(g, conditionsPage)

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
		g.Expect(declared).NotTo(BeEmpty())
		g.Expect(documented).To(ConsistOf(declared), "constants named …%s and the rows under %q of %s", kind.suffix, kind.heading, conditionsPage)
	}
}

func TestEveryRowOfAReasonSaysWhatItMeans(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(conditionsPage)
	g.Expect(err).NotTo(HaveOccurred())

	for line := range strings.Lines(string(content)) {
		if cells := strings.Split(line, "|"); firstCell.MatchString(line) {
			g.Expect(strings.TrimSpace(cells[2])).NotTo(BeEmpty(), line)
		}
	}
}

// stringConstants returns the values of a file's constants by their names.
func stringConstants(g *WithT, file string) map[string]string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	g.Expect(err).NotTo(HaveOccurred())
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
				g.Expect(ok).To(BeTrue(), "%s is no literal", name.Name)
				value, err := strconv.Unquote(literal.Value)
				g.Expect(err).NotTo(HaveOccurred(), name.Name)
				constants[name.Name] = value
			}
		}
	}
	return constants
}

// firstCell finds a row of a table whose first cell is code.
var firstCell = regexp.MustCompile("^\\| `([^`]+)` \\|")

// tableRows returns the first cells of a page's tables by the heading above them.
func tableRows(g *WithT, page string) map[string][]string {
	content, err := os.ReadFile(page)
	g.Expect(err).NotTo(HaveOccurred())
	rows, heading := map[string][]string{}, ""
	for line := range strings.Lines(string(content)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.TrimSpace(title)
		}
		if match := firstCell.FindStringSubmatch(line); match != nil {
			rows[heading] = append(rows[heading], match[1])
		}
	}
	return rows
}
