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

// Package move tests what becomes of registrations when their Clusters get another
// management cluster: by clusterctl move, by a pivot, from a backup, or when two hold
// the same kubeconfig.
package move

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// source and target are two management clusters, each with its manager. All workload
// clusters begin at source, whose lab runs their agents. Each test has a namespace of
// its own, which is what clusterctl moves.
var source, target *env.Lab

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	// Heartbeats come often, so that a test soon sees whom an agent reports to.
	options := env.Options{Race: true, CheckinInterval: time.Second}
	if testing.Verbose() {
		options.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	if source, err = env.Start(ctx, options); err != nil {
		return 1, fmt.Errorf("starting the source: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	options.ManagerArgs = []string{"--agent-token-dir=" + source.AgentTokenDir()}
	if target, err = env.Start(ctx, options); err != nil {
		return 1, fmt.Errorf("starting the target: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	return m.Run(), nil
}

// join adds a cluster to source that clusterctl would move, and returns it once its
// agent has deployed the bundles.
func join(t *testing.T, namespace string, opts env.ClusterOptions, bundles ...string) *env.Workload {
	t.Helper()
	opts.Light = &lightapi.Options{}
	return joinAs(t, namespace, opts, bundles...)
}

// joinAs is join with the workload API that opts say, which may be a real API server.
func joinAs(t *testing.T, namespace string, opts env.ClusterOptions, bundles ...string) *env.Workload {
	t.Helper()
	opts.Namespace, opts.InitializedAfter = namespace, -1
	w := suite.AddCluster(t, source, "edge", opts)
	provision(t, source, w.Key())
	makeBundles(t, source, namespace, bundles...)
	suite.EventuallyReady(t, source, w)
	eventuallyDeployed(t, source, w, bundles...)
	return w
}

// makeBundles makes bundles for all Fleet Clusters of a namespace, as a person does.
func makeBundles(t *testing.T, lab *env.Lab, namespace string, names ...string) {
	t.Helper()
	g := NewWithT(t)
	ensureNamespace(t, lab, namespace)
	for _, name := range names {
		g.Expect(lab.Client.Create(t.Context(), suite.Bundle(namespace, name))).To(Succeed())
	}
}

func ensureNamespace(t *testing.T, lab *env.Lab, name string) {
	t.Helper()
	err := lab.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	NewWithT(t).Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
}

// eventuallyDeployed waits until the agent has told the management cluster that
// exactly those bundles are ready.
func eventuallyDeployed(t *testing.T, lab *env.Lab, w *env.Workload, bundles ...string) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		deployments := &fleet.BundleDeploymentList{}
		g.Expect(lab.Client.List(t.Context(), deployments, client.InNamespace(registrationOf(g, t.Context(), lab, w).Status.Namespace))).To(Succeed())
		ready := []string{}
		for _, deployment := range deployments.Items {
			if deployment.Status.Ready {
				ready = append(ready, deployment.Name)
			}
		}
		g.Expect(ready).To(ConsistOf(bundles))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

func registrationOf(g Gomega, ctx context.Context, lab *env.Lab, w *env.Workload) *fleetv1.FleetRegistration {
	registration := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(ctx, w.Key(), registration)).To(Succeed())
	return registration
}

// deployed returns the UIDs of what the bundles are in a workload cluster.
func deployed(g Gomega, ctx context.Context, workload client.Client, bundles ...string) map[string]types.UID {
	uids := map[string]types.UID{}
	for _, bundle := range bundles {
		object := &corev1.ConfigMap{}
		g.Expect(workload.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "bundle-" + bundle}, object)).To(Succeed())
		uids[bundle] = object.UID
	}
	return uids
}

// expectNothingUninstalled fails where anything was ever deleted where the bundles are.
func expectNothingUninstalled(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	for _, request := range w.Light().Writes() {
		if request.Method == http.MethodDelete {
			g.Expect(request.Path).NotTo(ContainSubstring("/namespaces/"+metav1.NamespaceDefault+"/"), "something deployed was deleted")
		}
	}
	for _, report := range w.AgentReports() {
		g.Expect(report.Uninstalled).To(BeEmpty())
	}
}

// visits are the requests of managers to a workload cluster, which they make as
// controllers of Cluster API.
func visits(w *env.Workload) []lightapi.Request {
	var own []lightapi.Request
	for _, request := range w.Light().Requests() {
		if strings.Contains(request.UserAgent, "cluster.x-k8s.io/") {
			own = append(own, request)
		}
	}
	return own
}

// writes are the visits that change something.
func writes(w *env.Workload) []lightapi.Request {
	var own []lightapi.Request
	for _, request := range visits(w) {
		if request.IsWrite() {
			own = append(own, request)
		}
	}
	return own
}

// pushes counts how often a manager gave the agent a credential.
func pushes(w *env.Workload) int {
	count := 0
	for _, request := range writes(w) {
		if strings.Contains(request.Path, "/secrets") {
			count++
		}
	}
	return count
}

// managerWrites are the writes of a management cluster's manager since a mark that are
// about a namespace of Clusters, in the form "verb resource/subresource".
func managerWrites(t *testing.T, lab *env.Lab, since kube.Mark, namespace string) []string {
	t.Helper()
	var own []string
	for _, event := range kube.Writes(suite.ManagerEvents(t, lab, since)) {
		// The name of the cluster namespace, and what is named after it, contain the name.
		if strings.Contains(event.Namespace+"/"+event.Name, namespace) {
			own = append(own, strings.TrimSuffix(fmt.Sprintf("%s %s/%s", event.Verb, event.Resource, event.Subresource), "/"))
		}
	}
	return own
}

// eventuallyReports waits for a heartbeat at a management cluster that is sent from now on.
func eventuallyReports(t *testing.T, lab *env.Lab, w *env.Workload) {
	t.Helper()
	now := time.Now()
	NewWithT(t).Eventually(func(g Gomega) {
		cluster := &fleet.Cluster{}
		g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
		g.Expect(cluster.Status.Agent.LastSeen.Time).To(BeTemporally(">", now))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// provision does on a management cluster what the providers do there, as far as
// clusterctl looks at it.
func provision(t *testing.T, lab *env.Lab, key client.ObjectKey) {
	t.Helper()
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), key, cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ClusterControlPlaneInitializedReason,
	})
	g.Expect(lab.Client.Status().Patch(t.Context(), cluster, client.MergeFrom(before))).To(Succeed())
}

// clusterctlMove moves all Clusters of a namespace.
func clusterctlMove(t *testing.T, from, to *env.Lab, namespace string) {
	t.Helper()
	clusterctl, err := kube.FindClusterctl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), clusterctl, "move", "--namespace", namespace,
		"--kubeconfig", from.Management().AdminKubeconfigPath(), "--to-kubeconfig", to.Management().AdminKubeconfigPath())
	command.Env = []string{"HOME=" + t.TempDir(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true"}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("clusterctl move: %v\n%s", err, output)
	}
}

func annotate(t *testing.T, lab *env.Lab, w *env.Workload, key, value string) {
	t.Helper()
	g := NewWithT(t)
	registration := registrationOf(g, t.Context(), lab, w)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	g.Expect(lab.Client.Patch(t.Context(), registration, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}
