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

// Package deletion tests how registrations end: together with their Cluster, whatever
// state the workload cluster and the manager are in, and without it.
package deletion

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// namespace has the Clusters of all tests that do not delete it.
const namespace = "deletion"

// bound is how long a deletion takes at most, whatever is wrong: the time that Fleet
// is given, and that of a visit which is under way.
const bound = 2*time.Minute + 30*time.Second

// lab is shared by the tests of the package.
var lab *env.Lab

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &lab, env.Options{})) }

// add adds a labelled Cluster on a light API server.
func add(t *testing.T, namespace, name string, change ...func(*env.ClusterOptions)) *env.Workload {
	t.Helper()
	opts := env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}}
	for _, c := range change {
		c(&opts)
	}
	return suite.AddCluster(t, lab, name, opts)
}

// addMany adds n labelled Clusters on light API servers at the same time.
func addMany(t *testing.T, namespace, name string, n int, change func(*env.ClusterOptions)) []*env.Workload {
	t.Helper()
	workloads := make([]*env.Workload, n)
	group, ctx := errgroup.WithContext(t.Context())
	for i := range workloads {
		opts := env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}}
		change(&opts)
		group.Go(func() (err error) {
			workloads[i], err = lab.AddCluster(ctx, fmt.Sprintf("%s-%d", name, i+1), opts)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return workloads
}

// makeNamespace makes the namespace of most tests where it is missing.
func makeNamespace(t *testing.T) {
	t.Helper()
	obj := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := lab.Client.Create(t.Context(), obj); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

// expectGone fails unless the Cluster and its registration are gone within the bound.
func expectGone(t *testing.T, w *env.Workload) {
	t.Helper()
	for _, obj := range []client.Object{&clusterv1.Cluster{}, &fleetv1.FleetRegistration{}} {
		NewWithT(t).Eventually(func() error { return lab.Client.Get(t.Context(), w.Key(), obj) }).
			WithTimeout(bound).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound), "%T %s", obj, w.Key())
	}
}

// expectAgentRemoved fails where anything of the agent is left.
func expectAgentRemoved(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	for _, obj := range agent.Leftovers() {
		g.Expect(w.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)).To(Satisfy(apierrors.IsNotFound), "%T of %s", obj, w.Name)
	}
}

// expectInventory fails unless the objects on the management cluster are the same as
// before. Namespaces take a moment to go.
func expectInventory(t *testing.T, before []string) {
	t.Helper()
	NewWithT(t).Eventually(suite.Inventory).WithContext(t.Context()).WithArguments(lab).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(before))
}

// patchCluster patches the Cluster, also when the test is over.
func patchCluster(t *testing.T, w *env.Workload, patch string) {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	ctx := context.WithoutCancel(t.Context())
	err := lab.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(patch)))
	NewWithT(t).Expect(client.IgnoreNotFound(err)).To(Succeed())
}

// removeLabel takes the opt-in label off the Cluster.
func removeLabel(t *testing.T, w *env.Workload) {
	t.Helper()
	patchCluster(t, w, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, fleetv1.RegisterLabel))
}
