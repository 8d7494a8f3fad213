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

package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var root = filepath.Join("..", "..")

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestEveryPageIsInTheSummaryOnce(t *testing.T) {
	g := NewWithT(t)
	pages, err := Pages(root)
	g.Expect(err).NotTo(HaveOccurred())
	var listed []string
	for _, match := range link.FindAllStringSubmatch(read(t, "docs/SUMMARY.md"), -1) {
		listed = append(listed, match[1])
	}
	g.Expect(append(listed, "SUMMARY.md")).To(ConsistOf(pages))
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	g := NewWithT(t)
	pages, err := Pages(root)
	g.Expect(err).NotTo(HaveOccurred())
	for i := range pages {
		pages[i] = path.Join("docs", pages[i])
	}
	anchors := map[string][]string{}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		for _, match := range link.FindAllStringSubmatch(withoutBlocks(read(t, page)), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(match[1], "#")
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s leads to %s, which is not there", page, match[1])
				continue
			}
			if anchor == "" {
				continue
			}
			if anchors[target] == nil {
				anchors[target] = headings(read(t, target))
			}
			g.Expect(anchors[target]).To(ContainElement(anchor), "%s leads to %s", page, match[1])
		}
	}
}

func TestThereIsADiagramOfTheFlowAndOneOfWhoMayDoWhat(t *testing.T) {
	g := NewWithT(t)
	for _, page := range []string{"concepts/registration.md", "concepts/security.md"} {
		blocks, err := Blocks(root, page)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(blocks).To(ContainElement(HaveField("Language", "mermaid")), page)
	}
}

// A shell takes <name> for a file.
func TestWhatIsToBeTypedHasNoPlaceholders(t *testing.T) {
	g := NewWithT(t)
	pages, err := Pages(root)
	g.Expect(err).NotTo(HaveOccurred())
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		blocks, err := Blocks(root, page)
		g.Expect(err).NotTo(HaveOccurred())
		for _, block := range blocks {
			if block.Language == "sh" {
				g.Expect(block.Text).NotTo(MatchRegexp(`<[A-Za-z][A-Za-z.-]*>`), block.String())
			}
		}
	}
}

func TestBlocksAreReadWithTheirMarks(t *testing.T) {
	g := NewWithT(t)
	t.Chdir(t.TempDir())
	g.Expect(os.Mkdir("docs", 0o700)).To(Succeed())
	page := "Text\n\n```sh\none\n  two\n```\n\n<!-- not run: no Docker -->\n\n   ```sh\n   three\n   ```\n\n<!-- not run: lost -->\nText\n```yaml\nfour: 4\n```\n"
	g.Expect(os.WriteFile(filepath.Join("docs", "page.md"), []byte(page), 0o600)).To(Succeed())
	blocks, err := Blocks(".", "page.md")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(blocks).To(Equal([]Block{
		{Page: "page.md", Line: 4, Language: "sh", Text: "one\n  two\n"},
		{Page: "page.md", Line: 11, Language: "sh", Text: "three\n", NotRun: "no Docker"},
		{Page: "page.md", Line: 17, Language: "yaml", Text: "four: 4\n"},
	}))
	g.Expect(os.WriteFile(filepath.Join("docs", "page.md"), []byte("```sh\none\n"), 0o600)).To(Succeed())
	_, err = Blocks(".", "page.md")
	g.Expect(err).To(MatchError(ContainSubstring("has no end")))
}

var block = regexp.MustCompile("(?ms)^ *```.*?^ *```")

func withoutBlocks(page string) string { return block.ReplaceAllString(page, "") }

// headings returns the anchors of a page as GitHub makes them.
func headings(page string) []string {
	var anchors []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(withoutBlocks(page), -1) {
		anchor := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(match[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

func read(t *testing.T, page string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
