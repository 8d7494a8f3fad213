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
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	capiAPI    = "cluster.x-k8s.io/v1beta2"
	oldCAPIAPI = "cluster.x-k8s.io/v1beta1"
	fleetAPI   = "fleet.cattle.io/v1alpha1"
	ownAPI     = "fleet.addons.cluster.x-k8s.io/v1alpha1"
)

// discoveryOf stands in for a management cluster that serves some APIs.
type discoveryOf struct {
	mu       sync.Mutex
	served   map[string][]string
	err      error
	requests int
}

func (d *discoveryOf) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	if d.err != nil {
		return nil, d.err
	}
	names, ok := d.served[groupVersion]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	list := &metav1.APIResourceList{GroupVersion: groupVersion}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

func (d *discoveryOf) serve(groupVersion string, names ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.served == nil {
		d.served = map[string][]string{}
	}
	d.served[groupVersion] = names
}

func (d *discoveryOf) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *discoveryOf) requestCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests
}

// logLines collects what is logged.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) into(ctx context.Context) context.Context {
	return ctrl.LoggerInto(ctx, funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{Verbosity: 2}))
}

func (l *logLines) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// waiting is an apiWaiter that runs.
type waiting struct {
	*discoveryOf
	*logLines
	clock *testclock.FakeClock
	setUp chan struct{}
	ended chan error
	stop  context.CancelFunc
}

func startWaiting(t *testing.T, d *discoveryOf, setupErr error) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiting{
		discoveryOf: d,
		logLines:    &logLines{},
		clock:       testclock.NewFakeClock(time.Now()),
		setUp:       make(chan struct{}, 10),
		ended:       make(chan error, 1),
		stop:        cancel,
	}
	waiter := &apiWaiter{
		discovery: d,
		interval:  apiPollInterval,
		clock:     w.clock,
		setup: func(context.Context) error {
			w.setUp <- struct{}{}
			return setupErr
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.ended <- waiter.Start(w.into(ctx))
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// look lets the waiter look once more, and returns when it sleeps again.
func (w *waiting) look(g *WithT) {
	g.Eventually(w.clock.HasWaiters).Should(BeTrue())
	before := w.requestCount()
	w.clock.Step(2 * apiPollInterval)
	g.Eventually(func() bool { return w.requestCount() > before && w.clock.HasWaiters() }).Should(BeTrue())
}

func TestControllersStartAtOnceWhenEverythingIsServed(t *testing.T) {
	g := NewWithT(t)
	d := &discoveryOf{}
	d.serve(capiAPI, "clusters", "machines")
	d.serve(fleetAPI, "clusters")
	d.serve(ownAPI, "fleetregistrations", "fleetregistrationpolicies")

	w := startWaiting(t, d, nil)

	g.Eventually(w.ended).Should(Receive(BeNil()))
	g.Expect(w.setUp).To(HaveLen(1))
	g.Expect(w.with("")).To(BeEmpty())
	g.Expect(d.requestCount()).To(Equal(3), "one for each group and version")
}

func TestMissingAPIsAreSaidOnceAndControllersStartWhenTheyAppear(t *testing.T) {
	g := NewWithT(t)
	d := &discoveryOf{}
	d.serve(ownAPI, "fleetregistrations", "fleetregistrationpolicies")
	w := startWaiting(t, d, nil)

	for range 5 {
		w.look(g)
	}
	lines := w.with("Waiting for APIs")
	g.Expect(lines).To(HaveLen(1))
	g.Expect(lines[0]).To(And(
		ContainSubstring("clusters.cluster.x-k8s.io/v1beta2"), ContainSubstring("Cluster API 1.11 or newer"),
		ContainSubstring("clusters.fleet.cattle.io/v1alpha1"), ContainSubstring("Rancher Fleet"),
		Not(ContainSubstring("fleetregistrations")), Not(ContainSubstring("v1beta1"))))
	g.Expect(w.setUp).To(BeEmpty())

	d.serve(capiAPI, "clusters")
	w.look(g)
	w.look(g)
	lines = w.with("Waiting for APIs")
	g.Expect(lines).To(HaveLen(2))
	g.Expect(lines[1]).To(And(ContainSubstring("fleet.cattle.io"), Not(ContainSubstring("clusters.cluster.x-k8s.io"))))
	g.Expect(w.setUp).To(BeEmpty())

	d.serve(fleetAPI, "clusters")
	w.clock.Step(2 * apiPollInterval)
	g.Eventually(w.ended).Should(Receive(BeNil()))
	g.Expect(w.setUp).To(HaveLen(1))
	g.Expect(w.with("All APIs are served now")).To(HaveLen(1))
}

func TestWaitingDoesNotSpin(t *testing.T) {
	g := NewWithT(t)
	d := &discoveryOf{}
	w := startWaiting(t, d, nil)
	g.Eventually(w.clock.HasWaiters).Should(BeTrue())
	perLook := d.requestCount()
	g.Expect(perLook).To(BeNumerically("<=", 4))

	w.clock.Step(apiPollInterval - time.Nanosecond)
	g.Consistently(d.requestCount, "50ms").Should(Equal(perLook))

	w.clock.Step(apiPollInterval)
	g.Eventually(d.requestCount).Should(Equal(2 * perLook))
}

func TestClusterAPIWithoutV1beta2HasToBeUpgraded(t *testing.T) {
	g := NewWithT(t)
	d := &discoveryOf{}
	d.serve(oldCAPIAPI, "clusters")
	d.serve(fleetAPI, "clusters")
	d.serve(ownAPI, "fleetregistrations", "fleetregistrationpolicies")

	w := startWaiting(t, d, nil)
	w.look(g)

	lines := w.with("Waiting for APIs")
	g.Expect(lines).To(HaveLen(1))
	g.Expect(lines[0]).To(ContainSubstring("needs Cluster API 1.11 or newer, the installed one serves only v1beta1"))
	g.Expect(w.setUp).To(BeEmpty())
}

func TestGroupOfClusterAPIWithoutClustersIsMissing(t *testing.T) {
	g := NewWithT(t)
	d := &discoveryOf{}
	d.serve(capiAPI, "machines")
	d.serve(fleetAPI, "clusters")
	d.serve(ownAPI, "fleetregistrations", "fleetregistrationpolicies")

	w := startWaiting(t, d, nil)
	w.look(g)

	g.Expect(w.with("clusters.cluster.x-k8s.io/v1beta2")).To(HaveLen(1))
	g.Expect(w.setUp).To(BeEmpty())
}

func TestFailingDiscoveryIsSaidOnceAndIsNotTakenForMissingAPIs(t *testing.T) {
	g := NewWithT(t)
	d := &discoveryOf{}
	d.fail(errors.New("connection refused"))
	w := startWaiting(t, d, nil)

	for range 3 {
		w.look(g)
	}
	g.Expect(w.with("connection refused")).To(HaveLen(1))
	g.Expect(w.with("Waiting for APIs")).To(BeEmpty())
	g.Expect(w.setUp).To(BeEmpty())
}

func TestFailingSetupEndsTheManager(t *testing.T) {
	g := NewWithT(t)
	d := &discoveryOf{}
	d.serve(capiAPI, "clusters")
	d.serve(fleetAPI, "clusters")
	d.serve(ownAPI, "fleetregistrations", "fleetregistrationpolicies")
	setupErr := errors.New("no such index")

	w := startWaiting(t, d, setupErr)

	g.Eventually(w.ended).Should(Receive(MatchError(setupErr)))
}

func TestWaitingEndsWithTheManager(t *testing.T) {
	g := NewWithT(t)
	w := startWaiting(t, &discoveryOf{}, nil)
	g.Eventually(w.clock.HasWaiters).Should(BeTrue())

	w.stop()

	g.Eventually(w.ended).Should(Receive(BeNil()))
	g.Expect(w.setUp).To(BeEmpty())
}
