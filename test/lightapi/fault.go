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
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fault sees a request before the Server does, also before its token is checked.
// True means that it was answered.
type Fault func(w http.ResponseWriter, r *http.Request) bool

// Refuse answers everything with code, as a metav1.Status.
func Refuse(code int) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		verb := strings.ToLower(r.Method)
		writeError(w, apierrors.NewGenericServerResponse(code, verb, schema.GroupResource{}, "", "told to refuse", 0, false))
		return true
	}
}

// Hang never answers. It ends with the connection.
func Hang() Fault {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		// Returning would answer with an empty body.
		panic(http.ErrAbortHandler)
	}
}

// Reset breaks the connection off, as a load balancer without a server behind it
// does.
func Reset() Fault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			// HTTP/2 only lets a stream be reset.
			panic(http.ErrAbortHandler)
		}
		if secure, ok := connection.(*tls.Conn); ok {
			connection = secure.NetConn()
		}
		if tcp, ok := connection.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = connection.Close()
		return true
	}
}

// Redirect sends every request to the same path at target, a URL without a path.
func Redirect(target string) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, target+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		return true
	}
}

// Endless answers with a JSON string that never ends, as fast as it is read.
func Endless() Fault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		_, err := w.Write([]byte(`{"kind":"`))
		for chunk := bytes.Repeat([]byte("x"), 32*1024); err == nil; {
			_, err = w.Write(chunk)
		}
		return true
	}
}

// NotKubernetes answers everything with 200 and a web page.
func NotKubernetes() Fault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><body>It works!</body></html>"))
		return true
	}
}

// When limits fault to the requests that match.
func When(match func(*http.Request) bool, fault Fault) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return match(r) && fault(w, r)
	}
}
