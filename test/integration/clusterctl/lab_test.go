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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-fleet/capi-fleet/test/integration/suite"
)

// buildPatience is for go run, which may build all of the lab.
const buildPatience = 15 * time.Minute

func TestTheLabTakesAnInstallation(t *testing.T) {
	g := NewWithT(t)
	root := clone(t)
	blocks := commandBlocks(t, "development/lab.md")
	g.Expect(blocks).To(HaveLen(3))
	tools, up, install := blocks[0], blocks[1], blocks[2]
	runBare(t, root, tools)

	said := runInBackground(t, root, up)
	g.Eventually(said).WithTimeout(buildPatience).WithPolling(suite.Poll).Should(ContainSubstring("up; from another terminal"))
	g.Expect(install).To(ContainSubstring("export KUBECONFIG="), "else it is typed for another management cluster")
	runBare(t, root, install)
	g.Expect(said()).To(ContainSubstring("edge-1: registered"))

	runBlock(t, source, root, t.TempDir(),
		"kubectl --kubeconfig .lab/management/admin.kubeconfig delete deployment --namespace capi-fleet-system capi-fleet-manager")
	g.Eventually(said).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ContainSubstring("the manager has ended"))
}

// runBare types a block where kubectl and clusterctl are not set up.
func runBare(t *testing.T, dir, block string) {
	t.Helper()
	runShell(t, dir, block) // with the home as it is, where Go's settings and caches are
}

// runInBackground types a block that ends by Ctrl-C, which is typed when the test ends. said
// returns what it has printed so far.
func runInBackground(t *testing.T, dir, block string) (said func() string) {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	said = func() string {
		content, err := os.ReadFile(output.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	// Not with the context of the test, which ends it the hard way.
	command := exec.Command("bash", "-euo", "pipefail", "-c", block)
	command.Dir, command.Stdout, command.Stderr = dir, output, output
	command.Env = withoutMake(os.Environ())
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what a terminal does
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		group := -command.Process.Pid
		tooLate := time.AfterFunc(suite.Patience, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		defer tooLate.Stop()
		if err := syscall.Kill(group, syscall.SIGINT); err != nil {
			t.Error(err)
		}
		_ = command.Wait() // 1 from go run that was interrupted, whatever its program says
		t.Logf("%s%s", block, said())
		if !strings.Contains(said(), "ending; ") || strings.Contains(said(), "exit status") {
			t.Error("it did not end well")
		}
	})
	return said
}
