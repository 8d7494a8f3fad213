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
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// A backup tool makes objects anew: with other UIDs, without status, and with the owner
// references of before, or with none. What Fleet makes itself is not in the backup.
func TestRestoredRegistrationsUninstallNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// paused restores the Cluster paused, and unpauses it when all else is there.
		paused bool
		// owned keeps the owner reference, which names a Cluster that is gone.
		owned bool
		// comeBack is the order in which the bundles are made again.
		comeBack []string
	}{
		{name: "paused-with-old-owner", paused: true, owned: true, comeBack: []string{"db", "web"}},
		{name: "paused-without-owner", paused: true, comeBack: []string{"web", "db"}},
		{name: "at-once-with-old-owner", owned: true, comeBack: []string{"web", "db"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			ctx := t.Context()
			namespace := "restored-" + tt.name
			w := join(t, namespace, env.ClusterOptions{Register: true}, "db", "web")
			before := deployed(g, ctx, w.Client, "db", "web")
			backup := backUp(g, ctx, w, tt.owned)
			// The source is lost: it does nothing from here on.
			g.Expect(source.Client.Patch(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.Name}},
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`)))).To(Succeed())
			suite.EventuallyCondition(t, source, w, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
			written := len(writes(w))

			ensureNamespace(t, target, namespace)
			if tt.paused {
				backup.cluster.Spec.Paused = ptr.To(true)
			}
			for _, object := range []client.Object{backup.cluster, backup.kubeconfig, backup.fleetCluster, backup.registration} {
				// What is there already is left as it is, as backup tools do.
				g.Expect(client.IgnoreAlreadyExists(target.Client.Create(ctx, object))).To(Succeed())
			}
			unpause(t, backup.cluster)

			registration := eventuallyWaitsForAPerson(t, w)
			g.Expect(writes(w)).To(HaveLen(written), "the workload cluster was written to")
			g.Expect(registration.OwnerReferences).To(ConsistOf(HaveField("UID", backup.cluster.UID)))

			annotate(t, target, w, fleetv1.TakeOverAnnotation, string(registration.Status.NamespaceUID))
			suite.EventuallyCondition(t, target, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForBundlesReason)
			for i, bundle := range tt.comeBack {
				g.Eventually(missing).WithContext(ctx).WithArguments(w).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(tt.comeBack[i:]))
				g.Expect(w.AgentStarts()).To(HaveLen(1))
				g.Expect(writes(w)).To(HaveLen(written), "written to before %s was there", bundle)
				makeBundles(t, target, namespace, bundle)
			}
			suite.EventuallyReady(t, target, w)
			eventuallyDeployed(t, target, w, "db", "web")
			eventuallyReports(t, target, w)

			g.Expect(deployed(g, ctx, w.Client, "db", "web")).To(Equal(before))
			expectNothingUninstalled(t, w)
		})
	}
}

// eventuallyWaitsForAPerson waits until the restored registration has come to rest: it
// waits for its bundles, or for a person who says that the agent is its own. Where the
// Fleet Cluster of before is in the way, it deletes that.
func eventuallyWaitsForAPerson(t *testing.T, w *env.Workload) *fleetv1.FleetRegistration {
	t.Helper()
	registration := &fleetv1.FleetRegistration{}
	NewWithT(t).Eventually(func(g Gomega) {
		g.Expect(target.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
		g.Expect(registration.DeletionTimestamp.IsZero()).To(BeTrue())
		ready := meta.FindStatusCondition(registration.Status.Conditions, fleetv1.ReadyCondition)
		g.Expect(ready).NotTo(BeNil())
		if ready.Reason == fleetv1.FleetClusterForeignReason {
			old := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
			g.Expect(client.IgnoreNotFound(target.Client.Delete(t.Context(), old))).To(Succeed())
		}
		g.Expect(ready).To(HaveField("Reason", BeElementOf(fleetv1.WaitingForBundlesReason, fleetv1.ForeignAgentReason)))
		g.Expect(ready.Message).NotTo(BeEmpty())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	return registration
}

// backup is what a backup tool restores of a Cluster that is in Fleet.
type backup struct {
	cluster      *clusterv1.Cluster
	kubeconfig   *corev1.Secret
	fleetCluster *fleet.Cluster
	registration *fleetv1.FleetRegistration
}

func backUp(g Gomega, ctx context.Context, w *env.Workload, owned bool) backup {
	b := backup{&clusterv1.Cluster{}, &corev1.Secret{}, &fleet.Cluster{}, &fleetv1.FleetRegistration{}}
	for object, name := range map[client.Object]string{
		b.cluster: w.Name, b.kubeconfig: secret.Name(w.Name, secret.Kubeconfig), b.fleetCluster: w.Name, b.registration: w.Name,
	} {
		g.Expect(source.Client.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: name}, object)).To(Succeed())
		object.SetUID("")
		object.SetResourceVersion("")
		object.SetManagedFields(nil)
		if !owned {
			object.SetOwnerReferences(nil)
		}
	}
	b.cluster.Status, b.fleetCluster.Status, b.registration.Status = clusterv1.ClusterStatus{}, fleet.ClusterStatus{}, fleetv1.FleetRegistrationStatus{}
	return b
}
