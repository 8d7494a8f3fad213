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
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Reference returns the page of the documentation on all commands, Markdown.
func Reference() string {
	root := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
	var page strings.Builder
	page.WriteString("# Command line\n\n<!-- Written by make generate. -->\n\n")
	page.WriteString(root.Long + "\n\n## Flags of all commands\n\nThose of kubectl that name the management cluster and the user, among them:\n\n")
	writeFlags(&page, root.PersistentFlags())
	for _, command := range root.Commands() {
		if command.Name() == "completion" || command.Name() == "help" {
			continue
		}
		writeCommand(&page, command)
	}
	fmt.Fprintf(&page, "## completion\n\n`%s completion bash` (or `zsh`, `fish`, `powershell`) prints a script for the shell. It completes `clusterctl-fleet`, the program itself: clusterctl does not ask plugins.\n", programName)
	return page.String()
}

func writeCommand(page *strings.Builder, command *cobra.Command) {
	fmt.Fprintf(page, "## %s\n\n%s.\n\n```text\n%s %s\n```\n\n%s\n\n<!-- not run: the how-tos and the tests of the commands type them -->\n\n```sh\n%s\n```\n\n", command.Name(), command.Short,
		programName, command.Use, command.Long, strings.ReplaceAll(strings.TrimPrefix(command.Example, "  "), "\n  ", "\n"))
	writeFlags(page, command.LocalNonPersistentFlags())
}

func writeFlags(page *strings.Builder, flags *pflag.FlagSet) {
	rows := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if rows++; rows == 1 {
			page.WriteString("| Flag | Default | Meaning |\n| --- | --- | --- |\n")
		}
		name, preset := "`--"+f.Name+"`", ""
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		if f.DefValue != "" && f.DefValue != "false" {
			preset = "`" + f.DefValue + "` "
		}
		fmt.Fprintf(page, "| %s | %s| %s |\n", name, preset, f.Usage)
	})
	if rows > 0 {
		page.WriteString("\n")
	}
}
