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
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// Formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// outputFlag is the flag -o.
type outputFlag struct {
	format  string
	formats []string
}

func (o *outputFlag) add(command *cobra.Command, formats ...string) {
	o.format, o.formats = formatTable, formats
	command.Flags().VarP(o, "output", "o", "output format: "+strings.Join(formats, ", "))
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (o *outputFlag) String() string { return o.format }

// Type implements pflag.Value.
func (o *outputFlag) Type() string { return "format" }

// Set implements pflag.Value.
func (o *outputFlag) Set(value string) error {
	if !slices.Contains(o.formats, value) {
		return fmt.Errorf("must be one of %s", strings.Join(o.formats, ", "))
	}
	o.format = value
	return nil
}

// structured tells whether the output is for programs.
func (o *outputFlag) structured() bool { return o.format == formatJSON || o.format == formatYAML }

// print prints value for programs.
func (o *outputFlag) print(out io.Writer, value any) error {
	var text []byte
	var err error
	if o.format == formatYAML {
		text, err = yaml.Marshal(value)
	} else {
		text, err = json.MarshalIndent(value, "", "  ")
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// nothing stands in a table where there is nothing to say.
const nothing = "-"

func orNothing(s string) string { return cmp.Or(oneLine(s), nothing) }

// style colours words, or not.
type style bool

// styleFor colours what a terminal shows, unless NO_COLOR is set (no-color.org).
func styleFor(out io.Writer) style {
	file, ok := out.(*os.File)
	return style(ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd())))
}

// The escape sequences all have the same length, so that columns stay aligned where every
// cell of a column has one.
const (
	plain  = "39"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (s style) paint(colour, text string) string {
	if !s {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// status colours the status of a condition that should be True.
func (s style) status(status string) string {
	switch metav1.ConditionStatus(status) {
	case metav1.ConditionTrue:
		return s.paint(green, status)
	case metav1.ConditionFalse:
		return s.paint(red, status)
	case metav1.ConditionUnknown:
		return s.paint(yellow, status)
	}
	return s.paint(plain, orNothing(status))
}

// table prints rows in columns. Its cells are one line each, see oneLine.
func table(out io.Writer, rows [][]string) error {
	writer := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(writer, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return writer.Flush()
}

// ago says how long ago a time is.
func ago(now time.Time, then *metav1.Time) string {
	if then.IsZero() {
		return nothing
	}
	return duration.HumanDuration(max(0, now.Sub(then.Time))) + " ago"
}

// until says how far a time is off.
func until(now time.Time, then *metav1.Time) string {
	switch {
	case then.IsZero():
		return nothing
	case !then.After(now):
		return "expired"
	}
	return "in " + duration.HumanDuration(then.Sub(now))
}

func timeOrNil(t metav1.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
