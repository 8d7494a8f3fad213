//go:build unix

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

package clusterctl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-fleet/capi-fleet/test/docs"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestQuickStartWorksAsItIsWritten(t *testing.T) {
	lab := startLab(t)
	installCore(t, lab)
	w := suite.AddCluster(t, lab, "edge-1", env.ClusterOptions{Light: &lightapi.Options{}})
	home := t.TempDir()
	root := clone(t)

	for _, block := range commandBlocks(t, "quick-start.md") {
		runBlock(t, lab, root, home, block)
		switch {
		case strings.Contains(block, "clusterctl.yaml"):
			knowCore(t, filepath.Join(home, ".config", "cluster-api", "clusterctl.yaml"))
		case strings.HasPrefix(block, "clusterctl init"):
			startManager(t, lab, "quick-start") // in place of a pod
		}
	}
	suite.EventuallyReady(t, lab, w)
}

func TestReadmeWorksAsItIsWritten(t *testing.T) {
	lab := startLab(t)
	w := suite.AddCluster(t, lab, "edge-1", env.ClusterOptions{Light: &lightapi.Options{}})
	root, home := clone(t), t.TempDir()
	for _, block := range commandBlocks(t, "../README.md") {
		runBlock(t, lab, root, home, block)
		if strings.HasPrefix(block, "make release-manifests") {
			startManager(t, lab, "readme") // in place of a pod
		}
	}
	suite.EventuallyReady(t, lab, w)
}

// startLab starts a management cluster without capi-fleet that ends with the test.
func startLab(t *testing.T) *env.Lab {
	t.Helper()
	lab, err := env.Start(t.Context(), env.Options{Race: true, NoManager: true, CheckinInterval: time.Second, ConfigDir: env.BareConfig, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

// clone makes a folder that looks like a clone of the project, but takes what is written
// there.
func clone(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, entry := range entries {
		if slices.Contains([]string{"bin", "out", ".git", ".lab"}, entry.Name()) {
			continue
		}
		if err := os.Symlink(filepath.Join(source, entry.Name()), filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// commandBlocks returns what a page says to type, in order, but for what it says is not
// run here.
func commandBlocks(t *testing.T, page string) []string {
	t.Helper()
	blocks, err := docs.Blocks(filepath.Join("..", "..", ".."), page)
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, block := range blocks {
		switch {
		case block.Language != "sh":
		case block.NotRun != "":
			t.Logf("%s is not run: %s", block, block.NotRun)
		default:
			commands = append(commands, block.Text)
		}
	}
	if len(commands) == 0 {
		t.Fatalf("%s says nothing to type", page)
	}
	return commands
}

// runBlock types a block into a shell whose kubectl and clusterctl are set up for the
// management cluster.
func runBlock(t *testing.T, lab *env.Lab, dir, home, block string) {
	t.Helper()
	var path []string
	for _, find := range []func() (string, error){
		func() (string, error) { return kube.FindKubectl(t.Context()) },
		func() (string, error) { return kube.FindClusterctl(t.Context()) },
	} {
		tool, err := find()
		if err != nil {
			t.Fatal(err)
		}
		path = append(path, filepath.Dir(tool))
	}
	runShell(t, dir, block, "HOME="+home, "XDG_CONFIG_HOME=", "KUBECONFIG="+lab.Management().AdminKubeconfigPath(),
		"PATH="+strings.Join(append(path, os.Getenv("PATH")), string(os.PathListSeparator)))
}

// runShell types a block into a shell in dir, with these variables besides.
func runShell(t *testing.T, dir, block string, variables ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block)
	command.Dir = dir
	command.Env = append(append(withoutMake(os.Environ()), "CLUSTERCTL_DISABLE_VERSIONCHECK=true"), variables...)
	output, err := command.CombinedOutput()
	t.Logf("%s%s", block, output)
	if err != nil {
		t.Fatalf("%v: %s", err, block)
	}
}

// installCore lets clusterctl know that Cluster API is there.
func installCore(t *testing.T, lab *env.Lab) {
	t.Helper()
	mustClusterctl(t, lab, "init", "--core", "cluster-api:"+kube.ClusterctlVersion, "--bootstrap", "-", "--control-plane", "-")
	// In this namespace clusterctl tries cert-manager out. While it goes, the next trial
	// would fail.
	trial := types.NamespacedName{Name: "cert-manager-test"}
	NewWithT(t).Eventually(func() error {
		return lab.Client.Get(t.Context(), trial, &corev1.Namespace{})
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
}

// knowCore tells clusterctl of a local repository for Cluster API's core too, which it
// would look for on the Internet.
func knowCore(t *testing.T, config string) {
	t.Helper()
	content, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	components, err := filepath.Abs(coreComponents)
	if err != nil {
		t.Fatal(err)
	}
	core := fmt.Sprintf("- name: cluster-api\n  type: CoreProvider\n  url: %s\n", components)
	if err := os.WriteFile(config, append(content, core...), 0o600); err != nil {
		t.Fatal(err)
	}
}
