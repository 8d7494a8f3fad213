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
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

func TestAnInMemoryServerDoesWhatThatOfClusterAPIDoes(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{InMemory: true})
	c := clientset(t, server)
	ctx := t.Context()

	system, err := c.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(system.UID).To(BeEmpty())
	g.Expect(server.UID()).To(BeEmpty())

	maps := c.CoreV1().ConfigMaps("default")
	_, err = maps.Apply(ctx, corev1ac.ConfigMap("a", "default"), metav1.ApplyOptions{FieldManager: "m"})
	g.Expect(apierrors.IsUnsupportedMediaType(err)).To(BeTrue(), "%v", err)
	_, err = maps.Get(ctx, "a", metav1.GetOptions{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(made.UID).To(BeEmpty())
	patched, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(patched.Data).To(HaveKeyWithValue("x", "y"))
	_, err = maps.Patch(ctx, "a", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{})
	g.Expect(apierrors.IsUnsupportedMediaType(err)).To(BeTrue(), "%v", err)
	g.Expect(maps.Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())

	_, err = c.NetworkingV1().NetworkPolicies("default").Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	g.Expect(apierrors.IsInternalError(err)).To(BeTrue(), "%v", err)
}
