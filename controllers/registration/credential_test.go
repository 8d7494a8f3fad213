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
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// joinedLife is one whose agent reports.
func joinedLife(t *testing.T) *life {
	t.Helper()
	l := newLife(t)
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	return l
}

// A Cluster that was made anew has the kubeconfig of the one before until that is collected.
func TestTheKubeconfigOfAnotherClusterOfThatNameIsNotUsed(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	kubeconfig := &corev1.Secret{}
	g.Expect(l.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "edge-1-kubeconfig"}, kubeconfig)).To(Succeed())
	stale := decide.OwnerReference(livingCluster())
	stale.UID = "uid-of-the-one-before"
	kubeconfig.OwnerReferences = []metav1.OwnerReference{{APIVersion: "controlplane.example/v1", Kind: "ControlPlane", Name: "edge-1", UID: "x"}, stale}
	g.Expect(l.WithWatch.Update(t.Context(), kubeconfig)).To(Succeed())
	for range 2 {
		_, err := l.reconciler.Reconcile(t.Context(), edge)
		g.Expect(err).NotTo(HaveOccurred())
		l.pass(time.Minute)
	}
	g.Expect(hasReason(l.registration(t), fleetv1.WorkloadReachableCondition, fleetv1.KubeconfigMissingReason)).To(BeTrue())
	g.Expect(l.workload.Writes()).To(BeEmpty())
	g.Expect(l.tokens).To(BeZero())

	kubeconfig.OwnerReferences = []metav1.OwnerReference{decide.OwnerReference(livingCluster())}
	g.Expect(l.WithWatch.Update(t.Context(), kubeconfig)).To(Succeed())
	l.pass(time.Minute)
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
}

// forget empties the status, as a move does.
func (l *life) forget(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	reg := l.registration(t)
	reg.Status = fleetv1.FleetRegistrationStatus{}
	g.Expect(l.Status().Update(t.Context(), reg)).To(Succeed())
}

func (l *life) account(t *testing.T) *corev1.ServiceAccount {
	t.Helper()
	accounts := &corev1.ServiceAccountList{}
	g := NewWithT(t)
	g.Expect(l.List(t.Context(), accounts, client.InNamespace(managerNamespace))).To(Succeed())
	g.Expect(accounts.Items).To(HaveLen(1))
	return &accounts.Items[0]
}

func TestWhatIsInTheWorkloadClusterIsFoundAgainFromAnEmptyStatus(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	before := l.registration(t).Status
	l.forget(t)
	reg := l.registration(t)
	reg.Annotations = map[string]string{fleetv1.RotateAnnotation: "was heeded long ago"}
	g.Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
	writes := len(l.workload.Writes())

	l.pass(time.Hour)
	l.heartbeat(t)
	l.reconcile(t)

	g.Expect(l.tokens).To(Equal(1), "nothing is minted")
	g.Expect(l.workload.Writes()).To(HaveLen(writes), "nothing is written")
	status := l.registration(t).Status
	g.Expect(status.Credential.ExpirationTime).To(Equal(before.Credential.ExpirationTime))
	g.Expect(status.Credential.ServiceAccountUID).To(Equal(l.account(t).UID))
	g.Expect(status.Agent.Revision).To(Equal(before.Agent.Revision))
	g.Expect(isTrue(l.registration(t), fleetv1.ReadyCondition)).To(BeTrue())
}

func TestATokenInTheSecretThatIsNoGoodIsReplaced(t *testing.T) {
	other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "cluster-of-another", UID: "uid-of-another"}}
	for name, forge := range map[string]func(*life, *corev1.ServiceAccount) string{
		"of another account": func(l *life, _ *corev1.ServiceAccount) string {
			return jwt("forged", other, l.clock.Now(), l.clock.Now().Add(72*time.Hour))
		},
		"of an account that is gone": func(l *life, account *corev1.ServiceAccount) string {
			account.UID = "gone"
			return jwt("forged", account, l.clock.Now(), l.clock.Now().Add(72*time.Hour))
		},
		"due": func(l *life, account *corev1.ServiceAccount) string {
			return jwt("forged", account, l.clock.Now().Add(-71*time.Hour), l.clock.Now().Add(time.Hour))
		},
		"no token":  func(*life, *corev1.ServiceAccount) string { return "a.b.c" },
		"none":      func(*life, *corev1.ServiceAccount) string { return "" },
		"very long": func(*life, *corev1.ServiceAccount) string { return string(make([]byte, 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			l.forget(t)
			secret := &corev1.Secret{}
			g.Expect(l.client.Get(t.Context(), client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)).To(Succeed())
			secret.Data["token"] = []byte(forge(l, l.account(t)))
			g.Expect(l.client.Update(t.Context(), secret)).To(Succeed())

			l.reconcile(t)

			g.Expect(l.pushedToken(t)).To(Equal("token-2"))
			g.Expect(l.tokens).To(Equal(2))
		})
	}
}

func TestATokenThatTheAPIServerDoesNotAcceptAnyMoreIsReplaced(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.forget(t)
	first := true
	try := l.reconciler.TryToken
	l.reconciler.TryToken = func(ctx context.Context, value, namespace string) error {
		if first {
			first = false
			return apierrors.NewUnauthorized("no")
		}
		return try(ctx, value, namespace)
	}
	l.reconcile(t)
	g.Expect(l.pushedToken(t)).To(Equal("token-2"))
}

func TestATokenIsTriedBeforeTheAgentGetsIt(t *testing.T) {
	contents := schema.GroupResource{Group: "fleet.cattle.io", Resource: "bundledeployments"}
	forbidden := apierrors.NewForbidden(contents, "", errors.New("no"))
	for _, tt := range []struct {
		name   string
		answer error
		old    bool
		pushed bool
		reason string
	}{
		{name: "accepted", pushed: true},
		{name: "rights were given just now", answer: forbidden, pushed: true},
		{name: "rights are missing", answer: forbidden, old: true, reason: fleetv1.TokenRejectedReason},
		{name: "not accepted", answer: apierrors.NewUnauthorized("no"), reason: fleetv1.TokenRejectedReason},
		{name: "no answer", answer: errors.New("no route"), reason: fleetv1.WaitingForAgentReason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.refuse = tt.answer
			if tt.old {
				// Its objects were made before the workload cluster came up.
				g.Expect(l.workload.Stop()).To(Succeed())
				_, err := l.reconciler.Reconcile(t.Context(), edge)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(l.workload.Start()).To(Succeed())
				l.pass(5 * time.Minute)
			}
			_, err := l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(l.trials).To(BeNumerically(">=", 1))
			if tt.pushed {
				g.Expect(l.pushedToken(t)).To(Equal("token-1"))
				return
			}
			g.Expect(l.workload.Writes()).To(BeEmpty())
			g.Expect(hasReason(l.registration(t), fleetv1.CredentialsValidCondition, tt.reason)).To(BeTrue(),
				"%v", l.registration(t).Status.Conditions)

			l.refuse = nil
			l.pass(5 * time.Minute)
			l.reconcile(t)
			g.Expect(isTrue(l.registration(t), fleetv1.CredentialsValidCondition)).To(BeTrue())
		})
	}
}

func TestANewServiceAccountBringsANewTokenAtOnce(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.pass(time.Minute)
	g.Expect(l.WithWatch.Delete(t.Context(), l.account(t))).To(Succeed())

	l.reconcile(t)

	g.Expect(l.pushedToken(t)).To(Equal("token-2"), "the old one ended with its account")
	g.Expect(l.registration(t).Status.Credential.ServiceAccountUID).To(Equal(l.account(t).UID))
	requests := len(l.workload.Requests())
	l.reconcile(t)
	g.Expect(l.workload.Requests()).To(HaveLen(requests), "once")
}

func TestTheWorkloadClusterIsLookedAtNowAndThen(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	l.reconciler.ResyncInterval = 10 * time.Hour
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
	g.Expect(l.client.Delete(t.Context(), config)).To(Succeed())
	writes := len(l.workload.Writes())
	var visits []time.Duration
	start, requests := l.clock.Now(), len(l.workload.Requests())
	for range 23 * 60 / 10 {
		l.pass(10 * time.Minute)
		l.heartbeat(t)
		l.reconcile(t)
		if now := len(l.workload.Requests()); now > requests {
			requests = now
			visits = append(visits, l.clock.Now().Sub(start))
		}
	}
	g.Expect(visits).To(HaveLen(2))
	g.Expect(visits[0]).To(BeNumerically("~", 10*time.Hour, 70*time.Minute))
	g.Expect(visits[1] - visits[0]).To(BeNumerically("~", 10*time.Hour, 70*time.Minute))
	g.Expect(l.client.Get(t.Context(), client.ObjectKeyFromObject(config), config)).To(Succeed())
	g.Expect(l.workload.Writes()).To(HaveLen(writes+1), "nothing is written where nothing differs")
	g.Expect(l.tokens).To(Equal(1))
}

func TestACredentialThatIsKeptDoesNotChangeTheConditions(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	before := l.registration(t).Status.Conditions
	l.reconciler.ResyncInterval = time.Hour
	for range 12 {
		l.pass(10 * time.Minute)
		l.heartbeat(t)
		l.reconcile(t)
	}
	after := l.registration(t).Status.Conditions
	g.Expect(after).To(HaveLen(len(before)))
	for _, condition := range before {
		g.Expect(*meta.FindStatusCondition(after, condition.Type)).To(Equal(condition))
	}
}

func TestForeignRightsDoNotKeepAnAgentFromItsNewToken(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	roles := &rbacv1.RoleList{}
	g.Expect(l.List(t.Context(), roles)).To(Succeed())
	g.Expect(roles.Items).To(HaveLen(1))
	roles.Items[0].Annotations = nil
	g.Expect(l.WithWatch.Update(t.Context(), &roles.Items[0])).To(Succeed())

	l.pass(40 * time.Hour)
	l.heartbeat(t)
	_, err := l.reconciler.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.pushedToken(t)).To(Equal("token-2"))
	g.Expect(hasReason(l.registration(t), fleetv1.FleetClusterReadyCondition, fleetv1.RBACForeignReason)).To(BeTrue())
}

// refuseUpstream lets the management cluster refuse what is written to put objects right.
func (l *life) refuseUpstream() {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("a policy says no"))
	l.reconciler.Upstream.Client = interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return refused
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refused
		},
	})
}

func TestARepairThatIsRefusedDoesNotKeepAnAgentFromItsNewToken(t *testing.T) {
	orphan := func(t *testing.T, l *life) {
		t.Helper()
		cluster := l.fleetCluster(t)
		cluster.Labels[fleetv1.OrphanLabel] = "true"
		NewWithT(t).Expect(l.WithWatch.Update(t.Context(), cluster)).To(Succeed())
	}
	for _, tt := range []struct {
		name   string
		damage func(*testing.T, *life)
		token  string
	}{
		{"a Role", func(t *testing.T, l *life) {
			t.Helper()
			roles := &rbacv1.RoleList{}
			NewWithT(t).Expect(l.List(t.Context(), roles)).To(Succeed())
			roles.Items[0].Rules = nil
			NewWithT(t).Expect(l.WithWatch.Update(t.Context(), &roles.Items[0])).To(Succeed())
		}, "token-2"},
		{"the Fleet Cluster", orphan, "token-2"},
		{"the Fleet Cluster, and the account is not ours", func(t *testing.T, l *life) {
			t.Helper()
			orphan(t, l)
			account := l.account(t)
			account.Annotations = nil
			NewWithT(t).Expect(l.WithWatch.Update(t.Context(), account)).To(Succeed())
		}, "token-1"},
		{"the Fleet Cluster, and its namespace is another", func(t *testing.T, l *life) {
			t.Helper()
			orphan(t, l)
			g := NewWithT(t)
			namespace := &corev1.Namespace{}
			g.Expect(l.Get(t.Context(), client.ObjectKey{Name: l.registration(t).Status.Namespace}, namespace)).To(Succeed())
			g.Expect(l.WithWatch.Delete(t.Context(), namespace.DeepCopy())).To(Succeed())
			namespace.UID, namespace.ResourceVersion = "uid-of-another", ""
			g.Expect(l.WithWatch.Create(t.Context(), namespace)).To(Succeed())
		}, "token-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			tt.damage(t, l)
			l.refuseUpstream()
			l.pass(40 * time.Hour)
			l.heartbeat(t)

			_, err := l.reconciler.Reconcile(t.Context(), edge)

			g.Expect(err).To(MatchError(ContainSubstring("a policy says no")))
			g.Expect(l.pushedToken(t)).To(Equal(tt.token))
			g.Expect(hasReason(l.registration(t), fleetv1.FleetClusterReadyCondition, fleetv1.InternalErrorReason)).To(BeTrue())
		})
	}
}

func TestNoTokenIsIssuedAgainAndAgainForASecretThatIsRefused(t *testing.T) {
	for name, path := range map[string]string{"the Secret": "/secrets", "its Namespace": "/api/v1/namespaces/" + agent.Namespace} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.workload.SetFault(lightapi.When(func(req *http.Request) bool {
				return req.Method != http.MethodGet && strings.HasSuffix(req.URL.Path, path)
			}, lightapi.Refuse(http.StatusForbidden)))
			for range 10 {
				_, err := l.reconciler.Reconcile(t.Context(), edge)
				g.Expect(err).NotTo(HaveOccurred())
				l.pass(time.Minute)
			}
			l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.ObjectRejectedReason)
			g.Expect(l.tokens).To(Equal(1))

			l.workload.SetFault(nil)
			l.pass(5 * time.Minute)
			l.reconcile(t)
			g.Expect(l.pushedToken(t)).To(Equal("token-2"))
		})
	}
}

// Between the look at an agent and the writes to it there is time for another to come.
func TestASecretThatAnotherHasTakenSinceItWasJudgedIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	theirs := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+fleetv1.RegistrationIDAnnotation+`":"theirs"}}}`))
	try := l.reconciler.TryToken
	l.reconciler.TryToken = func(ctx context.Context, value, namespace string) error {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
		g.Expect(l.client.Patch(ctx, secret, theirs)).To(Succeed())
		return try(ctx, value, namespace)
	}
	l.pass(40 * time.Hour)
	l.heartbeat(t)
	for range 2 {
		_, err := l.reconciler.Reconcile(t.Context(), edge)
		g.Expect(err).NotTo(HaveOccurred())
		l.pass(5 * time.Minute)
	}
	g.Expect(l.pushedToken(t)).To(Equal("token-1"))
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.ForeignAgentReason)
}

func TestNothingIsRemovedOnceAnotherAgentHasTakenThePlaceOfTheOneThatWasJudged(t *testing.T) {
	g := NewWithT(t)
	l := joinedLife(t)
	workload, err := l.reconciler.Dialer.Connect(l.workload.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	defer workload.Close()
	there, err := readAgent(t.Context(), workload)
	g.Expect(err).NotTo(HaveOccurred())
	for _, obj := range []client.Object{l.deployment(t), there.secret.DeepCopy()} {
		g.Expect(l.client.Delete(t.Context(), obj)).To(Succeed())
		obj.SetResourceVersion("")
		obj.SetUID("")
		g.Expect(l.client.Create(t.Context(), obj)).To(Succeed())
	}
	g.Expect(apierrors.IsConflict(removeAll(t.Context(), workload, "id", there))).To(BeTrue())
	for _, obj := range []client.Object{&corev1.Secret{}, &corev1.ServiceAccount{}, &corev1.ConfigMap{}} {
		g.Expect(l.has(t, obj)).To(BeTrue())
	}
	g.Expect(apierrors.IsConflict(discard(t.Context(), workload, l.registration(t), there, fleetv1.AgentKeep))).To(BeTrue())
	g.Expect(l.has(t, &corev1.Secret{})).To(BeTrue())
}
