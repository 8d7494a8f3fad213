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

// Package rollout tests how changes that restart agents spread over the clusters of a
// policy: thirty of them, on light API servers.
package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	namespace = "rollout"
	policy    = "everything"
	clusters  = 30
	// batch is ten per cent of them.
	batch = 3
)

var lab *env.Lab

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &lab, env.Options{})) }

// addClusters adds clusters that have joined by a policy with the defaults.
func addClusters(t *testing.T) []*env.Workload {
	t.Helper()
	g := NewWithT(t)
	g.Expect(lab.Client.Create(t.Context(), &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}})).To(Succeed())
	var workloads []*env.Workload
	for i := range clusters {
		workloads = append(workloads, suite.AddCluster(t, lab, fmt.Sprintf("edge-%02d", i),
			env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}}))
	}
	for _, w := range workloads {
		suite.EventuallyReady(t, lab, w)
		suite.EventuallyCondition(t, lab, w, fleetv1.AgentUpToDateCondition, metav1.ConditionTrue, fleetv1.AgentUpToDateReason)
	}
	return workloads
}

// configure changes Fleet's configuration, as its upgrade does.
func configure(t *testing.T, settings map[string]string) {
	t.Helper()
	g := NewWithT(t)
	configMap := &corev1.ConfigMap{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: "cattle-fleet-system", Name: "fleet-controller"}, configMap)).To(Succeed())
	config := map[string]any{}
	g.Expect(json.Unmarshal([]byte(configMap.Data["config"]), &config)).To(Succeed())
	for key, value := range settings {
		config[key] = value
	}
	content, err := json.Marshal(config)
	g.Expect(err).NotTo(HaveOccurred())
	configMap.Data["config"] = string(content)
	g.Expect(lab.Client.Update(t.Context(), configMap)).To(Succeed())
}

// eventuallyRolledOut waits until the policy's condition RolledOut has that reason for the
// settings that now hold, and returns the policy's status.
func eventuallyRolledOut(t *testing.T, before, reason string) fleetv1.FleetRegistrationPolicyStatus {
	t.Helper()
	found := &fleetv1.FleetRegistrationPolicy{}
	NewWithT(t).Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Name: policy}, found)).To(Succeed())
		g.Expect(found.Status.Revision).NotTo(Equal(before))
		condition := meta.FindStatusCondition(found.Status.Conditions, fleetv1.RolledOutCondition)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(reason), condition.Message)
	}).WithTimeout(rolloutPatience).WithPolling(suite.Poll).Should(Succeed())
	return found.Status
}

func policyStatus(t *testing.T) fleetv1.FleetRegistrationPolicyStatus {
	t.Helper()
	found := &fleetv1.FleetRegistrationPolicy{}
	NewWithT(t).Expect(lab.Client.Get(t.Context(), client.ObjectKey{Name: policy}, found)).To(Succeed())
	return found.Status
}

// rolloutPatience is suite.Patience for ten batches.
const rolloutPatience = 5 * suite.Patience

// history counts, at every change of a registration, how many agents were changing: those
// that were given settings and have not been reported as up to date with them.
type history struct {
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu   sync.Mutex
	most int
}

func watchHistory(t *testing.T) *history {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := &history{cancel: cancel}
	list := &fleetv1.FleetRegistrationList{}
	g.Expect(lab.Client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	changing := map[string]bool{}
	watcher, err := lab.Client.Watch(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	g.Expect(err).NotTo(HaveOccurred())
	h.group.Go(func() {
		defer watcher.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case event, open := <-watcher.ResultChan():
				reg, ok := event.Object.(*fleetv1.FleetRegistration)
				if !open || !ok || event.Type != watch.Modified {
					if ctx.Err() == nil {
						t.Errorf("the watch ended: %+v", event)
					}
					return
				}
				changing[reg.Name] = !meta.IsStatusConditionTrue(reg.Status.Conditions, fleetv1.AgentUpToDateCondition) ||
					reg.Status.Agent.Settings != decide.Settings(reg.Spec.Agent)
				h.note(changing)
			}
		}
	})
	t.Cleanup(h.end)
	return h
}

func (h *history) note(changing map[string]bool) {
	count := 0
	for _, is := range changing {
		if is {
			count++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = max(h.most, count)
}

func (h *history) end() {
	h.cancel()
	h.group.Wait()
}

// mostChanging ends the watch.
func (h *history) mostChanging() int {
	h.end()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

// change is the time in which an agent was not what its cluster was to have: from the
// write of its Deployment to the first heartbeat of the agent that came of it. Nothing in it
// is what the manager says.
type change struct {
	Cluster    string
	Begin, End time.Time
	// Started tells whether an agent was started for it. One whose Deployment goes back to
	// what it runs goes on, and there is nothing to wait for.
	Started bool
}

// writes are what the manager asked a workload cluster to change since the mark.
func writes(w *env.Workload, since kube.Mark) []lightapi.Request {
	return slices.DeleteFunc(w.Light().Writes(), func(r lightapi.Request) bool {
		return r.Time.Before(since.Received()) || !strings.Contains(r.UserAgent, "cluster.x-k8s.io/")
	})
}

// heartbeats returns when heartbeats of each cluster's agent came in since the mark.
func heartbeats(t *testing.T, since kube.Mark) map[string][]time.Time {
	t.Helper()
	events, err := lab.Management().AuditLog().Since(t.Context(), since)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	beats := map[string][]time.Time{}
	for _, e := range events {
		if e.Group == fleet.GroupVersion.Group && e.Resource == "clusters" && e.Subresource == "status" && e.Code == http.StatusOK &&
			strings.HasPrefix(e.User, "system:serviceaccount:"+env.ManagerNamespace+":cluster-") {
			beats[e.Name] = append(beats[e.Name], e.Received)
		}
	}
	for _, times := range beats {
		slices.SortFunc(times, time.Time.Compare)
	}
	return beats
}

// changes returns what changed since the mark, by the requests to both clusters and the
// starts of agents.
func changes(t *testing.T, workloads []*env.Workload, since kube.Mark) []change {
	t.Helper()
	beats := heartbeats(t, since)
	var all []change
	for _, w := range workloads {
		written := slices.DeleteFunc(writes(w, since), func(r lightapi.Request) bool {
			return r.Code != http.StatusOK || !strings.HasSuffix(r.Path, "/deployments/"+agent.Name)
		})
		for i, write := range written {
			next := time.Now()
			if i+1 < len(written) {
				next = written[i+1].Time
			}
			all = append(all, changeOf(t, w, write.Time, next, i+1 == len(written), beats[w.Name]))
		}
	}
	return all
}

// changeOf returns the change from a write of a Deployment on, of which next is the one
// after it, or now. What did not start by then went on to change.
func changeOf(t *testing.T, w *env.Workload, begin, next time.Time, last bool, beats []time.Time) change {
	t.Helper()
	for _, start := range w.AgentStarts() {
		if start.Time.Before(begin) || !start.Time.Before(next) {
			continue
		}
		reported := slices.IndexFunc(beats, start.Time.Before)
		NewWithT(t).Expect(reported).To(BeNumerically(">=", 0), "%s has not reported since it was changed", w.Name)
		return change{w.Name, begin, beats[reported], true}
	}
	if last {
		return change{w.Name, begin, begin, false}
	}
	return change{w.Name, begin, next, false}
}

// allStarted holds where every change made a new agent.
var allStarted = HaveEach(HaveField("Started", true))

// inBatches tells whether there was no moment at which more than a batch was changing.
func inBatches(changes []change) bool {
	for _, at := range changes {
		together := 0
		for _, other := range changes {
			if !other.Begin.After(at.Begin) && at.Begin.Before(other.End) {
				together++
			}
		}
		if together > batch {
			return false
		}
	}
	return true
}

func registrations(t *testing.T) []fleetv1.FleetRegistration {
	t.Helper()
	list := &fleetv1.FleetRegistrationList{}
	NewWithT(t).Expect(lab.Client.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// withImage returns the names of the clusters whose agent has, or is to have, the image.
func withImage(t *testing.T, image string) []string {
	t.Helper()
	var names []string
	for _, reg := range registrations(t) {
		if reg.Spec.Agent.Image == image {
			names = append(names, reg.Name)
		}
	}
	return names
}

// starts returns how often the agents of the clusters have started.
func starts(workloads []*env.Workload) map[string]int {
	counts := map[string]int{}
	for _, w := range workloads {
		counts[w.Name] = len(w.AgentStarts())
	}
	return counts
}

// onceMore adds one to each count.
func onceMore(counts map[string]int) map[string]int {
	more := map[string]int{}
	for name, count := range counts {
		more[name] = count + 1
	}
	return more
}

// nextTokenDir is where agents find their token by the manifests of another manager.
func nextTokenDir() string {
	return filepath.Join(lab.Dir, "tokens", "next", "{namespace}")
}
