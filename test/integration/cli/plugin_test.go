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
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-fleet/capi-fleet/internal/cli"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestClusterctlRunsThePlugin(t *testing.T) {
	g := NewWithT(t)
	suite.AddCluster(t, lab, "seen", env.ClusterOptions{Namespace: "by-plugin", Light: &lightapi.Options{}})
	run := plugin(t)

	code, out, errOut := run("fleet", "status", "--namespace", "by-plugin")
	g.Expect(code).To(Equal(cli.ExitOK), errOut)
	g.Expect(errOut).To(BeEmpty())
	g.Expect(out).To(MatchRegexp(`(?m)^seen +- +NotRegistered`))
	code, _, _ = run("fleet", "status", "seen", "--namespace", "by-plugin")
	g.Expect(code).To(Equal(cli.ExitFinding), "clusterctl loses the exit code")

	for _, help := range [][]string{{"fleet", "--help"}, {"fleet", "help"}} {
		code, out, errOut = run(help...)
		g.Expect(code).To(Equal(cli.ExitOK), errOut)
		g.Expect(out).To(And(ContainSubstring("Usage:\n  clusterctl fleet"), ContainSubstring("\n  diagnose ")))
	}
	_, out, _ = run("fleet", "status", "--help")
	g.Expect(out).To(ContainSubstring("Usage:\n  clusterctl fleet status [CLUSTER...] [flags]\n"))

	for _, wrong := range [][]string{{"fleet"}, {"fleet", "nonsense"}, {"fleet", "status", "--nonsense"}, {"fleet", "diagnose"}} {
		code, out, errOut = run(wrong...)
		g.Expect(code).To(Equal(cli.ExitUsage), "%q", wrong)
		g.Expect(out).To(BeEmpty(), "%q", wrong)
		g.Expect(errOut).To(MatchRegexp(`^Error: [^\n]+; see clusterctl fleet[^\n]* --help\n$`), "%q", wrong)
	}
}

func TestThePluginCompletesItsOwnName(t *testing.T) {
	g := NewWithT(t)
	run := plugin(t)
	for shell, words := range map[string]string{"bash": "complete ", "zsh": "#compdef clusterctl-fleet", "fish": "complete -c clusterctl-fleet", "powershell": "'clusterctl-fleet'"} {
		code, script, errOut := run("fleet", "completion", shell)
		g.Expect(code).To(Equal(cli.ExitOK), errOut)
		g.Expect(script).To(ContainSubstring(words))
	}
	_, names, _ := run("fleet", "__complete", "describe", "--namespace", "by-plugin", "")
	g.Expect(names).To(ContainSubstring("\n:4\n"), "no names of Clusters are asked for")
	_, script, _ := run("fleet", "completion", "bash")
	shell := exec.CommandContext(t.Context(), "bash", "-euc", script+"\ncomplete -p clusterctl-fleet")
	out, err := shell.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(string(out)).To(ContainSubstring("clusterctl-fleet"))
}

// plugin builds the program under the name that clusterctl looks for, and returns how
// clusterctl is run with it in the PATH.
func plugin(t *testing.T) func(args ...string) (code int, out, errOut string) {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "clusterctl-fleet"), "./cmd/clusterctl-fleet")
	build.Dir = filepath.Join("..", "..", "..")
	output, err := build.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))
	clusterctl, err := kube.FindClusterctl(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	return func(args ...string) (code int, out, errOut string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		command := exec.CommandContext(t.Context(), clusterctl, args...)
		command.Env = append(os.Environ(), "HOME="+dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "KUBECONFIG="+lab.Management().AdminKubeconfigPath(),
			"PATH="+strings.Join([]string{dir, os.Getenv("PATH")}, string(os.PathListSeparator)))
		command.Stdout, command.Stderr = &stdout, &stderr
		err := command.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return command.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
}
