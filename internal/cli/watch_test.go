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
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testclock "k8s.io/utils/clock/testing"
)

// patience is how long a busy machine may take for what is done at once.
const patience = 10 * time.Second

// watched is a watch by a clock that stands still, and what it printed.
type watched struct {
	clock       *testclock.FakeClock
	out, errOut bytes.Buffer
	// looks counts, and answers says what the next looks find: rows, an error, or that
	// somebody interrupts the program.
	looks   int
	answers []any
	ended   chan error
}

func watch(t *testing.T, ctx context.Context, answers ...any) *watched {
	t.Helper()
	w := &watched{clock: testclock.NewFakeClock(now), answers: answers, ended: make(chan error, 1)}
	o := &statusOptions{
		app:    &app{IOStreams: genericiooptions.IOStreams{Out: &w.out, ErrOut: &w.errOut}, clock: w.clock},
		output: outputFlag{format: formatTable},
	}
	go func() {
		w.ended <- o.follow(ctx, []statusRow{{Name: "edge-1", Joined: "False", Reason: "AgentSilent"}}, w.look)
	}()
	return w
}

func (w *watched) look(ctx context.Context) ([]statusRow, error) {
	answer := w.answers[w.looks]
	w.looks++
	switch answer := answer.(type) {
	case error:
		return nil, answer
	case context.CancelFunc:
		answer()
		return nil, ctx.Err()
	}
	return answer.([]statusRow), nil
}

// pass waits until the watch waits, and lets so much time pass.
func (w *watched) pass(t *testing.T, d time.Duration) {
	t.Helper()
	NewWithT(t).Eventually(w.clock.HasWaiters).WithTimeout(patience).Should(BeTrue())
	w.clock.Step(d)
}

// rests fails unless the watch waits, having looked so often.
func (w *watched) rests(t *testing.T, looks int) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(w.clock.HasWaiters).WithTimeout(patience).Should(BeTrue())
	g.Expect(w.looks).To(Equal(looks))
}

var (
	errRefused = errors.New("dial tcp 10.0.0.1:6443: connect: connection refused")
	arrived    = []statusRow{{Name: "edge-1", Joined: "True", Reason: "Ready"}}
)

func TestWatchGoesOnAfterErrorsThatPassAndSaysThemOnce(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := watch(t, ctx, errRefused, apierrors.NewServiceUnavailable("starting"), apierrors.NewInternalError(errRefused), errRefused, errRefused, arrived, errRefused, arrived)
	for looks, wait := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		w.pass(t, wait-1)
		w.rests(t, looks)
		w.pass(t, 1)
	}
	w.rests(t, 6)
	g.Expect(w.errOut.String()).To(Equal("Error: " + errRefused.Error() + "; trying again\n"))
	g.Expect(w.out.String()).To(MatchRegexp(`(?m)^edge-1 +True +Ready`))

	w.pass(t, watchInterval)
	w.pass(t, 2*watchInterval)
	w.rests(t, 8)
	g.Expect(strings.Count(w.errOut.String(), "\n")).To(Equal(2), "another outage is said again")

	cancel()
	g.Eventually(w.ended).WithTimeout(patience).Should(Receive(BeNil()))
}

func TestWatchThatIsInterruptedEndsWithoutAnError(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := watch(t, ctx, cancel)
	w.pass(t, watchInterval)
	g.Eventually(w.ended).WithTimeout(patience).Should(Receive(BeNil()))
	g.Expect(w.errOut.String()).To(BeEmpty())
}

func TestWatchEndsWhereTryingAgainDoesNotHelp(t *testing.T) {
	clusters := schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "clusters"}
	for name, err := range map[string]error{
		"no rights":   apierrors.NewForbidden(clusters, "", errors.New("no")),
		"no user":     apierrors.NewUnauthorized("no"),
		"no kind":     &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: clusters.Group, Kind: "Cluster"}},
		"no Cluster":  noClusterError{Namespace: "team-a", Name: "edge-1"},
		"wrong usage": usagef("no"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := watch(t, t.Context(), err)
			w.pass(t, watchInterval)
			g.Eventually(w.ended).WithTimeout(patience).Should(Receive(MatchError(err)))
			g.Expect(w.errOut.String()).To(BeEmpty(), "the program says it at the end")
		})
	}
}
