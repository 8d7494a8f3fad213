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

// Package suite is what the integration tests share: one lab for each package of
// tests, the waits that most tests need, and looks at what the manager did. It asserts nothing about a single behaviour.
package suite

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

const (
	// Patience is how long a test waits for what should happen soon. It is long, so
	// that a loaded machine does not fail a test; nothing waits for it to pass.
	Patience = time.Minute

	// Poll is the time between two looks.
	Poll = 50 * time.Millisecond

	// startTimeout bounds the start of a lab, which may build all that it runs.
	startTimeout = 40 * time.Minute
)

// Main starts a lab into *lab, runs the tests and returns the exit code. The
// manager is built with the race detector.
func Main(m *testing.M, lab **env.Lab, opts env.Options) (code int) {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	opts.Race = true
	if testing.Verbose() {
		opts.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	started, err := env.Start(ctx, opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the lab:", err)
		return 1
	}
	*lab = started
	defer func() {
		if err := started.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing the lab:", err)
			code = 1
		}
	}()
	return m.Run()
}

// AddCluster adds a cluster. It stays until the lab of the package ends, since its
// removal would take longer than most tests.
func AddCluster(t *testing.T, lab *env.Lab, name string, opts env.ClusterOptions) *env.Workload {
	t.Helper()
	workload, err := lab.AddCluster(t.Context(), name, opts)
	if err != nil {
		t.Fatalf("adding cluster %s: %v", name, err)
	}
	return workload
}

// EventuallyReady waits until the cluster's registration is Ready, and its Cluster was
// told so, which is the last write. It returns the registration.
func EventuallyReady(t *testing.T, lab *env.Lab, workload *env.Workload) *fleetv1.FleetRegistration {
	t.Helper()
	g := NewWithT(t)
	registration := EventuallyCondition(t, lab, workload, fleetv1.ReadyCondition, metav1.ConditionTrue, fleetv1.ReadyReason)
	g.Eventually(func(g Gomega) {
		cluster := &clusterv1.Cluster{}
		g.Expect(lab.Client.Get(t.Context(), workload.Key(), cluster)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(cluster.Status.Conditions, fleetv1.FleetRegisteredCondition)).To(BeTrue())
	}).WithTimeout(Patience).WithPolling(Poll).Should(Succeed())
	return registration
}

// EventuallyCondition waits until a condition of the cluster's registration has a status
// and a reason and returns the registration.
func EventuallyCondition(t *testing.T, lab *env.Lab, workload *env.Workload, condition string, status metav1.ConditionStatus, reason string) *fleetv1.FleetRegistration {
	t.Helper()
	g := NewWithT(t)
	registration := &fleetv1.FleetRegistration{}
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), workload.Key(), registration)).To(Succeed())
		found := meta.FindStatusCondition(registration.Status.Conditions, condition)
		g.Expect(found).NotTo(BeNil(), "no condition %s", condition)
		g.Expect([]string{string(found.Status), found.Reason}).To(Equal([]string{string(status), reason}), "message: %s", found.Message)
	}).WithTimeout(Patience).WithPolling(Poll).Should(Succeed())
	return registration
}

// AgentKey is the key of the agent's Secret and Deployment in a workload cluster.
var AgentKey = client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}

// AgentSecret returns the agent's Secret in the workload cluster. It fails where there
// is none.
func AgentSecret(g Gomega, ctx context.Context, workload *env.Workload) *corev1.Secret {
	secret := &corev1.Secret{}
	g.Expect(workload.Client.Get(ctx, AgentKey, secret)).To(Succeed())
	return secret
}

// Mark returns the place in the audit log of the management cluster behind all that
// happened so far.
func Mark(t *testing.T, lab *env.Lab) kube.Mark {
	t.Helper()
	mark, err := lab.Management().AuditLog().Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

// ManagerEvents returns what managers asked the management cluster for since the mark.
func ManagerEvents(t *testing.T, lab *env.Lab, since kube.Mark) []kube.Event {
	t.Helper()
	events, err := lab.Management().AuditLog().Since(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	return kube.By(env.ManagerUser, events)
}

// Status returns the lab's view of the cluster: its times, and what the manager
// wrote for it.
func Status(t *testing.T, lab *env.Lab, workload *env.Workload) env.ClusterStatus {
	t.Helper()
	statuses, err := lab.Status(t.Context())
	if err != nil {
		t.Fatalf("reading the lab's status: %v", err)
	}
	for _, status := range statuses {
		if status.Namespace == workload.Namespace && status.Name == workload.Name {
			return status
		}
	}
	t.Fatalf("the lab has no cluster %s", workload.Key())
	return env.ClusterStatus{}
}
