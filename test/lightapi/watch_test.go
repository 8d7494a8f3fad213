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
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func configMap(namespace, name, label string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"l": label}}}
}

func TestAWatchGetsTheChangesThatItsFilterLetsThrough(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	c := controllerClient(t, newServer(t, Options{}))
	list := &corev1.ConfigMapList{}
	g.Expect(c.List(ctx, list)).To(Succeed())
	w, err := c.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace("default"), client.MatchingLabels{"l": "yes"},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	g.Expect(err).NotTo(HaveOccurred())
	defer w.Stop()

	g.Expect(c.Create(ctx, configMap("kube-system", "elsewhere", "yes"))).To(Succeed())
	g.Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", Labels: map[string]string{"l": "yes"}}})).To(Succeed())
	comes := configMap("default", "comes", "no")
	g.Expect(c.Create(ctx, comes)).To(Succeed())
	comes.Labels["l"] = "yes"
	g.Expect(c.Update(ctx, comes)).To(Succeed())
	comes.Data = map[string]string{"k": "v"}
	g.Expect(c.Update(ctx, comes)).To(Succeed())
	comes.Labels["l"] = "no"
	g.Expect(c.Update(ctx, comes)).To(Succeed())
	goes := configMap("default", "goes", "yes")
	g.Expect(c.Create(ctx, goes)).To(Succeed())
	g.Expect(c.Delete(ctx, goes)).To(Succeed())

	for _, want := range []string{"ADDED comes", "MODIFIED comes", "DELETED comes", "ADDED goes", "DELETED goes"} {
		var e watch.Event
		g.Eventually(w.ResultChan(), patience).Should(Receive(&e))
		g.Expect(fmt.Sprintf("%s %s", e.Type, e.Object.(*corev1.ConfigMap).Name)).To(Equal(want))
	}
}

func TestAWatchWithoutAVersionBeginsWithWhatIsThere(t *testing.T) {
	g := NewWithT(t)
	c := clientset(t, newServer(t, Options{}))
	w, err := c.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=kube-system"})
	g.Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	g.Eventually(w.ResultChan(), patience).Should(Receive(HaveField("Type", watch.Added)))
}

func TestAWatchEndsWithTheServerAndAtItsTimeout(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	c := clientset(t, server)
	second := int64(1)
	short, err := c.CoreV1().Secrets("").Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: &second})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(short.ResultChan(), patience).Should(BeClosed())

	w, err := c.CoreV1().Secrets("").Watch(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.Stop()).To(Succeed())
	g.Eventually(w.ResultChan(), patience).Should(BeClosed())
}

func TestAWatchFromTooLongAgoHasExpired(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	k := key{namespace: "default", name: "a"}
	for n := range maxEvents + 1 {
		_, err := server.store.change(widgets.GroupResource(), k, false, func(*record) (*record, error) {
			return &record{object: widget("a", map[string]any{"n": int64(n)})}, nil
		})
		g.Expect(err).NotTo(HaveOccurred())
	}
	w, err := clientset(t, server).CoreV1().Secrets("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	g.Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	var e watch.Event
	g.Eventually(w.ResultChan(), patience).Should(Receive(&e))
	g.Expect(e.Type).To(Equal(watch.Error))
	g.Expect(apierrors.IsResourceExpired(apierrors.FromObject(e.Object))).To(BeTrue())
}

func TestAnInformerFollows(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	server := newServer(t, Options{})
	c := clientset(t, server)
	_, err := c.CoreV1().ConfigMaps("default").Create(ctx, configMap("default", "before", ""), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	factory := informers.NewSharedInformerFactory(c, 0)
	defer factory.Shutdown()
	informer := factory.Core().V1().ConfigMaps()
	lister := informer.Lister().ConfigMaps("default")
	synced := informer.Informer().HasSynced
	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	g.Expect(cache.WaitForCacheSync(ctx.Done(), synced)).To(BeTrue())
	_, err = lister.Get("before")
	g.Expect(err).NotTo(HaveOccurred())

	_, err = c.CoreV1().ConfigMaps("default").Create(ctx, configMap("default", "after", ""), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error { _, err := lister.Get("after"); return err }, patience).Should(Succeed())
	g.Expect(c.CoreV1().ConfigMaps("default").Delete(ctx, "before", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() bool { _, err := lister.Get("before"); return apierrors.IsNotFound(err) }, patience).Should(BeTrue())
}
