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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
)

const managedBy = "app.kubernetes.io/managed-by"

func TestWhatOthersChangeIsPutBackWithTheWritesThatItNeeds(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r := join(t, "edge")
	want := r.mustState(t)
	started := suite.Mark(t, lab)
	cluster, own, account := namespace+"/edge", namespace+"/"+r.clusterNamespace, "capi-fleet-system/"+r.clusterNamespace

	var all []string
	for _, tt := range []struct {
		name   string
		change func()
		write  string
	}{
		{"Role deleted", func() { remove(t, r.role()) }, "create roles " + own},
		{"RoleBinding deleted", func() { remove(t, r.statusBinding()) }, "create rolebindings " + own},
		{"RoleBinding in the cluster namespace deleted", func() { remove(t, r.bundlesBinding()) },
			"create rolebindings " + r.clusterNamespace + "/capi-fleet-agent"},
		{"Role widened", func() {
			patch(t, r.role(), `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`)
		}, "patch roles " + own},
		{"Role without its label", func() { label(t, r.role(), managedBy, "null") }, "patch roles " + own},
		{"other subjects", func() {
			patch(t, r.statusBinding(), `{"subjects":[{"kind":"ServiceAccount","namespace":"default","name":"default"}]}`)
		}, "patch rolebindings " + own},
		{"more subjects in the cluster namespace", func() {
			patch(t, r.bundlesBinding(), `{"subjects":[{"kind":"ServiceAccount","namespace":"default","name":"default"}]}`)
		}, "patch rolebindings " + r.clusterNamespace + "/capi-fleet-agent"},
		{"service account with another label", func() { label(t, r.serviceAccount(), managedBy, `"helm"`) }, "patch serviceaccounts " + account},
		{"Fleet's annotation of the cluster namespace", func() { annotate(t, r.namespace(), fleet.ClusterAnnotation, "null") },
			"patch namespaces " + r.clusterNamespace + "/" + r.clusterNamespace},
		{"Fleet's label of the cluster namespace", func() { label(t, r.namespace(), fleet.ManagedLabel, "null") },
			"patch namespaces " + r.clusterNamespace + "/" + r.clusterNamespace},
		{"cluster namespace labelled as an orphan", func() { label(t, r.namespace(), fleetv1.OrphanLabel, `"true"`) },
			"patch namespaces " + r.clusterNamespace + "/" + r.clusterNamespace},
		{"Fleet Cluster labelled as an orphan", func() { label(t, r.fleetCluster(), fleetv1.OrphanLabel, `"true"`) },
			"patch clusters.fleet.cattle.io " + cluster},
		{"clientID emptied", func() { patch(t, r.fleetCluster(), `{"spec":{"clientID":""}}`) }, "patch clusters.fleet.cattle.io " + cluster},
		{"another agent namespace", func() { patch(t, r.fleetCluster(), `{"spec":{"agentNamespace":"elsewhere"}}`) },
			"patch clusters.fleet.cattle.io " + cluster},
		{"another cluster namespace", func() {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespace":"kube-system"}}`))
			g.Expect(lab.Client.Status().Patch(t.Context(), r.fleetCluster(), patch)).To(Succeed())
		}, "patch clusters.fleet.cattle.io/status " + cluster},
	} {
		mark := suite.Mark(t, lab)
		tt.change()
		r.eventually(t, want)
		g.Expect(r.writes(t, mark)).To(Equal([]string{tt.write}), tt.name)
		all = append(all, tt.write)
	}

	g.Consistently(func() []string { return r.writes(t, started) }).
		WithTimeout(5*time.Second).WithPolling(time.Second).Should(Equal(all), "nothing differs, nothing is written")
}

func TestADeletedServiceAccountIsMadeAnewAtOnce(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r := join(t, "account")
	want := r.mustState(t)
	mark := suite.Mark(t, lab)

	remove(t, r.serviceAccount())

	r.eventually(t, want)
	g.Expect(placing(r.writes(t, mark))).To(Equal([]string{"create serviceaccounts capi-fleet-system/" + r.clusterNamespace}))
}

func TestADeletedClusterNamespaceComesBack(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r := join(t, "emptied")
	want := r.mustState(t)
	reg := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(t.Context(), r.Key(), reg)).To(Succeed())
	mark := suite.Mark(t, lab)

	remove(t, r.namespace())

	g.Eventually(func(g Gomega) {
		live, now := r.namespace(), &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(live), live)).To(Succeed())
		g.Expect(live.UID).NotTo(Equal(reg.Status.NamespaceUID))
		g.Expect(lab.Client.Get(t.Context(), r.Key(), now)).To(Succeed())
		g.Expect(now.Status.NamespaceUID).To(Equal(live.UID))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	r.eventually(t, want)
	suite.EventuallyReady(t, lab, r.Workload)
	g.Expect(placing(r.writes(t, mark))).To(Equal([]string{
		"create namespaces /" + r.clusterNamespace,
		"delete serviceaccounts capi-fleet-system/" + r.clusterNamespace,
		"create serviceaccounts capi-fleet-system/" + r.clusterNamespace,
		"create rolebindings " + r.clusterNamespace + "/capi-fleet-agent",
	}))
}

func TestAFleetClusterDeletedByHandIsRegisteredAgainOnce(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r := join(t, "deleted")
	want := r.mustState(t)
	before := r.fleetCluster()
	g.Expect(lab.Client.Get(t.Context(), r.Key(), before)).To(Succeed())
	mark := suite.Mark(t, lab)

	remove(t, r.fleetCluster())

	g.Eventually(func(g Gomega) {
		live := r.fleetCluster()
		g.Expect(lab.Client.Get(t.Context(), r.Key(), live)).To(Succeed())
		g.Expect(live.UID).NotTo(Equal(before.UID))
		g.Expect(live.Spec.ClientID).NotTo(Equal(before.Spec.ClientID))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	r.eventually(t, want)
	suite.EventuallyCondition(t, lab, r.Workload, fleetv1.FleetClusterReadyCondition, metav1.ConditionTrue, fleetv1.FleetClusterCreatedReason)
	suite.EventuallyCondition(t, lab, r.Workload, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	once := []string{
		"create clusters.fleet.cattle.io " + namespace + "/deleted",
		"create namespaces /" + r.clusterNamespace,
		"delete serviceaccounts capi-fleet-system/" + r.clusterNamespace,
		"create serviceaccounts capi-fleet-system/" + r.clusterNamespace,
		"create rolebindings " + r.clusterNamespace + "/capi-fleet-agent",
		"patch clusters.fleet.cattle.io/status " + namespace + "/deleted",
	}
	g.Consistently(func() []string { return placing(r.writes(t, mark)) }).
		WithTimeout(5 * time.Second).WithPolling(time.Second).Should(Equal(once))
	g.Expect(len(r.writes(t, mark))-len(once)).To(BeNumerically("<=", 14), "it tells of it, and pushes, without a storm")
}

func TestAFleetClusterThatIsNoLongerOursIsLeftAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	r := join(t, "handed")
	id := r.registrationID(t)
	mark := suite.Mark(t, lab)

	label(t, r.fleetCluster(), fleet.ClusterManagementLabel, "null")
	suite.EventuallyCondition(t, lab, r.Workload, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.ManagementLabelRemovedReason)
	label(t, r.fleetCluster(), fleet.ClusterManagementLabel, `"capi-fleet"`)
	suite.EventuallyReady(t, lab, r.Workload)

	annotate(t, r.fleetCluster(), fleetv1.RegistrationIDAnnotation, `"of-someone-else"`)
	suite.EventuallyCondition(t, lab, r.Workload, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.FleetClusterForeignReason)
	annotate(t, r.fleetCluster(), fleetv1.RegistrationIDAnnotation, id)
	suite.EventuallyReady(t, lab, r.Workload)

	g.Expect(placing(r.writes(t, mark))).To(BeEmpty())
}
