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

package repair

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// visits are the manager's requests to a workload cluster.
func visits(w *env.Workload) []lightapi.Request {
	return slices.DeleteFunc(w.Light().Requests(), func(r lightapi.Request) bool { return !strings.Contains(r.UserAgent, "cluster.x-k8s.io/") })
}

// looks counts how often the manager did no more than to look at the agent's Deployment:
// before it writes anything it reads the Secret as well.
func looks(w *env.Workload) int {
	count := 0
	for _, request := range visits(w) {
		switch {
		case request.IsWrite():
		case strings.HasSuffix(request.Path, "/deployments/"+suite.AgentKey.Name):
			count++
		case strings.HasSuffix(request.Path, "/secrets/"+suite.AgentKey.Name):
			count--
		}
	}
	return count
}

func writes(w *env.Workload) int {
	return len(slices.DeleteFunc(visits(w), func(r lightapi.Request) bool { return !r.IsWrite() }))
}

func TestAnAgentThatNeverStartedSaysWhyAndJoinsOnceItCan(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "unpullable", env.ClusterOptions{Namespace: namespace, Light: &lightapi.Options{}})
	w.SetUnpullable(env.AgentImage)
	begin, mark := time.Now(), suite.Mark(t, lab)
	optIn := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, fleetv1.RegisterLabel))
	g.Expect(lab.Client.Patch(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.Name}}, optIn)).To(Succeed())

	reg := &fleetv1.FleetRegistration{}
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), w.Key(), reg)).To(Succeed())
		ready := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.ReadyCondition)
		g.Expect(ready).To(HaveValue(HaveField("Reason", fleetv1.AgentImagePullFailedReason)))
	}).WithTimeout(decide.StartTime + suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(w.AgentStarts()).To(BeEmpty())
	most := 1 + int(time.Since(begin)/decide.StartTime)
	g.Expect(looks(w)).To(And(BeNumerically(">=", 1), BeNumerically("<=", most)))
	written := writes(w)

	w.SetUnpullable()
	suite.EventuallyReady(t, lab, w)
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	most = 2 + int(time.Since(begin)/decide.StartTime)
	g.Expect(looks(w)).To(BeNumerically("<=", most), "one more, when it reports")
	g.Expect(writes(w)).To(Equal(written), "a look writes nothing")
	tokens := slices.DeleteFunc(suite.ManagerEvents(t, lab, mark), func(e kube.Event) bool {
		return e.Subresource != "token" || e.Name != reg.Status.Namespace
	})
	g.Expect(tokens).To(HaveLen(1), "nor does it ask for a token")
}
