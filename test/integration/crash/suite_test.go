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

// Package crash tests that a registration comes through whatever breaks into it: the
// end of the manager at any point, a change of leader, a pause, and others' writes.
package crash

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// lab has no manager: each test starts those that it needs and ends them, so no two
// tests run at once. The clusters of earlier tests are there, and at rest.
var lab *env.Lab

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &lab, env.Options{NoManager: true})) }

// addLight adds a labelled Cluster on a light API server.
func addLight(t *testing.T, namespace, name string) *env.Workload {
	t.Helper()
	return suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}})
}

// addReal adds a labelled Cluster on a real API server.
func addReal(t *testing.T, namespace, name string) *env.Workload {
	t.Helper()
	return suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Register: true})
}

// addStopped adds labelled Clusters whose API servers do not answer yet.
func addStopped(t *testing.T, namespace string, n int) []*env.Workload {
	t.Helper()
	var workloads []*env.Workload
	for i := range n {
		workloads = append(workloads, suite.AddCluster(t, lab, fmt.Sprintf("edge-%d", i+1), env.ClusterOptions{
			Namespace: namespace, Register: true, StartLater: true, Light: &lightapi.Options{},
		}))
	}
	return workloads
}

func startAPIs(t *testing.T, workloads []*env.Workload) {
	t.Helper()
	for _, w := range workloads {
		if err := w.StartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// creates returns the names of the objects that managers asked to create, once for
// each request that was answered with code. Tokens are none.
func creates(events []kube.Event, code int) []string {
	var objects []string
	for _, e := range kube.Writes(events) {
		if e.Verb == "create" && e.Subresource == "" && e.Code == code {
			objects = append(objects, fmt.Sprintf("%s %s/%s", e.Resource, e.Namespace, e.Name))
		}
	}
	return objects
}

// expectMadeOnce fails unless every registration was made whole, nothing was made
// twice, and at most one request for each object came too late.
func expectMadeOnce(t *testing.T, events []kube.Event, workloads []*env.Workload) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	made := creates(events, http.StatusCreated)
	g.Expect(made).To(ConsistOf(unique(made)), "an object was made twice")
	late := creates(events, http.StatusConflict)
	g.Expect(late).To(ConsistOf(unique(late)), "it was tried again and again to make an object that exists")

	for _, w := range workloads {
		reg := &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(ctx, w.Key(), reg)).To(Succeed())
		cluster := &fleet.Cluster{}
		g.Expect(lab.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
		g.Expect(cluster.Annotations).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, reg.Spec.RegistrationID))
		g.Expect(cluster.Status.Namespace).To(Equal(reg.Status.Namespace))
		g.Expect(suite.AgentSecret(g, ctx, w).Annotations).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, reg.Spec.RegistrationID))

		namespace := &corev1.Namespace{}
		g.Expect(lab.Client.Get(ctx, types.NamespacedName{Name: reg.Status.Namespace}, namespace)).To(Succeed())
		g.Expect(namespace.UID).To(Equal(reg.Status.NamespaceUID))
		var madeHere []string
		for _, object := range made {
			if strings.HasSuffix(object, "/"+w.Name) || strings.Contains(object, reg.Status.Namespace) {
				resource, _, _ := strings.Cut(object, " ")
				madeHere = append(madeHere, resource)
			}
		}
		g.Expect(madeHere).To(ConsistOf("fleetregistrations", "clusters", "namespaces", "serviceaccounts", "roles", "rolebindings", "rolebindings"))

		secrets := 0
		for _, request := range w.Light().Writes() {
			if request.Method == http.MethodPost && strings.HasSuffix(request.Path, "/"+agent.Namespace+"/secrets") && request.Code == http.StatusCreated {
				secrets++
			}
		}
		g.Expect(secrets).To(Equal(1), "the agent's Secret was made once")
	}
}

func unique(list []string) []string {
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// removeAll takes clusters away at the same time and fails where anything is left that
// was not there before.
func removeAll(t *testing.T, workloads []*env.Workload, before []string) {
	t.Helper()
	g := NewWithT(t)
	group, ctx := errgroup.WithContext(t.Context())
	for _, w := range workloads {
		group.Go(func() error { return lab.RemoveCluster(ctx, w) })
	}
	g.Expect(group.Wait()).To(Succeed())
	g.Eventually(suite.Inventory).WithContext(t.Context()).WithArguments(lab).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(before))
}
