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

// Package cli tests the command line on real API servers.
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
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/capi-fleet/capi-fleet/internal/cli"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

var lab *env.Lab

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &lab, env.Options{NoManager: true})) }

// fleetctl runs the command line against the management cluster.
func fleetctl(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	return fleetctlOn(t, lab, args...)
}

func fleetctlOn(t *testing.T, lab *env.Lab, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append(args, "--kubeconfig", lab.Management().AdminKubeconfigPath())
	code = cli.Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	t.Logf("clusterctl fleet %q: %d\n%s%s", args, code, stdout.String(), stderr.String())
	return code, stdout.String(), stderr.String()
}

// kubectl runs kubectl and returns what it prints.
func kubectl(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	g := NewWithT(t)
	program, err := kube.FindKubectl(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+t.TempDir())
	out, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("kubectl %q: %v\n%s", args, err, exit.Stderr)
	}
	g.Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// file writes a file and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return path
}
