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

package manager

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestWhatPoliciesNameIsReadOnceASecondHoweverManyClustersAreSelected(t *testing.T) {
	g := NewWithT(t)
	meta := metav1.ObjectMeta{Namespace: "here", Name: "ca"}
	reads := 0
	live := fake.NewClientBuilder().
		WithObjects(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"ca.crt": []byte("secret")}}, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": "map"}}).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, obj, opts...)
		}}).Build()
	clock := testclock.NewFakePassiveClock(time.Now())
	reader := &configReader{live: live, managerNamespace: "here", clock: clock}
	for range 3 {
		secret, configMap := &corev1.Secret{}, &corev1.ConfigMap{}
		g.Expect(reader.Get(t.Context(), client.ObjectKey{Namespace: "here", Name: "ca"}, secret)).To(Succeed())
		g.Expect(reader.Get(t.Context(), client.ObjectKey{Namespace: "here", Name: "ca"}, configMap)).To(Succeed())
		g.Expect(secret.Data).To(HaveKeyWithValue("ca.crt", []byte("secret")))
		g.Expect(configMap.Data).To(HaveKeyWithValue("ca.crt", "map"))
		secret.Data["ca.crt"][0] = 'x' // Whoever reads may change what they got.
	}
	g.Expect(reads).To(Equal(2))

	clock.SetTime(clock.Now().Add(time.Second))
	for range 2 {
		g.Expect(reader.Get(t.Context(), client.ObjectKey{Namespace: "here", Name: "missing"}, &corev1.Secret{})).NotTo(Succeed())
	}
	g.Expect(reader.Get(t.Context(), client.ObjectKey{Namespace: "here", Name: "ca"}, &corev1.Secret{})).To(Succeed())
	g.Expect(reads).To(Equal(5), "an error counts for nothing")
}
