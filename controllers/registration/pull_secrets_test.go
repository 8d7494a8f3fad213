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
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// keep makes a pull secret on the management cluster.
func (l *life) keep(t *testing.T, namespace, name, content string) {
	t.Helper()
	NewWithT(t).Expect(l.WithWatch.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(content)},
	})).To(Succeed())
}

// name does what the selection controller does when the pull secrets of the policy change.
func (l *life) name(t *testing.T, names ...string) {
	t.Helper()
	reg := l.registration(t)
	reg.Spec.Agent.ImagePullSecrets = names
	NewWithT(t).Expect(l.WithWatch.Update(t.Context(), reg)).To(Succeed())
}

// pullSecretsThere returns the pull secrets in the workload cluster, by name.
func (l *life) pullSecretsThere(t *testing.T) map[string]string {
	t.Helper()
	list := &corev1.SecretList{}
	NewWithT(t).Expect(l.client.List(t.Context(), list)).To(Succeed())
	there := map[string]string{}
	for _, secret := range list.Items {
		if secret.Type == corev1.SecretTypeDockerConfigJson {
			there[secret.Namespace+"/"+secret.Name] = string(secret.Data[corev1.DockerConfigJsonKey])
		}
	}
	return there
}

func (l *life) deployedNote(t *testing.T) string {
	t.Helper()
	condition := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition)
	NewWithT(t).Expect(condition).To(HaveField("Status", metav1.ConditionTrue))
	return condition.Message
}

const ownPull = "cattle-fleet-system/capi-fleet-pull-"

func TestPullSecretsAreThoseOfTheManagersNamespaceThatTheSettingsName(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.keep(t, managerNamespace, "registry-a", "a")
	l.keep(t, managerNamespace, "registry-b", "b")
	l.keep(t, "team-a", "registry-a", "the tenant's")
	l.keep(t, "team-a", "registry-c", "the tenant's")
	l.name(t, "registry-a", "registry-c")
	l.reconcile(t)
	g.Expect(l.pullSecretsThere(t)).To(Equal(map[string]string{ownPull + "registry-a": "a"}))
	g.Expect(l.deployedNote(t)).To(And(ContainSubstring("registry-c"), ContainSubstring(managerNamespace)))

	l.name(t, "registry-b")
	l.step(t)
	g.Expect(l.pullSecretsThere(t)).To(Equal(map[string]string{ownPull + "registry-b": "b"}), "what another policy named is gone")
	g.Expect(l.deployedNote(t)).To(BeEmpty())

	l.deploymentSays(t, 1)
	writes := len(l.workload.Writes())
	l.pass(11 * time.Hour)
	l.reconciler.ResyncInterval = 10 * time.Hour
	l.heartbeat(t)
	l.reconcile(t)
	g.Expect(l.workload.Writes()).To(HaveLen(writes), "nothing differs")

	l.name(t)
	l.step(t)
	g.Expect(l.pullSecretsThere(t)).To(BeEmpty())
}

func TestAPullSecretIsReadAnewAtEachPush(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.keep(t, managerNamespace, "registry", "old")
	l.name(t, "registry")
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "registry"}}
	g.Expect(l.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	secret.Data[corev1.DockerConfigJsonKey] = []byte("new")
	g.Expect(l.WithWatch.Update(t.Context(), secret)).To(Succeed())
	l.reconciler.ResyncInterval = 10 * time.Hour
	l.pass(11 * time.Hour)
	l.heartbeat(t)
	l.reconcile(t)
	g.Expect(l.pullSecretsThere(t)).To(Equal(map[string]string{ownPull + "registry": "new"}))

	g.Expect(l.WithWatch.Delete(t.Context(), secret)).To(Succeed())
	l.pass(11 * time.Hour)
	l.heartbeat(t)
	l.reconcile(t)
	g.Expect(l.pullSecretsThere(t)).To(HaveKey(ownPull+"registry"), "an agent is not left without what it may need")
	g.Expect(l.deployedNote(t)).To(ContainSubstring("registry"))
}

func TestAChangedPullSecretIsPushed(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.keep(t, managerNamespace, "registry", "old")
	l.name(t, "registry", "missing")
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	changed := make(chan event.GenericEvent, 2)
	// A manager that was started anew knows none of them.
	l.reconciler.pulls = pullSecretWatch{changed: changed}
	look := func() {
		t.Helper()
		g.Expect(l.reconciler.lookAtPullSecrets(t.Context())).To(Succeed())
	}
	look()
	g.Expect(changed).To(BeEmpty(), "nothing changed")

	visits := len(l.workload.Requests())
	secret := &corev1.Secret{}
	g.Expect(l.Get(t.Context(), client.ObjectKey{Namespace: managerNamespace, Name: "registry"}, secret)).To(Succeed())
	secret.Data[corev1.DockerConfigJsonKey] = []byte("new")
	g.Expect(l.WithWatch.Update(t.Context(), secret)).To(Succeed())
	l.reconcile(t)
	g.Expect(l.workload.Requests()).To(HaveLen(visits))

	look()
	g.Expect(changed).To(HaveLen(1))
	g.Expect(client.ObjectKeyFromObject((<-changed).Object)).To(Equal(edge.NamespacedName))
	l.reconcile(t)
	g.Expect(l.pullSecretsThere(t)).To(HaveKeyWithValue(ownPull+"registry", "new"))

	visits = len(l.workload.Requests())
	look()
	g.Expect(changed).To(BeEmpty())
	l.reconcile(t)
	g.Expect(l.workload.Requests()).To(HaveLen(visits))

	l.keep(t, managerNamespace, "missing", "there now")
	look()
	g.Expect(changed).To(HaveLen(1))
	l.reconcile(t)
	g.Expect(l.pullSecretsThere(t)).To(HaveKeyWithValue(ownPull+"missing", "there now"))
}

func TestAPullSecretThatChangesDuringAPushIsPushedAgain(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.keep(t, managerNamespace, "registry", "old")
	l.name(t, "registry")
	changed := make(chan event.GenericEvent, 2)
	l.reconciler.pulls.changed = changed
	once := sync.OnceFunc(func() {
		secret := &corev1.Secret{}
		g.Expect(l.Get(t.Context(), client.ObjectKey{Namespace: managerNamespace, Name: "registry"}, secret)).To(Succeed())
		secret.Data[corev1.DockerConfigJsonKey] = []byte("new")
		g.Expect(l.WithWatch.Update(t.Context(), secret)).To(Succeed())
		g.Expect(l.reconciler.lookAtPullSecrets(t.Context())).To(Succeed())
	})
	l.workload.SetFault(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/"+agent.Name) {
			once()
		}
		return false
	})
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	g.Expect(l.pullSecretsThere(t)).To(Equal(map[string]string{ownPull + "registry": "new"}))
}

// A pod that comes up in between could not pull its image.
func TestAnOldPullSecretGoesOnceTheDeploymentNamesItNoMore(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.keep(t, managerNamespace, "old", "old")
	l.keep(t, managerNamespace, "new", "new")
	l.name(t, "old")
	l.reconcile(t)
	both := HaveKey(ownPull + "old")

	l.workload.SetFault(refuse(http.MethodPatch, "/deployments/"+agent.Name))
	l.name(t, "new")
	l.step(t)
	g.Expect(l.pullSecretsThere(t)).To(And(both, HaveKey(ownPull+"new")), "the Deployment names the old one yet")

	l.workload.SetFault(refuse(http.MethodDelete, "/secrets/capi-fleet-pull-old"))
	l.pass(time.Minute)
	l.step(t)
	g.Expect(l.deployment(t).Spec.Template.Spec.ImagePullSecrets).To(Equal([]corev1.LocalObjectReference{{Name: "capi-fleet-pull-new"}}))
	g.Expect(l.pullSecretsThere(t)).To(both)

	l.workload.SetFault(nil)
	l.pass(time.Minute)
	l.step(t)
	g.Expect(l.pullSecretsThere(t)).To(Equal(map[string]string{ownPull + "new": "new"}), "also where the push before broke off")
}

// refuse refuses requests of a method to a path that ends so.
func refuse(method, path string) lightapi.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.HasSuffix(r.URL.Path, path) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
		return true
	}
}

func TestPullSecretsAreNotAskedForWhereNoneIsNamed(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.reconcile(t)
	l.reconciler.APIReader = interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("a request")
		},
	})
	g.Expect(l.reconciler.lookAtPullSecrets(t.Context())).To(Succeed())
}

func TestPullSecretsOfOthersAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.keep(t, managerNamespace, "registry", "ours")
	l.name(t, "registry")
	l.reconcile(t)
	for name, id := range map[string]string{"capi-fleet-pull-another": "of-another-registration", "theirs": l.registration(t).Spec.RegistrationID} {
		g.Expect(l.client.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: name, Labels: agent.Labels(),
				Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: id}},
			Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")},
		})).To(Succeed())
	}

	l.name(t)
	l.step(t)
	g.Expect(l.pullSecretsThere(t)).To(And(HaveLen(2), Not(HaveKey(ownPull+"registry"))))
}

func TestPullSecretsGoWithTheAgent(t *testing.T) {
	for _, what := range []fleetv1.AgentDeletion{fleetv1.AgentRemove, fleetv1.AgentKeep} {
		t.Run(string(what), func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.keep(t, managerNamespace, "registry", "ours")
			l.name(t, "registry")
			l.reconcile(t)
			g.Expect(l.pullSecretsThere(t)).To(HaveLen(1))

			l.deploymentStatus(t, 1)
			l.optOut(t, optedOut, fleetv1.DeletionSpec{Agent: what})
			g.Expect(l.once(t)).To(Equal(fleetv1.StoppingAgentReason))
			l.deploymentStatus(t, 0)
			g.Expect(l.once(t)).To(Equal(fleetv1.WaitingForFleetReason))
			g.Expect(l.pullSecretsThere(t)).To(BeEmpty(), "it is a credential")
		})
	}
}

func TestNothingIsPushedWhileAPullSecretCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.name(t, "registry")
	l.reconciler.APIReader = interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.Secret); ok && key.Namespace == managerNamespace {
				return errors.New("unavailable")
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	for range 3 {
		result, err := l.reconciler.Reconcile(t.Context(), edge)
		g.Expect(err).NotTo(HaveOccurred())
		l.pass(result.RequeueAfter)
	}
	g.Expect(l.workload.Writes()).To(BeEmpty())
	condition := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.AgentDeployedCondition)
	g.Expect(condition.Reason).To(Equal(fleetv1.InternalErrorReason))
	g.Expect(strings.ToLower(condition.Message)).NotTo(ContainSubstring("unavailable"))
}
