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

package suite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// Script runs a script of hack with kubectl set up by a kubeconfig file. The answer is
// what a person types. It returns all that the script printed; the error is that of its
// exit code, an *exec.ExitError.
func Script(t *testing.T, name, kubeconfig, answer string, args ...string) (string, error) {
	t.Helper()
	kubectl, err := kube.FindKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join("..", "..", "..", "hack", name))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), script, args...)
	command.Env = append(os.Environ(),
		"KUBECONFIG="+kubeconfig,
		"KUBECACHEDIR="+t.TempDir(),
		"PATH="+filepath.Dir(kubectl)+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.Stdin = strings.NewReader(answer)
	output, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("%s %q: %v\n%s", name, args, err, output)
	return string(output), err
}
