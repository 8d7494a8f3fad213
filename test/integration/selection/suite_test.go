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

// Package selection tests which Clusters join Fleet, under which names, and what
// is left alone on the way: what is paused, what lost its selection, and whatever
// belongs to someone else.
package selection

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// lab is shared by the tests of the package. Each uses namespaces of its own. Tests
// that change what all Clusters go by do not run in parallel with others.
var lab *env.Lab

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &lab, env.Options{})) }

// planned is a cluster to add.
type planned struct {
	name string
	env.ClusterOptions
}

// plan returns a cluster on a light API server.
func plan(namespace, name string, change ...func(*env.ClusterOptions)) planned {
	p := planned{name, env.ClusterOptions{Namespace: namespace, Light: &lightapi.Options{}}}
	for _, c := range change {
		c(&p.ClusterOptions)
	}
	return p
}

func labelled(o *env.ClusterOptions)  { o.Register = true }
func noKubelet(o *env.ClusterOptions) { o.NoKubelet = true }

func label(value string) func(*env.ClusterOptions) {
	return func(o *env.ClusterOptions) { o.Labels = map[string]string{fleetv1.RegisterLabel: value} }
}

// add adds clusters at the same time. They stay until the lab ends, as does all else
// that tests make here: each keeps to its own namespaces, and to take a hundred of
// them away costs more than to make them.
func add(t *testing.T, plans ...planned) []*env.Workload {
	t.Helper()
	added := make([]*env.Workload, len(plans))
	var adding errgroup.Group
	for i, p := range plans {
		adding.Go(func() (err error) {
			added[i], err = lab.AddCluster(t.Context(), p.name, p.ClusterOptions)
			return err
		})
	}
	if err := adding.Wait(); err != nil {
		t.Fatal(err)
	}
	return added
}

// create creates objects on the management cluster. Policies are reported on when it
// returns: a Cluster that comes after one counts as coming after it.
func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := lab.Client.Create(t.Context(), obj); err != nil {
			t.Fatalf("creating %T %s: %v", obj, client.ObjectKeyFromObject(obj), err)
		}
		if p, ok := obj.(*fleetv1.FleetRegistrationPolicy); ok {
			eventuallyReported(t, p.Name)
		}
	}
}

// eventuallyReported waits until the manager has looked at a policy.
func eventuallyReported(t *testing.T, name string) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		p := &fleetv1.FleetRegistrationPolicy{}
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Name: name}, p)).To(Succeed())
		g.Expect(p.Status.Conditions).NotTo(BeEmpty())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// change patches an object of the management cluster to what mutate makes of it.
func change[T client.Object](t *testing.T, key client.ObjectKey, obj T, mutate func(T)) {
	t.Helper()
	if err := lab.Client.Get(t.Context(), key, obj); err != nil {
		t.Fatalf("reading %T %s: %v", obj, key, err)
	}
	before := obj.DeepCopyObject().(client.Object)
	mutate(obj)
	if err := lab.Client.Patch(t.Context(), obj, client.MergeFrom(before)); err != nil {
		t.Fatalf("changing %T %s: %v", obj, key, err)
	}
}

// setLabel puts a label on an object of the management cluster, or takes it away
// where value is empty.
func setLabel(t *testing.T, obj client.Object, key, value string) {
	t.Helper()
	change(t, client.ObjectKeyFromObject(obj), obj, func(obj client.Object) {
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		if labels[key] = value; value == "" {
			delete(labels, key)
		}
		obj.SetLabels(labels)
	})
}

// setAnnotation is setLabel for annotations, but an empty value is one.
func setAnnotation(t *testing.T, obj client.Object, key string, value *string) {
	t.Helper()
	change(t, client.ObjectKeyFromObject(obj), obj, func(obj client.Object) {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if value == nil {
			delete(annotations, key)
		} else {
			annotations[key] = *value
		}
		obj.SetAnnotations(annotations)
	})
}

func clusterOf(w *env.Workload) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
}

func registrationOf(t *testing.T, w *env.Workload) *fleetv1.FleetRegistration {
	t.Helper()
	registration := &fleetv1.FleetRegistration{}
	if err := lab.Client.Get(t.Context(), w.Key(), registration); err != nil {
		t.Fatalf("reading FleetRegistration %s: %v", w.Key(), err)
	}
	return registration
}

// fence returns once the manager has dealt with what happened before: a cluster that
// was added later has its agent.
func fence(t *testing.T, name string) {
	t.Helper()
	late := add(t, plan("fence-"+name, "late", labelled, noKubelet))[0]
	suite.EventuallyCondition(t, lab, late, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	if len(visits(late)) == 0 {
		t.Fatal("the manager's requests to a workload cluster are not told apart from others")
	}
}

// visits are the manager's requests to a workload cluster, which it makes as a
// controller of Cluster API.
func visits(w *env.Workload) []lightapi.Request {
	var own []lightapi.Request
	for _, request := range w.Light().Requests() {
		if strings.Contains(request.UserAgent, "cluster.x-k8s.io/") {
			own = append(own, request)
		}
	}
	return own
}

// managerWrites are the manager's writes since a mark for the clusters of a
// namespace, in the form "verb resource/subresource", with the code where it was
// refused.
func managerWrites(t *testing.T, since kube.Mark, namespace string) []string {
	t.Helper()
	writes := []string{}
	for _, event := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
		if concerns(event, namespace) {
			write := strings.TrimSuffix(fmt.Sprintf("%s %s/%s", event.Verb, event.Resource, event.Subresource), "/")
			if event.Group == clusterv1.GroupVersion.Group {
				write = "tell the Cluster"
			}
			if event.Code >= http.StatusMultipleChoices {
				write += fmt.Sprintf(" (%d)", event.Code)
			}
			writes = append(writes, write)
		}
	}
	return writes
}

// concerns tells whether an event is about a Cluster of the namespace, or about a
// cluster namespace that has its stock name and is not cut.
func concerns(event kube.Event, namespace string) bool {
	prefix := "cluster-" + namespace + "-"
	return event.Namespace == namespace || strings.HasPrefix(event.Namespace, prefix) || strings.HasPrefix(event.Name, prefix)
}

// state is everything that a registration made, without what others change in it:
// the agent's heartbeat, and the condition Selected.
type state struct {
	Registration *fleetv1.FleetRegistration
	FleetCluster *fleet.Cluster
	Secret       string // its resource version
	Deployment   appsv1.DeploymentSpec
	Visits       int
}

func stateOf(t *testing.T, w *env.Workload) state {
	t.Helper()
	g := NewWithT(t)
	s := state{Registration: registrationOf(t, w), FleetCluster: &fleet.Cluster{}, Visits: len(visits(w))}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey(s.Registration.Spec.FleetCluster), s.FleetCluster)).To(Succeed())
	deployment := &appsv1.Deployment{}
	g.Expect(w.Client.Get(t.Context(), suite.AgentKey, deployment)).To(Succeed())
	s.Secret, s.Deployment = suite.AgentSecret(g, t.Context(), w).ResourceVersion, deployment.Spec

	meta.RemoveStatusCondition(&s.Registration.Status.Conditions, fleetv1.SelectedCondition)
	s.FleetCluster.Status.Agent = fleet.AgentStatus{}
	for _, obj := range []client.Object{s.Registration, s.FleetCluster} {
		obj.SetManagedFields(nil)
		obj.SetResourceVersion("")
		obj.SetGeneration(0)
	}
	return s
}

// policy returns a policy for the labelled Clusters of one namespace.
func policy(name, namespace string, change ...func(*fleetv1.FleetRegistrationPolicySpec)) *fleetv1.FleetRegistrationPolicy {
	p := &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: fleetv1.FleetRegistrationPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		},
	}
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}
