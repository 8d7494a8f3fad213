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
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// newHosted is a life whose agent is to run on the management cluster.
func newHosted(t *testing.T) *life {
	t.Helper()
	l := newLife(t)
	l.reconciler.Dialer.DialTimeout = time.Second
	l.issueTokens(t)
	l.setPlacement(t, fleetv1.PlacementManagement)
	return l
}

// joinedHosted has reported.
func joinedHosted(t *testing.T) *life {
	t.Helper()
	l := newHosted(t)
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	l.expect(t, fleetv1.ReadyCondition, metav1.ConditionTrue, fleetv1.ReadyReason)
	return l
}

// setPlacement does what a rollout does. The management cluster gets an address that can
// be resolved.
func (l *life) setPlacement(t *testing.T, placement fleetv1.AgentPlacement) {
	t.Helper()
	reg := l.registration(t)
	reg.Spec.Agent.ManagementCluster.Server = "https://192.0.2.10:6443"
	reg.Spec.Agent.Placement = placement
	NewWithT(t).Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
}

// issueTokens has the workload cluster issue tokens of the agent's service account.
func (l *life) issueTokens(t *testing.T) {
	t.Helper()
	l.issueTokensThatSay(t, func(_, _ *time.Time) {})
}

// issueTokensThatSay has it lie about when they begin and end.
func (l *life) issueTokensThatSay(t *testing.T, lie func(begins, ends *time.Time)) {
	t.Helper()
	issued := 0
	l.workload.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/serviceaccounts/"+agent.Name+"/token") {
			return false
		}
		account := &corev1.ServiceAccount{}
		if l.client.Get(r.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, account) != nil {
			return false
		}
		request := &authenticationv1.TokenRequest{}
		if err := json.NewDecoder(r.Body).Decode(request); err != nil {
			t.Error(err)
		}
		issued++
		now := l.clock.Now()
		expires := now.Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second)
		lie(&now, &expires)
		claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d,"kubernetes.io":{"serviceaccount":{"uid":"down"}}}`, workloadSubject, now.Unix(), expires.Unix())
		value := fmt.Sprintf("e30.%s.down-%d", base64.RawURLEncoding.EncodeToString([]byte(claims)), issued)
		l.workload.AllowToken(value, workloadSubject)
		request.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}
		request.Status = authenticationv1.TokenRequestStatus{Token: value, ExpirationTimestamp: metav1.NewTime(expires)}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(request)
		return true
	})
}

func (l *life) hostedKey(t *testing.T) client.ObjectKey {
	t.Helper()
	return client.ObjectKey{Namespace: managerNamespace, Name: l.registration(t).Status.Namespace}
}

func (l *life) hosted(t *testing.T) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	NewWithT(t).Expect(l.Get(t.Context(), l.hostedKey(t), deployment)).To(Succeed())
	return deployment
}

// hostedToken is what the agent reaches the workload cluster with.
func (l *life) hostedToken(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{}
	NewWithT(t).Expect(l.Get(t.Context(), l.hostedKey(t), secret)).To(Succeed())
	value := agent.Token(secret)
	return value[strings.LastIndex(value, ".")+1:]
}

// inManagerNamespace counts what a hosted agent has there.
func (l *life) inManagerNamespace(t *testing.T) int {
	t.Helper()
	g := NewWithT(t)
	deployments, policies, secrets := &appsv1.DeploymentList{}, &networkingv1.NetworkPolicyList{}, &corev1.SecretList{}
	for _, list := range []client.ObjectList{deployments, policies, secrets} {
		g.Expect(l.List(t.Context(), list, client.InNamespace(managerNamespace))).To(Succeed())
	}
	return len(deployments.Items) + len(policies.Items) + len(secrets.Items)
}

// hostedStatus does what the management cluster's Deployment controller does, and keeps as
// many pods.
func (l *life) hostedStatus(t *testing.T, replicas int32) {
	t.Helper()
	g := NewWithT(t)
	key := l.hostedKey(t)
	deployment := l.hosted(t)
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", LastUpdateTime: metav1.NewTime(l.clock.Now()),
		}},
	}
	g.Expect(l.Status().Update(t.Context(), deployment)).To(Succeed())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "hosted-1", Labels: agent.HostedPodLabels(key.Name)}}
	if replicas > 0 {
		g.Expect(l.WithWatch.Create(t.Context(), pod)).To(Succeed())
		return
	}
	g.Expect(client.IgnoreNotFound(l.WithWatch.Delete(t.Context(), pod))).To(Succeed())
}

func (l *life) lease(t *testing.T, renewed time.Time) {
	t.Helper()
	g := NewWithT(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
	g.Expect(client.IgnoreNotFound(l.client.Delete(t.Context(), lease))).To(Succeed())
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("another-pod"), LeaseDurationSeconds: new(int32(30)), RenewTime: &metav1.MicroTime{Time: renewed},
	}
	g.Expect(l.client.Create(t.Context(), lease)).To(Succeed())
}

func TestAHostedAgentLeavesNothingThatRunsInTheWorkloadCluster(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)

	g.Expect(l.has(t, &appsv1.Deployment{})).To(BeFalse())
	g.Expect(l.has(t, &corev1.ConfigMap{})).To(BeTrue())
	secret := &corev1.Secret{}
	g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)).To(Succeed())
	g.Expect(agent.Token(secret)).To(BeEmpty())
	g.Expect(string(secret.Data["kubeconfig"])).NotTo(ContainSubstring("token:"))

	g.Expect(l.inManagerNamespace(t)).To(Equal(3))
	g.Expect(l.hosted(t).Spec.Template.Spec.ServiceAccountName).To(Equal(l.registration(t).Status.Namespace))
	g.Expect(l.hostedToken(t)).To(Equal("down-1"))
	g.Expect(l.tokens).To(BeZero(), "the kubelet gives the pod its token for the management cluster")
	status := l.registration(t).Status
	g.Expect(status.Agent.Placement).To(Equal(fleetv1.PlacementManagement))
	g.Expect(status.Credential.ServiceAccountUID).To(Equal(l.account(t).UID))

	writes := len(l.writes)
	requests := len(l.workload.Requests())
	l.heartbeat(t)
	l.reconcile(t)
	g.Expect(l.writes).To(HaveLen(writes))
	g.Expect(l.workload.Requests()).To(HaveLen(requests), "nothing is due")
}

func TestTheAdminsKubeconfigIsNotHandedToAHostedAgent(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	secrets := &corev1.SecretList{}
	g.Expect(l.List(t.Context(), secrets, client.InNamespace(managerNamespace))).To(Succeed())
	g.Expect(secrets.Items).To(HaveLen(1))
	for _, content := range secrets.Items[0].Data {
		g.Expect(string(content)).NotTo(ContainSubstring(l.workload.Token()))
	}
}

func TestAHostedAgentIsRenewedWithoutANewPod(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	template := l.hosted(t).Spec.Template
	for range 80 {
		l.pass(time.Hour)
		l.heartbeat(t)
		l.reconcile(t)
	}
	g.Expect(l.hostedToken(t)).To(Equal("down-3"))
	g.Expect(l.hosted(t).Spec.Template).To(Equal(template))
}

// Its owner may want to keep what it was given by a token that is never renewed.
func TestAWorkloadClusterCannotPutOffTheRenewalOfATokenByALie(t *testing.T) {
	for name, lie := range map[string]func(begins, ends *time.Time){
		"it lasts for years":      func(_, ends *time.Time) { *ends = ends.AddDate(100, 0, 0) },
		"it begins in the future": func(begins, ends *time.Time) { *begins, *ends = begins.AddDate(50, 0, 0), ends.AddDate(50, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newHosted(t)
			l.issueTokensThatSay(t, lie)
			l.reconcile(t)
			credential := l.registration(t).Status.Credential
			g.Expect(credential.IssuedTime.Time).To(BeTemporally("~", l.clock.Now(), time.Minute))
			g.Expect(credential.ExpirationTime.Time).To(BeTemporally("~", l.clock.Now().Add(72*time.Hour), 10*time.Minute))

			// A look at the agent does not believe it either.
			for range 7 {
				l.pass(6 * time.Hour)
				l.reconcile(t)
				l.forget(t)
				l.reconcile(t)
			}
			g.Expect(l.hostedToken(t)).NotTo(Equal("down-1"))
		})
	}
}

func TestATokenThatHasEndedAlreadyIsNotGivenToAHostedAgent(t *testing.T) {
	g := NewWithT(t)
	l := newHosted(t)
	l.issueTokensThatSay(t, func(begins, ends *time.Time) { *begins, *ends = begins.AddDate(-1, 0, 0), ends.AddDate(-1, 0, 0) })
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.ObjectRejectedReason)
	deployed := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition)
	g.Expect(deployed.Message).To(ContainSubstring("has ended already"))
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
}

func TestAHostedAgentsTokenThatTheWorkloadClusterRefusesIsReplaced(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	secret := &corev1.Secret{}
	g.Expect(l.Get(t.Context(), l.hostedKey(t), secret)).To(Succeed())
	l.workload.RevokeToken(agent.Token(secret))

	l.pass(time.Hour)
	l.reconcile(t)

	g.Expect(l.hostedToken(t)).To(Equal("down-2"))
}

func TestAServiceAccountThatWasMadeAnewBringsAHostedAgentANewPod(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	template := l.hosted(t).Spec.Template
	g.Expect(l.WithWatch.Delete(t.Context(), l.account(t))).To(Succeed())
	for range 2 {
		l.pass(time.Minute)
		l.heartbeat(t)
		l.step(t)
	}
	g.Expect(l.hosted(t).Spec.Template).NotTo(Equal(template))
	g.Expect(l.hostedToken(t)).To(Equal("down-1"))
}

func TestAPushedAgentIsSeenStoppedBeforeAHostedOneIsStarted(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.issueTokens(t)
	pod := l.running(t)
	l.setPlacement(t, fleetv1.PlacementManagement)

	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForAgentToStopReason)
	g.Expect(l.deployment(t).Spec.Replicas).To(HaveValue(BeZero()))
	g.Expect(l.inManagerNamespace(t)).To(BeZero())

	l.deploymentStatus(t, 0)
	l.pass(10 * time.Second)
	l.step(t)
	g.Expect(l.inManagerNamespace(t)).To(BeZero(), "its pod is about to end")

	g.Expect(l.client.Delete(t.Context(), pod)).To(Succeed())
	l.lease(t, l.clock.Now())
	l.pass(10 * time.Second)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForLeaseReason)
	g.Expect(l.inManagerNamespace(t)).To(BeZero())

	l.pass(time.Minute)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	g.Expect(l.has(t, &appsv1.Deployment{})).To(BeFalse())
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
	g.Expect(l.fleetCluster(t)).NotTo(BeNil())
}

// A batch must not wait for it for ever.
func TestAPodThatNeverEndsMakesAMoveFailAfterTheDeadline(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.issueTokens(t)
	pod := l.running(t)
	l.setPlacement(t, fleetv1.PlacementManagement)
	l.step(t)
	l.deploymentStatus(t, 0)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
	l.pass(updateDeadline - time.Second)
	l.step(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)

	l.pass(time.Minute)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForAgentToStopReason)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdateFailedReason)
	g.Expect(l.inManagerNamespace(t)).To(BeZero(), "never two agents")

	g.Expect(l.client.Delete(t.Context(), pod)).To(Succeed())
	l.pass(10 * time.Minute)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
}

func TestWhatAHostedAgentThatWasNeverStartedLeftGoesWithTheWayBack(t *testing.T) {
	g := NewWithT(t)
	l := newHosted(t)
	l.reconciler.Upstream.Client = interceptor.NewClient(l, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if content, err := json.Marshal(obj); err == nil && strings.Contains(string(content), `"kind":"Deployment"`) {
				return errors.New("refused")
			}
			return c.Apply(ctx, obj, opts...)
		},
	})
	l.step(t)
	g.Expect(l.inManagerNamespace(t)).To(Equal(2), "all but the Deployment")

	l.setPlacement(t, "")
	l.pass(time.Minute)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	g.Expect(l.inManagerNamespace(t)).To(BeZero(), "the Secret is a credential")
}

func TestAHostedAgentIsSeenStoppedBeforeAPushedOneIsStarted(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	l.setPlacement(t, "")

	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForAgentToStopReason)
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeZero()))
	g.Expect(l.has(t, &appsv1.Deployment{})).To(BeFalse())

	l.hostedStatus(t, 0)
	l.pass(10 * time.Second)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	g.Expect(l.has(t, &appsv1.Deployment{})).To(BeTrue())
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
	g.Expect(l.registration(t).Status.Agent.Placement).To(BeEmpty())
}

// A crash can leave a hosted agent of which the status knows nothing.
func TestAHostedAgentThatNobodyRemembersIsStoppedBeforeAPushedOneIsStarted(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	l.forget(t)
	l.setPlacement(t, "")

	l.step(t)

	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForAgentToStopReason)
	g.Expect(l.has(t, &appsv1.Deployment{})).To(BeFalse())
}

func TestAHostedDeploymentThatIsGoneComesBack(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	g.Expect(l.WithWatch.Delete(t.Context(), l.hosted(t))).To(Succeed())
	l.pass(time.Minute)
	l.heartbeat(t)
	l.step(t)
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
}

func TestATamperedSecretOfAHostedAgentIsPutRight(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	key := client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}
	secret := &corev1.Secret{}
	g.Expect(l.client.Get(t.Context(), key, secret)).To(Succeed())
	right := secret.Data
	g.Expect(l.client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(`{"data":{"kubeconfig":"ZXZpbA=="}}`)))).To(Succeed())

	l.pass(time.Hour)
	l.reconcile(t)

	g.Expect(l.client.Get(t.Context(), key, secret)).To(Succeed())
	g.Expect(secret.Data).To(Equal(right))
}

// Before its turn a pod runs that another version of the manager made, which looks for its
// tokens in another folder.
func TestATamperedSecretOfAHostedAgentIsPutRightBeforeItsTurnForThePodThatRuns(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	key := client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}
	secret, hosted, deployment := &corev1.Secret{}, &corev1.Secret{}, l.hosted(t)
	g.Expect(l.client.Get(t.Context(), key, secret)).To(Succeed())
	g.Expect(l.Get(t.Context(), l.hostedKey(t), hosted)).To(Succeed())
	right, way := secret.Data, hosted.Data
	g.Expect(l.client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(`{"data":{"kubeconfig":"ZXZpbA=="}}`)))).To(Succeed())
	l.reconciler.TokenDir, l.reconciler.Manifests = "/var/run/another", "of another version"

	l.pass(time.Hour)
	l.reconcile(t)

	g.Expect(l.client.Get(t.Context(), key, secret)).To(Succeed())
	g.Expect(secret.Data).To(Equal(right))
	g.Expect(l.Get(t.Context(), l.hostedKey(t), hosted)).To(Succeed())
	g.Expect(hosted.Data).To(Equal(way))
	g.Expect(l.hosted(t).Spec.Template.Spec).To(Equal(deployment.Spec.Template.Spec), "it is not its turn")
}

func TestDeletingTheClusterRemovesAHostedAgentFromTheManagersNamespace(t *testing.T) {
	for name, workload := range map[string]func(*life){
		"reachable":   func(*life) {},
		"unreachable": func(l *life) { l.workload.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedHosted(t)
			l.hostedStatus(t, 1)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.registration(t).Status.Namespace}}
			workload(l)
			g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
			g.Expect(l.WithWatch.Delete(t.Context(), livingCluster())).To(Succeed())

			g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			l.expectOnlyBound(t)
			g.Expect(l.fleetCluster(t)).NotTo(BeNil(), "its pod may run yet")
			l.endHostedPod(t)
			g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
			g.Expect(l.inManagerNamespace(t)).To(BeZero())
			g.Expect(l.fleetCluster(t)).To(BeNil())
			g.Expect(l.WithWatch.Delete(t.Context(), namespace)).To(Succeed())
			g.Expect(l.once(t)).To(BeEmpty())
			g.Expect(l.accounts(t)).To(BeZero())
		})
	}
}

// expectOnlyBound fails where a hosted agent has a Deployment, or no NetworkPolicy.
func (l *life) expectOnlyBound(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	key := l.hostedKey(t)
	g.Expect(apierrors.IsNotFound(l.Get(t.Context(), key, &appsv1.Deployment{}))).To(BeTrue())
	g.Expect(l.Get(t.Context(), key, &networkingv1.NetworkPolicy{})).To(Succeed())
}

// endHostedPod does what the garbage collector and the kubelet do.
func (l *life) endHostedPod(t *testing.T) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "hosted-1"}}
	NewWithT(t).Expect(l.WithWatch.Delete(t.Context(), pod)).To(Succeed())
}

// Its node may be lost.
func TestAPodOfAHostedAgentThatDoesNotEndHoldsADeletionForABoundedTime(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	g.Expect(l.WithWatch.Delete(t.Context(), l.registration(t))).To(Succeed())
	g.Expect(l.WithWatch.Delete(t.Context(), livingCluster())).To(Succeed())
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	l.pass(stopTimeout)
	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	l.fleetDeletes(t)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
}

func TestAHostedAgentThatHasUninstalledIsBoundUntilItsPodHasEnded(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	l.optOut(t, optedOut, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})
	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	l.fleetDeletes(t)
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	l.expectOnlyBound(t)
	l.endHostedPod(t)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
}

func TestAHostedAgentGoesWithItsClusterAlsoAfterAnOptOut(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	l.optOut(t, optedOut, fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall})
	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)), "it has to uninstall")

	g.Expect(l.WithWatch.Delete(t.Context(), livingCluster())).To(Succeed())
	l.fleetDeletes(t)
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	l.expectOnlyBound(t)
	l.endHostedPod(t)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
}

func TestAHostedDeploymentThatIsNotOursDoesNotHoldAnOptOut(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	deployment := l.hosted(t)
	delete(deployment.Annotations, fleetv1.RegistrationIDAnnotation)
	g.Expect(l.WithWatch.Update(t.Context(), deployment)).To(Succeed())
	l.optOut(t, optedOut, fleetv1.DeletionSpec{})
	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	l.pass(stopTimeout)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.fleetCluster(t).Labels).To(HaveKey(fleetv1.OrphanLabel), "it may still run")
}

// That it stopped is seen on the management cluster.
func TestAHostedAgentLeavesNoOrphanAlthoughItsWorkloadClusterCannotBeReached(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	l.workload.Close()
	l.optOut(t, map[string]string{fleetv1.RegisterLabel: "false"}, fleetv1.DeletionSpec{})

	g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
	g.Expect(l.fleetCluster(t)).NotTo(BeNil(), "an agent that runs would uninstall everything")
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeZero()))

	l.hostedStatus(t, 0)
	l.pass(10 * time.Second)
	g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
	g.Expect(l.fleetCluster(t)).To(BeNil())
	l.fleetDeletes(t)
	l.pass(10 * time.Second)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
}

func TestAHostedAgentThatIsNotSeenStoppedLeavesAnOrphan(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.hostedStatus(t, 1)
	l.optOut(t, map[string]string{fleetv1.RegisterLabel: "false"}, fleetv1.DeletionSpec{})
	l.once(t)
	l.pass(3 * time.Minute)
	g.Expect(l.once(t)).To(BeEmpty())
	g.Expect(l.fleetCluster(t).Labels).To(HaveKeyWithValue(fleetv1.OrphanLabel, "true"))
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
}

func TestTheAgentOfARegistrationThatIsGoneIsStoppedAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	key := l.hostedKey(t)
	l.step(t)
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))

	// As clusterctl does after a move.
	reg := l.registration(t)
	reg.Finalizers = nil
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	g.Expect(client.IgnoreNotFound(l.WithWatch.Delete(t.Context(), reg))).To(Succeed())
	l.step(t)

	deployment := &appsv1.Deployment{}
	g.Expect(l.Get(t.Context(), key, deployment)).To(Succeed())
	g.Expect(deployment.Spec.Replicas).To(HaveValue(BeZero()))
	cluster := &fleet.Cluster{}
	g.Expect(l.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	g.Expect(l.inManagerNamespace(t)).To(Equal(3))
}

func TestAHostedAgentGivesWayToAnotherManagementCluster(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.secretSays(t, `{"`+fleetv1.NamespaceUIDAnnotation+`":"of-another-management-cluster"}`)
	l.pass(time.Hour)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.MovedAwayReason)
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeZero()))
}

func TestAHostedAgentGivesWayToAnotherRegistration(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.secretSays(t, `{"`+fleetv1.RegistrationIDAnnotation+`":"another"}`)
	l.pass(time.Hour)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.ForeignAgentReason)
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeZero()))
}

// secretSays puts annotations on the agent's Secret in the workload cluster.
func (l *life) secretSays(t *testing.T, annotations string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
	NewWithT(t).Expect(l.client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`)))).To(Succeed())
}

// A holder that was killed gives nothing up, and its clock may be ahead of ours.
func TestALeaseThatIsNotRenewedHoldsAHostedAgentForABoundedTime(t *testing.T) {
	g := NewWithT(t)
	l := newHosted(t)
	l.lease(t, l.clock.Now().AddDate(50, 0, 0))
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForLeaseReason)
	deployed := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition)
	g.Expect(deployed.Message).To(And(ContainSubstring("not renewed for 30s"), ContainSubstring(fleetv1.TakeOverAnnotation), Not(ContainSubstring("another-pod"))))
	l.pass(31 * time.Second)
	l.step(t)
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
}

// Its clock may be behind.
func TestALeaseThatIsRenewedHoldsAHostedAgentWhateverItsTimesSay(t *testing.T) {
	g := NewWithT(t)
	l := newHosted(t)
	for i := range 5 {
		l.lease(t, l.clock.Now().Add(time.Duration(i)*10*time.Second-time.Hour))
		l.pass(20 * time.Second)
		l.step(t)
		l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForLeaseReason)
		g.Expect(l.inManagerNamespace(t)).To(BeZero())
	}
}

// The other management cluster looks at the Secret to know that it lost the workload
// cluster. If it is gone for good, nobody stops its agent, which renews the lease for ever.
func TestAnAgentThatAnotherManagementClusterHostsIsTakenOverFrom(t *testing.T) {
	for name, placement := range map[string]fleetv1.AgentPlacement{"by a hosted one": fleetv1.PlacementManagement, "by a pushed one": ""} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedHosted(t)
			account := func() types.UID {
				account := &corev1.ServiceAccount{}
				g.Expect(client.IgnoreNotFound(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, account))).To(Succeed())
				return account.UID
			}
			others := account()
			g.Expect(l.WithWatch.Delete(t.Context(), l.hosted(t))).To(Succeed())
			l.forget(t)
			l.secretSays(t, `{"`+fleetv1.RegistrationIDAnnotation+`":"another","`+fleetv1.NamespaceUIDAnnotation+`":"theirs"}`)
			l.setPlacement(t, placement)
			l.step(t)
			l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.ForeignAgentReason)
			g.Expect(account()).To(Equal(others))

			reg := l.registration(t)
			reg.Annotations = map[string]string{fleetv1.TakeOverAnnotation: string(reg.Status.NamespaceUID)}
			g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
			l.lease(t, l.clock.Now())
			l.step(t)
			g.Expect(account()).NotTo(Equal(others), "their tokens have ended")
			secret := &corev1.Secret{}
			g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)).To(Succeed())
			g.Expect(secret.Annotations).To(HaveKeyWithValue(fleetv1.NamespaceUIDAnnotation, string(reg.Status.NamespaceUID)), "by which they know")
			if placement == "" {
				return
			}
			l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForLeaseReason)
			for range 2 {
				l.pass(10 * time.Second)
				l.step(t)
			}
			ours := account()
			l.pass(20 * time.Second)
			l.step(t)
			g.Expect(account()).To(Equal(ours), "once")
			g.Expect(ours).NotTo(BeEmpty())
			g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
		})
	}
}

func TestTheHealthOfAHostedAgentIsLookedAtWithoutDialling(t *testing.T) {
	g := NewWithT(t)
	l := joinedHosted(t)
	l.take(t)
	l.expect(t, fleetv1.AgentUpToDateCondition, metav1.ConditionFalse, fleetv1.AgentUpdatingReason)
	deployment := l.hosted(t)
	deployment.Status = appsv1.DeploymentStatus{
		Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated"}},
	}
	g.Expect(l.Status().Update(t.Context(), deployment)).To(Succeed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "hosted-2", Labels: agent.HostedPodLabels(deployment.Name), CreationTimestamp: metav1.NewTime(l.clock.Now())},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: agent.Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
		}}},
	}
	g.Expect(l.WithWatch.Create(t.Context(), pod)).To(Succeed())
	requests := len(l.workload.Requests())

	l.pass(time.Minute)
	l.step(t)

	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.AgentImagePullFailedReason)
	deployed := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition)
	g.Expect(deployed.Message).To(HavePrefix("The management cluster cannot pull"))
	g.Expect(l.workload.Requests()).To(HaveLen(requests))
}

func TestALookAtAHostedAgentThatFailsIsReported(t *testing.T) {
	for name, harm := range map[string]func(*life){
		"its Deployment cannot be read": func(l *life) {
			l.reconciler.Upstream.Reader = interceptor.NewClient(l, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if _, ok := obj.(*appsv1.Deployment); ok {
						return errors.New("broken")
					}
					return c.Get(ctx, key, obj, opts...)
				},
			})
		},
		"its pods cannot be listed": func(l *life) {
			l.reconciler.APIReader = interceptor.NewClient(l, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if _, ok := list.(*corev1.PodList); ok {
						return errors.New("broken")
					}
					return c.List(ctx, list, opts...)
				},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := joinedHosted(t)
			l.take(t)
			deployment := l.hosted(t)
			deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated"}}
			NewWithT(t).Expect(l.Status().Update(t.Context(), deployment)).To(Succeed())
			harm(l)
			l.pass(time.Minute)
			l.step(t)
			l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.InternalErrorReason)
			l.expect(t, fleetv1.WorkloadReachableCondition, metav1.ConditionTrue, fleetv1.WorkloadReachableReason)
		})
	}
}

func TestAnObjectOfAHostedAgentsNameThatIsNotOursIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	l := newHosted(t)
	l.setPlacement(t, "")
	l.reconcile(t)
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: l.registration(t).Status.Namespace}, Data: map[string][]byte{"a": []byte("b")}}
	g.Expect(l.WithWatch.Create(t.Context(), theirs)).To(Succeed())
	l.setPlacement(t, fleetv1.PlacementManagement)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.HostedObjectForeignReason)
	live := &corev1.Secret{}
	g.Expect(l.Get(t.Context(), client.ObjectKeyFromObject(theirs), live)).To(Succeed())
	g.Expect(live.Data).To(Equal(theirs.Data))
}

func TestAPushedAgentThatLostItsServiceAccountIsStoppedForAHostedOne(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.issueTokens(t)
	g.Expect(l.client.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}})).To(Succeed())
	l.setPlacement(t, fleetv1.PlacementManagement)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForAgentToStopReason)
	l.deploymentStatus(t, 0)
	l.pass(10 * time.Second)
	l.step(t)
	g.Expect(l.hosted(t).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
}

// Where the other cannot be started, there would be none.
func TestAPushedAgentRunsOnUntilNothingIsInTheWayOfAHostedOne(t *testing.T) {
	for reason, obstacle := range map[string]func(*testing.T, *life){
		fleetv1.ManagementClusterUnresolvedReason: func(t *testing.T, l *life) {
			reg := l.registration(t)
			reg.Spec.Agent.ManagementCluster.Server = "https://nowhere.invalid"
			NewWithT(t).Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
		},
		fleetv1.HostedObjectForeignReason: func(t *testing.T, l *life) {
			theirs := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: l.registration(t).Status.Namespace}}
			NewWithT(t).Expect(l.WithWatch.Create(t.Context(), theirs)).To(Succeed())
		},
		fleetv1.ObjectRejectedReason: func(t *testing.T, l *life) {
			l.issueTokensThatSay(t, func(_, ends *time.Time) { *ends = ends.AddDate(-1, 0, 0) })
		},
	} {
		t.Run(reason, func(t *testing.T) {
			g := NewWithT(t)
			l := joined(t)
			l.reconciler.Dialer.DialTimeout = time.Second
			l.issueTokens(t)
			l.setPlacement(t, fleetv1.PlacementManagement)
			obstacle(t, l)
			secret := &corev1.Secret{}
			g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)).To(Succeed())

			l.step(t)

			deployed := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition)
			g.Expect(deployed.Reason).To(Equal(reason), deployed.Message)
			g.Expect(l.deployment(t).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
			live := &corev1.Secret{}
			g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, live)).To(Succeed())
			g.Expect(live.Data).To(Equal(secret.Data))
		})
	}
}

func TestAPushedAgentIsRenewedWhileSomethingIsInTheWayOfAHostedOne(t *testing.T) {
	g := NewWithT(t)
	l := joined(t)
	l.reconciler.Dialer.DialTimeout = time.Second
	l.issueTokens(t)
	l.setPlacement(t, fleetv1.PlacementManagement)
	theirs := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: l.registration(t).Status.Namespace}}
	g.Expect(l.WithWatch.Create(t.Context(), theirs)).To(Succeed())
	before := l.deployment(t)
	l.step(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-1"), "it is good yet")

	l.pass(60 * time.Hour)
	l.heartbeat(t)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.HostedObjectForeignReason)
	l.expect(t, fleetv1.CredentialsValidCondition, metav1.ConditionTrue, fleetv1.CredentialsIssuedReason)
	g.Expect(l.pushedToken(t)).To(Equal("token-2"))
	secret := &corev1.Secret{}
	g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)).To(Succeed())
	g.Expect(string(secret.Data["kubeconfig"])).To(And(ContainSubstring(agent.Token(secret)), ContainSubstring("https://management.example")), "what its pod can read")
	g.Expect(l.deployment(t).Generation).To(Equal(before.Generation))
	expires := l.registration(t).Status.Credential.ExpirationTime
	g.Expect(expires.Sub(l.clock.Now())).To(BeNumerically(">", 70*time.Hour))
}

func TestAHostedAgentWaitsForAnAddressOfTheManagementCluster(t *testing.T) {
	g := NewWithT(t)
	l := newHosted(t)
	reg := l.registration(t)
	reg.Spec.Agent.ManagementCluster.Server = "https://nowhere.invalid"
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.ManagementClusterUnresolvedReason)
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
}

func TestAHostedAgentOfAnotherManagersNamespaceIsNoneOfOurs(t *testing.T) {
	g := NewWithT(t)
	_, r := newManagement(t)
	theirs := client.ObjectKey{Namespace: "team-b", Name: "edge-1"}
	hosted := agent.HostedDeployment(agent.Input{ClusterNamespace: "cluster-b"}, agent.Hosting{Namespace: managerNamespace, Registration: theirs})
	g.Expect(r.hostedToRegistrations(t.Context(), hosted)).To(ConsistOf(HaveField("NamespacedName", theirs)))
	r.Namespace = "team-a"
	g.Expect(r.hostedToRegistrations(t.Context(), hosted)).To(BeEmpty())
}
