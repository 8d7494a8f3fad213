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

// Package howto types what the how-tos say, block by block, and applies the objects that
// the pages show.
package howto

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-fleet/capi-fleet/test/docs"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

var (
	lab *env.Lab

	// root is the folder of the project, and bin one with what the pages call.
	root = filepath.Join("..", "..", "..")
	bin  string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "capi-fleet-howto-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		bin, err = tools(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "making the tools:", err)
		return 1
	}
	return suite.Main(m, &lab, env.Options{CheckinInterval: time.Second})
}

// tools puts kubectl, clusterctl and its plugin into a folder.
func tools(dir string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	for name, find := range map[string]func(context.Context) (string, error){"kubectl": kube.FindKubectl, "clusterctl": kube.FindClusterctl} {
		path, err := find(ctx)
		if err != nil {
			return "", err
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", dir, "./cmd/clusterctl-fleet")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building clusterctl-fleet: %w\n%s", err, output)
	}
	return dir, nil
}

// step is done in place of a block that is not run, or after one that is.
type step func(t *testing.T)

// runPage types the blocks of a page in their order, in one folder, and does between them
// what steps says, each by what a block begins with.
func runPage(t *testing.T, page string, steps map[string]step) {
	t.Helper()
	runPageIn(t, "default", page, steps)
}

// runPageIn types a page that says namespace default as if it said another one.
func runPageIn(t *testing.T, namespace, page string, steps map[string]step) {
	t.Helper()
	dir := t.TempDir()
	for _, block := range commandBlocks(t, page) {
		block.Text = strings.ReplaceAll(block.Text, "--namespace default", "--namespace "+namespace)
		if block.NotRun == "" {
			runBlock(t, dir, block)
		} else {
			t.Logf("%s is not run: %s", block, block.NotRun)
		}
		for begin, do := range steps {
			if strings.HasPrefix(block.Text, begin) {
				do(t)
				delete(steps, begin)
			}
		}
	}
	for begin := range steps {
		t.Errorf("docs/%s has no block that begins with %q", page, begin)
	}
}

func commandBlocks(t *testing.T, page string) []docs.Block {
	t.Helper()
	all, err := docs.Blocks(root, page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []docs.Block
	for _, block := range all {
		if block.Language == "sh" {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// runBlock types a block into a shell that is set up for the management cluster.
func runBlock(t *testing.T, dir string, block docs.Block) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block.Text)
	command.Dir = dir
	command.Env = append(os.Environ(), "HOME="+dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		"KUBECONFIG="+lab.Management().AdminKubeconfigPath(),
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	t.Logf("%s\n%s%s", block, block.Text, output)
	if err != nil {
		t.Fatalf("%s: %v", block, err)
	}
}
