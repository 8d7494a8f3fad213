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

package rotation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

const namespace = "kubeconfig"

// access is how the kubeconfig reaches the workload cluster, and as whom.
type access struct {
	server      string
	authority   []byte
	user        string
	credentials clientcmdapi.AuthInfo
}

func (a access) kubeconfig(t *testing.T) []byte {
	t.Helper()
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"workload": {Server: a.server, CertificateAuthorityData: a.authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": &a.credentials},
		Contexts:       map[string]*clientcmdapi.Context{"admin": {Cluster: "workload", AuthInfo: "admin"}},
		CurrentContext: "admin",
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return content
}

func TestARotatedKubeconfigIsUsedAndDisturbsNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "rotated", env.ClusterOptions{Namespace: namespace, Register: true})
	suite.EventuallyReady(t, lab, w)
	disturbed := watchForDisturbance(t)
	now := access{server: w.ControlPlane().URL(), authority: w.ControlPlane().CA().CertificatePEM()}
	var passed *atomic.Int32 // connections or requests on the way there; nil where there is nothing in between

	for _, step := range []struct {
		name   string
		rotate func()
	}{
		{"new certificate", func() { now.user = "second-admin"; now.credentials = certificate(t, w, now.user) }},
		{"new token", func() { now.user, now.credentials = token(t, w) }},
		{"new address", func() { now.server, passed = relay(t, now.server) }},
		{"new address and authority", func() { now.server, now.authority, passed = proxy(t, w) }},
		{"back, and another certificate", func() {
			passed = nil
			now = access{server: w.ControlPlane().URL(), authority: w.ControlPlane().CA().CertificatePEM(), user: "third-admin"}
			now.credentials = certificate(t, w, now.user)
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.rotate()
			g := NewWithT(t)
			g.Expect(w.WriteKubeconfig(t.Context(), now.kubeconfig(t))).To(Succeed())
			expectVisitAs(t, w, now.user)
			if passed != nil {
				g.Expect(passed.Load()).To(BeNumerically(">", 0))
			}
		})
	}
	t.Run("Secret made anew, with other keys", func(t *testing.T) {
		g := NewWithT(t)
		secret := &corev1.Secret{}
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: w.Name + "-kubeconfig"}, secret)).To(Succeed())
		g.Expect(lab.Client.Delete(t.Context(), secret)).To(Succeed())
		now.user = "fourth-admin"
		now.credentials = certificate(t, w, now.user)
		g.Expect(lab.Client.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name},
			Data:       map[string][]byte{"value": now.kubeconfig(t), "token": []byte("x"), "relative": []byte("y")},
		})).To(Succeed())
		expectVisitAs(t, w, now.user)
	})

	g.Expect(disturbed()).To(BeEmpty())
	g.Expect(w.AgentStarts()).To(HaveLen(1))
	g.Expect(w.AgentReports()).To(ConsistOf(HaveField("Refused", BeEmpty())))
}

// expectVisitAs has the manager believe that the token is due, and waits until it has
// been to the workload cluster, as user and as nobody else.
func expectVisitAs(t *testing.T, w *env.Workload, user string) {
	t.Helper()
	g := NewWithT(t)
	mark, err := w.ControlPlane().AuditLog().Mark(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	registration := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
	before := registration.DeepCopy()
	long := metav1.NewTime(time.Now().Add(-72 * time.Hour).Truncate(time.Second))
	registration.Status.Credential.IssuedTime = long
	g.Expect(lab.Client.Status().Patch(t.Context(), registration, client.MergeFrom(before))).To(Succeed())

	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), w.Key(), registration)).To(Succeed())
		g.Expect(registration.Status.Credential.IssuedTime.Time).To(BeTemporally(">", long.Time))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	events, err := w.ControlPlane().AuditLog().Since(t.Context(), mark)
	g.Expect(err).NotTo(HaveOccurred())
	var users []string
	for _, event := range events {
		if strings.Contains(event.RequestURI, agent.Namespace+"/secrets/"+agent.Name) && strings.Contains(event.UserAgent, managerUserAgent) {
			users = append(users, event.User)
		}
	}
	g.Expect(users).To(And(Not(BeEmpty()), HaveEach(user)))
}

// managerUserAgent is part of the manager's User-Agent, and of no other here.
const managerUserAgent = "cluster.x-k8s.io"

// watchForDisturbance returns a function that says which conditions were not true in
// the meantime.
func watchForDisturbance(t *testing.T) func() []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watcher, err := lab.Client.Watch(ctx, &fleetv1.FleetRegistrationList{}, client.InNamespace(namespace))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var disturbed []string
	var group sync.WaitGroup
	group.Go(func() {
		for event := range watcher.ResultChan() {
			registration, ok := event.Object.(*fleetv1.FleetRegistration)
			if !ok {
				continue
			}
			for _, condition := range []string{fleetv1.WorkloadReachableCondition, fleetv1.CredentialsValidCondition, fleetv1.ReadyCondition} {
				if found := meta.FindStatusCondition(registration.Status.Conditions, condition); found != nil && found.Status != metav1.ConditionTrue {
					disturbed = append(disturbed, condition+": "+found.Reason)
				}
			}
		}
	})
	stop := func() []string {
		watcher.Stop()
		cancel()
		group.Wait()
		return disturbed
	}
	t.Cleanup(func() { stop() })
	return stop
}

func certificate(t *testing.T, w *env.Workload, user string) clientcmdapi.AuthInfo {
	t.Helper()
	certificate, key, err := w.ControlPlane().CA().ClientCertificate(user, "system:masters")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
}

func token(t *testing.T, w *env.Workload) (user string, credentials clientcmdapi.AuthInfo) {
	t.Helper()
	g := NewWithT(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "admin"}}
	g.Expect(w.Client.Create(t.Context(), account)).To(Succeed())
	g.Expect(w.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	})).To(Succeed())
	request := &authenticationv1.TokenRequest{}
	g.Expect(w.Client.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
	return "system:serviceaccount:" + account.Namespace + ":" + account.Name, clientcmdapi.AuthInfo{Token: request.Status.Token}
}

// relay returns another URL of the server, and counts the connections to it.
func relay(t *testing.T, server string) (url string, passed *atomic.Int32) {
	t.Helper()
	g := NewWithT(t)
	passed = &atomic.Int32{}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	var group sync.WaitGroup
	group.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			passed.Add(1)
			to, err := net.Dial("tcp4", strings.TrimPrefix(server, "https://"))
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				group.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
	})
	return "https://" + listener.Addr().String(), passed
}

// proxy returns the URL of a proxy in front of the workload cluster's API server that
// shows a certificate of its own, and the authority of that, and counts the requests.
func proxy(t *testing.T, w *env.Workload) (server string, authority []byte, passed *atomic.Int32) {
	t.Helper()
	g := NewWithT(t)
	target, err := url.Parse(w.ControlPlane().URL())
	g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.ControlPlane().CA().CertificatePEM())
	passed = &atomic.Int32{}
	handler := &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			passed.Add(1)
			request.SetURL(target)
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	front := httptest.NewTLSServer(handler)
	t.Cleanup(front.Close)
	return front.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}), passed
}
