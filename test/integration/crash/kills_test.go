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

package crash

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// bundle is on all clusters.
const bundle = "production"

func TestKillsAtRandomPointsLoseAndLeaveNothing(t *testing.T) {
	const (
		namespace = "kills"
		// longestRun is how long the manager is let run at most: about as long as it
		// takes to carry what there is to do through.
		longestRun = 1500 * time.Millisecond
		// fewest is the number of clusters that live at any time.
		fewest = 10
		// askEvery is the mean number of kills between two times at which new tokens are
		// asked for. They come at the earliest when the old ones are a minute old, so that
		// the last are asked for after half of the kills.
		askEvery = 8
	)
	g := NewWithT(t)
	ctx := t.Context()
	random := suite.Random(t)
	manager := suite.NewManager(t, lab, "manager")
	g.Expect(manager.Start(ctx)).To(Succeed())
	deployBundle(t, namespace)
	stays := addReal(t, namespace, "stays")
	suite.EventuallyReady(t, lab, stays)
	g.Eventually(stays.AgentReports).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(HaveField("Deployed", ConsistOf(bundle))))
	before := suite.Inventory(g, ctx, lab)
	g.Expect(manager.Kill()).To(Succeed())

	var all, living, out []*env.Workload
	add := func() {
		addOne := addLight
		if len(all) == 0 {
			addOne = addReal
		}
		w := addOne(t, namespace, fmt.Sprintf("edge-%d", len(all)+1))
		all, living = append(all, w), append(living, w)
	}
	for range fewest {
		add()
	}
	for n := range kills {
		g.Expect(manager.Start(ctx)).To(Succeed())
		killTime := time.After(time.Duration(random.Int64N(int64(longestRun))))
		if n < kills/2 && random.IntN(askEvery) == 0 {
			askForTokens(t, append([]*env.Workload{stays}, living...))
		}
		i, what := random.IntN(len(living)), random.IntN(4)
		if len(living) <= fewest || what > 1 {
			add()
		} else {
			if what == 0 {
				suite.DeleteCluster(t, lab, living[i])
			} else {
				optOut(t, living[i])
				out = append(out, living[i])
			}
			living = slices.Delete(living, i, i+1)
		}
		<-killTime
		g.Expect(manager.Kill()).To(Succeed())
	}

	g.Expect(manager.Start(ctx)).To(Succeed())
	expectWhole(t, stays)
	for _, w := range all {
		if slices.Contains(living, w) {
			expectWhole(t, w)
		} else {
			suite.EventuallyGone(t, lab, w)
		}
	}
	for _, w := range out {
		expectLeft(t, w)
	}
	clusters := &fleet.ClusterList{}
	g.Expect(lab.Client.List(ctx, clusters, client.InNamespace(namespace))).To(Succeed())
	g.Expect(clusters.Items).To(HaveLen(1+len(living)), "one Fleet Cluster for each")
	t.Logf("%d clusters joined; meanwhile %d of them opted out, and %d were deleted", len(all), len(out), len(all)-len(living)-len(out))
	removeAll(t, all, before)
}

// expectWhole fails unless the cluster is registered, with the credential that was
// asked for, and its agent ran on all the time.
func expectWhole(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	reg := suite.EventuallyReady(t, lab, w)
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), w.Key(), reg)).To(Succeed())
		_, asked := reg.Annotations[fleetv1.RotateAnnotation]
		g.Expect(asked).To(Equal(reg.Status.Credential.Rotation != ""), "the credential is the one that was asked for")
		reports := w.AgentReports()
		g.Expect(reports).To(HaveLen(1), "the agent was not restarted")
		g.Expect(reports[0].Deployed).To(ConsistOf(bundle))
		g.Expect(reports[0].Uninstalled).To(BeEmpty())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed(), "%s", w.Key())
}

// optOut takes a Cluster out of Fleet, which lives on.
func optOut(t *testing.T, w *env.Workload) {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	out := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"false"}}}`, fleetv1.RegisterLabel)
	if err := lab.Client.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, out)); err != nil {
		t.Fatal(err)
	}
}

// expectLeft fails unless the cluster that opted out has all that was deployed to it, and
// no agent.
func expectLeft(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	for _, report := range w.AgentReports() {
		g.Expect(report.Uninstalled).To(BeEmpty(), "%s", w.Key())
		if slices.Contains(report.Deployed, bundle) {
			suite.EventuallyDeployed(t, w, bundle)
		}
	}
	g.Expect(w.Client.Get(t.Context(), suite.AgentKey, &appsv1.Deployment{})).To(Satisfy(apierrors.IsNotFound), "%s", w.Key())
}

// deployBundle makes a Bundle for all clusters of the namespace.
func deployBundle(t *testing.T, namespace string) {
	t.Helper()
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		suite.Bundle(namespace, bundle),
	} {
		if err := lab.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// askForTokens asks for a new token for each cluster that has a registration by now.
func askForTokens(t *testing.T, workloads []*env.Workload) {
	t.Helper()
	for _, w := range workloads {
		reg := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
		asked := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, fleetv1.RotateAnnotation, time.Now())
		err := lab.Client.Patch(t.Context(), reg, client.RawPatch(types.MergePatchType, asked))
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}
