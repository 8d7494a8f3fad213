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

package workload

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestWaitingForAYoungClusterCostsTheManagementClusterNothing(t *testing.T) {
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "young-and-silent", env.ClusterOptions{
		Namespace: "young", Register: true, StartLater: true, Light: &lightapi.Options{},
	})
	suite.EventuallyCondition(t, lab, w, fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.WaitingForControlPlaneReason)

	audit := lab.Management().AuditLog()
	mark, err := audit.Mark(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	// Shorter than the time after which the Secret is looked at all the same.
	g.Consistently(func() int {
		events, err := audit.Since(t.Context(), mark)
		g.Expect(err).NotTo(HaveOccurred())
		return len(slices.DeleteFunc(kube.By(env.ManagerUser, events), func(e kube.Event) bool { return e.Namespace != w.Namespace }))
	}).WithTimeout(8 * time.Second).WithPolling(time.Second).Should(BeZero())

	g.Expect(w.StartAPI(t.Context())).To(Succeed())
	suite.EventuallyReady(t, lab, w)
}

func TestDeadClusterAmongTwentyDelaysNoneOfTheOthers(t *testing.T) {
	g := NewWithT(t)
	const others = 19
	dead := suite.AddCluster(t, lab, "dead", env.ClusterOptions{Namespace: "twenty", Register: true, NoKubeconfig: true, Light: &lightapi.Options{}})
	dead.Light().SetFault(forManager(lightapi.Hang()))
	g.Expect(dead.WriteKubeconfig(t.Context(), dead.Kubeconfig())).To(Succeed())

	var workloads []*env.Workload
	for n := range others {
		workloads = append(workloads, suite.AddCluster(t, lab, fmt.Sprintf("alive-%02d", n), env.ClusterOptions{
			Namespace: "twenty", Register: true, Light: &lightapi.Options{},
		}))
	}
	var took []time.Duration
	for _, w := range workloads {
		registration := suite.EventuallyReady(t, lab, w)
		took = append(took, registration.Status.Agent.PushedTime.Sub(registration.CreationTimestamp.Time))
	}
	slices.Sort(took)
	t.Logf("created ► pushed, of %d beside a dead one: median %s, longest %s (whole seconds)", others, took[others/2], took[others-1])
	still := suite.EventuallyCondition(t, lab, dead, fleetv1.ReadyCondition, metav1.ConditionFalse, fleetv1.ResponseTimeoutReason)
	g.Expect(still.Status.Agent.Revision).To(BeEmpty())
}
