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

package workload

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// canary is in everything that the broken workload clusters say. It must not turn
// up on our side.
const canary = "canary-from-the-workload-cluster"

const namespace = "hostile"

// brokenCluster breaks the way to a workload cluster. The cluster starts broken,
// is seen to have the reason, and is mended by its own kubeconfig and no fault.
type brokenCluster struct {
	name, reason string
	// kubeconfig returns what is in the Secret; nil means no Secret.
	kubeconfig func(t *testing.T, w *env.Workload) []byte
	// secret changes the Secret after that. Nil means no change.
	secret func(*corev1.Secret)
	// fault breaks the API server. Nil means that it works.
	fault lightapi.Fault
}

// managerUserAgent is part of the manager's User-Agent, and of no other here.
const managerUserAgent = "cluster.x-k8s.io"

// forManager limits a fault to the manager, so that the lab itself need not live
// with it.
func forManager(fault lightapi.Fault) lightapi.Fault {
	return lightapi.When(func(r *http.Request) bool { return strings.Contains(r.UserAgent(), managerUserAgent) }, fault)
}

func edited(edit func(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo)) func(*testing.T, *env.Workload) []byte {
	return func(t *testing.T, w *env.Workload) []byte {
		t.Helper()
		config, err := clientcmd.Load(w.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		for _, cluster := range config.Clusters {
			for _, user := range config.AuthInfos {
				edit(cluster, user)
			}
		}
		content, err := clientcmd.Write(*config)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
}

func own(_ *testing.T, w *env.Workload) []byte { return w.Kubeconfig() }

func content(s string) func(*testing.T, *env.Workload) []byte {
	return func(*testing.T, *env.Workload) []byte { return []byte(s) }
}

// deadAddress is one at which nothing listens for as long as the test runs.
func deadAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// Another process could get the port; an answer from it would be refused for its
	// certificate and the test would fail, not pass.
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

func respond(code int, contentType, body string) lightapi.Fault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Warning", "299 - \""+canary+"\"")
		w.Header().Set("Location", "https://127.0.0.1:1/"+canary)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
		return true
	}
}

func status(code int, reason metav1.StatusReason) lightapi.Fault {
	return respond(code, "application/json", fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, canary, reason, code))
}

var brokenClusters = []brokenCluster{
	{name: "secret-missing", reason: fleetv1.KubeconfigMissingReason},
	{name: "secret-empty", reason: fleetv1.KubeconfigEmptyReason, kubeconfig: content("")},
	{name: "key-absent", reason: fleetv1.KubeconfigKeyMissingReason, kubeconfig: own, secret: func(s *corev1.Secret) {
		s.Data = map[string][]byte{"other": s.Data["value"]}
	}},
	{name: "not-yaml", reason: fleetv1.KubeconfigInvalidReason, kubeconfig: content("\t{" + canary)},
	{name: "exec", reason: fleetv1.KubeconfigExecReason, kubeconfig: edited(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Exec = &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: canary, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
	})},
	{name: "auth-provider", reason: fleetv1.KubeconfigAuthProviderReason, kubeconfig: edited(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: canary}
	})},
	{name: "file-path", reason: fleetv1.KubeconfigFilePathReason, kubeconfig: edited(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.TokenFile = "/" + canary
	})},
	{name: "proxy-url", reason: fleetv1.KubeconfigProxyReason, kubeconfig: edited(func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.ProxyURL = "http://" + canary
	})},
	{name: "impersonation", reason: fleetv1.KubeconfigImpersonationReason, kubeconfig: edited(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Impersonate = canary
	})},
	{name: "credentials-rejected", reason: fleetv1.CredentialsRejectedReason, kubeconfig: edited(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Token = "wrong"
	})},
	{name: "unknown-authority", reason: fleetv1.ServerCertificateInvalidReason, kubeconfig: edited(func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.CertificateAuthorityData = lab.Management().CA().CertificatePEM()
	})},
	{name: "dead-address", reason: fleetv1.ConnectionFailedReason, kubeconfig: func(t *testing.T, w *env.Workload) []byte {
		t.Helper()
		dead := deadAddress(t)
		return edited(func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { cluster.Server = "https://" + dead })(t, w)
	}},
	{name: "denied-range", reason: fleetv1.AddressDeniedReason, kubeconfig: edited(func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		server, err := url.Parse(cluster.Server)
		if err != nil {
			panic(err)
		}
		cluster.Server = "https://" + net.JoinHostPort(deniedAddress, server.Port())
	})},
	{name: "access-denied", reason: fleetv1.AccessDeniedReason, kubeconfig: own, fault: status(http.StatusForbidden, metav1.StatusReasonForbidden)},
	{name: "server-error", reason: fleetv1.ServerErrorReason, kubeconfig: own, fault: status(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
	{name: "not-kubernetes", reason: fleetv1.NotKubernetesReason, kubeconfig: own, fault: respond(http.StatusOK, "text/html", "<html>"+canary+"</html>")},
	{name: "redirects", reason: fleetv1.RedirectedReason, kubeconfig: own, fault: respond(http.StatusTemporaryRedirect, "text/plain", canary)},
	{name: "endless", reason: fleetv1.ResponseTooLargeReason, kubeconfig: own, fault: lightapi.Endless()},
	{name: "too-many-values", reason: fleetv1.ResponseTooLargeReason, kubeconfig: own, fault: respond(http.StatusOK, "application/json",
		`{"apiVersion":"v1","kind":"PodList","items":[{}`+strings.Repeat(",{}", 1_300_000)+`]}`)},
	{name: "another-kind", reason: fleetv1.NotKubernetesReason, kubeconfig: own, fault: respond(http.StatusOK, "application/json",
		`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"`+canary+`"}}]}`)},
	{name: "hangs", reason: fleetv1.ResponseTimeoutReason, kubeconfig: own, fault: lightapi.Hang()},
}

func TestBrokenClusterHasItsOwnReasonAndRecoversWhenMended(t *testing.T) {
	// All are broken before the first is looked at, so that their waits overlap.
	workloads := map[string]*env.Workload{}
	for _, broken := range brokenClusters {
		workloads[broken.name] = addBroken(t, broken)
	}
	for _, broken := range brokenClusters {
		t.Run(broken.name, func(t *testing.T) {
			g := NewWithT(t)
			w := workloads[broken.name]
			registration := suite.EventuallyCondition(t, lab, w, fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, broken.reason)
			g.Expect(registration.Status.Agent.Revision).To(BeEmpty())
			g.Expect(w.Light().Writes()).NotTo(ContainElement(HaveField("UserAgent", ContainSubstring(managerUserAgent))))
		})
	}
	t.Run("without a hot loop", func(t *testing.T) {
		g := NewWithT(t)
		events, err := lab.Management().AuditLog().Since(t.Context(), kube.Mark{})
		g.Expect(err).NotTo(HaveOccurred())
		for _, broken := range brokenClusters {
			g.Expect(requestsFor(events, broken.name)).To(And(BeNumerically(">", 0), BeNumerically("<", 60)), broken.name)
		}
	})
	for _, broken := range brokenClusters {
		workloads[broken.name].Light().SetFault(nil)
		NewWithT(t).Expect(workloads[broken.name].WriteKubeconfig(t.Context(), workloads[broken.name].Kubeconfig())).To(Succeed())
	}
	for _, broken := range brokenClusters {
		t.Run(broken.name+" mended", func(t *testing.T) { suite.EventuallyReady(t, lab, workloads[broken.name]) })
	}
	t.Run("repeating nothing", repeatsNothing)
}

// addBroken adds a cluster and breaks it before there is a way to reach it.
func addBroken(t *testing.T, broken brokenCluster) *env.Workload {
	t.Helper()
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, broken.name, env.ClusterOptions{
		Namespace: namespace, Register: true, NoKubeconfig: true, Light: &lightapi.Options{},
	})
	if broken.fault != nil {
		w.Light().SetFault(forManager(broken.fault))
	}
	if broken.kubeconfig == nil {
		return w
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.Name + "-kubeconfig"},
		Data:       map[string][]byte{"value": broken.kubeconfig(t, w)},
	}
	if broken.secret != nil {
		broken.secret(secret)
	}
	// The type cannot be changed later, and what mends it writes Cluster API's.
	secret.Type = clusterv1.ClusterSecretType
	g.Expect(lab.Client.Create(t.Context(), secret)).To(Succeed())
	return w
}

// requestsFor counts the manager's requests that name the cluster.
func requestsFor(events []kube.Event, name string) int {
	count := 0
	for _, event := range kube.By(env.ManagerUser, events) {
		if strings.Contains(event.RequestURI, name) {
			count++
		}
	}
	return count
}

// repeatsNothing looks for the canary wherever we write.
func repeatsNothing(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	registrations := &fleetv1.FleetRegistrationList{}
	g.Expect(lab.Client.List(t.Context(), registrations)).To(Succeed())
	for _, registration := range registrations.Items {
		g.Expect(fmt.Sprintf("%+v", registration)).NotTo(ContainSubstring(canary))
	}
	events := &corev1.EventList{}
	g.Expect(lab.Client.List(t.Context(), events)).To(Succeed())
	for _, event := range events.Items {
		g.Expect(event.Message).NotTo(ContainSubstring(canary))
	}
	log, err := lab.Manager().Log()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(log).To(ContainSubstring("Starting manager"), "the log is that of the manager")
	g.Expect(log).NotTo(ContainSubstring(canary))
}

func TestAClusterLikeThoseOfTheInMemoryProviderJoins(t *testing.T) {
	w := suite.AddCluster(t, lab, "in-memory", env.ClusterOptions{
		Namespace: "in-memory", Register: true, Light: &lightapi.Options{InMemory: true},
	})
	suite.EventuallyReady(t, lab, w)
}

func TestKubeconfigSecretOfAnyTypeWithoutLabelsWorks(t *testing.T) {
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "opaque", env.ClusterOptions{
		Namespace: "opaque", Register: true, NoKubeconfig: true, Light: &lightapi.Options{},
	})
	g.Expect(lab.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name + "-kubeconfig"},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{"value": w.Kubeconfig(), "token": []byte("x"), "relative": []byte("y")},
	})).To(Succeed())
	suite.EventuallyReady(t, lab, w)
}

func TestClientCertificateThatTheServerRejectsHasItsReasonAndRecovers(t *testing.T) {
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "client-certificate", env.ClusterOptions{Namespace: "client-certificate", Register: true, NoKubeconfig: true})
	stranger, err := kube.NewCA("stranger")
	g.Expect(err).NotTo(HaveOccurred())
	certificate, key, err := stranger.ClientCertificate("admin", "system:masters")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.WriteKubeconfig(t.Context(), edited(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		*user = clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	})(t, w))).To(Succeed())
	suite.EventuallyCondition(t, lab, w, fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.CredentialsRejectedReason)

	g.Expect(w.WriteKubeconfig(t.Context(), w.Kubeconfig())).To(Succeed())
	suite.EventuallyReady(t, lab, w)
}
