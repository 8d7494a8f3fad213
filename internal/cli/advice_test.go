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

package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var (
	reasonRow    = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\|([^|]*)\\|$")
	markdownLink = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
)

func TestEveryReasonHasTheAdviceOfTheConditionsPage(t *testing.T) {
	g := NewWithT(t)
	root := filepath.Join("..", "..")
	for name, reason := range reasons(t, filepath.Join(root, "api", "v1alpha1", "conditions.go")) {
		g.Expect(advice).To(HaveKey(reason), name)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "conditions.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, rows, found := strings.Cut(string(page), "## Reasons of")
	g.Expect(found).To(BeTrue())
	documented := map[string]string{}
	for _, row := range reasonRow.FindAllStringSubmatch(rows, -1) {
		documented[row[1]] = withoutMarkdown(row[2])
	}
	g.Expect(advice).To(Equal(documented))
}

// withoutMarkdown returns a cell as a terminal shows it.
func withoutMarkdown(cell string) string {
	text := markdownLink.ReplaceAllStringFunc(strings.TrimSpace(cell), func(link string) string {
		parts := markdownLink.FindStringSubmatch(link)
		return parts[1] + " (" + path.Join("docs/reference", parts[2]) + ")"
	})
	return strings.ReplaceAll(text, "`", "")
}

// reasons returns the reasons that a file declares, by the names of the constants.
func reasons(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasSuffix(spec.Names[0].Name, "Reason") {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found[spec.Names[0].Name] = value
		}
		return true
	})
	return found
}
