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
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestTablesAreWrittenIntoTheirPlaces(t *testing.T) {
	g := NewWithT(t)
	page := "before\n<!-- make generate: One -->\nold\n<!-- end -->\nbetween\n<!-- make generate: Two -->\n<!-- end -->\nafter\n"
	filled, err := fill(page, tables{"One": "first\n", "Two": "second\n"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(filled).To(Equal("before\n<!-- make generate: One -->\n\nfirst\n\n<!-- end -->\nbetween\n<!-- make generate: Two -->\n\nsecond\n\n<!-- end -->\nafter\n"))
	again, err := fill(filled, tables{"One": "first\n", "Two": "second\n"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(filled))
}

func TestATableWithoutAPlaceAndAPlaceWithoutATableAreErrors(t *testing.T) {
	g := NewWithT(t)
	_, err := fill("<!-- make generate: One -->\n<!-- end -->\n", tables{"One": "first\n", "Two": "second\n"})
	g.Expect(err).To(MatchError(ContainSubstring(`no place for: ["Two"]`)))
	_, err = fill("<!-- make generate: One -->\n<!-- end -->\n", tables{})
	g.Expect(err).To(MatchError(ContainSubstring(`no table, or one twice: ["One"]`)))
}

func TestAConstantWithoutACommentIsAnError(t *testing.T) {
	for name, comment := range map[string]string{"none": "", "of another": "// OtherReason means nothing.\n", "none that means anything": "// WrongReason is wrong.\n"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Chdir(t.TempDir())
			g.Expect(os.MkdirAll(filepath.Join("api", "v1alpha1"), 0o700)).To(Succeed())
			source := "package v1alpha1\n\n// Reasons of a test.\nconst (\n" + comment + "WrongReason = \"Wrong\"\n)\n"
			g.Expect(os.WriteFile(filepath.Join("api", "v1alpha1", "conditions.go"), []byte(source), 0o600)).To(Succeed())
			_, err := conditions()
			g.Expect(err).To(MatchError(ContainSubstring("WrongReason")))
		})
	}
}

func TestKeysAreFoundWhereverTheyAre(t *testing.T) {
	g := NewWithT(t)
	t.Chdir(t.TempDir())
	for _, dir := range []string{"api", "internal", "controllers"} {
		g.Expect(os.Mkdir(dir, 0o700)).To(Succeed())
	}
	g.Expect(os.WriteFile("api/keys.go", []byte("package api\n\n// Keys for people to set.\nconst (\n// OneLabel says one.\nOneLabel = KeyPrefix + \"one\"\n)\n"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile("internal/two.go", []byte("package two\n\n// twoAnnotation says two.\nconst twoAnnotation = api.KeyPrefix + \"two\"\n"), 0o600)).To(Succeed())
	made, err := keys()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(made).To(HaveKeyWithValue("Keys for people to set", ContainSubstring("| `one` | label | Says one. |")))
	g.Expect(made).To(HaveKeyWithValue("Set by capi-fleet", ContainSubstring("| `two` | annotation | Says two. |")))
}
