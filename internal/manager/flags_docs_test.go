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

package manager

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	logsv1 "k8s.io/component-base/logs/api/v1"
)

// flagsPage explains every flag, each in a row of a table.
var flagsPage = filepath.Join("..", "..", "docs", "reference", "flags.md")

// flagRow finds a row with a flag and its default.
var flagRow = regexp.MustCompile("(?m)^\\| `--([^`]+)` \\| (?:`([^`]*)` )?\\|")

func TestEveryFlagIsDocumentedWithItsDefault(t *testing.T) {
	g := NewWithT(t)
	t.Setenv(podNamespaceEnv, "")
	options := &Options{logging: logsv1.NewLoggingConfiguration()}
	options.logging.Verbosity = defaultVerbosity(t)
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	options.addFlags(flags)
	declared := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { declared[f.Name] = f.DefValue })

	content, err := os.ReadFile(flagsPage)
	g.Expect(err).NotTo(HaveOccurred())
	documented := map[string]string{}
	for _, row := range flagRow.FindAllStringSubmatch(string(content), -1) {
		g.Expect(documented).NotTo(HaveKey(row[1]))
		documented[row[1]] = row[2]
	}

	g.Expect(declared).NotTo(BeEmpty())
	g.Expect(documented).To(Equal(declared))
}

// defaultVerbosity is the level that ParseFlags sets before it adds the flags.
func defaultVerbosity(t *testing.T) logsv1.VerbosityLevel {
	t.Helper()
	options, _, err := ParseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	return options.logging.Verbosity
}
