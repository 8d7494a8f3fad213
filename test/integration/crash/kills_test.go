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
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// bundle is on all clusters.
const bundle = "production"

// seedVariable names the variable of the environment with the seed of a run that is to
// be repeated. What the manager was at when it was killed differs all the same.
const seedVariable = "CAPI_FLEET_TEST_SEED"

func TestKillsAtRandomPointsLoseAndLeaveNothing(t *testing.T) {
	const (
		namespace = "kills"
		// longestRun is how long the manager is let run at most: about as long as it
		// takes to carry what there is to do through.
		longestRun = 1500 * time.Millisecond
		// fewest is the number of clusters that live at any time.
		fewest = 10
		// askEvery is the number of kills between two times at which new tokens are
		// asked for. They come at the earliest when the old ones are a minute old.
		askEvery = 40
	)
	g := NewWithT(t)
	ctx := t.Context()
	random := rand.New(rand.NewPCG(seed(t), 0))
	manager := suite.NewManager(t, lab, "manager")
	g.Expect(manager.Start(ctx)).To(Succeed())
	deployBundle(t, namespace)
	stays := addLight(t, namespace, "stays")
	suite.EventuallyReady(t, lab, stays)
	g.Eventually(stays.AgentReports).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(HaveField("Deployed", ConsistOf(bundle))))
	before := suite.Inventory(g, ctx, lab)
	g.Expect(manager.Kill()).To(Succeed())

	var all, living []*env.Workload
	add := func() {
		w := addLight(t, namespace, fmt.Sprintf("edge-%d", len(all)+1))
		all, living = append(all, w), append(living, w)
	}
	for range fewest {
		add()
	}
	for n := range kills {
		g.Expect(manager.Start(ctx)).To(Succeed())
		killTime := time.After(time.Duration(random.Int64N(int64(longestRun))))
		if n%askEvery == askEvery/4 {
			askForTokens(t, append([]*env.Workload{stays}, living...))
		}
		if i := random.IntN(len(living)); len(living) > fewest && random.IntN(2) == 0 {
			suite.DeleteCluster(t, lab, living[i])
			living = slices.Delete(living, i, i+1)
		} else {
			add()
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
	clusters := &fleet.ClusterList{}
	g.Expect(lab.Client.List(ctx, clusters, client.InNamespace(namespace))).To(Succeed())
	g.Expect(clusters.Items).To(HaveLen(1+len(living)), "one Fleet Cluster for each")
	t.Logf("%d clusters joined, %d of them were deleted meanwhile", len(all), len(all)-len(living))
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

// seed returns the seed that the environment asks for, or a new one.
func seed(t *testing.T) uint64 {
	t.Helper()
	value := rand.Uint64()
	if asked := os.Getenv(seedVariable); asked != "" {
		var err error
		if value, err = strconv.ParseUint(asked, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("repeat with %s=%d", seedVariable, value)
	return value
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
