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

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

var orphanNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAnOrphanIsNotRemovedWhileItsAgentMayBeAtWork(t *testing.T) {
	before := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(orphanNow.Add(-d))) }
	for name, c := range map[string]struct {
		orphan    orphan
		silentFor time.Duration
		obstacle  string
	}{
		"a service account":        {orphan{Kind: orphanedAccount}, time.Hour, ""},
		"not labelled":             {orphan{Kind: orphanedCluster}, 0, "has not labelled it"},
		"never seen":               {orphan{Kind: orphanedCluster, Reported: true}, time.Hour, ""},
		"silent":                   {orphan{Kind: orphanedCluster, Reported: true, LastSeen: before(61 * time.Minute)}, time.Hour, ""},
		"reports":                  {orphan{Kind: orphanedCluster, Reported: true, LastSeen: before(59 * time.Minute)}, time.Hour, "less than 1h0m0s ago"},
		"its clock is ahead":       {orphan{Kind: orphanedCluster, Reported: true, LastSeen: before(-time.Hour)}, time.Hour, "less than 1h0m0s ago"},
		"reports, and nobody asks": {orphan{Kind: orphanedCluster, Reported: true, LastSeen: before(0)}, 0, ""},
		"silent since it has no account": {
			orphan{Kind: orphanedCluster, Reported: true, LastSeen: before(10 * time.Minute), AccessEnded: before(10 * time.Minute)}, time.Hour, "",
		},
		"reports without an account": {
			orphan{Kind: orphanedCluster, Reported: true, LastSeen: before(time.Minute), AccessEnded: before(10 * time.Minute)}, time.Hour, "another credential",
		},
	} {
		found := c.orphan.obstacle(orphanNow, c.silentFor)
		if c.obstacle == "" {
			NewWithT(t).Expect(found).To(BeEmpty(), name)
		} else {
			NewWithT(t).Expect(found).To(ContainSubstring(c.obstacle), name)
		}
	}
}

// orphanage is a management cluster in memory, which keeps what is asked to change.
type orphanage struct {
	client.WithWatch
	clock  *testclock.FakeClock
	writes []string
}

const orphanNamespace = "cluster-of-edge"

func orphanMeta(namespace, name, id string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: "uid",
		Labels:      map[string]string{upstream.ManagedByLabel: upstream.FieldOwner},
		Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: id},
	}
}

func orphanedFleetCluster(name, id string) *fleet.Cluster {
	cluster := &fleet.Cluster{ObjectMeta: orphanMeta("team-a", name, id)}
	cluster.Labels = map[string]string{fleet.ClusterManagementLabel: upstream.ManagementLabelValue, fleetv1.OrphanLabel: "true"}
	return cluster
}

// newOrphanage has the orphan edge, with an agent on the management cluster.
func newOrphanage(t *testing.T, more ...client.Object) *orphanage {
	t.Helper()
	cluster := orphanedFleetCluster("edge", "edge-id")
	cluster.Status.Namespace = orphanNamespace
	namespace := &corev1.Namespace{ObjectMeta: orphanMeta("", orphanNamespace, "edge-id")}
	namespace.Annotations[fleet.ClusterNamespaceAnnotation], namespace.Annotations[fleet.ClusterAnnotation] = "team-a", "edge"
	objects := append([]client.Object{
		cluster, namespace,
		&corev1.ServiceAccount{ObjectMeta: orphanMeta(defaultManagerNamespace, orphanNamespace, "edge-id")},
		&corev1.ServiceAccount{ObjectMeta: orphanMeta(orphanNamespace, orphanNamespace, "edge-id")},
		&rbacv1.RoleBinding{ObjectMeta: orphanMeta("team-a", orphanNamespace, "edge-id")},
		&rbacv1.Role{ObjectMeta: orphanMeta("team-a", orphanNamespace, "edge-id")},
		&appsv1.Deployment{ObjectMeta: orphanMeta(defaultManagerNamespace, orphanNamespace, "edge-id"), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)}},
	}, more...)
	o := &orphanage{clock: testclock.NewFakeClock(orphanNow)}
	note := func(verb string, obj client.Object) {
		o.writes = append(o.writes, fmt.Sprintf("%s %T %s", verb, obj, client.ObjectKeyFromObject(obj)))
	}
	o.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&fleet.Cluster{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				note("delete", obj)
				return c.Delete(ctx, obj, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				note("patch", obj)
				return c.Patch(ctx, obj, patch, opts...)
			},
		}).Build()
	return o
}

// command returns the command that works on it.
func (o *orphanage) command(errOut io.Writer) *orphanOptions {
	options := &orphanOptions{app: &app{clock: o.clock}, managerNamespace: defaultManagerNamespace, silentFor: silentTime, wait: watchTime}
	options.Out, options.ErrOut = io.Discard, errOut
	return options
}

// remove removes all orphans, and returns what it says of those that it leaves.
func (o *orphanage) remove(ctx context.Context, change ...func(*orphanOptions)) (string, error) {
	var said bytes.Buffer
	command := o.command(&said)
	for _, c := range change {
		c(command)
	}
	found, err := command.list(ctx, o)
	if err != nil {
		return "", err
	}
	err = command.removal(o).run(ctx, found)
	return said.String(), err
}

// removeMeanwhile begins a removal that waits.
func (o *orphanage) removeMeanwhile(t *testing.T, ctx context.Context) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := o.remove(ctx)
		ended <- err
	}()
	NewWithT(t).Eventually(o.clock.HasWaiters).WithTimeout(10*time.Second).Should(BeTrue(), "it waits for the agent's watches")
	return ended
}

func (o *orphanage) has(t *testing.T, obj client.Object) bool {
	t.Helper()
	found, err := get(t.Context(), o, client.ObjectKeyFromObject(obj), obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return found
}

func TestTheFleetClusterOfAnOrphanGoesLastWhenNoWatchIsOpen(t *testing.T) {
	g := NewWithT(t)
	o := newOrphanage(t)
	ended := o.removeMeanwhile(t, t.Context())
	edge := orphanedFleetCluster("edge", "edge-id")
	g.Expect(o.writes[:2]).To(HaveEach(HavePrefix("delete *v1.ServiceAccount ")), "first of all no token may be worth anything")
	g.Expect(o.writes).To(ContainElements("patch *v1.Deployment capi-fleet-system/cluster-of-edge", "delete *v1.Deployment capi-fleet-system/cluster-of-edge",
		"delete *v1.RoleBinding team-a/cluster-of-edge", "delete *v1.Role team-a/cluster-of-edge"))
	o.clock.Step(watchTime - time.Second)
	g.Consistently(ended).WithTimeout(100 * time.Millisecond).ShouldNot(Receive())
	g.Expect(o.has(t, edge)).To(BeTrue())
	o.clock.Step(time.Second)
	g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
	g.Expect(o.writes[len(o.writes)-1]).To(Equal("delete *fleet.Cluster team-a/edge"))
	g.Expect(o.has(t, edge)).To(BeFalse())
}

func TestARemovalThatBreaksOffDoesNotWaitAnew(t *testing.T) {
	g := NewWithT(t)
	o := newOrphanage(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := o.removeMeanwhile(t, ctx)
	cancel()
	g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(MatchError(context.Canceled)))
	g.Expect(o.has(t, orphanedFleetCluster("edge", "edge-id"))).To(BeTrue())

	o.clock.Step(watchTime)
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	g.Expect(o.remove(ctx)).To(BeEmpty())
	g.Expect(o.has(t, orphanedFleetCluster("edge", "edge-id"))).To(BeFalse())
}

func TestTheTimeOfAnEarlierRemovalIsNotBelievedOfAnAccountThatIsThere(t *testing.T) {
	g := NewWithT(t)
	o := newOrphanage(t)
	edge := orphanedFleetCluster("edge", "edge-id")
	g.Expect(o.has(t, edge)).To(BeTrue())
	edge.Annotations[fleetv1.AccessEndedAnnotation] = orphanNow.Add(-time.Hour).Format(time.RFC3339)
	g.Expect(o.Update(t.Context(), edge)).To(Succeed())
	ended := o.removeMeanwhile(t, t.Context())
	forgotten := slices.Index(o.writes, "patch *fleet.Cluster team-a/edge")
	g.Expect(forgotten).To(Equal(0), "where it breaks off, the next run must not believe that time either")
	o.clock.Step(watchTime)
	g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
}

func TestWhatHappensWhileARemovalWaitsKeepsTheFleetCluster(t *testing.T) {
	for reason, happen := range map[string]func(*fleet.Cluster, *orphanage) error{
		"its registration is back": func(_ *fleet.Cluster, o *orphanage) error {
			return o.Create(context.Background(), &fleetv1.FleetRegistration{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge"}, Spec: fleetv1.FleetRegistrationSpec{RegistrationID: "edge-id"},
			})
		},
		"has another credential": func(cluster *fleet.Cluster, o *orphanage) error {
			cluster.Status.Agent.LastSeen = metav1.NewTime(orphanNow.Add(5 * time.Minute))
			return o.Status().Update(context.Background(), cluster)
		},
		"has not labelled it": func(cluster *fleet.Cluster, o *orphanage) error {
			delete(cluster.Labels, fleetv1.OrphanLabel)
			return o.Update(context.Background(), cluster)
		},
	} {
		t.Run(reason, func(t *testing.T) {
			g := NewWithT(t)
			o := newOrphanage(t)
			ended := make(chan string, 1)
			go func() {
				said, err := o.remove(t.Context())
				ended <- said + fmt.Sprint(err)
			}()
			g.Eventually(o.clock.HasWaiters).WithTimeout(10 * time.Second).Should(BeTrue())
			edge := orphanedFleetCluster("edge", "edge-id")
			g.Expect(o.has(t, edge)).To(BeTrue())
			g.Expect(happen(edge, o)).To(Succeed())
			o.clock.Step(watchTime)
			g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(And(ContainSubstring(reason), HaveSuffix(errFinding.Error()))))
			g.Expect(o.has(t, edge)).To(BeTrue())
		})
	}
}

func TestAnAgentWhoseClockIsBehindIsHeardWhileARemovalWaits(t *testing.T) {
	g := NewWithT(t)
	o := newOrphanage(t)
	edge := orphanedFleetCluster("edge", "edge-id")
	report := func(ago time.Duration) {
		t.Helper()
		g.Expect(o.has(t, edge)).To(BeTrue())
		edge.Status.Agent.LastSeen = metav1.NewTime(orphanNow.Add(-ago))
		g.Expect(o.Status().Update(t.Context(), edge)).To(Succeed())
	}
	report(20 * time.Hour)
	ended := o.removeMeanwhile(t, t.Context())
	report(20*time.Hour - 15*time.Minute)
	o.clock.Step(watchTime)
	g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(MatchError(errFinding)))
	g.Expect(o.has(t, edge)).To(BeTrue())

	// Another run waits and looks again.
	ended = o.removeMeanwhile(t, t.Context())
	o.clock.Step(watchTime)
	g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
	g.Expect(o.has(t, edge)).To(BeFalse())
}

func TestWhatIsNotToBeRemovedIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	reports, registered := orphanedFleetCluster("reports", "reports-id"), orphanedFleetCluster("registered", "registered-id")
	reports.Status.Agent.LastSeen = metav1.NewTime(orphanNow)
	leftOver := &corev1.ServiceAccount{ObjectMeta: orphanMeta(defaultManagerNamespace, "cluster-of-nothing", "nothing-id")}
	hosted := &appsv1.Deployment{ObjectMeta: orphanMeta(defaultManagerNamespace, "cluster-of-nothing", "nothing-id")}
	others := &corev1.ServiceAccount{ObjectMeta: orphanMeta(defaultManagerNamespace, "cluster-of-registered", "registered-id")}
	atWork := &corev1.ServiceAccount{ObjectMeta: orphanMeta(defaultManagerNamespace, "cluster-of-reports", "reports-id")}
	foreign := orphanedFleetCluster("foreign", "foreign-id")
	foreign.Labels[fleet.ClusterManagementLabel] = "someone"
	o := newOrphanage(t, reports, registered, foreign, leftOver, hosted, others, atWork, &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "r"}, Spec: fleetv1.FleetRegistrationSpec{RegistrationID: "registered-id"},
	})
	_, err := o.remove(t.Context(), func(o *orphanOptions) { o.dryRun = true })
	g.Expect(err).To(MatchError(errFinding))
	g.Expect(o.writes).To(BeEmpty(), "a dry run writes nothing")

	said, err := o.remove(t.Context(), func(o *orphanOptions) { o.wait = 0 })
	g.Expect(err).To(MatchError(errFinding))
	g.Expect(said).To(MatchRegexp(`^team-a/reports: left as it is: its agent reported at .*\n$`))
	for _, obj := range []client.Object{reports, registered, foreign, others, atWork} {
		g.Expect(o.has(t, obj)).To(BeTrue(), obj.GetName())
	}
	g.Expect(o.has(t, leftOver)).To(BeFalse())
	g.Expect(o.has(t, hosted)).To(BeFalse())
	g.Expect(o.writes).To(ContainElement("patch *v1.Deployment capi-fleet-system/cluster-of-nothing"), "it is stopped before what binds it goes")
	g.Expect(o.has(t, orphanedFleetCluster("edge", "edge-id"))).To(BeFalse())
}

func TestOrphansAreNamedInTheirNamespace(t *testing.T) {
	g := NewWithT(t)
	all := []orphan{{Namespace: "a", Name: "x"}, {Namespace: "a", Name: "y"}, {Namespace: "b", Name: "x"}}
	g.Expect(pickOrphans(all, "", nil)).To(Equal(all))
	g.Expect(pickOrphans(all, "a", nil)).To(Equal(all[:2]))
	g.Expect(pickOrphans(all, "a", []string{"y"})).To(Equal(all[1:2]))
	_, err := pickOrphans(all, "b", []string{"x", "y"})
	g.Expect(err).To(MatchError(ContainSubstring("there is no orphan b/y")))
}
