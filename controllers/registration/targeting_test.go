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
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

func changeCluster(t *testing.T, m *management, change func(*clusterv1.Cluster)) {
	t.Helper()
	cluster := livingCluster()
	NewWithT(t).Expect(m.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	change(cluster)
	NewWithT(t).Expect(m.WithWatch.Update(t.Context(), cluster)).To(Succeed())
}

func changeRegistration(t *testing.T, m *management, change func(*fleetv1.FleetRegistration)) {
	t.Helper()
	reg := m.registration(t)
	change(reg)
	NewWithT(t).Expect(m.WithWatch.Update(t.Context(), reg)).To(Succeed())
}

func (m *management) fleetCluster(t *testing.T) *fleet.Cluster {
	t.Helper()
	cluster := &fleet.Cluster{}
	NewWithT(t).Expect(m.Get(t.Context(), edge.NamespacedName, cluster)).To(Succeed())
	return cluster
}

func newClass(namespace, name string) *clusterv1.ClusterClass {
	return &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// patches counts the patches to the Fleet Cluster that the registration controller sends.
func patches(m *management, r *Reconciler) *int {
	count := 0
	counting := interceptor.NewClient(m, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := obj.(*fleet.Cluster); ok {
				count++
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	r.Upstream = writerTo(m, counting)
	return &count
}

func writerTo(cache client.Reader, api client.Client) *upstream.Writer {
	return &upstream.Writer{Client: api, Reader: api, Cache: cache, ManagerNamespace: managerNamespace}
}

// targetPhase runs the phases up to that one.
func targetPhase(t *testing.T, r *Reconciler) error {
	t.Helper()
	s, _, err := upstreamPhase(t, r)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	r.reconcileTarget(t.Context(), s)
	return s.targetErr
}

func TestManyLabelChangesEndRightWithOneWriteEach(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	count := patches(m, r)
	want := map[string]string{}
	for i := range 50 {
		key := fmt.Sprintf("label-%d", i%7)
		changeCluster(t, m, func(c *clusterv1.Cluster) {
			if c.Labels == nil {
				c.Labels = map[string]string{}
			}
			if i%5 == 4 {
				delete(c.Labels, key)
				delete(want, key)
			} else {
				c.Labels[key] = fmt.Sprint(i)
				want[key] = fmt.Sprint(i)
			}
		})
		before, changed := *count, !contained(m.fleetCluster(t).Labels, want)
		g.Expect(targetPhase(t, r)).To(Succeed())
		if changed {
			g.Expect(*count - before).To(Equal(1))
		}
	}
	got := m.fleetCluster(t).Labels
	delete(got, fleet.ClusterManagementLabel)
	g.Expect(got).To(Equal(want))

	before := *count
	g.Expect(targetPhase(t, r)).To(Succeed())
	g.Expect(*count).To(Equal(before), "nothing changed")
}

func contained(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

func TestTargetedSaysWhatTheFleetClusterLacks(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster func(*clusterv1.Cluster)
		spec    func(*fleetv1.FleetRegistrationSpec)
		objects []client.Object
		reason  string
		message string
	}{
		"nothing": {nil, nil, nil, fleetv1.TargetedReason, ""},
		"a place that the policy changed since": {nil, func(s *fleetv1.FleetRegistrationSpec) {
			s.PolicyFleetCluster = fleetv1.FleetClusterReference{Namespace: "fleet-default", Name: "x"}
		}, nil, fleetv1.FleetClusterImmutableReason, "fleet-default/x"},
		"a value": {nil, func(s *fleetv1.FleetRegistrationSpec) {
			s.Targeting.Values = []fleetv1.TemplateValue{{Name: "region", FieldPath: "metadata.labels['region']"}}
		}, nil, fleetv1.ValuesIncompleteReason, "region"},
		"a class of a namespace that is not listed": {
			func(c *clusterv1.Cluster) {
				c.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: "classes", Name: "edge"}
			},
			func(s *fleetv1.FleetRegistrationSpec) { s.Targeting.Groups = fleetv1.GroupsClusterClass },
			nil, fleetv1.ClassNamespaceNotListedReason, "classes",
		},
		"a class that is not there": {
			func(c *clusterv1.Cluster) { c.Spec.Topology.ClassRef.Name = "edge" },
			func(s *fleetv1.FleetRegistrationSpec) { s.Targeting.Groups = fleetv1.GroupsClusterClass },
			nil, fleetv1.ClassMissingReason, "team-a/edge",
		},
		"a group of someone else": {
			func(c *clusterv1.Cluster) { c.Spec.Topology.ClassRef.Name = "edge" },
			func(s *fleetv1.FleetRegistrationSpec) { s.Targeting.Groups = fleetv1.GroupsClusterClass },
			[]client.Object{newClass("team-a", "edge"), &fleet.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge"}}},
			fleetv1.ClassGroupForeignReason, "team-a/edge",
		},
		"several": {nil, func(s *fleetv1.FleetRegistrationSpec) {
			s.PolicyFleetCluster = fleetv1.FleetClusterReference{Namespace: "fleet-default", Name: "x"}
			s.Targeting.Values = []fleetv1.TemplateValue{{Name: "region", FieldPath: "metadata.labels['region']"}}
		}, nil, fleetv1.FleetClusterImmutableReason, "region"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster, reg := livingCluster(), owned()
			if tc.cluster != nil {
				tc.cluster(cluster)
			}
			if tc.spec != nil {
				tc.spec(&reg.Spec)
			}
			m, r := newManagement(t, append(tc.objects, cluster, reg)...)

			_, err := r.Reconcile(t.Context(), edge)

			g.Expect(err).NotTo(HaveOccurred())
			targeted := meta.FindStatusCondition(m.registration(t).Status.Conditions, fleetv1.TargetedCondition)
			g.Expect(targeted).NotTo(BeNil())
			g.Expect(targeted.Reason).To(Equal(tc.reason))
			g.Expect(targeted.Message).To(ContainSubstring(tc.message))
			want := metav1.ConditionFalse
			if tc.reason == fleetv1.TargetedReason {
				want = metav1.ConditionTrue
			}
			g.Expect(targeted.Status).To(Equal(want))
			g.Expect(m.fleetCluster(t).Name).NotTo(BeEmpty(), "the rest goes on")
		})
	}
}

func TestAClusterThatChangesItsClassIsInAGroupAllTheTime(t *testing.T) {
	g := NewWithT(t)
	reg := owned()
	reg.Spec.Targeting = fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{"classes"}}
	cluster := livingCluster()
	cluster.Spec.Topology.ClassRef.Name = "old"
	m, r := newManagement(t, cluster, reg, newClass("team-a", "old"), newClass("classes", "new"))
	_, err := r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.fleetCluster(t).Labels).To(HaveKeyWithValue(fleetv1.ClassNameLabel, "old"))
	m.writes = nil
	changeCluster(t, m, func(c *clusterv1.Cluster) {
		c.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: "classes", Name: "new"}
	})

	// While the group cannot be made, the Fleet Cluster stays in the old one, also when
	// something else is looked after.
	refused := errors.New("refused")
	r.Upstream = writerTo(m, interceptor.NewClient(m, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, ok := obj.(*fleet.ClusterGroup); ok {
				return refused
			}
			return c.Create(ctx, obj, opts...)
		},
	}))
	m.clock.SetTime(m.clock.Now().Add(time.Minute))
	account := accountOf(t, m)
	g.Expect(m.WithWatch.Delete(t.Context(), account)).To(Succeed())
	g.Expect(targetPhase(t, r)).To(MatchError(refused))
	g.Expect(m.fleetCluster(t).Labels).To(HaveKeyWithValue(fleetv1.ClassNameLabel, "old"))

	g.Expect(accountOf(t, m).UID).NotTo(Equal(account.UID))
	m.writes = nil

	r.Upstream = writerTo(m, m)
	g.Expect(targetPhase(t, r)).To(Succeed())
	g.Expect(m.writes).To(Equal([]string{"create *fleet.ClusterGroup", "create *fleet.BundleNamespaceMapping"}))
	g.Expect(m.fleetCluster(t).Labels).To(HaveKeyWithValue(fleetv1.ClassNameLabel, "new"))
}

func TestAClusterLeavesNoGroupForOneThatIsSomebodyElses(t *testing.T) {
	g := NewWithT(t)
	reg := owned()
	reg.Spec.Targeting = fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass}
	cluster := livingCluster()
	cluster.Spec.Topology.ClassRef.Name = "old"
	foreign := &fleet.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "new"}}
	m, r := newManagement(t, cluster, reg, foreign, newClass("team-a", "old"), newClass("team-a", "new"))
	_, err := r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	changeCluster(t, m, func(c *clusterv1.Cluster) {
		c.Spec.Topology.ClassRef.Name = "new"
		c.Labels = map[string]string{"env": "prod"}
	})

	_, err = r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.fleetCluster(t).Labels).To(And(HaveKeyWithValue(fleetv1.ClassNameLabel, "old"), HaveKeyWithValue("env", "prod")))
	g.Expect(hasReason(m.registration(t), fleetv1.TargetedCondition, fleetv1.ClassGroupForeignReason)).To(BeTrue())

	g.Expect(m.WithWatch.Delete(t.Context(), foreign)).To(Succeed())
	_, err = r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.fleetCluster(t).Labels).To(HaveKeyWithValue(fleetv1.ClassNameLabel, "new"))
	g.Expect(hasReason(m.registration(t), fleetv1.TargetedCondition, fleetv1.TargetedReason)).To(BeTrue())
}

func TestAClusterOfAnotherNamespaceIsMadeOutsideAGroupThatIsNotForIt(t *testing.T) {
	g := NewWithT(t)
	reg := owned()
	reg.Spec.FleetCluster = fleetv1.FleetClusterReference{Namespace: "workspace", Name: "team-a-edge"}
	reg.Spec.Targeting = fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{"workspace"}, Labels: fleetv1.LabelPropagation{
		Include: []fleetv1.KeyPattern{"env", fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel},
	}}
	cluster := livingCluster()
	cluster.Labels = map[string]string{"env": "prod"}
	cluster.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: "workspace", Name: "core"}
	group := &fleet.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "workspace", Name: "core", Labels: map[string]string{"tier": "core"}}}
	group.Spec.Selector = &metav1.LabelSelector{MatchLabels: targeting.Class{ClassNamespace: "workspace", Name: "core"}.Labels()}
	m, r := newManagement(t, cluster, reg, group, newClass("workspace", "core"))

	_, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	made := &fleet.Cluster{}
	g.Expect(m.Get(t.Context(), client.ObjectKey{Namespace: "workspace", Name: "team-a-edge"}, made)).To(Succeed())
	g.Expect(made.Labels).To(Equal(map[string]string{"env": "prod", fleet.ClusterManagementLabel: upstream.ManagementLabelValue}))
	g.Expect(hasReason(m.registration(t), fleetv1.TargetedCondition, fleetv1.ClassGroupForeignReason)).To(BeTrue())
}

func TestAnotherPolicysSettingsChangeNothingButTheFleetCluster(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	before := m.registration(t)
	changeRegistration(t, m, func(reg *fleetv1.FleetRegistration) {
		reg.Spec.SelectedBy.Policy = "another"
		reg.Spec.Targeting = fleetv1.TargetingSettings{
			Labels: fleetv1.LabelPropagation{Static: map[string]fleetv1.LabelValue{"tier": "edge"}}, Paused: true, Shard: "red",
		}
	})
	count := patches(m, r)

	_, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*count).To(Equal(1))
	g.Expect(m.writes).To(BeEmpty(), "nothing is made or deleted")
	cluster := m.fleetCluster(t)
	g.Expect(cluster.Labels).To(And(HaveKeyWithValue("tier", "edge"), HaveKeyWithValue(fleet.ShardRefLabel, "red")))
	g.Expect(cluster.Spec.Paused).To(BeTrue())
	g.Expect(m.registration(t).UID).To(Equal(before.UID))
	g.Expect(m.registration(t).Status.Agent).To(Equal(before.Status.Agent))
}

func TestALabelThatCannotBeWrittenKeepsNoAgentFromItsCredentials(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, *life){
		"all is in place": func(*testing.T, *life) {},
		"an account is missing": func(t *testing.T, l *life) {
			NewWithT(t).Expect(l.WithWatch.Delete(t.Context(), l.account(t))).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			g.Expect(l.pushedToken(t)).To(Equal("token-1"))
			refused := errors.New("a webhook says no")
			l.reconciler.Upstream = writerTo(l, interceptor.NewClient(l, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if _, ok := obj.(*fleet.Cluster); ok {
						return refused
					}
					return c.Patch(ctx, obj, patch, opts...)
				},
			}))
			changeCluster(t, l.management, func(c *clusterv1.Cluster) { c.Labels = map[string]string{"env": "prod"} })
			l.pass(36 * time.Hour)
			l.heartbeat(t)
			damage(t, l)

			result, err := l.reconciler.Reconcile(t.Context(), edge)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(BeNumerically("<=", refusedRetry), "it is tried again")
			g.Expect(l.pushedToken(t)).To(Equal("token-2"))
			g.Expect(hasReason(l.registration(t), fleetv1.TargetedCondition, fleetv1.InternalErrorReason)).To(BeTrue())
			g.Expect(isTrue(l.registration(t), fleetv1.ReadyCondition)).To(BeTrue())

			l.reconciler.Upstream = writerTo(l, l)
			l.reconcile(t)
			g.Expect(hasReason(l.registration(t), fleetv1.TargetedCondition, fleetv1.TargetedReason)).To(BeTrue())
			g.Expect(l.fleetCluster(t).Labels).To(HaveKeyWithValue("env", "prod"))
		})
	}
}

// Nor from being looked for: a young workload cluster is tried every moment.
func TestALabelThatCannotBeWrittenSlowsNothingDown(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	m, r := l.management, l.reconciler
	l.workload.Close()
	rhythm, err := r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rhythm.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<", refusedRetry)))
	changeCluster(t, m, func(c *clusterv1.Cluster) { c.Labels = map[string]string{"env": "prod"} })
	r.Upstream = writerTo(m, interceptor.NewClient(m, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("a webhook says no")
		},
	}))
	m.clock.SetTime(m.clock.Now().Add(rhythm.RequeueAfter))

	result, err := r.Reconcile(t.Context(), edge)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<", refusedRetry)))
	g.Expect(hasReason(m.registration(t), fleetv1.TargetedCondition, fleetv1.InternalErrorReason)).To(BeTrue())
}

// No event tells of a ClusterClass, or of every object that was in the way.
func TestAGroupThatCannotBeHadIsLookedForAgain(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		fleetv1.ClassMissingReason:      nil,
		fleetv1.ClassGroupForeignReason: {newClass("team-a", "edge"), &fleet.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge"}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := joinedLife(t)
			for _, obj := range objects {
				g.Expect(l.WithWatch.Create(t.Context(), obj)).To(Succeed())
			}
			rest, err := l.reconciler.Reconcile(t.Context(), edge)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(rest.RequeueAfter).To(BeNumerically(">", refusedRetry))
			changeCluster(t, l.management, func(c *clusterv1.Cluster) { c.Spec.Topology.ClassRef.Name = "edge" })
			changeRegistration(t, l.management, func(reg *fleetv1.FleetRegistration) { reg.Spec.Targeting.Groups = fleetv1.GroupsClusterClass })

			result, err := l.reconciler.Reconcile(t.Context(), edge)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(hasReason(l.registration(t), fleetv1.TargetedCondition, name)).To(BeTrue())
			g.Expect(result.RequeueAfter).To(BeNumerically("<=", refusedRetry))
		})
	}
}

func TestAClusterOfAnotherNamespaceGetsTheLabelsOfItsClassOnceTheGroupIsThere(t *testing.T) {
	g := NewWithT(t)
	reg := owned()
	reg.Spec.FleetCluster = fleetv1.FleetClusterReference{Namespace: "workspace", Name: "team-a-edge"}
	reg.Spec.Targeting = fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{"classes"}, Labels: fleetv1.LabelPropagation{
		Include: []fleetv1.KeyPattern{fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel},
	}}
	cluster := livingCluster()
	cluster.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: "classes", Name: "edge"}
	m, r := newManagement(t, cluster, reg, newClass("classes", "edge"))
	refused := true
	r.Upstream = writerTo(m, interceptor.NewClient(m, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, ok := obj.(*fleet.ClusterGroup); ok && refused {
				return errors.New("refused")
			}
			return c.Create(ctx, obj, opts...)
		},
	}))
	labels := func() map[string]string {
		made := &fleet.Cluster{}
		g.Expect(m.Get(t.Context(), client.ObjectKey{Namespace: "workspace", Name: "team-a-edge"}, made)).To(Succeed())
		return made.Labels
	}
	for _, reason := range []string{fleetv1.WaitingForFleetClusterReason, fleetv1.InternalErrorReason} {
		_, err := r.Reconcile(t.Context(), edge)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(labels()).To(Equal(map[string]string{fleet.ClusterManagementLabel: upstream.ManagementLabelValue}))
		g.Expect(hasReason(m.registration(t), fleetv1.TargetedCondition, reason)).To(BeTrue(), reason)
	}

	refused = false
	_, err := r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(labels()).To(And(HaveKeyWithValue(fleetv1.ClassNameLabel, "edge"), HaveKeyWithValue(fleetv1.ClassNamespaceLabel, "classes")))
	g.Expect(hasReason(m.registration(t), fleetv1.TargetedCondition, fleetv1.TargetedReason)).To(BeTrue())
}

// The API server refuses a status with a message that is too long, and all else in it.
func TestAMessageIsCutWhereWhatItNamesIsTooLong(t *testing.T) {
	g := NewWithT(t)
	reg := owned()
	for i := range 64 {
		reg.Spec.Targeting.Values = append(reg.Spec.Targeting.Values, fleetv1.TemplateValue{
			Name: fmt.Sprintf("v%d", i), FieldPath: fmt.Sprintf("spec.topology.variables['%s']", strings.Repeat("ü", 100+i)),
		})
	}
	m, r := newManagement(t, livingCluster(), reg)
	_, err := r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	targeted := meta.FindStatusCondition(m.registration(t).Status.Conditions, fleetv1.TargetedCondition)
	g.Expect(targeted.Reason).To(Equal(fleetv1.ValuesIncompleteReason))
	g.Expect(len(targeted.Message)).To(And(BeNumerically("<=", messageLimit), BeNumerically(">", messageLimit-10)))
	g.Expect(targeted.Message).To(And(HavePrefix("The Cluster does not have these values: v0"), HaveSuffix("…"), Satisfy(utf8.ValidString)))

	for _, short := range []string{"", strings.Repeat("x", messageLimit)} {
		g.Expect(cut(short)).To(Equal(short))
	}
	for i := range 4 {
		g.Expect(cut(strings.Repeat("x", i) + strings.Repeat("🚢", messageLimit))).To(Satisfy(utf8.ValidString))
	}
}

// One that somebody took labels off, or whose labels were copied under another policy, is
// looked after together with the rest that is amiss.
func TestAFleetClusterThatIsTakenUpAgainIsRetargeted(t *testing.T) {
	g := NewWithT(t)
	m, r := newPlaced(t)
	changeCluster(t, m, func(c *clusterv1.Cluster) { c.Labels = map[string]string{"env": "prod"} })
	g.Expect(m.WithWatch.Delete(t.Context(), accountOf(t, m))).To(Succeed())
	_, err := r.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.fleetCluster(t).Labels).To(HaveKeyWithValue("env", "prod"))
	g.Expect(accountOf(t, m)).NotTo(BeNil())
}

func TestAnObjectInTheWayOfAGroupLeadsToTheRegistrationsThatItConcerns(t *testing.T) {
	g := NewWithT(t)
	reg, cluster := owned(), livingCluster()
	reg.Spec.Targeting = fleetv1.TargetingSettings{Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{"classes"}}
	cluster.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: "classes", Name: "edge"}
	_, r := newManagement(t, cluster, reg)
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	for _, obj := range []client.Object{
		&fleet.ClusterGroup{ObjectMeta: named("team-a", "edge.classes")}, &fleet.BundleNamespaceMapping{ObjectMeta: named("classes", "team-a")},
	} {
		g.Expect(r.classObjectToRegistrations(t.Context(), obj)).To(Equal([]ctrl.Request{edge}), "%T", obj)
	}
	for _, obj := range []client.Object{
		&fleet.ClusterGroup{ObjectMeta: named("team-a", "edge")}, &fleet.ClusterGroup{ObjectMeta: named("team-b", "edge.classes")},
		&fleet.BundleNamespaceMapping{ObjectMeta: named("others", "team-a")}, &fleet.BundleNamespaceMapping{ObjectMeta: named("classes", "team-b")},
	} {
		g.Expect(r.classObjectToRegistrations(t.Context(), obj)).To(BeEmpty(), "%v", obj)
	}
}
