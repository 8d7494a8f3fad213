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

package agentsim

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestHeartbeatsAreSent(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	agent, _ := w.start(t)

	g.Eventually(func() int { return agent.Report().Heartbeats }, patience).Should(BeNumerically(">=", 2))
	cluster := &fleet.Cluster{}
	g.Expect(w.managementClient.Get(t.Context(), client.ObjectKey{Namespace: workspace, Name: clusterName}, cluster)).To(Succeed())
	g.Expect(cluster.Status.Agent.Namespace).To(Equal(fleet.DefaultAgentNamespace))
	g.Expect(cluster.Status.Agent.LastSeen.IsZero()).To(BeFalse())
	g.Expect(cluster.Status.Namespace).To(Equal(clusterNamespace), "the rest of the status stays")

	report := agent.Report()
	g.Expect(report.State).To(Equal(Running))
	g.Expect(report.Cluster).To(Equal("fleet-default/edge"))
	g.Expect(report.ClusterNamespace).To(Equal(clusterNamespace))
	g.Expect(report.Refused).To(BeEmpty())
}

func TestBundlesAreDeployedAndReported(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	w.bundle(t, "before", "one")
	agent, _ := w.start(t)
	after := w.bundle(t, "after", "two")

	g.Eventually(func() []string { return agent.Report().Deployed }, patience).Should(Equal([]string{"after", "before"}))
	g.Expect(w.workloads(t)).To(Equal([]string{"bundle-after", "bundle-before"}))
	g.Expect(w.releases(t)).To(Equal([]string{"sh.helm.release.v1.after.v1", "sh.helm.release.v1.before.v1"}))
	deployed := &corev1.ConfigMap{}
	g.Expect(w.workloadClient.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "bundle-after"}, deployed)).To(Succeed())
	g.Expect(deployed.Data).To(HaveKeyWithValue("content", "two"))

	got := &fleet.BundleDeployment{}
	g.Expect(w.managementClient.Get(t.Context(), client.ObjectKeyFromObject(after), got)).To(Succeed())
	g.Expect(got.Status).To(Equal(fleet.BundleDeploymentStatus{
		Ready: true, AppliedDeploymentID: "s-after:options", Release: "default/after",
	}))

	secret := &corev1.Secret{}
	g.Expect(w.workloadClient.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "sh.helm.release.v1.after.v1"}, secret)).To(Succeed())
	g.Expect(secret.Type).To(BeEquivalentTo("helm.sh/release.v1"))
	g.Expect(secret.Labels).To(Equal(map[string]string{"owner": "helm", "name": "after", "status": "deployed", "version": "1"}))
	release, err := readRelease(secret)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(release.Chart.Metadata.Annotations).To(Equal(map[string]string{
		"fleet.cattle.io/bundle-id": "after", "fleet.cattle.io/agent-namespace": "cattle-fleet-system",
	}))
}

func TestANewDeploymentIsANewRevision(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	deployment := w.bundle(t, "b", "one")
	agent, _ := w.start(t)
	g.Eventually(func() []string { return agent.Report().Deployed }, patience).ShouldNot(BeEmpty())

	w.content(t, "s-next", "two")
	g.Expect(w.managementClient.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
	deployment.Spec.DeploymentID = "s-next:options"
	g.Expect(w.managementClient.Update(t.Context(), deployment)).To(Succeed())

	g.Eventually(func(g Gomega) {
		got := &fleet.BundleDeployment{}
		g.Expect(w.managementClient.Get(t.Context(), client.ObjectKeyFromObject(deployment), got)).To(Succeed())
		g.Expect(got.Status.AppliedDeploymentID).To(Equal("s-next:options"))
	}, patience).Should(Succeed())
	g.Expect(w.releases(t)).To(Equal([]string{"sh.helm.release.v1.b.v1", "sh.helm.release.v1.b.v2"}))
	first := &corev1.Secret{}
	g.Expect(w.workloadClient.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "sh.helm.release.v1.b.v1"}, first)).To(Succeed())
	g.Expect(first.Labels).To(HaveKeyWithValue("status", "superseded"))
	workload := &corev1.ConfigMap{}
	g.Expect(w.workloadClient.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "bundle-b"}, workload)).To(Succeed())
	g.Expect(workload.Data).To(HaveKeyWithValue("content", "two"))

	g.Expect(w.managementClient.Delete(t.Context(), deployment)).To(Succeed())
	g.Eventually(func() []string { return w.releases(t) }, patience).Should(BeEmpty())
}

func TestAPausedBundleIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	paused := w.bundle(t, "paused", "one")
	paused.Spec.Paused = true
	g.Expect(w.managementClient.Update(t.Context(), paused)).To(Succeed())
	w.bundle(t, "running", "two")
	agent, _ := w.start(t)
	g.Eventually(func() []string { return agent.Report().Deployed }, patience).ShouldNot(BeEmpty())
	g.Consistently(func() []string { return agent.Report().Deployed }, moment).Should(Equal([]string{"running"}))
}

func TestADeletedBundleIsUninstalled(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	gone := w.bundle(t, "gone", "one")
	w.bundle(t, "stays", "two")
	agent, _ := w.start(t)
	g.Eventually(func() []string { return agent.Report().Deployed }, patience).Should(HaveLen(2))

	g.Expect(w.managementClient.Delete(t.Context(), gone)).To(Succeed())
	g.Eventually(func() []string { return agent.Report().Uninstalled }, patience).Should(Equal([]string{"gone"}))
	g.Expect(w.workloads(t)).To(Equal([]string{"bundle-stays"}))
	g.Expect(w.releases(t)).To(Equal([]string{"sh.helm.release.v1.stays.v1"}))
	g.Expect(agent.Report().Deployed).To(Equal([]string{"stays"}))
}

func TestADeletionWhileTheWatchWasBrokenIsNoticed(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	gone := w.bundle(t, "gone", "one")
	agent, _ := w.start(t)
	g.Eventually(func() []string { return agent.Report().Deployed }, patience).Should(HaveLen(1))

	w.management.SetFault(lightapi.When(func(r *http.Request) bool { return lightapi.UserOf(r) == agentUser }, lightapi.Refuse(503)))
	g.Expect(w.management.Stop()).To(Succeed())
	g.Expect(w.management.Start()).To(Succeed())
	// A connection from before may only now turn out to be broken.
	g.Eventually(func() error {
		return client.IgnoreNotFound(w.managementClient.Delete(t.Context(), gone))
	}, patience).Should(Succeed())
	g.Expect(agent.Report().Uninstalled).To(BeEmpty())
	w.management.SetFault(nil)
	g.Eventually(func() []string { return agent.Report().Uninstalled }, patience).Should(Equal([]string{"gone"}))
}

func TestReleasesWithoutABundleAreCollectedOneByOne(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken()) // The interval is 15 minutes.
	for _, left := range []string{"a-left", "b-left"} {
		w.leftRelease(t, left, fleet.DefaultAgentNamespace)
	}
	w.leftRelease(t, "a-foreign", "another-namespace")
	w.bundle(t, "kept", "one")

	agent, stop := w.start(t)
	g.Eventually(func() []string { return agent.Report().Uninstalled }, patience).Should(Equal([]string{"a-left"}))
	g.Consistently(func() []string { return agent.Report().Uninstalled }, moment).Should(HaveLen(1), "one per interval")
	g.Expect(w.workloads(t)).To(Equal([]string{"bundle-a-foreign", "bundle-b-left", "bundle-kept"}))
	stop()

	again, _ := w.start(t)
	g.Eventually(func() []string { return again.Report().Uninstalled }, patience).Should(Equal([]string{"b-left"}))
	g.Consistently(func() []string { return w.workloads(t) }, moment).Should(Equal([]string{"bundle-a-foreign", "bundle-kept"}))
}

func TestAReleaseThatItsBundleDeploymentDoesNotMakeIsCollected(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	w.leftRelease(t, "db", fleet.DefaultAgentNamespace)
	w.leftRelease(t, "web", fleet.DefaultAgentNamespace)
	w.bundle(t, "web", "one")
	moved := w.bundle(t, "db", "two")
	moved.Spec.Options.TargetNamespace = "shop"
	g.Expect(w.managementClient.Update(t.Context(), moved)).To(Succeed())

	agent, _ := w.start(t)

	g.Eventually(func() []string { return agent.Report().Uninstalled }, patience).Should(Equal([]string{"db"}))
	g.Eventually(func(g Gomega) {
		made := &corev1.ConfigMap{}
		g.Expect(w.workloadClient.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "bundle-db"}, made)).To(Succeed())
	}, patience).Should(Succeed())
	g.Expect(w.workloads(t)).To(Equal([]string{"bundle-web"}), "in the namespace of before")
}

func TestTheCollectionIntervalIsRead(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, `{"garbageCollectionInterval":"10ms"}`, withToken())
	for _, left := range []string{"c", "a", "b"} {
		w.leftRelease(t, left, fleet.DefaultAgentNamespace)
	}
	w.bundle(t, "kept", "one")
	agent, _ := w.start(t)
	g.Eventually(func() []string { return agent.Report().Uninstalled }, patience).Should(Equal([]string{"a", "b", "c"}))
	g.Expect(w.releases(t)).To(Equal([]string{"sh.helm.release.v1.kept.v1"}))
}

func TestNothingIsCollectedBeforeABundleIsSeen(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, `{"garbageCollectionInterval":"10ms"}`, withToken())
	w.leftRelease(t, "left", fleet.DefaultAgentNamespace)
	agent, _ := w.start(t)
	g.Eventually(func() int { return agent.Report().Heartbeats }, patience).Should(BeNumerically(">=", 1))
	g.Consistently(func() []string { return w.workloads(t) }, moment).Should(Equal([]string{"bundle-left"}))

	w.bundle(t, "first", "one")
	g.Eventually(func() []string { return agent.Report().Uninstalled }, patience).Should(Equal([]string{"left"}))
}

func TestTheAgentsOwnReleaseIsForgottenNotUninstalled(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, `{"garbageCollectionInterval":"10ms"}`, withToken())
	w.leftRelease(t, "fleet-agent-edge", fleet.DefaultAgentNamespace)
	w.bundle(t, "kept", "one")
	agent, _ := w.start(t)
	g.Eventually(func() []string { return w.releases(t) }, patience).Should(Equal([]string{"sh.helm.release.v1.kept.v1"}))
	g.Expect(w.workloads(t)).To(ContainElement("bundle-fleet-agent-edge"))
	g.Expect(agent.Report().Uninstalled).To(BeEmpty())
}

func TestWithoutItsConfigTheAgentDoesNothingForGood(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pushSecret(t, withToken())
	agent, _ := w.start(t)
	g.Eventually(func() State { return agent.Report().State }, patience).Should(Equal(Idle))
	g.Expect(agent.Report().Message).To(ContainSubstring("cattle-fleet-system/fleet-agent"))

	g.Expect(w.workloadClient.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.DefaultAgentNamespace, Name: name},
		Data:       map[string]string{"config": "{}"},
	})).To(Succeed())
	g.Consistently(func() State { return agent.Report().State }, moment).Should(Equal(Idle))
	g.Expect(agent.Report().Heartbeats).To(BeZero())

	again, _ := w.start(t)
	g.Eventually(func() State { return again.Report().State }, patience).Should(Equal(Running))
}

func TestAMendedSecretIsReadAgain(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", clientcmdapi.AuthInfo{Token: "expired"})
	agent, _ := w.start(t)
	g.Eventually(func() int { return agent.Report().Restarts }, patience).Should(BeNumerically(">=", 2))
	report := agent.Report()
	g.Expect(report.State).To(Equal(Connecting))
	g.Expect(report.Refused).To(Equal([]Refusal{{
		API: "management", Verb: "list", Resource: "bundledeployments", Namespace: clusterNamespace, Code: http.StatusUnauthorized,
	}}))

	w.pushSecret(t, withToken())
	g.Eventually(func() int { return agent.Report().Heartbeats }, patience).Should(BeNumerically(">=", 1))
	g.Expect(agent.Report().Message).To(BeEmpty())
}

func TestAMissingSecretIsWaitedFor(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	agent, _ := w.start(t)
	g.Eventually(func() int { return agent.Report().Restarts }, patience).Should(BeNumerically(">=", 2))
	w.push(t, "{}", withToken())
	g.Eventually(func() State { return agent.Report().State }, patience).Should(Equal(Running))
}

func TestTheTokenFileIsStrongerThanTheToken(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	file := tokenFile(t)
	g.Expect(os.WriteFile(file, []byte("expired"), 0o600)).To(Succeed())
	w.push(t, "{}", clientcmdapi.AuthInfo{Token: agentToken, TokenFile: file})
	agent, _ := w.start(t)
	g.Eventually(func() int { return agent.Report().Restarts }, patience).Should(BeNumerically(">=", 2))

	g.Expect(os.WriteFile(file, []byte(agentToken), 0o600)).To(Succeed())
	g.Eventually(func() int { return agent.Report().Heartbeats }, patience).Should(BeNumerically(">=", 1))
}

func TestTheTokenServesWhereThereIsNoTokenFile(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", clientcmdapi.AuthInfo{Token: agentToken, TokenFile: tokenFile(t)})
	agent, _ := w.start(t)
	g.Eventually(func() int { return agent.Report().Heartbeats }, patience).Should(BeNumerically(">=", 1))
	g.Expect(agent.Report().Restarts).To(BeZero())
}

func TestWhatIsForbiddenIsReportedAndTriedAgain(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	w.bundle(t, "b", "one")
	w.management.SetFault(lightapi.When(func(r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/contents/") || strings.HasSuffix(r.URL.Path, "/clusters/edge/status")
	}, lightapi.Refuse(http.StatusForbidden)))
	agent, _ := w.start(t)
	g.Eventually(func() []Refusal { return agent.Report().Refused }, patience).Should(ConsistOf(
		Refusal{API: "management", Verb: "get", Resource: "contents", Name: "s-b", Code: http.StatusForbidden},
		Refusal{API: "management", Verb: "patch", Resource: "clusters/status", Namespace: workspace, Name: clusterName, Code: http.StatusForbidden},
	))
	g.Expect(agent.Report().Heartbeats).To(BeZero())
	g.Expect(agent.Report().Deployed).To(BeEmpty())

	w.management.SetFault(nil)
	g.Eventually(func() []string { return agent.Report().Deployed }, patience).Should(Equal([]string{"b"}))
	g.Eventually(func() int { return agent.Report().Heartbeats }, patience).Should(BeNumerically(">=", 1))
}

func TestTheManagementClusterIsAskedForNothingElse(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, `{"garbageCollectionInterval":"10ms"}`, withToken())
	w.leftRelease(t, "left", fleet.DefaultAgentNamespace)
	gone := w.bundle(t, "b", "one")
	agent, _ := w.start(t)
	g.Eventually(func() []string { return agent.Report().Deployed }, patience).ShouldNot(BeEmpty())
	g.Expect(w.managementClient.Delete(t.Context(), gone)).To(Succeed())
	g.Eventually(func() []string { return agent.Report().Uninstalled }, patience).Should(ConsistOf("left", "b"))
	g.Eventually(func() int { return agent.Report().Heartbeats }, patience).Should(BeNumerically(">=", 1))

	asked := map[string]bool{}
	for _, r := range w.management.Requests() {
		if r.User == agentUser {
			asked[r.Method+" "+r.Path] = true
		}
	}
	const group = "/apis/fleet.cattle.io/v1alpha1"
	g.Expect(asked).To(Equal(map[string]bool{
		"GET " + group + "/namespaces/cluster-edge/bundledeployments":            true,
		"PATCH " + group + "/namespaces/cluster-edge/bundledeployments/b/status": true,
		"GET " + group + "/contents/s-b":                                         true,
		"GET /api/v1/namespaces/cluster-edge/secrets/b":                          true,
		"GET /api/v1/namespaces/cluster-edge/configmaps/b":                       true,
		"PATCH " + group + "/namespaces/fleet-default/clusters/edge/status":      true,
	}))
}

func TestARestartedAgentWritesNothingAnew(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	deployment := w.bundle(t, "b", "one")
	first, stop := w.start(t)
	g.Eventually(func() []string { return first.Report().Deployed }, patience).ShouldNot(BeEmpty())
	stop()
	g.Expect(w.managementClient.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
	writes := len(w.workload.Writes())

	second, _ := w.start(t)
	g.Eventually(func() []string { return second.Report().Deployed }, patience).Should(Equal([]string{"b"}))
	g.Expect(w.workload.Writes()).To(HaveLen(writes))
	patches := slices.DeleteFunc(w.management.Writes(), func(r lightapi.Request) bool {
		return !strings.HasSuffix(r.Path, "/bundledeployments/b/status")
	})
	g.Expect(patches).To(HaveLen(1))
}

func TestReportsAreHandedOut(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	var mu sync.Mutex
	var states []State
	w.start(t, func(o *Options) {
		o.OnReport = func(r Report) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, r.State)
		}
	})
	g.Eventually(func() []State {
		mu.Lock()
		defer mu.Unlock()
		return slices.Compact(slices.Clone(states))
	}, patience).Should(Equal([]State{Connecting, Running}))
}

func TestAnEndedAgentLeavesNoConnection(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.push(t, "{}", withToken())
	// The test's own client has a connection already.
	_, before := w.management.Connections()
	agent, stop := w.start(t)
	g.Eventually(func() int { return agent.Report().Heartbeats }, patience).Should(BeNumerically(">=", 1))
	stop()
	g.Eventually(func() int { _, open := w.management.Connections(); return open }, patience).Should(Equal(before))
}
