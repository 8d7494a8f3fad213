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

package hosted

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// expectNothingRuns fails where the workload cluster has anything of the agent's that
// could connect to the management cluster.
func expectNothingRuns(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	deployments, pods := &appsv1.DeploymentList{}, &corev1.PodList{}
	g.Expect(w.Client.List(t.Context(), deployments, client.InNamespace(agent.Namespace))).To(Succeed())
	g.Expect(w.Client.List(t.Context(), pods, client.InNamespace(agent.Namespace))).To(Succeed())
	g.Expect(deployments.Items).To(BeEmpty())
	g.Expect(pods.Items).To(BeEmpty())
}

// expectNoWayOut fails where something in the workload cluster holds a token, with which it
// could ask the management cluster for anything.
func expectNoWayOut(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	const jwt = "eyJ" // The beginning of a JSON object in base64.
	secrets, configs := &corev1.SecretList{}, &corev1.ConfigMapList{}
	g.Expect(w.Client.List(t.Context(), secrets)).To(Succeed())
	g.Expect(secrets.Items).NotTo(BeEmpty())
	for _, secret := range secrets.Items {
		for key, value := range secret.Data {
			g.Expect(string(value)).NotTo(ContainSubstring(jwt), "%s/%s %s", secret.Namespace, secret.Name, key)
		}
	}
	g.Expect(w.Client.List(t.Context(), configs)).To(Succeed())
	for _, config := range configs.Items {
		g.Expect(fmt.Sprint(config.Data)).NotTo(ContainSubstring(jwt), "%s/%s", config.Namespace, config.Name)
	}
}

// All processes of the lab are on one machine, where nothing can be cut off. But a cluster
// without a node runs nothing that could connect to anything, nor has it what for.
func TestAWorkloadClusterWithoutAWayOutJoinsAndLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	before := suite.Inventory(g, t.Context(), lab)
	w, object := join(t, env.ClusterOptions{Namespace: "joins", NoKubelet: true})
	expectNothingRuns(t, w)
	expectNoWayOut(t, w)
	g.Expect(w.AgentStarts()).To(BeEmpty(), "no agent has ever run in the workload cluster")
	g.Expect(agent.Token(suite.AgentSecret(g, t.Context(), w))).To(BeEmpty())
	name := registrationOf(g, t, w).Status.Namespace
	g.Expect(inManagerNamespace(g, t, name)).To(ConsistOf("Deployment", "NetworkPolicy", "Secret", "ServiceAccount", "Pod"))
	suite.ExpectKept(t, w, bundle, object)
	hosted := env.ManagerNamespace + "/" + name
	g.Expect(suite.Inventory(g, t.Context(), lab)).To(ContainElements("*v1.Deployment "+hosted, "*v1.NetworkPolicy "+hosted))

	suite.DeleteCluster(t, lab, w)
	suite.EventuallyGone(t, lab, w)
	g.Eventually(func(g Gomega) {
		g.Expect(inManagerNamespace(g, t, name)).To(BeEmpty())
		g.Expect(suite.Inventory(g, t.Context(), lab)).To(ConsistOf(append(before, "*v1.Namespace /joins")))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

func TestBundlesStayDeployedWhereverTheAgentIsMovedTo(t *testing.T) {
	g := NewWithT(t)
	w, object := join(t, env.ClusterOptions{Namespace: "moves"})
	name := registrationOf(g, t, w).Status.Namespace

	setAgent(t, `{"placement":"Workload"}`)
	eventuallyPlaced(t, w, "")
	g.Expect(inManagerNamespace(g, t, name)).To(ConsistOf("ServiceAccount"))
	g.Expect(w.AgentStarts()).To(HaveLen(1))
	suite.ExpectKept(t, w, bundle, object)

	setAgent(t, `{"placement":"Management"}`)
	eventuallyPlaced(t, w, fleetv1.PlacementManagement)
	expectNothingRuns(t, w)
	suite.ExpectKept(t, w, bundle, object)
}

// The owner of a workload cluster can change the agent's Secret there, and have the agent
// send its token to them.
func TestATamperedSecretGainsWhatAPushedCredentialHasAndIsPutRight(t *testing.T) {
	g := NewWithT(t)
	w, _ := join(t, env.ClusterOptions{Namespace: "tampered"})
	registration := registrationOf(g, t, w)
	stolen := make(chan string, 100)
	evil := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case stolen <- strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "):
		default:
		}
	}))
	defer evil.Close()

	secret := suite.AgentSecret(g, t.Context(), w)
	right := secret.DeepCopy().Data
	config, err := clientcmd.Load(secret.Data["kubeconfig"])
	g.Expect(err).NotTo(HaveOccurred())
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	cluster.Server, cluster.CertificateAuthorityData, cluster.InsecureSkipTLSVerify = evil.URL, nil, true
	secret.Data["kubeconfig"], err = clientcmd.Write(*config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.Client.Update(t.Context(), secret)).To(Succeed())
	// The agent reads it when it starts.
	g.Expect(lab.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(env.ManagerNamespace),
		client.MatchingLabels(agent.HostedPodLabels(registration.Status.Namespace)))).To(Succeed())

	var token string
	g.Eventually(stolen).WithTimeout(suite.Patience).Should(Receive(&token))
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	g.Expect(lab.Client.Create(t.Context(), review)).To(Succeed())
	g.Expect(review.Status.User.Username).To(Equal("system:serviceaccount:"+env.ManagerNamespace+":"+registration.Status.Namespace), "the account of a pushed credential")
	g.Expect(mayRead(t, token, env.ManagerNamespace)).To(BeFalse())
	g.Expect(mayRead(t, token, "joins")).To(BeFalse(), "a neighbour's")

	// Whatever brings the next visit puts it right.
	setAgent(t, `{"checkinInterval":"2s"}`)
	g.Eventually(func(g Gomega) {
		g.Expect(suite.AgentSecret(g, t.Context(), w).Data).To(Equal(right))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	setAgent(t, `{"checkinInterval":null}`)
	eventuallyPlaced(t, w, fleetv1.PlacementManagement)
}

// mayRead tells whether the holder of a token can list the Secrets of a namespace of the
// management cluster.
func mayRead(t *testing.T, token, namespace string) bool {
	t.Helper()
	g := NewWithT(t)
	config := lab.Config()
	config.CertData, config.KeyData = nil, nil
	config.CertFile, config.KeyFile = "", ""
	config.BearerToken = token
	holder, err := client.New(config, client.Options{Scheme: lab.Client.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	err = holder.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace))
	if err != nil {
		g.Expect(err).To(Satisfy(apierrors.IsForbidden))
	}
	return err == nil
}

func TestSettingsThatOpenTheManagementClusterAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ settings, message string }{
		"host network": {`{"network":"Host"}`, "placement Management must not have network Host"},
		"bootstrap":    {`{"preset":"Bootstrap"}`, "placement Management must not have network Host or preset Bootstrap"},
		"proxy":        {`{"proxy":{"httpsProxy":"http://proxy"}}`, "placement Management must not have a proxy"},
		"elsewhere":    {`{"placement":"Elsewhere"}`, "spec.agent.placement"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &fleetv1.FleetRegistrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
			err := lab.Client.Patch(t.Context(), policy, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"agent":`+tt.settings+`}}`)), client.DryRunAll)
			NewWithT(t).Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(tt.message))))
		})
	}
}
