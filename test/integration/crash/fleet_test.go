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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// Fleet's controller writes the whole status of its Clusters, now and then from a copy
// that is older than the agent's last heartbeat, or than its first.
func TestHeartbeatThatStepsBackIsNoOutage(t *testing.T) {
	const namespace = "steps-back"
	g := NewWithT(t)
	ctx := t.Context()
	suite.StartManager(t, lab)
	w := suite.AddCluster(t, lab, "edge", env.ClusterOptions{Namespace: namespace, Register: true, NoKubelet: true, Light: &lightapi.Options{}})
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	live := &fleet.Cluster{}
	g.Expect(lab.Client.Get(ctx, w.Key(), live)).To(Succeed())
	overwrite := func(status string) {
		t.Helper()
		replace := fmt.Appendf(nil, `[{"op":"replace","path":"/status","value":{"namespace":%q%s}}]`, live.Status.Namespace, status)
		g.Expect(lab.Client.Status().Patch(ctx, live, client.RawPatch(types.JSONPatchType, replace))).To(Succeed())
	}
	heartbeat := func(ago time.Duration) string {
		return fmt.Sprintf(`,"agent":{"lastSeen":%q}`, time.Now().Add(-ago).UTC().Format(time.RFC3339))
	}
	overwrite(heartbeat(0))
	before := suite.EventuallyReady(t, lab, w)

	start, visited := suite.Mark(t, lab), len(visits(w))
	for range 20 {
		overwrite("")
		overwrite(heartbeat(time.Hour))
		overwrite(heartbeat(0))
	}
	overwrite("")
	fence(t)
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, start)) {
		g.Expect(e.Namespace).NotTo(Equal(namespace), "%s %s", e.Verb, e.RequestURI)
	}
	g.Expect(visits(w)).To(HaveLen(visited))
	after := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(ctx, w.Key(), after)).To(Succeed())
	g.Expect(after.ResourceVersion).To(Equal(before.ResourceVersion), "it is connected all the time")
}
