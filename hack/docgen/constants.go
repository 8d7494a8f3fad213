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
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/capi-fleet/capi-fleet/internal/cli"
)

// constant is one of the source, with what its comment says about it.
type constant struct {
	block string // the first sentence of the comment on its block, without the period
	name  string
	value ast.Expr
	text  string // the comment without the name
}

// constants returns the constants of a file in their order.
func constants(file string) ([]constant, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var found []constant
	for _, declaration := range parsed.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		title, _, _ := strings.Cut(cell(block.Doc.Text()), ".")
		for _, spec := range block.Specs {
			value := spec.(*ast.ValueSpec)
			if len(value.Values) != 1 {
				continue
			}
			doc := value.Doc.Text()
			if !block.Lparen.IsValid() {
				doc = block.Doc.Text()
			}
			c := constant{block: title, name: value.Names[0].Name, value: value.Values[0]}
			if text, ok := strings.CutPrefix(cell(doc), c.name+" "); ok {
				c.text = text
			}
			found = append(found, c)
		}
	}
	return found, nil
}

// reason is one of a condition's, with what the comment says that it means and what the
// command line says that one should do.
type reason struct{ block, name, meaning, advice string }

// conditionsAndReasons reads the constants of the API, and makes rows of the conditions.
func conditionsAndReasons() (rows string, reasons []reason, err error) {
	declared, err := constants(filepath.Join("api", "v1alpha1", "conditions.go"))
	if err != nil {
		return "", nil, err
	}
	for _, c := range declared {
		literal, ok := c.value.(*ast.BasicLit)
		if !ok || c.text == "" {
			return "", nil, fmt.Errorf("%s is no literal, or has no comment that begins with its name", c.name)
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			return "", nil, err
		}
		if strings.HasSuffix(c.name, "Condition") {
			rows += fmt.Sprintf("| `%s` | %s |\n", value, sentence(c.text))
			continue
		}
		text, ok := strings.CutPrefix(c.text, "means ")
		if !ok {
			return "", nil, fmt.Errorf("the comment on %s does not say what it means", c.name)
		}
		reasons = append(reasons, reason{c.block, value, sentence(strings.TrimPrefix(text, "that ")), fromReference(cli.Advice(value))})
	}
	return rows, reasons, nil
}

// conditions makes tables of the conditions and, for each of them, of its reasons.
func conditions() (tables, error) {
	rows, reasons, err := conditionsAndReasons()
	if err != nil {
		return nil, err
	}
	made := tables{"Conditions": "| Condition | Meaning |\n| --- | --- |\n" + rows}
	for _, r := range reasons {
		if made[r.block] == "" {
			made[r.block] = reasonsHead
		}
		made[r.block] += r.row()
	}
	return made, nil
}

const reasonsHead = "| Reason | Meaning | What to do |\n| --- | --- | --- |\n"

func (r reason) row() string { return fmt.Sprintf("| `%s` | %s | %s |\n", r.name, r.meaning, r.advice) }

// troubles makes the page of all reasons that call for something, by name.
func troubles() (string, error) {
	_, reasons, err := conditionsAndReasons()
	if err != nil {
		return "", err
	}
	slices.SortFunc(reasons, func(a, b reason) int { return strings.Compare(a.name, b.name) })
	var page strings.Builder
	page.WriteString(begin + "# Reasons from A to Z\n\nWhat to do about each reason that a condition can have, but for those that say that all is well.\n" +
		"[Conditions and reasons](conditions.md) has them by condition.\n\n" + reasonsHead)
	for _, r := range reasons {
		if r.advice != "" {
			page.WriteString(r.row())
		}
	}
	return page.String(), nil
}

// sentence begins with a capital letter.
func sentence(text string) string {
	for i, first := range text {
		return string(unicode.ToUpper(first)) + text[i+len(string(first)):]
	}
	return ""
}

// fromReference makes links that begin at the top of the project begin at the reference.
func fromReference(text string) string {
	text = strings.ReplaceAll(text, "](docs/reference/", "](")
	return strings.ReplaceAll(text, "](docs/", "](../")
}

// keys makes tables of the labels, annotations and finalizers that are ours, wherever in
// the code they are.
func keys() (tables, error) {
	made := tables{}
	for _, root := range []string{"api", "internal", "controllers"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return addKeys(made, path)
		})
		if err != nil {
			return nil, err
		}
	}
	return made, nil
}

func addKeys(made tables, file string) error {
	declared, err := constants(file)
	if err != nil {
		return err
	}
	for _, c := range declared {
		key, ok := afterPrefix(c.value)
		if !ok {
			continue
		}
		kind := ""
		for _, suffix := range []string{"Label", "Annotation", "Finalizer"} {
			if strings.HasSuffix(c.name, suffix) {
				kind = strings.ToLower(suffix)
			}
		}
		if kind == "" || c.text == "" {
			return fmt.Errorf("%s: %s does not end in what it is, or has no comment that begins with its name", file, c.name)
		}
		table := "Set by capi-fleet"
		if c.block == "Keys for people to set" {
			table = c.block
		}
		if made[table] == "" {
			made[table] = "| Key | What | Meaning |\n| --- | --- | --- |\n"
		}
		made[table] += fmt.Sprintf("| `%s` | %s | %s |\n", key, kind, sentence(c.text))
	}
	return nil
}

// afterPrefix returns what follows KeyPrefix in an expression.
func afterPrefix(value ast.Expr) (string, bool) {
	sum, ok := value.(*ast.BinaryExpr)
	if !ok {
		return "", false
	}
	name := ""
	switch prefix := sum.X.(type) {
	case *ast.Ident:
		name = prefix.Name
	case *ast.SelectorExpr:
		name = prefix.Sel.Name
	}
	literal, ok := sum.Y.(*ast.BasicLit)
	if !ok || name != "KeyPrefix" {
		return "", false
	}
	key, err := strconv.Unquote(literal.Value)
	return key, err == nil
}
