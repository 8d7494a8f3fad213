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
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/capi-fleet/capi-fleet/internal/cli"
)

// Fleetctl runs the command line "clusterctl fleet" with a kubeconfig file. It returns the
// exit code, and what it printed to standard output and standard error.
func Fleetctl(t *testing.T, kubeconfig string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append(args, "--kubeconfig", kubeconfig)
	code = cli.Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	t.Logf("clusterctl fleet %q: %d\n%s%s", args, code, stdout.String(), stderr.String())
	return code, stdout.String(), stderr.String()
}
