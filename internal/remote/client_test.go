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

package remote

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"},
		StringData: map[string]string{"token": canary},
	}
}

// recorder answers each request with the object that was sent, or else with the
// namespace kube-system, a list of it or a success, and keeps the requests.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req)
	r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	switch {
	case req.Method == http.MethodDelete:
		body = []byte(`{"apiVersion":"v1","kind":"Status","status":"Success"}`)
	case strings.HasSuffix(req.URL.Path, "/namespaces") && len(body) == 0:
		body = []byte(`{"apiVersion":"v1","kind":"NamespaceList","items":[` + systemNamespace + `]}`)
	case err != nil || len(body) == 0:
		body = []byte(systemNamespace)
	}
	reply(200, jsonType, string(body))(w, req)
}

func (r *recorder) all() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

func TestClientSendsWhatTheKubeconfigSays(t *testing.T) {
	for name, tc := range map[string]struct {
		edit                func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		authorization, path string
	}{
		"token": {func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {}, "Bearer secret-token", "/api/v1/namespaces/kube-system"},
		"password": {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token, u.Username, u.Password = "", "user", "pass"
		}, "Basic dXNlcjpwYXNz", "/api/v1/namespaces/kube-system"},
		"path": {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server += "/k8s/clusters/c-1/"
		}, "Bearer secret-token", "/k8s/clusters/c-1/api/v1/namespaces/kube-system"},
	} {
		t.Run(name, func(t *testing.T) {
			requests := &recorder{}
			s := server(t, requests.ServeHTTP)
			d := dialer()
			d.UserAgent = "capi-fleet/test"
			uid, err := connect(t, d, kubeconfig(t, s, tc.edit)).SystemNamespaceUID(t.Context())
			if err != nil || uid != "6d6f4c0e-1" {
				t.Fatalf("got UID %q and error %v", uid, err)
			}
			request := requests.all()[0]
			if got := request.Header.Get("Authorization"); got != tc.authorization {
				t.Errorf("got authorization %q, want %q", got, tc.authorization)
			}
			if got := request.URL.Path; got != tc.path {
				t.Errorf("got path %q, want %q", got, tc.path)
			}
			if got := request.UserAgent(); got != d.UserAgent {
				t.Errorf("got user agent %q", got)
			}
			if request.ProtoMajor != 1 {
				t.Errorf("got HTTP %d, want 1", request.ProtoMajor)
			}
			if got := request.Host; got != s.Listener.Addr().String() {
				t.Errorf("got host %q", got)
			}
		})
	}
}

func TestClientCertificateIsShown(t *testing.T) {
	_, certificatePEM, keyPEM := certificate(t)
	requests := &recorder{}
	s := server(t, requests.ServeHTTP, func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	})
	data := kubeconfig(t, s, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.Token, u.ClientCertificateData, u.ClientKeyData = "", certificatePEM, keyPEM
	})
	if _, err := connect(t, dialer(), data).SystemNamespaceUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	if shown := requests.all()[0].TLS.PeerCertificates; len(shown) != 1 || shown[0].Subject.CommonName != canary {
		t.Errorf("got certificates %v", shown)
	}
}

func TestUIDThatIsNotThereIsEmpty(t *testing.T) {
	s := server(t, reply(200, jsonType, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system"}}`))
	uid, err := connect(t, dialer(), kubeconfig(t, s)).SystemNamespaceUID(t.Context())
	if uid != "" || err != nil {
		t.Errorf("got UID %q and error %v", uid, err)
	}
}

func TestInsecureTLSIsAllowedAndReported(t *testing.T) {
	s := server(t, reply(200, jsonType, systemNamespace))
	if connect(t, dialer(), kubeconfig(t, s)).InsecureTLS {
		t.Error("a kubeconfig with an authority is reported as insecure")
	}
	c := connect(t, dialer(), kubeconfig(t, s, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.CertificateAuthorityData, c.InsecureSkipTLSVerify = nil, true
	}))
	if !c.InsecureTLS {
		t.Error("an insecure kubeconfig is not reported")
	}
	if _, err := c.SystemNamespaceUID(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	s := server(t, reply(200, jsonType, systemNamespace))
	names := &nameServer{}
	names.set([4]byte{127, 0, 0, 1})
	d := dialer()
	d.resolver = names.resolver(t)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	address := "https://workload.example:" + port
	request := httptest.NewRequest(http.MethodGet, address, nil)
	if proxy, err := http.ProxyFromEnvironment(request); err != nil || proxy == nil {
		t.Fatalf("the environment has no proxy, so the test proves nothing: %v", err)
	}
	// A name that is not this machine's: for those net/http never takes a proxy.
	data := kubeconfig(t, s, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.Server, c.TLSServerName = address, "example.com"
	})
	if _, err := connect(t, d, data).SystemNamespaceUID(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEachKindTakesOneRequestInJSON(t *testing.T) {
	named := metav1.ObjectMeta{Name: "o"}
	inNamespace := metav1.ObjectMeta{Namespace: "n", Name: "o"}
	for _, tc := range []struct {
		object client.Object
		path   string
	}{
		{&corev1.Namespace{ObjectMeta: named}, "/api/v1/namespaces"},
		{&corev1.Node{ObjectMeta: named}, "/api/v1/nodes"},
		{&corev1.Secret{ObjectMeta: inNamespace}, "/api/v1/namespaces/n/secrets"},
		{&corev1.ConfigMap{ObjectMeta: inNamespace}, "/api/v1/namespaces/n/configmaps"},
		{&corev1.ServiceAccount{ObjectMeta: inNamespace}, "/api/v1/namespaces/n/serviceaccounts"},
		{&corev1.Pod{ObjectMeta: inNamespace}, "/api/v1/namespaces/n/pods"},
		{&appsv1.Deployment{ObjectMeta: inNamespace}, "/apis/apps/v1/namespaces/n/deployments"},
		{&rbacv1.ClusterRole{ObjectMeta: named}, "/apis/rbac.authorization.k8s.io/v1/clusterroles"},
		{&rbacv1.ClusterRoleBinding{ObjectMeta: named}, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"},
		{&networkingv1.NetworkPolicy{ObjectMeta: inNamespace}, "/apis/networking.k8s.io/v1/namespaces/n/networkpolicies"},
		{&coordinationv1.Lease{ObjectMeta: inNamespace}, "/apis/coordination.k8s.io/v1/namespaces/n/leases"},
		{&schedulingv1.PriorityClass{ObjectMeta: named}, "/apis/scheduling.k8s.io/v1/priorityclasses"},
	} {
		t.Run(fmt.Sprintf("%T", tc.object), func(t *testing.T) {
			requests := &recorder{}
			s := server(t, requests.ServeHTTP)
			if err := connect(t, dialer(), kubeconfig(t, s)).Create(t.Context(), tc.object); err != nil {
				t.Fatal(err)
			}
			all := requests.all()
			if len(all) != 1 {
				t.Fatalf("got %d requests, want 1", len(all))
			}
			if got := all[0].URL.Path; got != tc.path {
				t.Errorf("got path %q, want %q", got, tc.path)
			}
			if got := all[0].Header.Get("Content-Type"); got != jsonType {
				t.Errorf("sent %q, want JSON", got)
			}
		})
	}
}

func TestEveryMethodAsksForJSONOnlyOverOneConnection(t *testing.T) {
	requests, opened := &recorder{}, newCounter()
	s := server(t, requests.ServeHTTP, opened.watch)
	c := connect(t, dialer(), kubeconfig(t, s))
	ctx := t.Context()
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	for name, err := range map[string]error{
		"Get":          c.Get(ctx, client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{}),
		"unstructured": c.Get(ctx, client.ObjectKey{Name: "kube-system"}, object),
		"metadata":     c.Get(ctx, client.ObjectKey{Name: "kube-system"}, metadata),
		"List":         c.List(ctx, &corev1.NamespaceList{}),
		"Create":       c.Create(ctx, secret()),
		"Update":       c.Update(ctx, secret()),
		"Patch":        c.Patch(ctx, secret(), client.RawPatch("application/merge-patch+json", []byte(`{"apiVersion":"v1","kind":"Secret"}`))),
		"Apply":        c.Apply(ctx, corev1ac.Secret("s", "n"), client.FieldOwner("capi-fleet")),
		"Delete":       c.Delete(ctx, secret()),
		"DeleteAllOf":  c.DeleteAllOf(ctx, secret(), client.InNamespace("n")),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, request := range requests.all() {
		if accept := request.Header.Get("Accept"); !strings.HasPrefix(accept, jsonType) || strings.Contains(accept, "protobuf") {
			t.Errorf("%s %s asks for %q", request.Method, request.URL, accept)
		}
	}
	if n := len(requests.all()); n != 10 {
		t.Errorf("got %d requests, want 10", n)
	}
	if n := opened.total(); n != 1 {
		t.Errorf("got %d connections, want 1", n)
	}
}

func TestOfWhatAnApplyReturnsOnlyTheKindIsRead(t *testing.T) {
	for kind, want := range map[string]string{"Secret": "", "ConfigMap": fleetv1.NotKubernetesReason} {
		s := server(t, reply(200, jsonType, `{"apiVersion":"v1","kind":"`+kind+`","metadata":{"name":"s","namespace":"n","labels":[]}}`))
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		object.SetNamespace("n")
		object.SetName("s")
		err := connect(t, dialer(), kubeconfig(t, s)).Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("capi-fleet"))
		switch {
		case want != "":
			expectReason(t, err, want)
		case err != nil:
			t.Error(err)
		case len(object.Object) != 2 || object.GetKind() != kind:
			t.Errorf("got %v, want only the kind", object.Object)
		}
	}
}

// TestNothingOfACredentialOrAnAnswerIsLogged holds at the highest verbosity, where
// client-go logs headers and bodies.
func TestNothingOfACredentialOrAnAnswerIsLogged(t *testing.T) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	set := func(name, value string) {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	var logged bytes.Buffer
	state := klog.CaptureState()
	defer state.Restore()
	set("logtostderr", "false")
	set("stderrthreshold", "FATAL")
	set("v", "10")
	klog.SetOutput(&logged)

	for _, handler := range []http.HandlerFunc{
		reply(200, jsonType, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+canary+`"}}`),
		reply(500, jsonType, failure),
		reply(200, jsonType, canary),
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			reply(200, jsonType, canary)(w, r)
		},
	} {
		s := server(t, handler)
		c := connect(t, dialer(), kubeconfig(t, s))
		_ = c.Create(t.Context(), secret())
		_ = c.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "s"}, &corev1.Secret{})
	}
	klog.Info("the log works")
	klog.Flush()
	if !strings.Contains(logged.String(), "the log works") {
		t.Error("the log was not captured, so the test proves nothing")
	}
	expectNoCanary(t, logged.String())
	if strings.Contains(logged.String(), "secret-token") {
		t.Error("the token was logged")
	}
}

func TestServerIsNoLabelOfAMetric(t *testing.T) {
	s := server(t, reply(200, jsonType, systemNamespace))
	if _, err := connect(t, dialer(), kubeconfig(t, s)).SystemNamespaceUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprint(families)
	if !strings.Contains(all, standIn) {
		t.Error("requests are not counted")
	}
	if strings.Contains(all, "127.0.0.1") {
		t.Error("the server's address is a label")
	}
}

// counter counts the connections of a server.
type counter struct {
	mu     sync.Mutex
	opened int
	open   map[net.Conn]struct{}
}

func newCounter() *counter { return &counter{open: map[net.Conn]struct{}{}} }

func (c *counter) watch(s *httptest.Server) {
	s.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch state {
		case http.StateNew:
			c.opened++
			c.open[conn] = struct{}{}
		case http.StateClosed, http.StateHijacked:
			delete(c.open, conn)
		}
	}
}

func (c *counter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

func (c *counter) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

func TestCloseLeavesNoConnectionAndNoGoroutine(t *testing.T) {
	connections := newCounter()
	s := server(t, reply(200, jsonType, systemNamespace), connections.watch)
	kubeconfigs := 0
	cycle := func() {
		kubeconfigs++
		c := connect(t, dialer(), kubeconfig(t, s, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
			user.Token = fmt.Sprintf("token-%d", kubeconfigs)
		}))
		if _, err := c.SystemNamespaceUID(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	cycle()
	eventually(t, "the first connection is closed", func() bool { return connections.now() == 0 })
	before := runtime.NumGoroutine()
	for range rotations {
		cycle()
	}
	if got := connections.total(); got != rotations+1 {
		t.Errorf("got %d connections for %d clients", got, rotations+1)
	}
	eventually(t, "all connections are closed", func() bool { return connections.now() == 0 })
	eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

func TestCloseEndsConnectionWhoseHandshakeHangs(t *testing.T) {
	port, accepted := listener(t)
	d := &Dialer{DialTimeout: time.Hour, RequestTimeout: 50 * time.Millisecond}
	c := connect(t, d, kubeconfig(t, nil, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = serverURL("127.0.0.1", port) }))
	_, err := c.SystemNamespaceUID(t.Context())
	expectReason(t, err, fleetv1.ConnectionFailedReason)
	conn := <-accepted
	defer func() { _ = conn.Close() }()
	c.Close()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestClosedClientMakesNoConnection(t *testing.T) {
	connections := newCounter()
	s := server(t, reply(200, jsonType, systemNamespace), connections.watch)
	c := connect(t, dialer(), kubeconfig(t, s))
	c.Close()
	_, err := c.SystemNamespaceUID(t.Context())
	expectReason(t, err, fleetv1.ConnectionFailedReason)
	eventually(t, "no connection is open", func() bool { return connections.now() == 0 })
}
