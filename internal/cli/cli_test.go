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
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testclock "k8s.io/utils/clock/testing"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// run runs a command line without any cluster.
func run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	var stdout, stderr bytes.Buffer
	code = Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	return code, stdout.String(), stderr.String()
}

// everyCommand returns the words of every command that there is.
func everyCommand(t *testing.T) [][]string {
	t.Helper()
	var all [][]string
	var walk func(*cobra.Command, []string)
	walk = func(command *cobra.Command, path []string) {
		all = append(all, path)
		for _, sub := range command.Commands() {
			walk(sub, append(append([]string{}, path...), sub.Name()))
		}
	}
	walk(NewCommand(genericiooptions.NewTestIOStreamsDiscard()), nil)
	return all
}

func expectOneLineOfHelp(t *testing.T, args ...string) {
	t.Helper()
	g := NewWithT(t)
	code, out, errOut := run(t, args...)
	g.Expect(code).To(Equal(ExitUsage), "%q: %s", args, errOut)
	g.Expect(out).To(BeEmpty(), "%q", args)
	g.Expect(strings.Count(errOut, "\n")).To(Equal(1), "%q: %s", args, errOut)
	g.Expect(errOut).To(MatchRegexp(`^Error: .+; see clusterctl fleet.* --help\n$`), "%q", args)
}

func TestWrongUsageOfEveryCommandIsOneLineThatSaysWhatToDo(t *testing.T) {
	commands := everyCommand(t)
	NewWithT(t).Expect(len(commands)).To(BeNumerically(">", 5))
	for _, path := range commands {
		expectOneLineOfHelp(t, append(path, "--no-such-flag")...)
	}
	lines := []string{
		"", "nonsense", "help nonsense", "completion", "completion nonsense", "completion bash zsh",
		"status --output xml", "status a --selector b=c", "status a --all-namespaces", "status --selector !!", "status --watch --output json",
		"describe", "describe a b", "describe a --output wide", "describe a --denied-ranges nowhere",
		"diagnose", "diagnose a b", "diagnose a --output wide", "diagnose a --denied-ranges nowhere",
		"rotate", "rotate a b",
		"orphans --output wide", "orphans --all", "orphans --dry-run", "orphans a --all-namespaces", "orphans --delete",
		"orphans --delete a --all", "orphans --delete a --output json", "orphans --delete a --silent-for -1s", "orphans --delete a --wait -1s",
		"orphans --delete a --wait soon",
		"handback", "handback --mode token", "handback a", "handback a --mode nothing", "handback a --mode token --all", "handback a --mode fleet --all-namespaces",
		"handback --mode token --all-namespaces", "handback a --mode token --denied-ranges nowhere",
		"render", "render a", "render a --for nothing", "render a b --for workload", "render A --for management",
		"render a --for workload", "render a --for management --token-file t", "render a --for management --registration-id short",
		"render a --for management --registration-id 0123456789abcdef0123456789abcdef",
		"render a --for management --agent-server http://a", "render a --for management --agent-server https://a:0",
		"render a --for management --agent-ca-file f",
		"render a --for management --manager-namespace A_B",
		"render a --for workload --offline --token-file t --agent-server https://a", "render a --for workload --offline --agent-server https://a --agent-image i --registration-id 0123456789abcdef0123456789abcdef0123456789abcdef0123 --token-file /dev/null",
	}
	for _, line := range lines {
		expectOneLineOfHelp(t, strings.Fields(line)...)
	}
	for _, path := range commands {
		if len(path) == 1 {
			NewWithT(t).Expect(lines).To(ContainElement(HavePrefix(path[0])), "wrong usage of %s is not tried", path[0])
		}
	}
}

// wrongValues are values that flags refuse, by their names. Those that take any text are
// empty.
var wrongValues = map[string]string{
	"agent-ca-file":     "not-without-a-server",
	"agent-image":       "",
	"agent-server":      "http://plain",
	"denied-ranges":     "nowhere",
	"fleet-namespace":   "A_B",
	"for":               "nothing",
	"manager-namespace": "A_B",
	"mode":              "nothing",
	"output":            "xml",
	"registration-id":   "short",
	"selector":          "!!",
	"silent-for":        "soon",
	"token-file":        "not-for-management",
	"wait":              "soon",
}

// rightArguments are such as the commands take, where they need any.
var rightArguments = map[string]string{
	"describe": "a", "diagnose": "a", "rotate": "a", "handback": "a --mode token", "render": "a --for management",
}

// visitFlags visits the flags of every command, but for those of kubectl and cobra.
func visitFlags(t *testing.T, visit func(path []string, f *pflag.Flag)) {
	t.Helper()
	root := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
	for _, path := range everyCommand(t) {
		command, _, err := root.Find(path)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		if len(path) == 0 || path[0] == "completion" {
			continue
		}
		command.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { visit(path, f) })
	}
}

func TestAWrongValueOfEveryFlagIsOneLineThatNamesIt(t *testing.T) {
	tried := map[string]bool{}
	visitFlags(t, func(path []string, f *pflag.Flag) {
		g := NewWithT(t)
		wrong, known := wrongValues[f.Name]
		if f.Value.Type() == "bool" {
			wrong, known = "maybe", true
		}
		g.Expect(known).To(BeTrue(), "no wrong value of --%s is tried", f.Name)
		if wrong == "" {
			return
		}
		tried[f.Name] = true
		args := append(append([]string{}, path...), strings.Fields(rightArguments[path[0]])...)
		args = append(args, "--"+f.Name+"="+wrong)
		expectOneLineOfHelp(t, args...)
		_, _, errOut := run(t, args...)
		g.Expect(errOut).To(ContainSubstring("--"+f.Name), "%q", args)
	})
	NewWithT(t).Expect(len(tried)).To(BeNumerically(">", 15))
}

func TestEveryFlagSaysWhatHoldsWithoutIt(t *testing.T) {
	g := NewWithT(t)
	says := func(f *pflag.Flag) {
		if f.Value.Type() != "bool" && f.DefValue == "" && !f.Hidden {
			g.Expect(f.Usage).To(Or(ContainSubstring("(default: "), ContainSubstring("(required")), "--%s", f.Name)
		}
	}
	visitFlags(t, func(_ []string, f *pflag.Flag) { says(f) })
	NewCommand(genericiooptions.NewTestIOStreamsDiscard()).PersistentFlags().VisitAll(says)
}

func TestWithoutAKubeconfigTheErrorIsOneLineThatSaysWhatToDo(t *testing.T) {
	for _, line := range []string{"status", "describe a", "diagnose a", "rotate a", "orphans", "orphans --delete a", "handback a --mode token", "render a --for management"} {
		g := NewWithT(t)
		code, out, errOut := run(t, append(strings.Fields(line), "--server", "")...)
		g.Expect(code).To(Equal(ExitFailed))
		g.Expect(out).To(BeEmpty())
		g.Expect(strings.Count(errOut, "\n")).To(Equal(1), errOut)
		g.Expect(errOut).To(ContainSubstring("--kubeconfig"))
	}
}

func TestEveryCommandHasHelpAndCompletion(t *testing.T) {
	for _, path := range everyCommand(t) {
		g := NewWithT(t)
		code, out, errOut := run(t, append(path, "--help")...)
		g.Expect(code).To(Equal(ExitOK), errOut)
		g.Expect(out).To(ContainSubstring("Usage:\n  clusterctl fleet"), "%q", path)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, out, _ := run(t, "completion", shell)
		NewWithT(t).Expect(code).To(Equal(ExitOK))
		NewWithT(t).Expect(out).To(ContainSubstring("__complete"))
	}
	_, out, _ := run(t, "__complete", "status", "--output", "")
	NewWithT(t).Expect(out).To(ContainSubstring("wide\n"))
	_, out, _ = run(t, "__complete", "orphans", "--output", "")
	NewWithT(t).Expect(out).To(And(ContainSubstring("yaml\n"), Not(ContainSubstring("wide\n"))))
	_, out, _ = run(t, "__complete", "handback", "--mode", "")
	NewWithT(t).Expect(out).To(ContainSubstring("token\nfleet\n"))
}

func TestNoColourWhereThereIsNoTerminal(t *testing.T) {
	g := NewWithT(t)
	g.Expect(styleFor(&bytes.Buffer{}).status("False")).To(Equal("False"))
	g.Expect(style(true).status("False")).To(ContainSubstring("\x1b["))
}

func TestTheReferencePageIsThatOfTheCode(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "cli.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(page)).To(Equal(Reference()), "run make generate")
	for _, path := range everyCommand(t) {
		if len(path) == 1 && path[0] != "help" {
			g.Expect(string(page)).To(ContainSubstring("\n## " + path[0] + "\n"))
		}
	}
}

func TestATerminalObeysNothingThatOthersWrote(t *testing.T) {
	g := NewWithT(t)
	const hostile = "\x1b[2J\x1b]0;title\x07\u009b31mcluster-\u202egone\x7f\n# 2. touch f\ttab"
	const shown = "[2J]0;title31mcluster-gone # 2. touch f tab"
	g.Expect(oneLine(hostile)).To(Equal(shown))

	var out, errOut bytes.Buffer
	app := &app{clock: testclock.NewFakeClock(now)}
	app.Out, app.ErrOut = &out, &errOut
	orphans := &orphanOptions{app: app}
	orphans.output.format = formatTable
	found := orphan{Kind: orphanedCluster, Namespace: "team-a", Name: "edge", ClusterNamespace: hostile}
	g.Expect(orphans.print([]orphan{found})).To(Succeed())
	out.WriteString(found.plan(defaultManagerNamespace, 0))

	f := healthy()
	f.cluster.Status.Phase = hostile
	f.registration.Status.Conditions = []metav1.Condition{{Type: fleetv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Reason", Message: hostile}}
	f.registration.Spec.Agent.ManagementCluster.Server = hostile
	output := &outputFlag{format: formatTable}
	g.Expect(app.describe(f, lookup{managerNamespace: defaultManagerNamespace}, output)).To(Succeed())
	wrong := check{Name: "Agent", Verdict: verdictWrong, Message: hostile}
	g.Expect(app.printDiagnosis(diagnosis{Checks: []check{{Name: "RBAC", Verdict: verdictUnknown, Message: hostile}, wrong}, Wrong: &wrong})).To(Succeed())

	status := &statusOptions{app: app, output: outputFlag{format: formatWide}}
	row := rowOf(&registered{cluster: *f.cluster, registration: f.registration})
	row.ClusterNamespace, row.Policy, row.FleetCluster, row.AgentVersion = hostile, hostile, hostile, hostile
	g.Expect(status.print([]statusRow{row})).To(Succeed())
	warnf(&errOut, "%s", hostile)

	g.Expect(out.String() + errOut.String()).NotTo(MatchRegexp(`[\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202e}]|(?m)^# 2`))
	g.Expect(strings.Count(out.String(), shown)).To(BeNumerically(">=", 9), "%s", out.String())
	g.Expect(errOut.String()).To(Equal(shown + "\n"))
}
