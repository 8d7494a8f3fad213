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

package crash

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// pause is a way to pause a registration.
type pause struct {
	on          func(metav1.ObjectMeta) client.Object
	set, resume string // patches
}

var annotated, notAnnotated = fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, clusterv1.PausedAnnotation),
	fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, clusterv1.PausedAnnotation)

// pauses are all ways to pause a registration. The last can be taken only once it exists.
var pauses = []pause{
	{cluster, `{"spec":{"paused":true}}`, `{"spec":{"paused":false}}`},
	{cluster, annotated, notAnnotated},
	{registration, annotated, notAnnotated},
}

func cluster(m metav1.ObjectMeta) client.Object { return &clusterv1.Cluster{ObjectMeta: m} }

func registration(m metav1.ObjectMeta) client.Object {
	return &fleetv1.FleetRegistration{ObjectMeta: m}
}

// begin pauses a registration this way.
func (p pause) begin(ctx context.Context, namespace, name string) error {
	return mergePatch(ctx, p.on(metav1.ObjectMeta{Namespace: namespace, Name: name}), p.set)
}

// endPauses ends whatever pauses a registration.
func endPauses(ctx context.Context, w *env.Workload) error {
	for _, p := range pauses {
		if err := mergePatch(ctx, p.on(metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}), p.resume); err != nil {
			return err
		}
	}
	return nil
}

func TestPauseBetweenAnyTwoPhasesStopsAllWritesUntilItEnds(t *testing.T) {
	const namespace = "paused"
	g := NewWithT(t)
	ctx := t.Context()
	manager := suite.StartManager(t, lab)
	start := suite.Mark(t, lab)

	var workloads []*env.Workload
	var pausing errgroup.Group
	for i, p := range upstreamPoints(namespace) {
		pausing.Go(func() error {
			return whenThere(ctx, p, func() error { return pauses[i%len(pauses)].begin(ctx, namespace, p.cluster) })
		})
		workloads = append(workloads, addLight(t, namespace, p.cluster))
	}
	for i, n := range []int{0, 1, 2, 5, 9} {
		name := fmt.Sprintf("write-%d", n)
		w := suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Register: true, StartLater: true, Light: &lightapi.Options{}})
		w.Light().SetFault(atWrite(n, func() {
			if err := pauses[i%len(pauses)].begin(ctx, namespace, name); err != nil {
				t.Error(err)
			}
		}))
		g.Expect(w.StartAPI(ctx)).To(Succeed())
		workloads = append(workloads, w)
	}
	g.Expect(pausing.Wait()).To(Succeed())
	for _, w := range workloads {
		suite.EventuallyCondition(t, lab, w, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
	}

	expectAtRest(t, manager, workloads)

	for _, w := range workloads {
		g.Expect(endPauses(ctx, w)).To(Succeed())
	}
	for _, w := range workloads {
		suite.EventuallyReady(t, lab, w)
	}
	expectMadeOnce(t, suite.ManagerEvents(t, lab, start), workloads)
	clusters := &fleet.ClusterList{}
	g.Expect(lab.Client.List(ctx, clusters, client.InNamespace(namespace))).To(Succeed())
	g.Expect(clusters.Items).To(HaveLen(len(workloads)))
}

// expectAtRest fails unless the manager leaves paused clusters, which are all of their
// namespace, as they are, whatever changes and also after a restart. What was under way
// when the pause began has ended: the condition came after it.
func expectAtRest(t *testing.T, manager *env.Manager, workloads []*env.Workload) {
	t.Helper()
	g := NewWithT(t)
	since := suite.Mark(t, lab)
	visited := map[*env.Workload]int{}
	for _, w := range workloads {
		visited[w] = len(visits(w))
		touch(t, w)
	}
	g.Expect(manager.Restart(t.Context())).To(Succeed())
	fence(t)
	namespace := workloads[0].Namespace
	for _, e := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
		g.Expect(e.Namespace).NotTo(Equal(namespace), "%s %s", e.Verb, e.RequestURI)
		g.Expect(e.RequestURI).NotTo(ContainSubstring("cluster-"+namespace), "%s", e.Verb)
	}
	for _, w := range workloads {
		g.Expect(visits(w)).To(HaveLen(visited[w]), w.Name)
	}
}

// point is when an object of a registration is on the management cluster.
type point struct {
	cluster string // its name; each point has a cluster of its own
	list    client.ObjectList
	key     client.ObjectKey
	there   func(client.Object) bool // nil means as soon as the object exists
}

// upstreamPoints returns the points in the order in which they are reached.
func upstreamPoints(namespace string) []point {
	points := []point{
		{cluster: "registration", list: &fleetv1.FleetRegistrationList{}},
		{cluster: "fleet-cluster", list: &fleet.ClusterList{}},
		{cluster: "namespace", list: &corev1.NamespaceList{}},
		{cluster: "account", list: &corev1.ServiceAccountList{}},
		{cluster: "role", list: &rbacv1.RoleList{}},
		{cluster: "binding", list: &rbacv1.RoleBindingList{}},
		{cluster: "bundles", list: &rbacv1.RoleBindingList{}},
		{cluster: "named", list: &fleet.ClusterList{}, there: func(obj client.Object) bool {
			return obj.(*fleet.Cluster).Status.Namespace != ""
		}},
		{cluster: "placed", list: &fleetv1.FleetRegistrationList{}, there: func(obj client.Object) bool {
			return obj.(*fleetv1.FleetRegistration).Status.Namespace != ""
		}},
	}
	for i := range points {
		p := &points[i]
		clusterNamespace := fleet.ClusterNamespace(namespace, p.cluster)
		switch p.cluster {
		case "namespace":
			p.key = client.ObjectKey{Name: clusterNamespace}
		case "account":
			p.key = client.ObjectKey{Namespace: env.ManagerNamespace, Name: clusterNamespace}
		case "role", "binding":
			p.key = client.ObjectKey{Namespace: namespace, Name: clusterNamespace}
		case "bundles":
			p.key = client.ObjectKey{Namespace: clusterNamespace, Name: "capi-fleet-agent"}
		default:
			p.key = client.ObjectKey{Namespace: namespace, Name: p.cluster}
		}
	}
	return points
}

// whenThere calls then once the point is reached.
func whenThere(ctx context.Context, p point, then func() error) error {
	watch, err := lab.Client.Watch(ctx, p.list, client.InNamespace(p.key.Namespace))
	if err != nil {
		return err
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		obj, ok := event.Object.(client.Object)
		if ok && client.ObjectKeyFromObject(obj) == p.key && (p.there == nil || p.there(obj)) {
			return then()
		}
	}
	return fmt.Errorf("the watch for %s ended", p.key)
}

// atWrite calls then during the manager's n-th write to a workload cluster, before that
// is carried out; 0 means its first request at all.
func atWrite(n int, then func()) lightapi.Fault {
	var mu sync.Mutex
	writes, done := 0, false
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if !byManager(r.UserAgent()) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if (lightapi.Request{Method: r.Method}).IsWrite() {
			writes++
		}
		if !done && writes >= n {
			done = true
			then()
		}
		return false
	}
}

// byManager tells the manager's requests to a workload cluster, which it makes as a
// controller of Cluster API, from the lab's and the agent's.
func byManager(userAgent string) bool { return strings.Contains(userAgent, "cluster.x-k8s.io/") }

func visits(w *env.Workload) []lightapi.Request {
	var own []lightapi.Request
	for _, request := range w.Light().Requests() {
		if byManager(request.UserAgent) {
			own = append(own, request)
		}
	}
	return own
}

// touch changes all that the manager watches for a cluster.
func touch(t *testing.T, w *env.Workload) {
	t.Helper()
	named := metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}
	for _, obj := range []client.Object{
		&clusterv1.Cluster{ObjectMeta: named}, &fleetv1.FleetRegistration{ObjectMeta: named}, &fleet.Cluster{ObjectMeta: named},
	} {
		touched := []byte(`{"metadata":{"labels":{"example.com/touched":"yes"}}}`)
		err := lab.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, touched))
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

// fence returns once the manager has worked through everything that happened before:
// it has registered a Cluster that is younger.
func fence(t *testing.T) {
	t.Helper()
	namespace := "fence-" + strings.ToLower(t.Name())[:20]
	late := suite.AddCluster(t, lab, "late", env.ClusterOptions{Namespace: namespace, Register: true, NoKubelet: true, Light: &lightapi.Options{}})
	suite.EventuallyCondition(t, lab, late, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	if len(visits(late)) == 0 {
		t.Fatal("the manager's requests to a workload cluster are not told apart from others")
	}
}

func mergePatch(ctx context.Context, obj client.Object, patch string) error {
	return lab.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)))
}
