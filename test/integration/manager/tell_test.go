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
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestMetricsTellWhatHappened(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	const namespace = "metrics"
	manager := suite.StartManager(t, lab, "--namespace="+namespace) // It counts those of this test alone.
	workloads := []*env.Workload{addLight(t, namespace, "edge-1"), addLight(t, namespace, "edge-2")}
	broken := addBroken(t, namespace, "broken", "this: is: no: kubeconfig")
	suite.EventuallyCondition(t, lab, broken, fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.KubeconfigInvalidReason)
	var earliest float64
	for _, w := range workloads {
		expiry := float64(suite.EventuallyReady(t, lab, w).Status.Credential.ExpirationTime.Unix())
		if earliest == 0 || expiry < earliest {
			earliest = expiry
		}
	}

	g.Eventually(func(g Gomega) {
		families, err := manager.Metrics(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		metric := func(name string, labels ...string) *dto.Metric {
			for _, metric := range families["capi_fleet_"+name].GetMetric() {
				var values []string
				for _, label := range metric.GetLabel() {
					values = append(values, label.GetValue())
				}
				if strings.Join(values, " ") == strings.Join(labels, " ") {
					return metric
				}
			}
			return &dto.Metric{}
		}
		g.Expect(metric("registrations", "ready").GetGauge().GetValue()).To(BeEquivalentTo(2))
		g.Expect(metric("registrations", "not_ready").GetGauge().GetValue()).To(BeEquivalentTo(1))
		g.Expect(metric("registrations", "paused").GetGauge().GetValue()).To(BeZero())
		g.Expect(metric("registrations", "deleting").GetGauge().GetValue()).To(BeZero())
		for _, histogram := range []string{"api_answer_to_registered_seconds", "selection_to_registered_seconds"} {
			found := metric(histogram).GetHistogram()
			g.Expect(found.GetSampleCount()).To(BeEquivalentTo(2), histogram)
			g.Expect(found.GetSampleSum()).To(BeNumerically(">", 0), histogram)
		}
		g.Expect(metric("pushes_total").GetCounter().GetValue()).To(BeEquivalentTo(2))
		g.Expect(families["capi_fleet_push_failures_total"].GetMetric()).To(HaveLen(1))
		g.Expect(metric("push_failures_total", fleetv1.KubeconfigInvalidReason).GetCounter().GetValue()).To(BeNumerically(">", 0))
		g.Expect(metric("earliest_credential_expiry_timestamp_seconds").GetGauge().GetValue()).To(Equal(earliest))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

func TestPageOnMetricsNamesTheControllers(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "metrics.md"))
	g.Expect(err).NotTo(HaveOccurred())
	sentence := regexp.MustCompile(`its controllers are named ([^.]+)\.`).FindSubmatch(page)
	g.Expect(sentence).NotTo(BeNil())
	var named []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(sentence[1], -1) {
		named = append(named, string(match[1]))
	}

	manager := suite.StartManager(t, lab)
	g.Eventually(func(g Gomega) {
		families, err := manager.Metrics(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		var running []string
		for _, metric := range families["controller_runtime_max_concurrent_reconciles"].GetMetric() {
			running = append(running, metric.GetLabel()[0].GetValue())
		}
		g.Expect(running).To(ConsistOf(named))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// addBroken adds a labelled Cluster with that kubeconfig.
func addBroken(t *testing.T, namespace, name, kubeconfig string) *env.Workload {
	t.Helper()
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{
		Namespace: namespace, Register: true, NoKubeconfig: true, NoKubelet: true, Light: &lightapi.Options{},
	})
	if err := w.WriteKubeconfig(t.Context(), []byte(kubeconfig)); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestLogsHoldNoSecrets(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	const namespace, marker = "logs", "what-nobody-may-see"
	// All but the queue of controller-runtime, whose level 5 is a data race (v0.24.1).
	manager := suite.StartManager(t, lab, "--v=4", "--vmodule=request=10,round_trippers=10,*_*=10,push=10,writer=10,token=10,client=10,dial=10")
	light := addLight(t, namespace, "light")
	notYAML := addBroken(t, namespace, "not-yaml", marker+": [")
	exec := addBroken(t, namespace, "exec", strings.ReplaceAll(string(light.Kubeconfig()), "token: ", "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: "+marker+"}\n    token: "))
	suite.EventuallyCondition(t, lab, notYAML, fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.KubeconfigInvalidReason)
	suite.EventuallyCondition(t, lab, exec, fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.KubeconfigExecReason)

	secrets := []string{marker}
	own, err := os.ReadFile(filepath.Join(filepath.Dir(manager.LogPath()), "kubeconfig"))
	g.Expect(err).NotTo(HaveOccurred())
	secrets = append(secrets, credentials(g, own)...)
	suite.EventuallyReady(t, lab, light)
	cluster := &fleet.Cluster{}
	g.Expect(lab.Client.Get(ctx, light.Key(), cluster)).To(Succeed())
	data := suite.AgentSecret(g, ctx, light).Data
	secrets = append(secrets, cluster.Spec.ClientID, string(data["token"]))
	secrets = append(secrets, credentials(g, data["kubeconfig"])...)
	secrets = append(secrets, credentials(g, light.Kubeconfig())...)
	suite.DeleteCluster(t, lab, light)
	suite.EventuallyGone(t, lab, light)

	log, err := manager.Log()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(log).To(ContainSubstring("/api/v1/namespaces/"+namespace+"/secrets/light-kubeconfig"), "requests are logged")
	for _, secret := range secrets {
		g.Expect(secret).NotTo(BeEmpty())
		at := pieceOf(secret, log)
		if at >= 0 {
			t.Errorf("a secret of %d characters is in the log: %q", len(secret), log[max(0, at-200):at])
		}
	}
}

// credentials returns the tokens in a kubeconfig.
func credentials(g *WithT, kubeconfig []byte) []string {
	config, err := clientcmd.Load(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	var secrets []string
	for _, user := range config.AuthInfos {
		if user.Token != "" {
			secrets = append(secrets, user.Token)
		}
	}
	g.Expect(secrets).NotTo(BeEmpty())
	return secrets
}

// pieceOf returns where a piece of the secret stands in the log, -1 for nowhere. It
// looks for pieces, since bodies are logged cut and in columns of 16 characters.
func pieceOf(secret, log string) int {
	const length = 14
	pieces := map[string]bool{}
	for i := 0; i+length <= len(secret); i++ {
		pieces[secret[i:i+length]] = true
	}
	for i := 0; i+length <= len(log); i++ {
		if pieces[log[i:i+length]] {
			return i
		}
	}
	return -1
}

func TestManagerLooksOnlyAtItsClusters(t *testing.T) {
	for name, test := range map[string]struct {
		flag         string
		taken, other env.ClusterOptions
	}{
		"watch filter": {
			"--watch-filter=blue",
			env.ClusterOptions{Namespace: "filter", Labels: map[string]string{"cluster.x-k8s.io/watch-filter": "blue"}},
			env.ClusterOptions{Namespace: "filter", Labels: map[string]string{"cluster.x-k8s.io/watch-filter": "green"}},
		},
		"namespace": {
			"--namespace=only",
			env.ClusterOptions{Namespace: "only"},
			env.ClusterOptions{Namespace: "not-only"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			suite.StartManager(t, lab, test.flag)
			start := suite.Mark(t, lab)
			add := func(name string, opts env.ClusterOptions) *env.Workload {
				opts.Register, opts.Light = true, &lightapi.Options{}
				return suite.AddCluster(t, lab, name, opts)
			}
			other := add("other", test.other)
			reg := suite.EventuallyReady(t, lab, add("taken", test.taken))
			g.Expect(reg.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "taken"))
			for key, value := range test.taken.Labels {
				g.Expect(reg.Labels).To(HaveKeyWithValue(key, value))
			}
			// It was there first.
			g.Expect(lab.Client.Get(t.Context(), other.Key(), &fleetv1.FleetRegistration{})).To(Satisfy(apierrors.IsNotFound))
			g.Expect(other.Light().Writes()).NotTo(ContainElement(HaveField("UserAgent", Not(HavePrefix("capi-fleet-lab")))))
			for _, e := range suite.ManagerEvents(t, lab, start) {
				g.Expect(e.Name).NotTo(ContainSubstring(other.Name), "%s %s", e.Verb, e.RequestURI)
			}
		})
	}
}
