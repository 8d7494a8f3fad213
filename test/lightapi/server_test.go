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

package lightapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// get sends one request with a connection of its own and the admin's token.
func get(ctx context.Context, server *Server, path string) (*http.Response, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(server.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL()+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+server.Token())
	return transport.RoundTrip(request)
}

func TestEveryServerIsAClusterOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	a, b := newServer(t, Options{}), newServer(t, Options{})

	g.Expect(a.URL()).NotTo(Equal(b.URL()))
	g.Expect(a.UID()).NotTo(Equal(b.UID()))
	for _, server := range []*Server{a, b} {
		system, err := clientset(t, server).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(system.UID).To(Equal(server.UID()))
	}

	foreign := a.Config()
	foreign.CAData = b.CA()
	c, err := kubernetes.NewForConfig(foreign)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = c.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	var untrusted x509.UnknownAuthorityError
	g.Expect(errors.As(err, &untrusted)).To(BeTrue(), "got %v", err)
}

func TestKubeconfigLetsTheAdminIn(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	config, err := clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	c, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())

	version, err := c.Discovery().ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version.GitVersion).To(HavePrefix("v1."))
	ready, err := c.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(ready)).To(Equal("ok"))
}

func TestOnlyAllowedTokensAreLetIn(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	config := server.Config()
	config.BearerToken = "another"
	c, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	read := func() error {
		_, err := c.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}

	g.Expect(apierrors.IsUnauthorized(read())).To(BeTrue())
	server.AllowToken("another", "someone")
	g.Expect(read()).To(Succeed())
	server.RevokeToken("another")
	g.Expect(apierrors.IsUnauthorized(read())).To(BeTrue())

	var users []string
	for _, r := range server.Requests() {
		users = append(users, r.User)
	}
	g.Expect(users).To(Equal([]string{"", "someone", ""}))
}

func TestAStoppedServerRefusesConnectionsAndKeepsItsAddress(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{Stopped: true})
	url := server.URL()
	c := clientset(t, server)
	read := func() error {
		_, err := c.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}
	_, port := server.Address()
	taken := func() error {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = listener.Close()
		}
		return err
	}

	g.Expect(taken()).To(HaveOccurred(), "nobody else gets the port")
	for range 3 {
		// A connection from before may only now turn out to be broken.
		g.Eventually(read, patience).Should(MatchError(syscall.ECONNREFUSED))
		g.Expect(server.Start()).To(Succeed())
		g.Eventually(read, patience).Should(Succeed())
		g.Expect(server.Stop()).To(Succeed())
	}
	g.Expect(server.URL()).To(Equal(url))

	server.Close()
	g.Expect(taken()).NotTo(HaveOccurred())
	g.Expect(server.Start()).NotTo(Succeed())
}

func TestClientCertificatesLetTheirUserInUntilTheCAIsRenewed(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	config := server.Config()
	config.BearerToken = ""
	var err error
	config.CertData, config.KeyData, err = server.ClientCertificate("someone")
	g.Expect(err).NotTo(HaveOccurred())
	read := func() error {
		c, err := kubernetes.NewForConfig(config)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = c.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}
	g.Expect(read()).To(Succeed())
	g.Expect(server.Requests()).To(ConsistOf(HaveField("User", "someone")))

	g.Expect(server.RenewCA()).To(Succeed())
	config.CAData = server.CA()
	g.Expect(read()).To(Satisfy(apierrors.IsUnauthorized))
}

func TestARenewedCAIsTheOnlyOneToTrust(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	before := server.Config()
	g.Expect(server.RenewCA()).To(Succeed())
	for _, tt := range []struct {
		config *rest.Config
		want   OmegaMatcher
	}{
		{before, MatchError(ContainSubstring("unknown authority"))},
		{server.Config(), Succeed()},
	} {
		c, err := kubernetes.NewForConfig(tt.config)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = c.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		g.Expect(err).To(tt.want)
	}
}

func TestAServerThatMovedAnswersAtItsNewAddressOnly(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	g.Expect(controllerClient(t, server).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}})).To(Succeed())
	before := clientset(t, server)
	g.Expect(server.Move()).To(Succeed())

	_, err := before.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{})
	g.Expect(err).To(HaveOccurred())
	_, err = clientset(t, server).CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestConnectionsAreCounted(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	for range 2 {
		answer, err := get(t.Context(), server, "/version")
		g.Expect(err).NotTo(HaveOccurred())
		_, err = io.Copy(io.Discard, answer.Body)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.Body.Close()).To(Succeed())
	}
	g.Eventually(func() []int {
		accepted, open := server.Connections()
		return []int{accepted, open}
	}, patience).Should(Equal([]int{2, 0}))
}

func TestRequestsAreLogged(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	core := clientset(t, server).CoreV1()
	_, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = core.ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "x=y"})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = core.ConfigMaps("default").Get(t.Context(), "b", metav1.GetOptions{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())

	log := server.Requests()
	g.Expect(log).To(HaveLen(3))
	g.Expect(log[0]).To(And(HaveField("Method", "POST"), HaveField("Code", 201), HaveField("User", AdminUser),
		HaveField("Path", "/api/v1/namespaces/default/configmaps"), HaveField("ContentType", Not(BeEmpty()))))
	g.Expect(log[1].Query).To(ContainSubstring("labelSelector=x%3Dy"))
	g.Expect(log[2].Code).To(Equal(404))
	g.Expect(server.Writes()).To(Equal(log[:1]))
}

func TestDiscoveryLeavesOutWhatIsNotServed(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{
		Unserved:  []schema.GroupResource{{Group: "networking.k8s.io", Resource: "networkpolicies"}},
		Resources: []metav1.APIResource{{Group: "example.com", Version: "v1", Name: "mice", Kind: "Mouse"}},
	})
	c := controllerClient(t, server)
	mapper := c.RESTMapper()

	_, err := mapper.RESTMapping(schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}, "v1")
	g.Expect(meta.IsNoMatchError(err)).To(BeTrue())
	_, err = clientset(t, server).NetworkingV1().NetworkPolicies("default").Get(t.Context(), "a", metav1.GetOptions{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())

	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Mouse"}, "v1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(mapping.Resource.Resource).To(Equal("mice"))
	g.Expect(mapping.Scope.Name()).To(Equal(meta.RESTScopeNameRoot))
	for kind, scope := range map[schema.GroupKind]meta.RESTScopeName{
		{Kind: "Secret"}:                    meta.RESTScopeNameNamespace,
		{Kind: "Namespace"}:                 meta.RESTScopeNameRoot,
		{Group: "apps", Kind: "Deployment"}: meta.RESTScopeNameNamespace,
		{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: meta.RESTScopeNameRoot,
	} {
		mapping, err := mapper.RESTMapping(kind)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(mapping.Scope.Name()).To(Equal(scope), kind.String())
	}
}

func TestFaults(t *testing.T) {
	other := newServer(t, Options{})
	for name, tc := range map[string]struct {
		fault Fault
		check func(*WithT, *http.Response, error)
	}{
		"refuse": {Refuse(http.StatusForbidden), func(g *WithT, r *http.Response, err error) {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.StatusCode).To(Equal(http.StatusForbidden))
		}},
		"hang": {Hang(), func(g *WithT, _ *http.Response, err error) {
			g.Expect(err).To(MatchError(context.DeadlineExceeded))
		}},
		"reset": {Reset(), func(g *WithT, _ *http.Response, err error) {
			g.Expect(err).To(MatchError(syscall.ECONNRESET))
		}},
		"redirect": {Redirect(other.URL()), func(g *WithT, r *http.Response, err error) {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.StatusCode).To(Equal(http.StatusTemporaryRedirect))
			g.Expect(r.Header.Get("Location")).To(Equal(other.URL() + "/version?x=y"))
		}},
		"endless": {Endless(), func(g *WithT, r *http.Response, err error) {
			g.Expect(err).NotTo(HaveOccurred())
			read, err := io.Copy(io.Discard, io.LimitReader(r.Body, 5<<20))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(read).To(BeEquivalentTo(5 << 20))
		}},
		"not kubernetes": {NotKubernetes(), func(g *WithT, r *http.Response, err error) {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Header.Get("Content-Type")).To(Equal("text/html"))
		}},
		"elsewhere": {When(func(r *http.Request) bool { return r.URL.Path == "/livez" }, Refuse(500)), func(g *WithT, r *http.Response, err error) {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.StatusCode).To(Equal(http.StatusOK))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer(t, Options{})
			server.SetFault(tc.fault)
			limit := patience
			if name == "hang" {
				limit = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			answer, err := get(ctx, server, "/version?x=y")
			tc.check(NewWithT(t), answer, err)
			if err == nil {
				_ = answer.Body.Close()
			}
		})
	}
}

func TestAFaultCanGoByTheUser(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	server.SetFault(When(func(r *http.Request) bool { return UserOf(r) == AdminUser }, Refuse(http.StatusForbidden)))
	_, err := clientset(t, server).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)

	server.SetFault(nil)
	_, err = clientset(t, server).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestHundredsOfServersAreCheap(t *testing.T) {
	g := NewWithT(t)
	for range 200 {
		server := newServer(t, Options{})
		c, err := client.New(server.Config(), client.Options{Mapper: meta.NewDefaultRESTMapper(nil)})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(c).NotTo(BeNil())
		answer, err := get(t.Context(), server, "/api/v1/namespaces/kube-system")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.StatusCode).To(Equal(http.StatusOK))
		g.Expect(answer.Body.Close()).To(Succeed())
	}
}

func TestATokenOfAServiceAccountLetsItIn(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, Options{})
	admin := clientset(t, server)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))}}
	_, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "agent", request, metav1.CreateOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsNotFound))

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	_, err = admin.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	issued, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "agent", request, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(issued.Status.ExpirationTimestamp.Time).To(BeTemporally("~", time.Now().Add(10*time.Minute), time.Minute))

	config := server.Config()
	config.BearerToken = issued.Status.Token
	agent, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	list := func() error {
		_, err := agent.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		return err
	}
	g.Expect(list()).To(Succeed())
	requests := server.Requests()
	g.Expect(requests[len(requests)-1].User).To(Equal("system:serviceaccount:default:agent"))
	server.RevokeToken(issued.Status.Token)
	g.Expect(list()).To(Satisfy(apierrors.IsUnauthorized))
}
