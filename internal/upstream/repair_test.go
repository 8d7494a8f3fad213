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

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// The places of the objects in what everything returns.
const (
	fleetCluster = iota
	namespace
	account
	role
	statusBinding
	bundlesBindingAt
)

// damages are what others may do to our objects, and what puts it right.
func damages() map[string]damage {
	first, _ := names()
	return map[string]damage{
		"emptied clientID": {fleetCluster, func(obj client.Object) { obj.(*fleet.Cluster).Spec.ClientID = "" },
			[]string{"patch Fleet Cluster team-a/edge-1"}},
		"another agent namespace": {fleetCluster, func(obj client.Object) { obj.(*fleet.Cluster).Spec.AgentNamespace = "elsewhere" },
			[]string{"patch Fleet Cluster team-a/edge-1"}},
		"a lost UID of the Cluster": {fleetCluster, func(obj client.Object) { delete(obj.GetAnnotations(), fleetv1.ClusterUIDAnnotation) },
			[]string{"patch Fleet Cluster team-a/edge-1"}},
		"a Fleet Cluster labelled as an orphan": {fleetCluster, func(obj client.Object) { obj.GetLabels()[fleetv1.OrphanLabel] = "true" },
			[]string{"patch Fleet Cluster team-a/edge-1"}},
		"another cluster namespace": {fleetCluster, func(obj client.Object) { obj.(*fleet.Cluster).Status.Namespace = "kube-system" },
			[]string{"patch status of Fleet Cluster team-a/edge-1"}},
		"a lost cluster namespace": {fleetCluster, func(obj client.Object) { obj.(*fleet.Cluster).Status.Namespace = "" },
			[]string{"patch status of Fleet Cluster team-a/edge-1"}},
		"namespace without Fleet's annotations": {namespace, func(obj client.Object) { delete(obj.GetAnnotations(), fleet.ClusterAnnotation) },
			[]string{"patch namespace /" + first}},
		"namespace with Fleet's annotations of another": {namespace, func(obj client.Object) { obj.GetAnnotations()[fleet.ClusterAnnotation] = "edge-2" },
			[]string{"patch namespace /" + first}},
		"namespace without Fleet's label": {namespace, func(obj client.Object) { delete(obj.GetLabels(), fleet.ManagedLabel) },
			[]string{"patch namespace /" + first}},
		"a namespace labelled as an orphan": {namespace, func(obj client.Object) { obj.GetLabels()[fleetv1.OrphanLabel] = "true" },
			[]string{"patch namespace /" + first}},
		"service account without label": {account, func(obj client.Object) { obj.SetLabels(nil) },
			[]string{"apply ServiceAccount capi-fleet-system/" + first}},
		"widened Role": {role, func(obj client.Object) {
			role := obj.(*rbacv1.Role)
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}})
		}, []string{"apply Role team-a/" + first}},
		"emptied Role":       {role, func(obj client.Object) { obj.(*rbacv1.Role).Rules = nil }, []string{"apply Role team-a/" + first}},
		"Role without label": {role, func(obj client.Object) { obj.SetLabels(nil) }, []string{"apply Role team-a/" + first}},
		"another subject": {statusBinding, func(obj client.Object) { obj.(*rbacv1.RoleBinding).Subjects[0].Name = "someone" },
			[]string{"apply RoleBinding team-a/" + first}},
		"one more subject": {bundlesBindingAt, func(obj client.Object) {
			binding := obj.(*rbacv1.RoleBinding)
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "someone"})
		}, []string{"apply RoleBinding " + first + "/capi-fleet-agent"}},
		"another role": {bundlesBindingAt, func(obj client.Object) { obj.(*rbacv1.RoleBinding).RoleRef.Name = "cluster-admin" },
			[]string{"delete RoleBinding " + first + "/capi-fleet-agent", "create RoleBinding " + first + "/capi-fleet-agent"}},
	}
}

type damage struct {
	at     int
	change func(client.Object)
	writes []string
}

// look looks with the Fleet Cluster of the cache.
func (a *api) look(t *testing.T) (types.UID, string) {
	t.Helper()
	g := NewWithT(t)
	first, _ := names()
	cluster := &fleet.Cluster{}
	if err := a.Get(t.Context(), registration.FleetCluster, cluster); err != nil {
		g.Expect(client.IgnoreNotFound(err)).To(Succeed())
		cluster = nil
	}
	a.requests = nil
	account, amiss, err := a.writer().Look(t.Context(), placedAt(first), cluster)
	g.Expect(err).NotTo(HaveOccurred())
	return account, amiss
}

func TestWhatWasChangedIsFoundAndPutRight(t *testing.T) {
	first, _ := names()
	for name, tt := range damages() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all := everything()
			all[tt.at].GetAnnotations()["of"] = "someone else"
			tt.change(all[tt.at])
			a := newAPI(t, all...)
			again := placedAt(first)
			again.LookFirst = true

			_, amiss := a.look(t)
			g.Expect(amiss).To(HavePrefix(kind(all[tt.at])))
			a.requests = nil
			_, err := a.writer().Ensure(t.Context(), again, free)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(a.writes()).To(Equal(tt.writes))
			_, amiss = a.look(t)
			g.Expect(amiss).To(BeEmpty())
			if len(tt.writes) == 1 {
				g.Expect(a.snapshot(t, all[tt.at]).GetAnnotations()).To(HaveKeyWithValue("of", "someone else"), "what others added stays")
				g.Expect(a.snapshot(t, all[tt.at]).GetUID()).To(Equal(all[tt.at].GetUID()))
			}

			a.requests = nil
			_, err = a.writer().Ensure(t.Context(), again, free)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(a.writes()).To(BeEmpty(), "nothing differs any more")
		})
	}
}

func TestWhatIsAsItShouldBeIsSeenWithoutARequest(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	a := newAPI(t, everything()...)
	w := a.writer()
	cache := &counting{Reader: everythingCached(t)}
	w.Cache = cache

	uid, amiss, err := w.Look(t.Context(), placedAt(first), everything()[fleetCluster].(*fleet.Cluster))

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(amiss).To(BeEmpty())
	g.Expect(uid).To(Equal(types.UID("uid-" + first)))
	g.Expect(a.requests).To(BeEmpty())
	g.Expect(cache.reads).To(Equal(5))
}

func everythingCached(t *testing.T) client.Reader {
	t.Helper()
	return newAPI(t, everything()...).WithWatch
}

type counting struct {
	client.Reader
	reads int
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	c.reads++
	return c.Reader.Get(ctx, key, obj, opts...)
}

func TestWhatIsMissingIsFoundAndMadeAnew(t *testing.T) {
	first, _ := names()
	for i, missing := range everything() {
		t.Run(kind(missing)+" "+missing.GetNamespace(), func(t *testing.T) {
			g := NewWithT(t)
			all := everything()
			a := newAPI(t, append(all[:i:i], all[i+1:]...)...)
			again := placedAt(first)
			again.LookFirst = true

			_, amiss := a.look(t)
			g.Expect(amiss).To(HavePrefix(kind(missing)))
			a.requests = nil
			placed, err := a.writer().Ensure(t.Context(), again, free)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(placed.AccountUID).To(Equal(a.snapshot(t, all[account]).GetUID()))
			g.Expect(a.writes()[0]).To(HavePrefix("create " + kind(missing)))
			_, amiss = a.look(t)
			g.Expect(amiss).To(BeEmpty())
		})
	}
}

func TestWhatGoesOrIsAnotherIsNotAsItShouldBe(t *testing.T) {
	first, _ := names()
	for _, tt := range []struct {
		name   string
		change func(all []client.Object)
		amiss  string
	}{
		{"Fleet Cluster of another registration with our label", func(all []client.Object) {
			all[fleetCluster].GetAnnotations()[fleetv1.RegistrationIDAnnotation] = "of someone else"
		}, "Fleet Cluster team-a/edge-1"},
		{"Fleet Cluster that is about to go", func(all []client.Object) { terminating(all[fleetCluster]) }, "Fleet Cluster team-a/edge-1"},
		{"namespace that is about to go", func(all []client.Object) { terminating(all[namespace]) }, "namespace " + first},
		{"namespace that was made anew", func(all []client.Object) { all[namespace].SetUID("new") }, "namespace " + first},
		{"service account without our mark", func(all []client.Object) { all[account].SetAnnotations(nil) }, "service account capi-fleet-system/" + first},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := everything()
			tt.change(all)
			_, amiss := newAPI(t, all...).look(t)
			NewWithT(t).Expect(amiss).To(Equal(tt.amiss))
		})
	}
}

// Fleet makes it for a cluster that it registers by itself, and it is not marked when
// that is adopted.
func TestANamespaceThatFleetMadeIsNotMarked(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	all := everything()
	all[namespace].SetLabels(map[string]string{fleet.ManagedLabel: "true", fleetv1.OrphanLabel: "true"})
	delete(all[namespace].GetAnnotations(), fleetv1.RegistrationIDAnnotation)
	a := newAPI(t, all...)

	_, err := a.writer().Ensure(t.Context(), placedAt(first), free)

	g.Expect(err).NotTo(HaveOccurred())
	live := a.snapshot(t, all[namespace])
	g.Expect(live.GetLabels()).To(Equal(map[string]string{fleet.ManagedLabel: "true"}), "but it is no orphan any more")
	g.Expect(live.GetAnnotations()).To(Equal(all[namespace].GetAnnotations()))
	_, amiss := a.look(t)
	g.Expect(amiss).To(BeEmpty())
}

func TestAnEmptiedClientIDIsRandomAgainAndOneThatIsThereStays(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	all := everything()
	all[fleetCluster].(*fleet.Cluster).Spec = fleet.ClusterSpec{ClientID: "secret", AgentNamespace: "elsewhere"}
	a := newAPI(t, all...)
	_, err := a.writer().Ensure(t.Context(), placedAt(first), free)
	g.Expect(err).NotTo(HaveOccurred())
	cluster := a.snapshot(t, all[fleetCluster]).(*fleet.Cluster)
	g.Expect(cluster.Spec).To(Equal(fleet.ClusterSpec{ClientID: "secret", AgentNamespace: "cattle-fleet-system"}))

	cluster.Spec.ClientID = ""
	a = newAPI(t, append([]client.Object{cluster}, all[1:]...)...)
	_, err = a.writer().Ensure(t.Context(), placedAt(first), free)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(a.snapshot(t, all[fleetCluster]).(*fleet.Cluster).Spec.ClientID) * 5).To(BeNumerically(">=", 128))
}

// The label may go between our look and our write.
func TestARepairNeverPutsTheManagementLabelBack(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	all := everything()
	all[fleetCluster].(*fleet.Cluster).Spec.AgentNamespace = "elsewhere"
	a := newAPI(t, all...)
	racing := interceptor.NewClient(a, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			live := all[fleetCluster].DeepCopyObject().(client.Object)
			handOver := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+fleet.ClusterManagementLabel+`":null}}}`))
			g.Expect(a.WithWatch.Patch(ctx, live, handOver)).To(Succeed())
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	w := &Writer{Client: racing, Reader: a, ManagerNamespace: managerNamespace}

	_, err := w.Ensure(t.Context(), placedAt(first), free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.snapshot(t, all[fleetCluster]).GetLabels()).To(BeEmpty())
}

func TestARepairIsBoundToTheObjectThatWasJudged(t *testing.T) {
	first, _ := names()
	for name, tt := range damages() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all := everything()
			tt.change(all[tt.at])
			a := newAPI(t, all...)
			var uids []types.UID
			spy := interceptor.NewClient(a, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					data, err := patch.Data(obj)
					g.Expect(err).NotTo(HaveOccurred())
					sent := metav1.PartialObjectMetadata{}
					g.Expect(json.Unmarshal(data, &sent)).To(Succeed())
					uids = append(uids, sent.UID)
					return c.Patch(ctx, obj, patch, opts...)
				},
				Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
					uids = append(uids, obj.(interface{ GetUID() types.UID }).GetUID())
					return c.Apply(ctx, obj, opts...)
				},
				Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
					options := (&client.DeleteOptions{}).ApplyOptions(opts)
					uids = append(uids, *options.Preconditions.UID)
					return c.Delete(ctx, obj, opts...)
				},
				SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					data, err := patch.Data(obj)
					g.Expect(err).NotTo(HaveOccurred())
					sent := metav1.PartialObjectMetadata{}
					g.Expect(json.Unmarshal(data, &sent)).To(Succeed())
					uids = append(uids, sent.UID)
					return c.SubResource(subResource).Patch(ctx, obj, patch, opts...)
				},
			})

			again := placedAt(first)
			again.LookFirst = true
			_, err := (&Writer{Client: spy, Reader: a, ManagerNamespace: managerNamespace}).Ensure(t.Context(), again, free)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(uids).To(Equal([]types.UID{all[tt.at].GetUID()}))
		})
	}
}

func TestAnErrorOfTheCacheIsNoFinding(t *testing.T) {
	g := NewWithT(t)
	first, _ := names()
	w := newAPI(t).writer()
	w.Cache = interceptor.NewClient(newAPI(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("not synced")
		},
	})
	_, amiss, err := w.Look(t.Context(), placedAt(first), everything()[fleetCluster].(*fleet.Cluster))
	g.Expect(err).To(MatchError(ContainSubstring("namespace /" + first)))
	g.Expect(amiss).To(BeEmpty())
}

func TestDiffers(t *testing.T) {
	first, _ := names()
	r := placedAt(first)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: first}}
	byFleet := r.namespace(first)
	delete(byFleet.Annotations, fleetv1.RegistrationIDAnnotation)
	for i, want := range everything() {
		NewWithT(t).Expect(r.differs(everything()[i], want)).To(BeFalse(), kind(want))
	}
	for _, tt := range []struct {
		name string
		live client.Object
		want bool
	}{
		{"a namespace of nobody", other, true},
		{"one that Fleet made", byFleet, false},
		{"one that Fleet made for another", foreign(r.namespace(first)), true},
	} {
		NewWithT(t).Expect(r.differs(tt.live, r.namespace(first))).To(Equal(tt.want), tt.name)
	}
}
