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
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

const yamlNamespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-system, uid: 6d6f4c0e-1}\n"

// protobufNamespace is what an API server sends to who asks for protobuf: its mark and
// a runtime.Unknown (k8s.io/apimachinery, serializer/protobuf).
var protobufNamespace = func() string {
	namespace := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "6d6f4c0e-1"},
	}
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(namespace, &encoded); err != nil {
		panic(err)
	}
	return encoded.String()
}()

// manyValues is a Status, so that it can be an answer of success and of failure.
var manyValues = `{"apiVersion":"v1","kind":"Status","details":{"causes":[{}` + strings.Repeat(`,{}`, maxEntries) + `]}}`

func compressed(t *testing.T, body string) string {
	t.Helper()
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := io.WriteString(writer, body); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

func TestAnswerOfTheServerGivesItsReason(t *testing.T) {
	with := func(header, value string, handler http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(header, value)
			handler(w, r)
		}
	}
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		reason  string
	}{
		"401":                {reply(401, jsonType, failure), fleetv1.CredentialsRejectedReason},
		"401 in text":        {reply(401, "text/plain", canary), fleetv1.CredentialsRejectedReason},
		"403":                {reply(403, jsonType, failure), fleetv1.AccessDeniedReason},
		"403 in text":        {reply(403, "text/html", canary), fleetv1.AccessDeniedReason},
		"429":                {reply(429, jsonType, failure), fleetv1.ServerErrorReason},
		"500":                {reply(500, jsonType, failure), fleetv1.ServerErrorReason},
		"503 in text":        {reply(503, "text/plain", canary), fleetv1.ServerErrorReason},
		"429 to come back":   {with("Retry-After", "3600", reply(429, jsonType, failure)), fleetv1.ServerErrorReason},
		"503 to come back":   {with("Retry-After", "1", reply(503, "text/plain", canary)), fleetv1.ServerErrorReason},
		"301":                {with("Location", "https://"+canary+".example/", reply(301, "text/html", canary)), fleetv1.RedirectedReason},
		"307":                {with("Location", "/"+canary, reply(307, "text/html", canary)), fleetv1.RedirectedReason},
		"302 to nowhere":     {with("Location", canary+"://%zz", reply(302, jsonType, failure)), fleetv1.RedirectedReason},
		"400 in text":        {reply(400, "text/html", canary), fleetv1.NotKubernetesReason},
		"404":                {reply(404, jsonType, failure), fleetv1.NotKubernetesReason},
		"404 in text":        {reply(404, "text/plain", canary), fleetv1.NotKubernetesReason},
		"400":                {reply(400, jsonType, failure), fleetv1.InternalErrorReason},
		"web page":           {reply(200, "text/html", "<html>"+canary), fleetv1.NotKubernetesReason},
		"text called JSON":   {reply(200, jsonType, canary), fleetv1.NotKubernetesReason},
		"JSON called text":   {reply(200, "text/plain", systemNamespace), fleetv1.NotKubernetesReason},
		"type not parseable": {reply(200, `;`+canary, systemNamespace), fleetv1.NotKubernetesReason},
		"nothing":            {reply(200, jsonType, ""), fleetv1.NotKubernetesReason},
		"204":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, fleetv1.NotKubernetesReason},
		"empty object":       {reply(200, jsonType, "{}"), fleetv1.NotKubernetesReason},
		"unknown kind":       {reply(200, jsonType, `{"apiVersion":"v1","kind":"`+canary+`"}`), fleetv1.NotKubernetesReason},
		"another kind":       {reply(200, jsonType, strings.Replace(systemNamespace, "Namespace", "Secret", 1)), fleetv1.NotKubernetesReason},
		"another version":    {reply(200, jsonType, strings.Replace(systemNamespace, "v1", canary, 1)), fleetv1.NotKubernetesReason},
		"another name":       {reply(200, jsonType, strings.Replace(systemNamespace, "kube-system", canary, 1)), fleetv1.NotKubernetesReason},
		"name of wrong type": {reply(200, jsonType, strings.Replace(systemNamespace, `"kube-system"`, `{"`+canary+`":1}`, 1)), fleetv1.NotKubernetesReason},
		"time of wrong form": {reply(200, jsonType, strings.Replace(systemNamespace, `"uid"`, `"creationTimestamp":"`+canary+`","uid"`, 1)), fleetv1.NotKubernetesReason},
		"UID of wrong form":  {reply(200, jsonType, strings.Replace(systemNamespace, "6d6f", canary+" ", 1)), fleetv1.NotKubernetesReason},
		"success that fails": {reply(200, jsonType, failure), fleetv1.NotKubernetesReason},
		"unasked list":       {reply(200, jsonType, `{"apiVersion":"v1","kind":"NamespaceList","items":[`+systemNamespace+`]}`), fleetv1.NotKubernetesReason},
		"unasked success":    {reply(200, jsonType, `{"apiVersion":"v1","kind":"Status","status":"Success"}`), fleetv1.NotKubernetesReason},
		"a kind twice":       {reply(200, jsonType, `{"kind":"Namespace",`+strings.Replace(systemNamespace[1:], `"Namespace"`, `"PodList"`, 1)), fleetv1.NotKubernetesReason},
		"YAML":               {reply(200, "application/yaml", yamlNamespace), fleetv1.NotKubernetesReason},
		"YAML called JSON":   {reply(200, jsonType, yamlNamespace), fleetv1.NotKubernetesReason},
		"protobuf":           {reply(200, "application/vnd.kubernetes.protobuf", protobufNamespace), fleetv1.NotKubernetesReason},
		"protobuf, as JSON":  {reply(200, jsonType, protobufNamespace), fleetv1.NotKubernetesReason},
		"gzip of an answer":  {with("Content-Encoding", "gzip", reply(200, jsonType, compressed(t, systemNamespace))), fleetv1.NotKubernetesReason},
		"gzip, not said":     {reply(200, jsonType, compressed(t, systemNamespace)), fleetv1.NotKubernetesReason},
		"too many values":    {reply(200, jsonType, manyValues), fleetv1.ResponseTooLargeReason},
		"too many in a 500":  {reply(500, jsonType, manyValues), fleetv1.ResponseTooLargeReason},
		"415":                {reply(415, jsonType, failure), fleetv1.InternalErrorReason},
		"415 in text":        {reply(415, "text/plain", canary), fleetv1.NotKubernetesReason},
		"compressed":         {with("Content-Encoding", "gzip", reply(200, jsonType, "\x1f\x8b"+canary)), fleetv1.NotKubernetesReason},
		"too large":          {reply(200, jsonType, `"`+strings.Repeat("x", maxResponseSize)), fleetv1.ResponseTooLargeReason},
		"too large a 500":    {reply(500, "text/plain", strings.Repeat("x", maxResponseSize+1)), fleetv1.ResponseTooLargeReason},
		"without end, fast": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				reply(200, jsonType, strings.Repeat(" ", 1<<16))(w, r)
			}
		}, fleetv1.ResponseTooLargeReason},
		"headers too large": {with("X-Large", strings.Repeat(canary, maxResponseHeaderSize), reply(200, jsonType, systemNamespace)), fleetv1.ResponseTooLargeReason},
		"broken off":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, fleetv1.ConnectionFailedReason},
		"broken off later": {func(w http.ResponseWriter, r *http.Request) {
			reply(200, jsonType, canary)(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, fleetv1.ConnectionFailedReason},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				tc.handler(w, r)
			})
			_, err := connect(t, dialer(), kubeconfig(t, s)).SystemNamespaceUID(t.Context())
			expectReason(t, err, tc.reason)
			if n := requests.Load(); n != 1 {
				t.Errorf("got %d requests, want 1: nothing is tried again or followed", n)
			}
		})
	}
}

func TestServerThatNeverEndsItsAnswerGivesResponseTimeout(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"headers and no body": func(w http.ResponseWriter, r *http.Request) {
			reply(200, jsonType, "")(w, r)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"drop by drop": func(w http.ResponseWriter, r *http.Request) {
			for tick := time.NewTicker(10 * time.Millisecond); r.Context().Err() == nil; <-tick.C {
				reply(200, jsonType, " ")(w, r)
				_ = http.NewResponseController(w).Flush()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, handler)
			d := dialer()
			d.RequestTimeout = 300 * time.Millisecond
			_, err := connect(t, d, kubeconfig(t, s)).SystemNamespaceUID(t.Context())
			expectReason(t, err, fleetv1.ResponseTimeoutReason)

			d.RequestTimeout = time.Hour
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err = connect(t, d, kubeconfig(t, s)).SystemNamespaceUID(ctx)
			expectReason(t, err, fleetv1.ResponseTimeoutReason)
		})
	}
}

func TestRequestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := server(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := connect(t, dialer(), kubeconfig(t, s)).SystemNamespaceUID(ctx)
	expectReason(t, err, fleetv1.InternalErrorReason)
	if !errors.Is(err, context.Canceled) {
		t.Error("the error does not say that the context was cancelled")
	}
}

// rawServer speaks TLS and then sends answer, whatever it is asked.
func rawServer(t *testing.T, answer string) *httptest.Server {
	return server(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, answer)
		_ = conn.Close()
	})
}

func TestServerThatBreaksTheProtocolGivesItsReason(t *testing.T) {
	for name, tc := range map[string]struct{ answer, reason string }{
		"not HTTP":          {"SSH-2.0-" + canary + "\r\n", fleetv1.NotKubernetesReason},
		"no number":         {"HTTP/1.1 " + canary + "\r\n\r\n", fleetv1.NotKubernetesReason},
		"no header":         {"HTTP/1.1 200 OK\r\n" + canary + "\r\n\r\n", fleetv1.NotKubernetesReason},
		"another protocol":  {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + canary + "\r\nConnection: upgrade\r\n\r\n", fleetv1.NotKubernetesReason},
		"status 000":        {"HTTP/1.1 000 " + canary + "\r\nContent-Length: 0\r\n\r\n", fleetv1.NotKubernetesReason},
		"no chunk":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + canary + "\r\n", fleetv1.ConnectionFailedReason},
		"no trailer":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + canary + "\r\n\r\n", fleetv1.NotKubernetesReason},
		"encoding":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + canary + "\r\n\r\n", fleetv1.ConnectionFailedReason},
		"nothing":           {"", fleetv1.ConnectionFailedReason},
		"half of an answer": {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + canary, fleetv1.ConnectionFailedReason},
	} {
		t.Run(name, func(t *testing.T) {
			s := rawServer(t, tc.answer)
			_, err := connect(t, dialer(), kubeconfig(t, s)).SystemNamespaceUID(t.Context())
			expectReason(t, err, tc.reason)
		})
	}
}

func TestServerWithoutTLSIsNotKubernetes(t *testing.T) {
	for name, banner := range map[string]string{"HTTP": "", "another protocol": "220 " + canary + "\r\n"} {
		t.Run(name, func(t *testing.T) {
			plain := httptest.NewServer(reply(200, jsonType, canary))
			defer plain.Close()
			address := plain.Listener.Addr().String()
			if banner != "" {
				port, accepted := listener(t)
				address = fmt.Sprintf("127.0.0.1:%d", port)
				go func() {
					conn := <-accepted
					_, _ = io.WriteString(conn, banner)
				}()
			}
			data := kubeconfig(t, nil, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "https://" + address })
			_, err := connect(t, dialer(), data).SystemNamespaceUID(t.Context())
			expectReason(t, err, fleetv1.NotKubernetesReason)
		})
	}
}

func TestServerThatCannotBeReachedGivesConnectionFailed(t *testing.T) {
	silent, _ := listener(t)
	d := dialer()
	d.DialTimeout = 100 * time.Millisecond
	d.resolver = (&nameServer{}).resolver(t)
	for name, address := range map[string]string{
		"refused":          serverURL("127.0.0.1", closedPort(t)),
		"no such host":     "https://" + canary + ".example",
		"no TLS handshake": serverURL("127.0.0.1", silent),
	} {
		t.Run(name, func(t *testing.T) {
			data := kubeconfig(t, nil, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = address })
			_, err := connect(t, d, data).SystemNamespaceUID(t.Context())
			expectReason(t, err, fleetv1.ConnectionFailedReason)
		})
	}
	t.Run("no TLS handshake before the request's end", func(t *testing.T) {
		d := &Dialer{DialTimeout: time.Hour, RequestTimeout: 100 * time.Millisecond}
		data := kubeconfig(t, nil, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = serverURL("127.0.0.1", silent) })
		_, err := connect(t, d, data).SystemNamespaceUID(t.Context())
		expectReason(t, err, fleetv1.ConnectionFailedReason)
	})
}

func TestServerCertificateThatIsNotValidIsRefused(t *testing.T) {
	named, _, _ := certificate(t)
	ours := server(t, reply(200, jsonType, systemNamespace))
	for name, tc := range map[string]struct {
		server *httptest.Server
		edit   func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
	}{
		"another authority": {
			server(t, reply(200, jsonType, canary), func(s *httptest.Server) {
				s.TLS = &tls.Config{Certificates: []tls.Certificate{named}}
			}),
			func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
				c.CertificateAuthorityData = encode("CERTIFICATE", ours.Certificate().Raw)
			},
		},
		"another name": {ours, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.TLSServerName = canary }},
		"not that of the system": {ours, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connect(t, dialer(), kubeconfig(t, tc.server, tc.edit)).SystemNamespaceUID(t.Context())
			expectReason(t, err, fleetv1.ServerCertificateInvalidReason)
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	s := server(t, reply(200, jsonType, systemNamespace), func(s *httptest.Server) {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	})
	for name, edit := range map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"with an authority":    func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {},
		"without an authority": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthorityData = nil },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connect(t, dialer(), kubeconfig(t, s, edit)).SystemNamespaceUID(t.Context())
			expectReason(t, err, fleetv1.ConnectionFailedReason)
		})
	}
}

func TestClientCertificateThatTheServerRefusesGivesItsReason(t *testing.T) {
	_, certificatePEM, keyPEM := certificate(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			s := server(t, reply(200, jsonType, systemNamespace), func(s *httptest.Server) {
				s.TLS = &tls.Config{MaxVersion: version, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
			})
			data := kubeconfig(t, s, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
				u.ClientCertificateData, u.ClientKeyData = certificatePEM, keyPEM
			})
			_, err := connect(t, dialer(), data).SystemNamespaceUID(t.Context())
			expectReason(t, err, fleetv1.ClientCertificateRejectedReason)
		})
	}
}

func TestClassifyFindsTheReasonOfAnyError(t *testing.T) {
	own := redirected()
	wrap := func(err error) error { return fmt.Errorf("%s: %w", canary, err) }
	if got := Classify(nil); got != nil {
		t.Errorf("got %v for no error", got)
	}
	if got := Classify(wrap(own)); got != own {
		t.Errorf("got %v, want the error that is wrapped", got)
	}
	resource := schema.GroupResource{Resource: canary}
	for name, tc := range map[string]struct {
		err    error
		reason string
	}{
		"unauthorized":      {apierrors.NewUnauthorized(canary), fleetv1.CredentialsRejectedReason},
		"forbidden":         {apierrors.NewForbidden(resource, canary, errors.New(canary)), fleetv1.AccessDeniedReason},
		"too many requests": {apierrors.NewTooManyRequests(canary, 1), fleetv1.ServerErrorReason},
		"internal":          {apierrors.NewInternalError(errors.New(canary)), fleetv1.ServerErrorReason},
		"not found in text": {apierrors.NewGenericServerResponse(404, "GET", resource, canary, canary, 0, true), fleetv1.NotKubernetesReason},
		"not found":         {apierrors.NewNotFound(resource, canary), fleetv1.InternalErrorReason},
		"deadline":          {context.DeadlineExceeded, fleetv1.ResponseTimeoutReason},
		"cancelled":         {context.Canceled, fleetv1.InternalErrorReason},
		"network":           {&net.OpError{Op: "dial", Err: errors.New(canary)}, fleetv1.ConnectionFailedReason},
		"certificate":       {&tls.CertificateVerificationError{Err: errors.New(canary)}, fleetv1.ServerCertificateInvalidReason},
		"anything":          {errors.New(canary), fleetv1.InternalErrorReason},
	} {
		t.Run(name, func(t *testing.T) {
			got := Classify(wrap(tc.err))
			expectReason(t, got, tc.reason)
		})
	}
}

func TestAnswerAboutOneObjectStaysRecognisable(t *testing.T) {
	const status = `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"` + canary + `","reason":"%s",` +
		`"details":{"causes":[{"reason":"` + canary + `"},{"reason":"%s","message":"` + canary + `","field":"` + canary + `"}]}}`
	for name, tc := range map[string]struct {
		code          int
		reason, cause string
		is            func(error) bool
	}{
		"not found":      {404, "NotFound", "", apierrors.IsNotFound},
		"already exists": {409, "AlreadyExists", "", apierrors.IsAlreadyExists},
		"conflict":       {409, "Conflict", "FieldManagerConflict", apierrors.IsConflict},
		"field manager conflict": {409, "Conflict", "FieldManagerConflict", func(err error) bool {
			return apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
		}},
		"terminating namespace": {403, "Forbidden", "NamespaceTerminating", func(err error) bool {
			return apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, "NamespaceTerminating")
		}},
		"unsupported media type": {415, "UnsupportedMediaType", "", apierrors.IsUnsupportedMediaType},
		"invalid":                {422, "Invalid", "FieldValueInvalid", apierrors.IsInvalid},
		"expired":                {410, "Expired", "", apierrors.IsResourceExpired},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, reply(tc.code, jsonType, fmt.Sprintf(status, tc.reason, tc.cause)))
			err := connect(t, dialer(), kubeconfig(t, s)).Create(t.Context(), secret())
			if !tc.is(err) {
				t.Errorf("got %v", err)
			}
			expectNoCanary(t, fmt.Sprintf("%+v", err), fmt.Sprintf("%+v", err.(apierrors.APIStatus).Status()))
		})
	}
	t.Run("webhook that cannot be called", func(t *testing.T) {
		for said, want := range map[string]bool{`failed calling webhook \"` + canary + `\": ` + canary: true, canary: false} {
			s := server(t, reply(500, jsonType, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"InternalError","message":"Internal error occurred: `+said+`"}`))
			err := connect(t, dialer(), kubeconfig(t, s)).Create(t.Context(), secret())
			if got := apierrors.HasStatusCause(err, CauseTypeWebhook); got != want {
				t.Errorf("%q: got %v", said, err)
			}
			expectNoCanary(t, fmt.Sprintf("%+v", err), fmt.Sprintf("%+v", err.(apierrors.APIStatus).Status()))
		}
	})
	t.Run("media type that is not known", func(t *testing.T) {
		s := server(t, reply(415, "text/plain", canary))
		err := connect(t, dialer(), kubeconfig(t, s)).Create(t.Context(), secret())
		if !apierrors.IsUnsupportedMediaType(err) {
			t.Errorf("got %v", err)
		}
		expectNoCanary(t, err.Error())
	})
	t.Run("group that is not served", func(t *testing.T) {
		s := server(t, reply(404, "text/plain", canary))
		err := connect(t, dialer(), kubeconfig(t, s)).Create(t.Context(), secret())
		if !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
		expectNoCanary(t, err.Error())
	})
}
