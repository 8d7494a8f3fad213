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

package selection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/endpoint"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// epoch is the time of the tests.
var epoch = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// key is that of the Cluster and of its registration.
var key = types.NamespacedName{Namespace: "team-a", Name: "edge-1"}

// env is a selection controller on a management cluster in memory.
type env struct {
	*Reconciler
	api client.WithWatch
	// writes are the requests that would change something.
	writes []string
	// applied is the newest apply.
	applied string
	// stale keeps the controller's cache from showing registrations.
	stale  bool
	events *events.FakeRecorder
	clock  *testclock.FakePassiveClock
}

func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, fleet.AddToScheme, fleetv1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	e := &env{events: events.NewFakeRecorder(100), clock: testclock.NewFakePassiveClock(epoch)}
	e.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&fleetv1.FleetRegistration{}, &fleetv1.FleetRegistrationPolicy{}).
		WithIndex(&fleetv1.FleetRegistration{}, policyIndex, policyNameOf).
		WithIndex(&fleetv1.FleetRegistration{}, changingIndex, changingOf).Build()
	note := func(verb string, obj client.Object) {
		e.writes = append(e.writes, fmt.Sprintf("%s %T", verb, obj))
	}
	e.Reconciler = &Reconciler{
		APIReader: e.api,
		Client: interceptor.NewClient(e.api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, ok := obj.(*fleetv1.FleetRegistration); ok && e.stale {
					return c.Get(ctx, types.NamespacedName{Name: "nothing", Namespace: "here"}, obj)
				}
				return c.Get(ctx, key, obj, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				note("create", obj)
				return c.Create(ctx, obj, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				note("patch", obj)
				return c.Patch(ctx, obj, patch, opts...)
			},
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
				return errors.New("update")
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				e.writes = append(e.writes, fmt.Sprintf("delete %T", obj))
				return c.Delete(ctx, obj, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, subResource string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				e.writes = append(e.writes, "apply "+subResource)
				content, err := json.Marshal(obj)
				if err != nil {
					return err
				}
				e.applied = string(content)
				return c.SubResource(subResource).Apply(ctx, obj, opts...)
			},
		}),
		Endpoint:      &endpoint.Resolver{Reader: e.api, ManagerNamespace: "capi-fleet-system", FleetNamespace: "cattle-fleet-system"},
		Recorder:      e.events,
		Clock:         e.clock,
		BuiltInPolicy: true,
	}
	return e
}

func (e *env) reconcile(t *testing.T) {
	t.Helper()
	result, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(result.IsZero()).To(BeTrue())
}

// registration returns the registration as it is; nil means that there is none.
func (e *env) registrationNow(t *testing.T) *fleetv1.FleetRegistration {
	t.Helper()
	reg := &fleetv1.FleetRegistration{}
	err := e.api.Get(t.Context(), key, reg)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return reg
}

func (e *env) change(t *testing.T, obj client.Object, change func()) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(e.api.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	change()
	g.Expect(e.api.Update(t.Context(), obj)).To(Succeed())
}

func register(value string) map[string]string { return map[string]string{fleetv1.RegisterLabel: value} }

func cluster(labels map[string]string) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "uid-of-cluster", Labels: labels}}
}

func namespace(labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace, Labels: labels}}
}

// fleetConfig is Fleet's configuration.
func fleetConfig(content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "cattle-fleet-system", Name: "fleet-controller"},
		Data:       map[string]string{"config": content},
	}
}

const goodConfig = `{"apiServerURL": "https://fleet.example", "agentImage": "registry.example/agent:v1"}`

var goodAgent = fleetv1.AgentSpec{
	ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: "https://fleet.example"},
	Image:             "registry.example/agent:v1",
}

// registered is the registration that the controller makes of the Cluster.
func registered(change ...func(*fleetv1.FleetRegistration)) *fleetv1.FleetRegistration {
	reg := &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: "uid-of-registration",
			Finalizers:      []string{fleetv1.FleetRegistrationFinalizer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: key.Name, UID: "uid-of-cluster"}},
		},
		Spec: fleetv1.FleetRegistrationSpec{
			RegistrationID: strings.Repeat("i", len(upstream.NewID())), ClusterUID: "uid-of-cluster",
			FleetCluster: fleetv1.FleetClusterReference(key),
			SelectedBy:   fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster},
			Agent:        goodAgent,
		},
	}
	for _, c := range change {
		c(reg)
	}
	return reg
}

func condition(name string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour))}
}

func with(conditions ...metav1.Condition) func(*fleetv1.FleetRegistration) {
	return func(reg *fleetv1.FleetRegistration) { reg.Status.Conditions = conditions }
}

func by(policy string, label fleetv1.LabelHolder) func(*fleetv1.FleetRegistration) {
	return func(reg *fleetv1.FleetRegistration) {
		reg.Spec.SelectedBy = fleetv1.SelectedBy{Policy: policy, Label: label}
		if policy != "" {
			reg.Spec.SelectedBy.NamespaceSelector = &metav1.LabelSelector{}
		}
	}
}

func TestALabelledClusterGetsARegistrationInOneWrite(t *testing.T) {
	g := NewWithT(t)
	labels := register("true")
	labels[clusterv1.WatchLabel] = "shard-1"
	e := newEnv(t, cluster(labels), namespace(nil), fleetConfig(goodConfig))

	e.reconcile(t)
	e.reconcile(t)

	reg := e.registrationNow(t)
	g.Expect(e.writes).To(Equal([]string{"create *v1alpha1.FleetRegistration"}))
	g.Expect(reg.Finalizers).To(Equal([]string{fleetv1.FleetRegistrationFinalizer}))
	g.Expect(reg.OwnerReferences).To(Equal([]metav1.OwnerReference{{
		APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "edge-1", UID: "uid-of-cluster",
	}}))
	g.Expect(reg.Labels).To(Equal(map[string]string{clusterv1.ClusterNameLabel: "edge-1", clusterv1.WatchLabel: "shard-1"}))
	g.Expect(reg.Spec.RegistrationID).To(Satisfy(upstream.ValidID))
	g.Expect(reg.Spec.FleetCluster).To(Equal(fleetv1.FleetClusterReference{Namespace: "team-a", Name: "edge-1"}))
	g.Expect(reg.Spec.SelectedBy).To(Equal(fleetv1.SelectedBy{Label: fleetv1.LabelOnCluster}))
	g.Expect(reg.Spec.Agent).To(Equal(goodAgent))
}

func TestOfAClusterOnlyTheStatusDoesNotCount(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*clusterv1.Cluster)
		counts bool
	}{
		"status": {func(c *clusterv1.Cluster) { c.Status.Phase, c.ResourceVersion = "Provisioned", "2" }, false},
		// The API server counts what is changed of the spec, and that a deletion was asked for.
		"generation":      {func(c *clusterv1.Cluster) { c.Generation++ }, true},
		"label":           {func(c *clusterv1.Cluster) { c.Labels = map[string]string{fleetv1.RegisterLabel: "true"} }, true},
		"annotation":      {func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, true},
		"another Cluster": {func(c *clusterv1.Cluster) { c.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "one", Generation: 1, ResourceVersion: "1"}}
			after := before.DeepCopy()
			tc.change(after)
			g.Expect(notOnlyStatus().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(tc.counts))
			g.Expect(notOnlyStatus().Create(event.CreateEvent{Object: before})).To(BeTrue())
			g.Expect(notOnlyStatus().Delete(event.DeleteEvent{Object: before})).To(BeTrue())
		})
	}
}

func TestEveryRegistrationHasAnIDOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig))
		e.reconcile(t)
		seen[e.registrationNow(t).Spec.RegistrationID] = true
	}
	NewWithT(t).Expect(seen).To(HaveLen(3))
}

func TestARegistrationIsMadeWithoutAnAddressToo(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(`{"agentImage": "registry.example/agent:v1"}`))

	e.reconcile(t)

	g.Expect(e.registrationNow(t).Spec.Agent).To(Equal(fleetv1.AgentSpec{Image: "registry.example/agent:v1"}))
}

func TestANameThatIsNoLabelIsMadeOneForFleet(t *testing.T) {
	g := NewWithT(t)
	c := cluster(register("true"))
	c.Name = "edge.one"
	e := newEnv(t, c, namespace(nil), fleetConfig(goodConfig))

	_, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})

	g.Expect(err).NotTo(HaveOccurred())
	reg := &fleetv1.FleetRegistration{}
	g.Expect(e.api.Get(t.Context(), client.ObjectKeyFromObject(c), reg)).To(Succeed())
	g.Expect(reg.Spec.FleetCluster.Name).To(Equal(fleet.ClusterName("edge.one")))
}

func TestTheIDOfTheClustersOwnFleetClusterIsTakenUpAgain(t *testing.T) {
	id := strings.Repeat("x", len(upstream.NewID()))
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		reused      bool
	}{
		{"made for this Cluster", map[string]string{fleetv1.ClusterUIDAnnotation: "uid-of-cluster", fleetv1.RegistrationIDAnnotation: id}, true},
		{"made for another of that name", map[string]string{fleetv1.ClusterUIDAnnotation: "uid-of-predecessor", fleetv1.RegistrationIDAnnotation: id}, false},
		{"without a UID", map[string]string{fleetv1.RegistrationIDAnnotation: id}, false},
		{"with an ID that is none of ours", map[string]string{fleetv1.ClusterUIDAnnotation: "uid-of-cluster", fleetv1.RegistrationIDAnnotation: "short"}, false},
		{"without annotations", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			existing := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: tt.annotations}}
			e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig), existing)

			e.reconcile(t)

			got := e.registrationNow(t).Spec.RegistrationID
			g.Expect(got).To(Satisfy(upstream.ValidID))
			isID := Equal(id)
			if !tt.reused {
				isID = Not(isID)
			}
			g.Expect(got).To(isID)
		})
	}
}

// Whoever can make Fleet Clusters can copy an ID that others hold.
func TestAnIDThatAnotherRegistrationHoldsIsNotTakenUp(t *testing.T) {
	g := NewWithT(t)
	id := strings.Repeat("x", len(upstream.NewID()))
	existing := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{
		fleetv1.ClusterUIDAnnotation: "uid-of-cluster", fleetv1.RegistrationIDAnnotation: id,
	}}}
	victim := registered(func(reg *fleetv1.FleetRegistration) {
		reg.Namespace, reg.Name, reg.Spec.RegistrationID = "team-b", "edge-9", id
	})
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig), existing, victim)

	e.reconcile(t)

	g.Expect(e.registrationNow(t).Spec.RegistrationID).To(And(Satisfy(upstream.ValidID), Not(Equal(id))))
}

func TestNothingIsDoneWithAClusterThatIsNotToJoin(t *testing.T) {
	paused := func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }
	annotated := func(annotation string) func(*clusterv1.Cluster) {
		return func(c *clusterv1.Cluster) { c.Annotations = map[string]string{annotation: ""} }
	}
	deleted := func(c *clusterv1.Cluster) {
		c.Finalizers = []string{"someone.example/waits"}
		c.DeletionTimestamp = &metav1.Time{Time: epoch}
	}
	for _, tt := range []struct {
		name      string
		labels    map[string]string
		namespace map[string]string
		change    func(*clusterv1.Cluster)
		filter    string
	}{
		{name: "not labelled"},
		{name: "opted out", labels: register("false"), namespace: register("true")},
		{name: "mistyped", labels: register("True"), namespace: register("true")},
		{name: "paused", labels: register("true"), change: paused},
		{name: "paused by annotation", labels: register("true"), change: annotated(clusterv1.PausedAnnotation)},
		{name: "on the move", labels: register("true"), change: annotated("clusterctl.cluster.x-k8s.io/delete-for-move")},
		{name: "being deleted", labels: register("true"), change: deleted},
		{name: "of another manager", labels: register("true"), filter: "shard-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster(tt.labels)
			if tt.change != nil {
				tt.change(c)
			}
			e := newEnv(t, c, namespace(tt.namespace), fleetConfig(goodConfig))
			e.WatchFilter = tt.filter

			e.reconcile(t)

			g.Expect(e.writes).To(BeEmpty())
			g.Expect(e.registrationNow(t)).To(BeNil())
		})
	}
}

func TestNothingIsWrittenToARegistrationThatMustNotBe(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cluster func(*clusterv1.Cluster)
		reg     func(*fleetv1.FleetRegistration)
	}{
		{name: "the Cluster is paused", cluster: func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }},
		{name: "it is paused", reg: func(reg *fleetv1.FleetRegistration) {
			reg.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}},
		{name: "it is on the move", reg: func(reg *fleetv1.FleetRegistration) {
			reg.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
		}},
		{name: "it is being deleted", reg: func(reg *fleetv1.FleetRegistration) { reg.DeletionTimestamp = &metav1.Time{Time: epoch} }},
		{name: "it belongs to another Cluster", reg: func(reg *fleetv1.FleetRegistration) { reg.OwnerReferences[0].UID = "another" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, reg := cluster(register("false")), registered()
			if tt.cluster != nil {
				tt.cluster(c)
			}
			if tt.reg != nil {
				tt.reg(reg)
			}
			e := newEnv(t, c, namespace(nil), fleetConfig(goodConfig), reg)

			e.reconcile(t)

			NewWithT(t).Expect(e.writes).To(BeEmpty())
		})
	}
}

func TestACacheThatIsBehindDoesNotLeadToASecondPost(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig))

	e.stale = true
	for range 3 {
		e.reconcile(t)
	}
	e.stale = false
	e.reconcile(t)

	g.Expect(e.writes).To(Equal([]string{"create *v1alpha1.FleetRegistration"}))
}

func TestARegistrationThatWasDeletedIsMadeAnew(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig))
	e.reconcile(t)
	reg := e.registrationNow(t)
	e.change(t, reg, func() { reg.Finalizers = nil })
	g.Expect(e.api.Delete(t.Context(), reg)).To(Succeed())

	e.reconcile(t)

	g.Expect(e.registrationNow(t)).NotTo(BeNil())
	g.Expect(e.writes).To(HaveLen(2))
}

func TestARegistrationThatAnotherManagerMadeFirstIsNoError(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig), registered())
	e.stale = true

	e.reconcile(t)

	g.Expect(e.writes).To(HaveLen(1))
	g.Expect(e.registrationNow(t).UID).To(Equal(types.UID("uid-of-registration")))
}

func TestAWrongLabelIsReportedOnce(t *testing.T) {
	g := NewWithT(t)
	c := cluster(register("True"))
	e := newEnv(t, c, namespace(nil), fleetConfig(goodConfig))

	e.reconcile(t)
	e.reconcile(t)
	g.Expect(e.events.Events).To(HaveLen(1))
	g.Expect(<-e.events.Events).To(And(ContainSubstring("Warning"), ContainSubstring(fleetv1.LabelInvalidReason), Not(ContainSubstring("True"))))

	e.change(t, c, func() { c.Labels = register("false") })
	e.reconcile(t)
	g.Expect(e.events.Events).To(BeEmpty())

	e.change(t, c, func() { c.Labels = register("ture") })
	e.reconcile(t)
	g.Expect(e.events.Events).To(HaveLen(1))
}

func TestSelectedIsWrittenOnlyWhenItChanges(t *testing.T) {
	g := NewWithT(t)
	c, ns := cluster(nil), namespace(register("true"))
	connected := condition(fleetv1.AgentConnectedCondition, metav1.ConditionTrue, fleetv1.AgentConnectedReason)
	e := newEnv(t, c, ns, fleetConfig(goodConfig),
		registered(by("", fleetv1.LabelOnNamespace), with(connected, condition(fleetv1.SelectedCondition, metav1.ConditionTrue, fleetv1.SelectedReason))))
	selected := func() metav1.Condition {
		return *meta.FindStatusCondition(e.registrationNow(t).Status.Conditions, fleetv1.SelectedCondition)
	}

	e.reconcile(t)
	g.Expect(e.writes).To(BeEmpty())

	e.change(t, c, func() { c.Labels = register("yes") })
	e.reconcile(t)
	e.reconcile(t)
	g.Expect(e.writes).To(Equal([]string{"apply status"}))
	lost := selected()
	g.Expect(lost.Status).To(Equal(metav1.ConditionFalse))
	g.Expect(lost.Reason).To(Equal(fleetv1.LabelInvalidReason))
	g.Expect(lost.LastTransitionTime.Time).To(BeTemporally("==", epoch))
	g.Expect(e.applied).To(And(ContainSubstring(`"type":"Selected"`), Not(ContainSubstring("AgentConnected"))), "the rest is the registration controller's")

	e.clock.SetTime(epoch.Add(time.Minute))
	ns.Labels = register("false")
	e.change(t, c, func() { c.Labels = nil })
	g.Expect(e.api.Update(t.Context(), ns)).To(Succeed())
	e.reconcile(t)
	g.Expect(selected().Reason).To(Equal(fleetv1.OptedOutReason))
	g.Expect(selected().LastTransitionTime.Time).To(BeTemporally("==", epoch), "it was False before")

	ns.Labels = register("true")
	g.Expect(e.api.Update(t.Context(), ns)).To(Succeed())
	e.reconcile(t)
	g.Expect(selected().Status).To(Equal(metav1.ConditionTrue))
	g.Expect(selected().Message).To(BeEmpty())
	g.Expect(selected().LastTransitionTime.Time).To(BeTemporally("==", epoch.Add(time.Minute)))
	g.Expect(e.writes).To(Equal([]string{"apply status", "apply status", "apply status"}))
}

func TestLosingSelectionChangesNothingElse(t *testing.T) {
	edge := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "edge"}}
	unreadable := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}}
	for _, tt := range []struct {
		name              string
		labels, namespace map[string]string
		by                func(*fleetv1.FleetRegistration)
		policy            *fleetv1.FleetRegistrationPolicy
		reason            string
	}{
		{name: "policy deleted", labels: register("true"), by: by("gold", fleetv1.LabelOnCluster), reason: fleetv1.PolicyDeletedReason},
		{name: "policy changed", labels: register("true"), by: by("gold", ""), reason: fleetv1.PolicyMismatchReason,
			policy: &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: fleetv1.FleetRegistrationPolicySpec{ClusterSelector: edge}}},
		{name: "policy mistyped", labels: register("true"), by: by("gold", ""), reason: fleetv1.PolicyInvalidReason,
			policy: &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: fleetv1.FleetRegistrationPolicySpec{ClusterSelector: unreadable}}},
		{name: "policy deleted, another targets otherwise", labels: register("true"), by: by("gold", fleetv1.LabelOnCluster), reason: fleetv1.TargetingDiffersReason,
			policy: &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "silver"}, Spec: fleetv1.FleetRegistrationPolicySpec{
				FleetCluster: fleetv1.FleetClusterSettings{TargetingSettings: fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass}},
			}}},
		{name: "Namespace label lost", by: by("", fleetv1.LabelOnNamespace), reason: fleetv1.LabelRemovedReason},
		{name: "Namespace opted out", namespace: register("false"), by: by("", fleetv1.LabelOnNamespace), reason: fleetv1.OptedOutReason},
		{name: "label mistyped", labels: register("ture"), by: by("", fleetv1.LabelOnCluster), reason: fleetv1.LabelInvalidReason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			objects := []client.Object{cluster(tt.labels), namespace(tt.namespace), registered(tt.by), fleetConfig(`{"apiServerURL": "https://new.example", "agentImage": "new"}`)}
			if tt.policy != nil {
				objects = append(objects, tt.policy)
			}
			e := newEnv(t, objects...)
			before := e.registrationNow(t)

			e.reconcile(t)
			e.reconcile(t)

			after := e.registrationNow(t)
			g.Expect(e.writes).To(Equal([]string{"apply status"}))
			g.Expect(after.Spec).To(Equal(before.Spec))
			g.Expect(after.ObjectMeta.Finalizers).To(Equal(before.Finalizers))
			g.Expect(after.DeletionTimestamp).To(BeNil())
			g.Expect(after.Status.Conditions).To(HaveLen(1))
			g.Expect(after.Status.Conditions[0].Reason).To(Equal(tt.reason))
		})
	}
}

func TestOnlyTheClusterItselfOptsOut(t *testing.T) {
	onCluster, onNamespace := by("", fleetv1.LabelOnCluster), by("", fleetv1.LabelOnNamespace)
	paused := func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) }
	for _, tt := range []struct {
		name              string
		labels, namespace map[string]string
		by                func(*fleetv1.FleetRegistration)
		change            func(*clusterv1.Cluster)
		live              map[string]string // where the cache is behind
		policy            bool
		deleted           bool
	}{
		{name: "label false", labels: register("false"), by: onCluster, deleted: true},
		{name: "label false, selected by the Namespace before", labels: register("false"), namespace: register("true"), by: onNamespace, deleted: true},
		{name: "label false, selected by a policy that is gone", labels: register("false"), by: by("gold", ""), deleted: true},
		{name: "own label removed", by: onCluster, deleted: true},
		{name: "own label removed, Namespace false", namespace: register("false"), by: onCluster, deleted: true},
		{name: "own label removed, and the Namespace's counts", namespace: register("true"), by: onCluster},
		{name: "own label removed, and a policy selects it", by: onCluster, policy: true},
		{name: "a label that did not count removed", by: by("gold", "")},
		{name: "label of the Namespace removed", by: onNamespace},
		{name: "Namespace false", namespace: register("false"), by: onNamespace},
		{name: "policy gone", labels: register("true"), by: by("gold", fleetv1.LabelOnCluster)},
		{name: "label mistyped", labels: register("no"), by: onCluster},
		{name: "paused", labels: register("false"), by: onCluster, change: paused},
		{name: "label back meanwhile", labels: register("false"), by: onCluster, live: register("true")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster(tt.labels)
			if tt.change != nil {
				tt.change(c)
			}
			objects := []client.Object{c, namespace(tt.namespace), registered(tt.by), fleetConfig(goodConfig)}
			if tt.policy {
				objects = append(objects, &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: fleetv1.FleetRegistrationPolicySpec{ClusterSelector: &metav1.LabelSelector{}}})
			}
			e := newEnv(t, objects...)
			if tt.live != nil {
				e.APIReader = interceptor.NewClient(e.api, interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
						err := c.Get(ctx, key, obj, opts...)
						if live, ok := obj.(*clusterv1.Cluster); ok {
							live.Labels = tt.live
						}
						return err
					},
				})
			}

			e.reconcile(t)
			e.reconcile(t)

			g.Expect(!e.registrationNow(t).DeletionTimestamp.IsZero()).To(Equal(tt.deleted))
			var deletions []string
			for _, write := range e.writes {
				if strings.HasPrefix(write, "delete") {
					deletions = append(deletions, write)
				}
			}
			if tt.deleted {
				g.Expect(deletions).To(HaveLen(1))
			} else {
				g.Expect(deletions).To(BeEmpty())
			}
		})
	}
}

// The label moved from the Cluster to its Namespace, and the cache has not seen the latter.
func TestALabelThatMovedToTheNamespaceIsNoOptOut(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, cluster(nil), namespace(nil), registered(by("", fleetv1.LabelOnCluster)), fleetConfig(goodConfig))
	e.APIReader = interceptor.NewClient(e.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if obj.GetObjectKind().GroupVersionKind() == namespaceGVK {
				obj.SetLabels(register("true"))
			}
			return err
		},
	})
	e.reconcile(t)
	g.Expect(e.registrationNow(t).DeletionTimestamp).To(BeNil())
}

func TestOptingOutGoesByThePolicyAsItIsThen(t *testing.T) {
	for _, tt := range []struct {
		name    string
		was, is fleetv1.WorkloadsDeletion
		gone    bool
		want    fleetv1.WorkloadsDeletion
	}{
		{name: "changed to Orphan", was: fleetv1.WorkloadsUninstall, is: fleetv1.WorkloadsOrphan, want: fleetv1.WorkloadsOrphan},
		{name: "changed to Uninstall", was: fleetv1.WorkloadsOrphan, is: fleetv1.WorkloadsUninstall, want: fleetv1.WorkloadsUninstall},
		{name: "the policy is gone", was: fleetv1.WorkloadsUninstall, gone: true, want: fleetv1.WorkloadsUninstall},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			reg := registered(by("gold", fleetv1.LabelOnCluster))
			reg.Spec.Deletion.Workloads = tt.was
			objects := []client.Object{cluster(register("false")), namespace(nil), reg, fleetConfig(goodConfig)}
			if !tt.gone {
				objects = append(objects, &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"},
					Spec: fleetv1.FleetRegistrationPolicySpec{Deletion: fleetv1.DeletionSpec{Workloads: tt.is}}})
			}
			e := newEnv(t, objects...)
			e.reconcile(t)
			after := e.registrationNow(t)
			g.Expect(after.DeletionTimestamp).NotTo(BeNil())
			g.Expect(after.Spec.Deletion.Workloads).To(Equal(tt.want))
		})
	}
}

// After a move all that is known of the agent is of the other management cluster.
func TestWhatWasMovedHereGetsTheSettingsOfThisManagementCluster(t *testing.T) {
	moved := func(reg *fleetv1.FleetRegistration) { reg.Spec.ClusterUID = "uid-on-another-management-cluster" }
	gold := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: fleetv1.FleetRegistrationPolicySpec{
		ManagementCluster: fleetv1.ManagementClusterSource{Server: "https://gold.example"},
	}}
	connected := with(condition(fleetv1.AgentConnectedCondition, metav1.ConditionTrue, fleetv1.AgentConnectedReason))
	for _, tt := range []struct {
		name   string
		labels map[string]string
		reg    *fleetv1.FleetRegistration
		config string
		server string
	}{
		{"selected", register("true"), registered(moved, connected), `{"apiServerURL": "https://here.example", "agentImage": "new"}`, "https://here.example"},
		{"not selected", nil, registered(moved, by("", fleetv1.LabelOnNamespace)), `{"apiServerURL": "https://here.example", "agentImage": "new"}`, "https://here.example"},
		{"not selected, and its policy is here", nil, registered(moved, by("gold", fleetv1.LabelOnNamespace)), `{"agentImage": "new"}`, "https://gold.example"},
		{"nothing is known here", register("true"), registered(moved), `{}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			objects := []client.Object{cluster(tt.labels), namespace(nil), tt.reg, fleetConfig(tt.config)}
			if tt.reg.Spec.SelectedBy.Policy != "" {
				objects = append(objects, gold)
			}
			e := newEnv(t, objects...)
			e.reconcile(t)
			e.reconcile(t)
			spec := e.registrationNow(t).Spec
			g.Expect(spec.Agent.ManagementCluster.Server).To(Equal(tt.server))
			g.Expect(spec.ClusterUID).To(BeEquivalentTo("uid-of-cluster"))
			g.Expect(spec.RegistrationID).To(Equal(tt.reg.Spec.RegistrationID))
			g.Expect(spec.SelectedBy).To(Equal(tt.reg.Spec.SelectedBy))
		})
	}
}

func TestWhatNeedsNoNewPodFollowsThePolicyAtOnce(t *testing.T) {
	g := NewWithT(t)
	connected := registered(with(condition(fleetv1.AgentConnectedCondition, metav1.ConditionTrue, fleetv1.AgentConnectedReason)))
	how := fleetv1.DeletionSpec{Workloads: fleetv1.WorkloadsUninstall, Agent: fleetv1.AgentKeep}
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig), connected,
		&fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: fleetv1.FleetRegistrationPolicySpec{
			Adoption: fleetv1.AdoptionAdopt, Deletion: how,
		}})
	e.reconcile(t)
	spec := e.registrationNow(t).Spec
	g.Expect(spec.Adoption).To(Equal(fleetv1.AdoptionAdopt))
	g.Expect(spec.Deletion).To(Equal(how))
}

func TestANamedPolicyTakesOver(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(goodConfig), registered(),
		&fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: fleetv1.FleetRegistrationPolicySpec{
			ManagementCluster: fleetv1.ManagementClusterSource{Server: "https://gold.example"},
		}})

	e.reconcile(t)

	reg := e.registrationNow(t)
	g.Expect(e.writes).To(Equal([]string{"patch *v1alpha1.FleetRegistration"}))
	g.Expect(reg.Spec.SelectedBy).To(Equal(fleetv1.SelectedBy{Policy: "gold", Label: fleetv1.LabelOnCluster, NamespaceSelector: &metav1.LabelSelector{}}))
	g.Expect(reg.Spec.Agent.ManagementCluster.Server).To(Equal("https://gold.example"))
	g.Expect(reg.Spec.RegistrationID).To(Equal(registered().Spec.RegistrationID))
}

func TestAgentSettings(t *testing.T) {
	const changed = `{"apiServerURL": "https://new.example", "agentImage": "registry.example/agent:v2"}`
	newAgent := fleetv1.AgentSpec{ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: "https://new.example"}, Image: "registry.example/agent:v2"}
	silent := with(condition(fleetv1.AgentConnectedCondition, metav1.ConditionFalse, fleetv1.AgentSilentReason))
	agent := func(agent fleetv1.AgentSpec) func(*fleetv1.FleetRegistration) {
		return func(reg *fleetv1.FleetRegistration) { reg.Spec.Agent = agent }
	}
	onlyServer := fleetv1.AgentSpec{ManagementCluster: goodAgent.ManagementCluster}
	onlyImage := fleetv1.AgentSpec{Image: goodAgent.Image}
	for _, tt := range []struct {
		name   string
		reg    *fleetv1.FleetRegistration
		config string
		want   fleetv1.AgentSpec
	}{
		{"a silent agent takes them", registered(silent), changed, newAgent},
		{"an agent that is not there yet takes them", registered(), changed, newAgent},
		{"what was missing is filled in", registered(agent(fleetv1.AgentSpec{})), goodConfig, goodAgent},
		{"a configuration without an address wipes nothing", registered(silent), `{"agentImage": "registry.example/agent:v2"}`, goodAgent},
		{"a configuration without an image wipes nothing", registered(silent), `{"apiServerURL": "https://new.example"}`, goodAgent},
		{"a configuration that cannot be read wipes nothing", registered(silent), `{`, goodAgent},
		{"a wrong address wipes nothing", registered(silent), `{"apiServerURL": "http://new.example", "agentImage": "registry.example/agent:v2"}`, goodAgent},
		{"an address is not lost while the image is missing", registered(agent(onlyServer)), `{"agentImage": "registry.example/agent:v1"}`, goodAgent},
		{"an image is not lost while the address is missing", registered(agent(onlyImage)), `{"apiServerURL": "https://fleet.example"}`, goodAgent},
		{"an address is kept while nothing is known", registered(agent(onlyServer)), `{`, onlyServer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, cluster(register("true")), namespace(nil), fleetConfig(tt.config), tt.reg)

			e.reconcile(t)
			e.reconcile(t)

			g.Expect(e.registrationNow(t).Spec.Agent).To(Equal(tt.want))
			g.Expect(len(e.writes)).To(BeNumerically("<=", 1), "%v", e.writes)
		})
	}
}

func TestNothingIsWrittenWhileTheSettingsCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, cluster(register("true")), namespace(nil), registered())
	e.Endpoint.Reader = interceptor.NewClient(e.api, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("broken")
		},
	})

	_, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})

	g.Expect(err).To(MatchError(ContainSubstring("broken")))
	g.Expect(e.writes).To(BeEmpty())
}

func TestEventsOfOthersLeadToTheClusters(t *testing.T) {
	g := NewWithT(t)
	other := cluster(nil)
	other.Namespace = "team-b"
	e := newEnv(t, cluster(nil), other)
	mine := ctrl.Request{NamespacedName: key}

	g.Expect(e.namespaceToClusters(t.Context(), namespace(nil))).To(ConsistOf(mine))
	g.Expect(e.allClusters(t.Context(), fleetConfig(""))).To(ConsistOf(mine, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(other)}))
}

func TestTheLifetimeOfCredentialsFollowsThePolicyAlsoForAConnectedAgent(t *testing.T) {
	g := NewWithT(t)
	policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}}
	policy.Spec.Credentials.Lifetime.Duration = 3 * time.Hour
	connected := registered(with(condition(fleetv1.AgentConnectedCondition, metav1.ConditionTrue, fleetv1.AgentConnectedReason)))
	for name, objects := range map[string][]client.Object{"new": {policy.DeepCopy()}, "connected": {policy.DeepCopy(), connected}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, append(objects, cluster(register("true")), namespace(nil), fleetConfig(goodConfig))...)
			e.reconcile(t)
			g.Expect(e.registrationNow(t).Spec.Credentials.Lifetime.Duration).To(Equal(3 * time.Hour))
		})
	}
}
