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
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// canary is what servers and kubeconfigs put wherever they can. It must come out
// nowhere.
const canary = "canary-7f3a"

// deadProxy is an address where nothing listens.
const deadProxy = "http://127.0.0.1:1"

func TestMain(m *testing.M) {
	// Net/http reads these once, at the first request that asks for them.
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		if err := os.Setenv(name, deadProxy); err != nil {
			log.Fatal(err)
		}
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if err := os.Unsetenv(name); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(m.Run())
}

// dialer has time limits that a test can wait for.
func dialer() *Dialer {
	return &Dialer{DialTimeout: 2 * time.Second, RequestTimeout: 5 * time.Second}
}

// server starts a TLS server. Its certificate is for example.com, 127.0.0.1 and ::1.
func server(t testing.TB, handler http.HandlerFunc, edit ...func(*httptest.Server)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, edit := range edit {
		edit(s)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// reply answers every request alike, with headers that carry the canary.
func reply(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Warning", `299 - "`+canary+`"`)
		w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", canary)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

const (
	jsonType        = "application/json"
	systemNamespace = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"6d6f4c0e-1"}}`
	failure         = `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"` + canary + `","reason":"` + canary +
		`","details":{"name":"` + canary + `","retryAfterSeconds":3600,"causes":[{"reason":"` + canary + `","message":"` + canary + `","field":"` + canary + `"}]}}`
)

// kubeconfig is one for the server, with a token, as changed by edit.
func kubeconfig(t testing.TB, s *httptest.Server, edit ...func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	cluster := &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	if s != nil {
		cluster.Server = s.URL
		if certificate := s.Certificate(); certificate != nil {
			cluster.CertificateAuthorityData = encode("CERTIFICATE", certificate.Raw)
		}
	}
	user := &clientcmdapi.AuthInfo{Token: "secret-token"}
	for _, edit := range edit {
		edit(cluster, user)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = cluster
	config.AuthInfos["u"] = user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	return write(t, config)
}

func write(t testing.TB, config *clientcmdapi.Config) []byte {
	t.Helper()
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// connect fails the test if the kubeconfig is not accepted.
func connect(t *testing.T, d *Dialer, kubeconfig []byte) *Client {
	t.Helper()
	c, err := d.Connect(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// expectReason fails the test unless err is an *Error of that reason without the
// canary.
func expectReason(t *testing.T, err error, reason string) {
	t.Helper()
	var classified *Error
	if !errors.As(err, &classified) {
		t.Fatalf("got %v, want an *Error of reason %s", err, reason)
	}
	if classified.Reason != reason {
		t.Errorf("got reason %s, want %s", classified.Reason, reason)
	}
	if classified.Message == "" {
		t.Error("the message is empty")
	}
	expectNoCanary(t, err.Error(), classified.Error(), classified.Reason, classified.Message)
}

func expectNoCanary(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), canary) {
			t.Errorf("text of the other side is repeated: %s", text)
		}
	}
}

// eventually waits for the condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); !condition(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("did not come about: %s", what)
		}
	}
}

// nameServer is a DNS server that gives every name the address it holds, or says
// that there is no such name if it holds none.
type nameServer struct{ address atomic.Pointer[[4]byte] }

func (n *nameServer) set(address [4]byte) { n.address.Store(&address) }

// resolver starts the server and returns a resolver that asks it.
func (n *nameServer) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(n.answer(query[:size]), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answer builds a DNS message (RFC 1035, 4.1) for a query with one question.
func (n *nameServer) answer(query []byte) []byte {
	const header, typeA = 12, 1
	end := header
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // The end of the name, the type and the class.
	message := append([]byte{}, query[:end]...)
	message[2], message[3] = 0x84, 0x00                     // An answer, with authority.
	copy(message[4:header], []byte{0, 1, 0, 0, 0, 0, 0, 0}) // One question.
	address, isA := n.address.Load(), query[end-4] == 0 && query[end-3] == typeA
	switch {
	case address == nil:
		message[3] |= 3 // No such name.
	case isA:
		message[7] = 1 // One answer: the same name, A, IN, no caching, four bytes.
		message = append(message, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
		message = append(message, address[:]...)
	}
	return message
}

// certificate makes a self-signed certificate with the canary for a name.
func certificate(t *testing.T) (tls.Certificate, []byte, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: canary, Organization: []string{canary}},
		DNSNames:     []string{canary + ".example"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
