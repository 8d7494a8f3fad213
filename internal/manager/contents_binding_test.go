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
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// bindingServer is an API server that counts requests and can refuse them.
type bindingServer struct {
	client.WithWatch
	getErr, createErr      error
	gets, creates, patches int
	otherWrites            int
}

func newBindingServer(t *testing.T, objects ...client.Object) *bindingServer {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	s := &bindingServer{}
	s.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			s.gets++
			if s.getErr != nil {
				return s.getErr
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			s.creates++
			if s.createErr != nil {
				return s.createErr
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			s.patches++
			return c.Patch(ctx, obj, patch, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			s.otherWrites++
			return c.Update(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			s.otherWrites++
			return c.Delete(ctx, obj, opts...)
		},
	})
	return s
}

func (s *bindingServer) writes() int { return s.creates + s.patches + s.otherWrites }

func (s *bindingServer) binding() *contentsBinding {
	return &contentsBinding{reader: s, writer: s, namespace: "addons", clock: testclock.NewFakeClock(time.Now())}
}

func (s *bindingServer) ensure(ctx context.Context) error {
	b := s.binding()
	return b.ensure(ctx, b.desired())
}

func (s *bindingServer) current(g *WithT, ctx context.Context) *rbacv1.ClusterRoleBinding {
	binding := &rbacv1.ClusterRoleBinding{}
	getErr := s.getErr
	s.getErr = nil
	g.Expect(s.Get(ctx, client.ObjectKey{Name: "addons-agent-contents"}, binding)).To(Succeed())
	s.getErr = getErr
	return binding
}

func rightBinding() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: "addons-agent-contents",
			Labels: map[string]string{
				"cluster.x-k8s.io/provider":   "addon-fleet",
				"clusterctl.cluster.x-k8s.io": "",
			},
		},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: "system:serviceaccounts:addons"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "capi-fleet-system-agent-contents"},
	}
}

func expectRight(g *WithT, got *rbacv1.ClusterRoleBinding) {
	want := rightBinding()
	g.Expect(got.Subjects).To(Equal(want.Subjects))
	g.Expect(got.RoleRef).To(Equal(want.RoleRef))
	for key, value := range want.Labels {
		g.Expect(got.Labels).To(HaveKeyWithValue(key, value))
	}
}

func TestMissingBindingIsCreatedOnce(t *testing.T) {
	g := NewWithT(t)
	s := newBindingServer(t)

	g.Expect(s.ensure(t.Context())).To(Succeed())
	g.Expect(s.ensure(t.Context())).To(Succeed())

	expectRight(g, s.current(g, t.Context()))
	g.Expect(s.creates).To(Equal(1))
	g.Expect(s.writes()).To(Equal(1))
}

func TestRightBindingIsNotWritten(t *testing.T) {
	g := NewWithT(t)
	binding := rightBinding()
	binding.Labels["team"] = "edge"
	s := newBindingServer(t, binding)

	g.Expect(s.ensure(t.Context())).To(Succeed())

	g.Expect(s.writes()).To(BeZero())
}

func TestWrongBindingIsRepaired(t *testing.T) {
	for name, spoil := range map[string]func(*rbacv1.ClusterRoleBinding){
		"no subjects": func(b *rbacv1.ClusterRoleBinding) { b.Subjects = nil },
		"other group": func(b *rbacv1.ClusterRoleBinding) { b.Subjects[0].Name = "system:authenticated" },
		"second subject": func(b *rbacv1.ClusterRoleBinding) {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", Name: "eve", APIGroup: rbacv1.GroupName})
		},
		"no labels":     func(b *rbacv1.ClusterRoleBinding) { b.Labels = nil },
		"label missing": func(b *rbacv1.ClusterRoleBinding) { delete(b.Labels, "clusterctl.cluster.x-k8s.io") },
		"label changed": func(b *rbacv1.ClusterRoleBinding) { b.Labels["cluster.x-k8s.io/provider"] = "addon-helm" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			binding := rightBinding()
			binding.Annotations = map[string]string{"note": "stays"}
			spoil(binding)
			s := newBindingServer(t, binding)

			g.Expect(s.ensure(t.Context())).To(Succeed())

			got := s.current(g, t.Context())
			expectRight(g, got)
			g.Expect(got.Annotations).To(HaveKeyWithValue("note", "stays"))
			g.Expect(s.patches).To(Equal(1))
			g.Expect(s.writes()).To(Equal(1))
		})
	}
}

func TestBindingToAnotherRoleIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	binding := rightBinding()
	binding.RoleRef.Name = "cluster-admin"
	binding.Subjects = nil
	s := newBindingServer(t, binding)

	g.Expect(s.ensure(t.Context())).To(MatchError(And(
		ContainSubstring("addons-agent-contents"), ContainSubstring("cluster-admin"))))

	g.Expect(s.writes()).To(BeZero())
	g.Expect(s.current(g, t.Context()).Subjects).To(BeEmpty())
}

func TestBindingThatMayNotBeReadIsCreatedAllTheSame(t *testing.T) {
	g := NewWithT(t)
	s := newBindingServer(t)
	s.getErr = apierrors.NewForbidden(schema.GroupResource{Resource: "clusterrolebindings"}, "addons-agent-contents", errors.New("no"))

	g.Expect(s.ensure(t.Context())).To(Succeed())
	expectRight(g, s.current(g, t.Context()))

	g.Expect(s.ensure(t.Context())).To(Succeed(), "it is there already")
	g.Expect(s.patches).To(BeZero())
}

func TestFailedReadWritesNothing(t *testing.T) {
	g := NewWithT(t)
	s := newBindingServer(t)
	s.getErr = apierrors.NewInternalError(errors.New("etcd is down"))

	g.Expect(s.ensure(t.Context())).To(MatchError(ContainSubstring("etcd is down")))
	g.Expect(s.writes()).To(BeZero())
}

func TestBindingIsLookedAtAgainAndFailuresAreSaidOnce(t *testing.T) {
	g := NewWithT(t)
	s := newBindingServer(t)
	s.createErr = apierrors.NewForbidden(schema.GroupResource{Resource: "clusterrolebindings"}, "addons-agent-contents", errors.New("no"))
	clock := testclock.NewFakeClock(time.Now())
	b := s.binding()
	b.clock = clock
	lines := &logLines{}
	ctx, cancel := context.WithCancel(lines.into(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	// The counters are read only while the loop sleeps.
	step := func(d time.Duration) {
		g.Eventually(clock.HasWaiters).Should(BeTrue())
		clock.Step(d)
		g.Eventually(clock.HasWaiters).Should(BeTrue())
	}

	step(2 * bindingRetryInterval)
	step(2 * bindingRetryInterval)
	g.Expect(s.creates).To(Equal(3))
	g.Expect(lines.with("Failed to keep")).To(HaveLen(1))

	s.createErr = nil
	step(2 * bindingRetryInterval)
	expectRight(g, s.current(g, t.Context()))

	gets := s.gets
	step(bindingInterval - time.Second)
	g.Expect(s.gets).To(Equal(gets), "a right binding is looked at every ten minutes")

	g.Expect(s.Delete(t.Context(), rightBinding())).To(Succeed())
	step(bindingInterval)
	expectRight(g, s.current(g, t.Context()))

	cancel()
	g.Eventually(ended).Should(Receive(BeNil()))
}
