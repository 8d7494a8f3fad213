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

package registration

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestAClusterWithoutServerSideApplyJoinsIsPutRightAndLeaves(t *testing.T) {
	g := NewWithT(t)
	l := newLifeOn(t, lightapi.Options{InMemory: true})
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)

	reg := l.registration(t)
	g.Expect(isTrue(reg, fleetv1.ReadyCondition)).To(BeTrue(), "%+v", reg.Status.Conditions)
	deployed := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.AgentDeployedCondition)
	g.Expect(deployed.Message).To(Equal("The workload cluster does not serve NetworkPolicy"))
	g.Expect(reg.Status.Workload.SystemNamespaceUID).To(BeEmpty())
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))

	key := client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}
	deployment := &appsv1.Deployment{}
	g.Expect(l.client.Get(t.Context(), key, deployment)).To(Succeed())
	g.Expect(l.client.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"theirs":"x"}},"spec":{"replicas":3,"minReadySeconds":7}}`)))).To(Succeed())
	deployment.Spec.Template.Spec.Containers[0].TerminationMessagePath = "/theirs"
	deployment.Spec.Template.Spec.Containers[0].Image = "not-ours"
	g.Expect(l.client.Update(t.Context(), deployment)).To(Succeed())
	l.silent(t)
	g.Expect(l.client.Get(t.Context(), key, deployment)).To(Succeed())
	g.Expect(*deployment.Spec.Replicas).To(Equal(int32(1)))
	g.Expect(deployment.Spec.MinReadySeconds).To(Equal(int32(7)), "not ours")
	g.Expect(deployment.Labels).To(HaveKeyWithValue("theirs", "x"))
	g.Expect(deployment.Spec.Template.Spec.Containers[0]).To(And(HaveField("Image", "agent"), HaveField("TerminationMessagePath", "/theirs")))

	made := l.changes()
	l.silent(t)
	g.Expect(l.changes()).To(Equal(made), "nothing differs, nothing is written")

	g.Expect(l.client.Get(t.Context(), key, deployment)).To(Succeed())
	workload, err := l.reconciler.Dialer.Connect(l.workload.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	defer workload.Close()
	g.Expect(removeAgent(t.Context(), workload, l.registration(t), fleetv1.AgentRemove)).To(Succeed())
	g.Expect(apierrors.IsNotFound(l.client.Get(t.Context(), key, deployment))).To(BeTrue())
	g.Expect(apierrors.IsNotFound(l.client.Get(t.Context(), key, &corev1.Secret{}))).To(BeTrue())
}

// silent lets the agent be silent for so long that its objects are looked after, and
// report again.
func (l *life) silent(t *testing.T) {
	t.Helper()
	l.pass(time.Hour)
	for range 2 {
		_, err := l.reconciler.Reconcile(t.Context(), edge)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		l.heartbeat(t)
	}
}

// changes counts the writes to the workload cluster that it accepted.
func (l *life) changes() int {
	count := 0
	for _, request := range l.workload.Writes() {
		if request.Code < http.StatusBadRequest && !strings.Contains(request.Query, "dryRun") {
			count++
		}
	}
	return count
}

func TestAnErrorOfTheServerIsNotTakenForAKindThatIsNotServed(t *testing.T) {
	for name, options := range map[string]lightapi.Options{"of any server": {}, "of one in memory": {InMemory: true}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLifeOn(t, options)
			resource := "networkpolicies"
			if options.InMemory {
				resource = "configmaps"
			}
			l.workload.SetFault(lightapi.When(func(r *http.Request) bool { return strings.Contains(r.URL.Path, resource) },
				lightapi.Refuse(http.StatusInternalServerError)))
			_, err := l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).NotTo(HaveOccurred())
			for range 3 {
				_, err = l.reconciler.Reconcile(t.Context(), edge)
				g.Expect(err).NotTo(HaveOccurred())
				l.pass(10 * time.Second)
			}
			g.Expect(hasReason(l.registration(t), fleetv1.WorkloadReachableCondition, fleetv1.ServerErrorReason)).To(BeTrue(),
				"%+v", l.registration(t).Status.Conditions)
			g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, &appsv1.Deployment{})).
				To(Satisfy(apierrors.IsNotFound), "an agent is started last")
		})
	}
}

// An empty UID is not known, and so no two clusters are the same because of it.
func TestClustersWithoutUIDsAreNotTakenForOneAnother(t *testing.T) {
	g := NewWithT(t)
	l := newLifeOn(t, lightapi.Options{InMemory: true})
	other := owned()
	other.Name, other.UID, other.Status = "other", "uid-of-other", fleetv1.FleetRegistrationStatus{}
	other.Spec.RegistrationID = "another"
	g.Expect(l.WithWatch.Create(t.Context(), &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: other.Namespace, Name: other.Name}, Spec: other.Spec,
	})).To(Succeed())
	system := &corev1.Namespace{}
	g.Expect(l.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system)).To(Succeed())
	system.UID = ""
	g.Expect(l.WithWatch.Update(t.Context(), system)).To(Succeed())

	l.reconcile(t)

	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
}
