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
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func TestEveryReasonHasAdvice(t *testing.T) {
	g := NewWithT(t)
	root := filepath.Join("..", "..")
	declared := reasons(t, filepath.Join(root, "api", "v1alpha1", "conditions.go"))
	for name, reason := range declared {
		g.Expect(advice).To(HaveKey(reason), name)
	}
	g.Expect(advice).To(HaveLen(len(declared)))
}

func TestOnlyWhereNothingIsToBeDoneThereIsNoAdvice(t *testing.T) {
	g := NewWithT(t)
	var silent []string
	for reason, do := range advice {
		if do == "" {
			silent = append(silent, reason)
		}
	}
	g.Expect(silent).To(ConsistOf(
		fleetv1.ReadyReason, fleetv1.FleetClusterCreatedReason, fleetv1.WorkloadReachableReason, fleetv1.AgentDeployedReason,
		fleetv1.CredentialsIssuedReason, fleetv1.AgentConnectedReason, fleetv1.AgentUpToDateReason, fleetv1.BundlesReadyReason,
		fleetv1.TargetedReason, fleetv1.SelectedReason, fleetv1.NotPausedReason, fleetv1.NotDeletingReason, fleetv1.RolledOutReason))
}

func TestAdviceIsShownWithoutMarkup(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Advice(fleetv1.PausedReason)).To(Equal("See [Pause](docs/concepts/pause.md)."))
	g.Expect(whatToDo(fleetv1.PausedReason)).To(Equal("See Pause (docs/concepts/pause.md)."))
	for reason := range advice {
		g.Expect(whatToDo(reason)).NotTo(ContainSubstring("`"))
		for _, match := range markdownLink.FindAllStringSubmatch(advice[reason], -1) {
			page, _, _ := strings.Cut(match[2], "#")
			g.Expect(filepath.Join("..", "..", page)).To(BeARegularFile(), reason)
		}
	}
}

// reasons returns the reasons that a file declares, by the names of the constants.
func reasons(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasSuffix(spec.Names[0].Name, "Reason") {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found[spec.Names[0].Name] = value
		}
		return true
	})
	return found
}
