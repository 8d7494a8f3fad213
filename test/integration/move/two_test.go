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

package move

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// visitor is who target is to a workload cluster that source holds as well.
const visitor = "visitor"

// copyToTarget makes the Cluster at target, paused, with its kubeconfig as another user.
func copyToTarget(t *testing.T, w *env.Workload) *clusterv1.Cluster {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	ensureNamespace(t, target, w.Namespace)

	token := visitor + "-" + w.Namespace
	w.Light().AllowToken(token, visitor)
	kubeconfig := &corev1.Secret{}
	g.Expect(source.Client.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: secret.Name(w.Name, secret.Kubeconfig)}, kubeconfig)).To(Succeed())
	content := strings.ReplaceAll(string(kubeconfig.Data[secret.KubeconfigDataName]), w.Light().Token(), token)
	g.Expect(target.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: kubeconfig.Name, Labels: kubeconfig.Labels},
		Type:       kubeconfig.Type,
		Data:       map[string][]byte{secret.KubeconfigDataName: []byte(content)},
	})).To(Succeed())

	original := &clusterv1.Cluster{}
	g.Expect(source.Client.Get(ctx, w.Key(), original)).To(Succeed())
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: original.Labels},
		Spec:       original.Spec,
	}
	cluster.Spec.Paused = ptr.To(true)
	g.Expect(target.Client.Create(ctx, cluster)).To(Succeed())
	return cluster
}

func unpause(t *testing.T, cluster *clusterv1.Cluster) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`))
	NewWithT(t).Expect(target.Client.Patch(t.Context(), cluster, patch)).To(Succeed())
}

// looks counts how often target has looked whose the agent is.
func looks(w *env.Workload) int {
	count := 0
	for _, request := range visits(w) {
		if request.User == visitor && strings.HasSuffix(request.Path, "/secrets/"+suite.AgentKey.Name) {
			count++
		}
	}
	return count
}

func TestASecondManagementClusterLeavesTheAgentOfTheFirstAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "two-registrations"
	w := join(t, namespace, env.ClusterOptions{Register: true}, "web")
	before := deployed(g, ctx, w.Client, "web")
	written := len(writes(w))

	unpause(t, copyToTarget(t, w))
	makeBundles(t, target, namespace, "web")
	registration := suite.EventuallyCondition(t, target, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.ForeignAgentReason)
	g.Expect(registration.Spec.RegistrationID).NotTo(Equal(registrationOf(g, ctx, source, w).Spec.RegistrationID))
	g.Eventually(looks).WithArguments(w).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeNumerically(">", 2), "it looks again and again")

	g.Expect(writes(w)).To(HaveLen(written), "the second one wrote to the workload cluster")
	eventuallyReports(t, source, w)
	suite.EventuallyReady(t, source, w)
	g.Expect(w.AgentStarts()).To(HaveLen(1))
	g.Expect(deployed(g, ctx, w.Client, "web")).To(Equal(before))
	expectNothingUninstalled(t, w)
}

// expectKeepsOut gives a management cluster cause to push, twice, and fails unless it then
// says that the agent is another's and pushes nothing.
func expectKeepsOut(t *testing.T, lab *env.Lab, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	pushed := pushes(w)
	for range 2 {
		account, anew := &corev1.ServiceAccount{}, &corev1.ServiceAccount{}
		key := types.NamespacedName{Namespace: env.ManagerNamespace, Name: registrationOf(g, ctx, lab, w).Status.Namespace}
		g.Expect(lab.Client.Get(ctx, key, account)).To(Succeed())
		g.Expect(lab.Client.Delete(ctx, account)).To(Succeed())
		// It is made anew, and the agent would need another token then.
		g.Eventually(func(g Gomega) {
			g.Expect(lab.Client.Get(ctx, key, anew)).To(Succeed())
			g.Expect(anew.UID).NotTo(Equal(account.UID))
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
		suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.MovedAwayReason)
	}
	g.Expect(pushes(w)).To(Equal(pushed))
}

// holdTwice returns a cluster of which both management clusters have the same
// registration, as after a move that was undone by hand. Target has its agent.
func holdTwice(t *testing.T, namespace string) *env.Workload {
	t.Helper()
	g := NewWithT(t)
	w := join(t, namespace, env.ClusterOptions{Register: true}, "web")
	first := registrationOf(g, t.Context(), source, w)
	cluster := copyToTarget(t, w)
	g.Expect(target.Client.Create(t.Context(), &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: w.Name, Finalizers: first.Finalizers,
			OwnerReferences: []metav1.OwnerReference{decide.OwnerReference(cluster)},
		},
		Spec: first.Spec,
	})).To(Succeed())
	makeBundles(t, target, namespace, "web")
	unpause(t, cluster)
	suite.EventuallyReady(t, target, w)
	eventuallyReports(t, target, w)
	g.Expect(pushes(w)).To(Equal(2), "one by each")
	return w
}

func TestTwoManagementClustersDoNotFightOverAnAgent(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	w := holdTwice(t, "one-registration-twice")
	before := deployed(g, ctx, w.Client, "web")

	expectKeepsOut(t, source, w)
	eventuallyReports(t, target, w)

	// A person gives the agent back to the source.
	takeOver := func(lab *env.Lab) {
		annotate(t, lab, w, fleetv1.TakeOverAnnotation, string(registrationOf(g, ctx, lab, w).Status.NamespaceUID))
		suite.EventuallyReady(t, lab, w)
		eventuallyReports(t, lab, w)
	}
	takeOver(source)
	g.Expect(pushes(w)).To(Equal(3))
	expectKeepsOut(t, target, w)
	eventuallyReports(t, source, w)

	// And to the target again: what the source was allowed it was allowed once.
	takeOver(target)
	g.Expect(pushes(w)).To(Equal(4))
	expectKeepsOut(t, source, w)
	eventuallyReports(t, target, w)

	g.Expect(deployed(g, ctx, w.Client, "web")).To(Equal(before))
	expectNothingUninstalled(t, w)
}

func TestADeletedCopyLeavesTheAgentToTheOtherManagementCluster(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	w := holdTwice(t, "copy-is-deleted")
	before := deployed(g, ctx, w.Client, "web")

	suite.DeleteCluster(t, source, w)
	suite.EventuallyGone(t, source, w)

	g.Expect(suite.AgentSecret(g, ctx, w).Annotations).To(HaveKeyWithValue(
		fleetv1.NamespaceUIDAnnotation, string(registrationOf(g, ctx, target, w).Status.NamespaceUID)))
	g.Expect(w.AgentStarts()).To(HaveLen(2))
	eventuallyReports(t, target, w)
	g.Expect(deployed(g, ctx, w.Client, "web")).To(Equal(before))
	expectNothingUninstalled(t, w)
}
