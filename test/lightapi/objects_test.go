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

package lightapi

import (
	"errors"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTypedObjectsAreCreatedReadChangedAndDeleted(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	c := controllerClient(t, newServer(t, Options{}))

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
		StringData: map[string]string{"k": "v"},
	}
	g.Expect(c.Create(ctx, secret)).To(Succeed())
	g.Expect(secret.UID).NotTo(BeEmpty())
	g.Expect(secret.ResourceVersion).NotTo(BeEmpty())
	g.Expect(secret.CreationTimestamp.IsZero()).To(BeFalse())
	g.Expect(apierrors.IsAlreadyExists(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}))).To(BeTrue())

	got := &corev1.Secret{}
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(secret), got)).To(Succeed())
	g.Expect(got.Data).To(Equal(map[string][]byte{"k": []byte("v")}))
	g.Expect(got.Type).To(Equal(corev1.SecretTypeOpaque))
	g.Expect(got.UID).To(Equal(secret.UID))

	stale := got.DeepCopy()
	got.Data["k"] = []byte("w")
	g.Expect(c.Update(ctx, got)).To(Succeed())
	g.Expect(got.ResourceVersion).NotTo(Equal(stale.ResourceVersion))
	stale.Data["k"] = []byte("x")
	g.Expect(apierrors.IsConflict(c.Update(ctx, stale))).To(BeTrue())

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}}}}
	g.Expect(c.Create(ctx, role)).To(Succeed())

	other := types.UID("other")
	err := c.Delete(ctx, got, client.Preconditions{UID: &other})
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "got %v", err)
	g.Expect(c.Delete(ctx, got, client.Preconditions{UID: &got.UID})).To(Succeed())
	g.Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(secret), got))).To(BeTrue())
	g.Expect(apierrors.IsNotFound(c.Delete(ctx, secret))).To(BeTrue())
	g.Expect(apierrors.IsNotFound(c.Update(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}))).To(BeTrue())
}

func TestClientsetsWork(t *testing.T) {
	g := NewWithT(t)
	maps := clientset(t, newServer(t, Options{})).CoreV1().ConfigMaps("default")
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(made.Name).To(MatchRegexp("^a-[a-z0-9]{5}$"))

	_, err = maps.Apply(t.Context(), corev1ac.ConfigMap(made.Name, "default").WithData(map[string]string{"k": "v"}), metav1.ApplyOptions{FieldManager: "test", Force: true})
	g.Expect(err).NotTo(HaveOccurred())
	got, err := maps.Get(t.Context(), made.Name, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Data).To(HaveKeyWithValue("k", "v"))

	_, err = maps.Create(t.Context(), &corev1.ConfigMap{}, metav1.CreateOptions{})
	g.Expect(apierrors.IsInvalid(err)).To(BeTrue())
	g.Expect(maps.Delete(t.Context(), made.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})).To(Succeed())
}

func TestStatusChangesOnlyThroughItsSubresource(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	c := controllerClient(t, newServer(t, Options{}))
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)},
		Status:     appsv1.DeploymentStatus{Replicas: 9},
	}
	g.Expect(c.Create(ctx, deployment)).To(Succeed())
	g.Expect(deployment.Status.Replicas).To(BeZero())
	g.Expect(deployment.Generation).To(BeEquivalentTo(1))

	changed := deployment.DeepCopy()
	changed.Status.Replicas = 1
	changed.Spec.Replicas = ptr.To[int32](5)
	g.Expect(c.Status().Update(ctx, changed)).To(Succeed())
	g.Expect(changed.Status.Replicas).To(BeEquivalentTo(1))
	g.Expect(*changed.Spec.Replicas).To(BeEquivalentTo(1))
	g.Expect(changed.Generation).To(BeEquivalentTo(1))

	patched := changed.DeepCopy()
	patched.Status.Replicas = 7
	patched.Spec.Replicas = ptr.To[int32](2)
	g.Expect(c.Patch(ctx, patched, client.MergeFrom(changed))).To(Succeed())
	g.Expect(patched.Status.Replicas).To(BeEquivalentTo(1))
	g.Expect(*patched.Spec.Replicas).To(BeEquivalentTo(2))
	g.Expect(patched.Generation).To(BeEquivalentTo(2))
}

func TestPatches(t *testing.T) {
	ctx := t.Context()
	c := widgetClient(t, newServer(t, Options{}))
	for name, tc := range map[string]struct {
		kind        types.PatchType
		patch       string
		subresource []string
		want        map[string]any // spec and status
	}{
		"merge":         {types.MergePatchType, `{"spec":{"a":null,"b":{"d":2}}}`, nil, map[string]any{"spec": map[string]any{"b": map[string]any{"c": int64(1), "d": int64(2)}}}},
		"strategic":     {types.StrategicMergePatchType, `{"spec":{"$retainKeys":["a"],"a":"y"}}`, nil, map[string]any{"spec": map[string]any{"a": "y", "b": map[string]any{"c": int64(1)}}}},
		"json":          {types.JSONPatchType, `[{"op":"replace","path":"/spec/b/c","value":5}]`, nil, map[string]any{"spec": map[string]any{"a": "x", "b": map[string]any{"c": int64(5)}}}},
		"merge, status": {types.MergePatchType, `{"spec":{"a":"y"},"status":{"ready":true}}`, []string{"status"}, map[string]any{"spec": map[string]any{"a": "x", "b": map[string]any{"c": int64(1)}}, "status": map[string]any{"ready": true}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			made, err := c.Create(ctx, widget("w", map[string]any{"a": "x", "b": map[string]any{"c": int64(1)}}), metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			got, err := c.Patch(ctx, "w", tc.kind, []byte(tc.patch), metav1.PatchOptions{}, tc.subresource...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.GetUID()).To(Equal(made.GetUID()))
			state := map[string]any{"spec": got.Object["spec"]}
			if status, found := got.Object["status"]; found {
				state["status"] = status
			}
			g.Expect(state).To(Equal(tc.want))
			g.Expect(c.Delete(ctx, "w", metav1.DeleteOptions{})).To(Succeed())
		})
	}
}

func TestAJSONPatchBelowWhatIsNotThereFails(t *testing.T) {
	g := NewWithT(t)
	c := widgetClient(t, newServer(t, Options{}))
	_, err := c.Create(t.Context(), widget("w", nil), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	beat := []byte(`[{"op":"add","path":"/status/agent","value":{"n":1}}]`)
	_, err = c.Patch(t.Context(), "w", types.JSONPatchType, beat, metav1.PatchOptions{}, "status")
	g.Expect(apierrors.ReasonForError(err)).To(Equal(metav1.StatusReasonInvalid), "got %v", err)

	_, err = c.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"status":{"namespace":"x"}}`), metav1.PatchOptions{}, "status")
	g.Expect(err).NotTo(HaveOccurred())
	got, err := c.Patch(t.Context(), "w", types.JSONPatchType, beat, metav1.PatchOptions{}, "status")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Object["status"]).To(Equal(map[string]any{"namespace": "x", "agent": map[string]any{"n": int64(1)}}))
}

func TestAPatchWithAnOldResourceVersionConflicts(t *testing.T) {
	g := NewWithT(t)
	c := controllerClient(t, newServer(t, Options{}))
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	g.Expect(c.Create(t.Context(), old)).To(Succeed())
	newer := old.DeepCopy()
	newer.Data = map[string]string{"k": "1"}
	g.Expect(c.Update(t.Context(), newer)).To(Succeed())

	late := old.DeepCopy()
	late.Data = map[string]string{"k": "2"}
	err := c.Patch(t.Context(), late, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "got %v", err)
}

func TestServerSideApply(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	c := widgetClient(t, server)
	apply := func(manager string, spec map[string]any) *unstructured.Unstructured {
		t.Helper()
		got, err := c.Apply(t.Context(), "w", widget("w", spec), metav1.ApplyOptions{FieldManager: manager, Force: true})
		g.Expect(err).NotTo(HaveOccurred())
		return got
	}

	made := apply("one", map[string]any{"a": "1", "both": "1", "list": []any{map[string]any{"name": "x"}, map[string]any{"name": "y"}}})
	g.Expect(made.GetUID()).NotTo(BeEmpty())
	log := server.Requests()
	g.Expect(log[len(log)-1].Code).To(Equal(http.StatusCreated))

	again := apply("one", map[string]any{"a": "1", "both": "1", "list": []any{map[string]any{"name": "x"}, map[string]any{"name": "y"}}})
	g.Expect(again.GetResourceVersion()).To(Equal(made.GetResourceVersion()), "what is the same is not written")

	got := apply("two", map[string]any{"b": "2", "both": "1"})
	g.Expect(got.Object["spec"]).To(HaveKeyWithValue("a", "1"))
	g.Expect(got.Object["spec"]).To(HaveKeyWithValue("b", "2"))

	got = apply("one", map[string]any{"list": []any{map[string]any{"name": "x"}}})
	g.Expect(got.Object["spec"]).To(Equal(map[string]any{
		"b": "2", "both": "1", "list": []any{map[string]any{"name": "x"}},
	}), "only what nobody applies any more goes")

	_, err := c.Patch(t.Context(), "w", types.ApplyPatchType, []byte(`{"apiVersion":"example.com/v1","kind":"Widget"}`), metav1.PatchOptions{})
	g.Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "a field manager is required, got %v", err)
}

func TestNothingIsStoredWhereNothingChanges(t *testing.T) {
	g := NewWithT(t)
	c := controllerClient(t, newServer(t, Options{}))
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"k": "1"}}
	g.Expect(c.Create(t.Context(), object)).To(Succeed())
	before := object.ResourceVersion
	g.Expect(c.Update(t.Context(), object)).To(Succeed())
	g.Expect(c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"1"}}`)))).To(Succeed())
	g.Expect(object.ResourceVersion).To(Equal(before))
}

func TestADryRunStoresNothing(t *testing.T) {
	g := NewWithT(t)
	c := controllerClient(t, newServer(t, Options{}))
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	g.Expect(c.Create(t.Context(), object.DeepCopy(), client.DryRunAll)).To(Succeed())
	g.Expect(apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(object), object))).To(BeTrue())
}

func TestFinalizersHoldADeletionUp(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	c := controllerClient(t, newServer(t, Options{}))
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Finalizers: []string{"example.com/f"}}}
	g.Expect(c.Create(ctx, object)).To(Succeed())
	g.Expect(c.Delete(ctx, object)).To(Succeed())
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
	g.Expect(object.DeletionTimestamp).NotTo(BeNil())
	version := object.ResourceVersion
	g.Expect(c.Delete(ctx, object)).To(Succeed())
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
	g.Expect(object.ResourceVersion).To(Equal(version))

	object.Finalizers = nil
	g.Expect(c.Update(ctx, object)).To(Succeed())
	g.Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(object), object))).To(BeTrue())
}

func TestADeletedNamespaceTakesItsObjectsAlong(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	c := controllerClient(t, newServer(t, Options{}))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	g.Expect(c.Create(ctx, namespace)).To(Succeed())
	g.Expect(namespace.Status.Phase).To(Equal(corev1.NamespaceActive))
	inside := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}
	outside := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	g.Expect(c.Create(ctx, inside)).To(Succeed())
	g.Expect(c.Create(ctx, outside)).To(Succeed())

	g.Expect(c.Delete(ctx, namespace)).To(Succeed())
	g.Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(inside), inside))).To(BeTrue())
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(outside), outside)).To(Succeed())
}

func TestListsAreFilteredAndSorted(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	server := newServer(t, Options{})
	c := controllerClient(t, server)
	for _, name := range []string{"b", "a", "c"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"name": name, "owner": "helm"}}, Type: "x/y"}
		g.Expect(c.Create(ctx, secret)).To(Succeed())
	}
	g.Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "d"}})).To(Succeed())
	names := func(options ...client.ListOption) []string {
		t.Helper()
		list := &corev1.SecretList{}
		g.Expect(c.List(ctx, list, options...)).To(Succeed())
		g.Expect(list.ResourceVersion).NotTo(BeEmpty())
		out := []string{}
		for _, item := range list.Items {
			out = append(out, item.Name)
		}
		return out
	}
	g.Expect(names()).To(Equal([]string{"a", "b", "c", "d"}))
	g.Expect(names(client.InNamespace("kube-system"))).To(Equal([]string{"d"}))
	g.Expect(names(client.MatchingLabels{"owner": "helm", "name": "b"})).To(Equal([]string{"b"}))
	g.Expect(names(client.HasLabels{"owner"})).To(Equal([]string{"a", "b", "c"}))
	g.Expect(names(client.MatchingFields{"metadata.name": "c"})).To(Equal([]string{"c"}))
	g.Expect(names(client.MatchingFields{"type": "x/y"})).To(Equal([]string{"a", "b", "c"}))
	g.Expect(apierrors.IsBadRequest(c.List(ctx, &corev1.SecretList{}, client.MatchingFields{"data.x": "y"}))).To(BeTrue())

	g.Expect(c.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace("default"), client.MatchingLabels{"name": "a"})).To(Succeed())
	g.Expect(names()).To(Equal([]string{"b", "c", "d"}))
}

func TestMetadataAloneIsServed(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	server := newServer(t, Options{})
	c := controllerClient(t, server)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"owner": "helm"}}, Data: map[string][]byte{"k": []byte("v")}}
	g.Expect(c.Create(ctx, secret)).To(Succeed())

	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	g.Expect(c.List(ctx, list, client.HasLabels{"owner"})).To(Succeed())
	g.Expect(list.Items).To(HaveLen(1))
	g.Expect(list.Items[0].UID).To(Equal(secret.UID))

	raw, err := clientset(t, server).CoreV1().RESTClient().Get().AbsPath("/api/v1/secrets").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").DoRaw(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(raw)).To(ContainSubstring(`"kind":"PartialObjectMetadataList"`))
	g.Expect(string(raw)).NotTo(ContainSubstring(`"data"`))

	m, err := metadata.NewForConfig(server.Config())
	g.Expect(err).NotTo(HaveOccurred())
	one, err := m.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(one.Labels).To(HaveKeyWithValue("owner", "helm"))
}

func TestUnknownGroupsAreServed(t *testing.T) {
	g := NewWithT(t)
	c := widgetClient(t, newServer(t, Options{}))
	list, err := c.List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list.Items).To(BeEmpty())
	_, err = c.Create(t.Context(), widget("w", map[string]any{"n": int64(1)}), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	list, err = c.List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list.Items).To(HaveLen(1))
	g.Expect(list.GetKind()).To(Equal("WidgetList"))

	uid := types.UID("other")
	err = c.Delete(t.Context(), "w", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "got %v", err)
	g.Expect(c.Delete(t.Context(), "w", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})).To(Succeed())
}

func TestMistakesOfAClientAreAnswered(t *testing.T) {
	g := NewWithT(t)
	rest := clientset(t, newServer(t, Options{})).CoreV1().RESTClient()
	code := func(verb, path, body string) int {
		t.Helper()
		err := rest.Verb(verb).AbsPath(path).Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
		var status apierrors.APIStatus
		g.Expect(errors.As(err, &status)).To(BeTrue(), "%s %s: %v", verb, path, err)
		return int(status.Status().Code)
	}
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`
	g.Expect(code("POST", "/api/v1/secrets", secret)).To(Equal(http.StatusMethodNotAllowed))
	g.Expect(code("GET", "/api/v1/secrets/a", "")).To(Equal(http.StatusNotFound))
	g.Expect(code("POST", "/api/v1/namespaces/default/configmaps", secret)).To(Equal(http.StatusBadRequest))
	g.Expect(code("POST", "/api/v1/namespaces/default/secrets", "{")).To(Equal(http.StatusBadRequest))
	g.Expect(code("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterroles", secret)).To(Equal(http.StatusNotFound))
	g.Expect(code("GET", "/api/v1/namespaces/default/pods/a/log", "")).To(Equal(http.StatusNotFound))
	g.Expect(code("GET", "/nowhere", "")).To(Equal(http.StatusNotFound))
}
