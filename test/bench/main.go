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

// Command bench measures what registration costs and how fast it is:
//
//	go run ./test/bench
//	go run ./test/bench --short
//
// It starts labs of its own and prints the figures as Markdown, and with --json as JSON too.
// It fails where a figure could not be had, and never because of what it is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// sizes say how much is measured.
type sizes struct {
	// clusters are the numbers of registered clusters at which the manager is looked at,
	// in the order of their size.
	clusters []int
	// atOnce is the number of light clusters whose API servers begin to answer together.
	atOnce int
	// real is the same for real API servers, and singles the number of those that do so one
	// after the other.
	real, singles int
	// genuine is the number of clusters that Cluster API makes.
	genuine int
	// stock is the number of clusters that each way into Fleet is tried with.
	stock int
	// secrets is the number of Secrets that have nothing to do with us.
	secrets int
	// window is how long a manager at rest is looked at.
	window time.Duration
	// renewals are the times in which all renewals fall due, one after the other.
	renewals []time.Duration
}

// short is just enough to see that every figure comes about.
var short = sizes{
	clusters: []int{25, 40}, atOnce: 10, real: 2, singles: 1, genuine: 1, stock: 1, secrets: 100,
	window: 5 * time.Second, renewals: []time.Duration{shortestRenewals},
}

func main() {
	ctrl.SetLogger(log.Log.WithSink(log.NullLogSink{})) // the processes have logs of their own
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once, and with it its processes.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var size sizes
	var brief bool
	var jsonPath string
	var numbers []int
	var fleets programs
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.IntSliceVar(&size.clusters, "clusters", []int{1000, 3000}, "numbers of registered clusters, ascending")
	flags.IntVar(&size.atOnce, "at-once", 100, "light clusters that come up at once")
	flags.IntVar(&size.real, "real", 10, "real API servers that come up at once")
	flags.IntVar(&size.singles, "singles", 5, "real API servers that come up one after the other")
	flags.IntVar(&size.genuine, "genuine", 10, "clusters that Cluster API makes")
	flags.IntVar(&size.stock, "stock", 3, "clusters for each side of figure 7, one after the other")
	flags.IntVar(&size.secrets, "secrets", 30000, "unrelated Secrets")
	flags.DurationVar(&size.window, "window", 2*time.Minute, "how long the manager is looked at while it rests")
	flags.DurationSliceVar(&size.renewals, "renewals", []time.Duration{5 * time.Minute}, "times in which all renewals fall due, the last one also with dead clusters")
	flags.IntSliceVar(&numbers, "figures", []int{1, 2, 3, 4, 5, 6, 7}, "figures to measure")
	flags.StringVar(&fleets.controller, "fleet-controller", "", "Fleet's own controller, a program, for figure 7")
	flags.StringVar(&fleets.agent, "fleet-agent", "", "Fleet's own agent, a program, for figure 7")
	flags.StringVar(&fleets.crds, "fleet-crds", os.Getenv("FLEET_CRDS"), "file with Fleet's own CRDs, for figure 7; by default what FLEET_CRDS names")
	flags.BoolVar(&brief, "short", false, "measure little, to see that every figure comes about")
	flags.StringVar(&jsonPath, "json", "", "file for the report as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if brief {
		size = short
	}
	if err := errors.Join(size.check(), fleets.check()); err != nil {
		return err
	}

	b := &bench{size: size, programs: fleets, wanted: numbers, log: func(format string, args ...any) {
		fmt.Fprintf(progress, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
	}}
	report := newReport()
	report.Arguments = withoutFolders(args)
	// Those that take the machine's whole power come last, on their own.
	var failure error
	for _, part := range []func(context.Context) error{b.genuineClusters, b.besideStock, b.realClusters, b.throughputs, b.unlimitedManager} {
		if failure = part(ctx); failure != nil {
			break
		}
	}
	// A long run that failed has found out something all the same.
	report.Figures = b.sorted()
	report.write(out)
	if jsonPath != "" {
		failure = errors.Join(failure, report.writeJSON(jsonPath))
	}
	return errors.Join(failure, report.check(len(numbers)))
}

// withoutFolders leaves of each path in the arguments only the last part: where it was is
// nobody's business who reads the report.
func withoutFolders(args []string) []string {
	short := make([]string, 0, len(args))
	for _, arg := range args {
		flag, value, set := strings.Cut(arg, "=")
		if set {
			short = append(short, flag+"="+filepath.Base(value))
		} else {
			short = append(short, filepath.Base(arg))
		}
	}
	return short
}

func (s *sizes) check() error {
	switch {
	case len(s.clusters) == 0 || !slices.IsSorted(s.clusters) || s.clusters[0] < deadShare:
		return fmt.Errorf("--clusters: want ascending numbers of at least %d", deadShare)
	case len(s.renewals) == 0 || slices.Min(s.renewals) < shortestRenewals:
		return fmt.Errorf("--renewals: want times of at least %s", shortestRenewals)
	case min(s.atOnce, s.real, s.singles, s.genuine, s.stock, s.secrets) < 1 || s.window <= 0:
		return errors.New("every number must be at least 1")
	}
	return nil
}

// bench collects figures.
type bench struct {
	size     sizes
	programs programs
	wanted   []int
	log      func(format string, args ...any)
	figures  map[int]*Figure
}

// wants tells whether any of the figures is wanted.
func (b *bench) wants(numbers ...int) bool {
	return slices.ContainsFunc(numbers, func(n int) bool { return slices.Contains(b.wanted, n) })
}

// figure begins a figure, or continues it.
func (b *bench) figure(number int) *Figure {
	if b.figures == nil {
		b.figures = map[int]*Figure{}
	}
	if b.figures[number] == nil {
		figure := definitions[number]
		figure.Number = number
		figure.Load[0] = loadAverage()
		b.figures[number] = &figure
	}
	b.figures[number].Load[1] = loadAverage()
	return b.figures[number]
}

// sorted returns the figures that were wanted, by number.
func (b *bench) sorted() []*Figure {
	var figures []*Figure
	for _, number := range slices.Sorted(slices.Values(b.wanted)) {
		if figure := b.figures[number]; figure != nil {
			figures = append(figures, figure)
		}
	}
	return figures
}

const lightHarness = "one real etcd, kube-apiserver and kube-controller-manager; workload APIs on test/lightapi in the program's own process; heartbeats every 15 minutes by the program"

var definitions = map[int]Figure{
	1: {
		Title:   "Latency: the workload API answers ► credential and Deployment in place",
		Harness: "real API servers with agentsim, test/lightapi in the program's process, and Cluster API's four managers with its in-memory backend, as each row says",
		User:    "nobody", Verbs: "none, these are times",
	},
	2: {
		Title:   "Cost of a registration on the management cluster, from selection to Ready",
		Harness: "real API servers on both sides, with agentsim; the audit log",
		User:    managerUser, Verbs: allVerbs,
	},
	3: {Title: "Throughput", Harness: lightHarness, User: managerUser + ", and the same one for the bare client", Verbs: allVerbs},
	4: {Title: "At rest", Harness: lightHarness, User: managerUser, Verbs: allVerbs},
	5: {Title: "Restart of the manager", Harness: lightHarness, User: managerUser, Verbs: allVerbs},
	6: {Title: "Renewals, and clusters that are dead", Harness: lightHarness, User: managerUser, Verbs: allVerbs},
	7: {
		Title:   "Beside Fleet's own registration",
		Harness: "real API servers on both sides, Fleet's own controller, agent management and agent; a cluster whose API server answers is labelled, or imported by a Fleet Cluster with spec.kubeConfigSecret",
		User:    "everybody but the lab, by the user agent",
		Verbs:   allWrites + ". Objects are what is there afterwards and was not before, but for pods, Events and Leases",
	},
}
