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

// Package docs reads the pages of the documentation, so that tests can hold them to what
// they say: it changes nothing and runs nothing.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	// Page is the path of the page below the folder docs, with slashes, and Line that of
	// the block's first line.
	Page string
	Line int
	// Language is what the fence says, such as "sh" or "yaml".
	Language string
	// Text is what is in the block, without the indent that it has in a list.
	Text string
	// NotRun says why no test runs the block or applies it. The page has it in a comment
	// right above: <!-- not run: why -->. Empty means that it is run.
	NotRun string
}

// String names the block as an editor finds it.
func (b Block) String() string { return fmt.Sprintf("docs/%s:%d", b.Page, b.Line) }

var (
	fence  = regexp.MustCompile("^( *)```([a-z]*)$")
	notRun = regexp.MustCompile(`^ *<!-- not run: (.+) -->$`)
)

// Blocks returns the blocks of a page in their order. root is the folder of the project.
func Blocks(root, page string) ([]Block, error) {
	content, err := os.ReadFile(filepath.Join(root, "docs", filepath.FromSlash(page)))
	if err != nil {
		return nil, err
	}
	var (
		blocks []Block
		why    string
		indent string
		open   *Block
	)
	for number, line := range strings.Split(string(content), "\n") {
		match := fence.FindStringSubmatch(line)
		switch {
		case open != nil && match != nil:
			blocks, open, why = append(blocks, *open), nil, ""
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		case match != nil:
			indent = match[1]
			open = &Block{Page: page, Line: number + 2, Language: match[2], NotRun: why}
		case notRun.MatchString(line):
			why = notRun.FindStringSubmatch(line)[1]
		case strings.TrimSpace(line) != "":
			why = ""
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s has no end", open)
	}
	return blocks, nil
}

// Pages returns all pages below the folder docs, with slashes.
func Pages(root string) ([]string, error) {
	var pages []string
	top := filepath.Join(root, "docs")
	err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := filepath.Rel(top, path)
		pages = append(pages, filepath.ToSlash(page))
		return err
	})
	return pages, err
}
