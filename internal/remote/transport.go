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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxResponseSize is the size of the largest answer that is read, in bytes.
	maxResponseSize = 4 << 20

	// maxResponseHeaderSize is in bytes. API servers send less than one KiB.
	maxResponseHeaderSize = 64 << 10
)

// transport stands between client-go and the connection. It sends each request to
// the server, reads the whole answer within its bounds, and hands on only what it
// knows: a JSON object of the kind that was asked for, or a Status with no text of the
// server. Nothing is decoded before its size in memory is known to be bounded.
// Response headers end here, Warning, Location and Retry-After among them, so
// client-go neither logs them nor waits or goes where they say.
//
// Every error that it returns is an *Error. Those keep no cause, since client-go
// takes some causes as a sign to try again.
type transport struct {
	base    http.RoundTripper
	server  *url.URL
	timeout time.Duration
	decoder runtime.Decoder
}

func newTransport(base http.RoundTripper, server *url.URL, timeout time.Duration, scheme *runtime.Scheme) *transport {
	return &transport{
		base:    base,
		server:  server,
		timeout: timeout,
		decoder: kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{}),
	}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// Client-go's context carries hooks that turn the name of each server into a label
	// of a metric, and there is no bound to names. So only its end is passed on.
	ctx, cancel := context.WithTimeout(context.Background(), t.timeout)
	defer cancel()
	defer context.AfterFunc(req.Context(), cancel)()

	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	failed := func(err error) error {
		switch {
		case errors.Is(req.Context().Err(), context.Canceled):
			return canceled()
		case connected.Load() && ctx.Err() != nil:
			return responseTimeout()
		case ctx.Err() != nil:
			return connectionFailed("no connection came about in time")
		}
		if classified := classifyNetwork(err); classified != nil {
			return classified
		}
		return connectionBroke()
	}

	resp, err := t.base.RoundTrip(t.toServer(ctx, req))
	if err != nil {
		return nil, failed(err)
	}
	// The answer was read or is not wanted: a failing Close changes nothing.
	defer func() { _ = resp.Body.Close() }()

	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, redirected()
	}
	if resp.StatusCode < 200 {
		// After "switching protocols" the body is the connection itself and never ends.
		return nil, notKubernetes("is not an answer of a Kubernetes API server")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseSize+1))
	if err == nil {
		// A server can end its answer at once when it sees us hang up.
		err = ctx.Err()
	}
	switch {
	case err != nil:
		return nil, failed(err)
	case len(body) > maxResponseSize:
		return nil, responseTooLarge()
	}
	isJSON := false
	if mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil {
		isJSON = mediaType == runtime.ContentTypeJSON
	}
	if isJSON && !withinBounds(body) {
		return nil, responseTooLarge()
	}
	if resp.StatusCode < 300 {
		if !isJSON || !t.isKubernetes(req, body) {
			return nil, notKubernetes("is not an answer of a Kubernetes API server")
		}
		if isApply(req) {
			body = nothing(req)
		}
		return answer(req, resp.StatusCode, body), nil
	}
	status, known := cleanStatus(req.Method, resp.StatusCode, body, isJSON)
	if !known {
		return nil, notKubernetes("is not an answer of a Kubernetes API server")
	}
	body, err = json.Marshal(status)
	if err != nil {
		return nil, Classify(err)
	}
	return answer(req, resp.StatusCode, body), nil
}

// toServer returns the request, which names a stand-in for the server, as it goes
// out.
func (t *transport) toServer(ctx context.Context, req *http.Request) *http.Request {
	out := req.Clone(ctx)
	out.Host = ""
	out.URL.Scheme = t.server.Scheme
	out.URL.Host = t.server.Host
	out.URL.Path = strings.TrimSuffix(t.server.Path, "/") + req.URL.Path
	out.URL.RawPath = ""
	// The metadata client asks for protobuf first, whatever its configuration.
	var accept []string
	for kind := range strings.SplitSeq(req.Header.Get("Accept"), ",") {
		if strings.HasPrefix(kind, runtime.ContentTypeJSON) {
			accept = append(accept, kind)
		}
	}
	out.Header.Set("Accept", strings.Join(accept, ","))
	return out
}

// isKubernetes says whether body is an object of the kind that was asked for, which
// the client's own decoder will read. It reads the same bytes again later, and its
// errors would quote them. What an apply returns it does not get to see.
func (t *transport) isKubernetes(req *http.Request, body []byte) bool {
	kind, err := kjson.DefaultMetaFactory.Interpret(body)
	if err != nil || !asked(req, *kind) {
		return false
	}
	if isApply(req) {
		return true
	}
	object, _, err := t.decoder.Decode(body, nil, nil)
	if err != nil {
		return false
	}
	// Client-go would make an error of this one, with the server's message.
	status, isStatus := object.(*metav1.Status)
	return !isStatus || status.Status == metav1.StatusSuccess
}

func isApply(req *http.Request) bool {
	return req.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType)
}

// nothing returns the object that was asked for with nothing in it but its kind.
func nothing(req *http.Request) []byte {
	kind, _ := target(req)
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q}`, kind.GroupVersion(), kind.Kind)
}

// cleanStatus returns a Status for an answer with an HTTP status above 399 that
// says the same to a program, and has our words for a person. It reports false if
// the answer can only be that of another kind of server. The statuses that a proxy
// in between may send as well, and "not found", with which an API server answers in
// plain text if it does not serve a group, are fine without a Status.
func cleanStatus(method string, code int, body []byte, isJSON bool) (metav1.Status, bool) {
	clean := apierrors.NewGenericServerResponse(code, method, schema.GroupResource{}, "", "", 0, false).Status()
	clean.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	clean.Message = "the workload cluster answered with HTTP status " + strconv.Itoa(code)
	clean.Details = &metav1.StatusDetails{}

	var sent metav1.Status
	if !isJSON || json.Unmarshal(body, &sent) != nil || sent.Kind != "Status" || sent.APIVersion != "v1" {
		clean.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}
		switch code {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests,
			http.StatusUnsupportedMediaType:
			return clean, true
		}
		return clean, code >= http.StatusInternalServerError
	}
	switch sent.Reason {
	case metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonExpired:
		// The HTTP status does not tell these from others.
		clean.Reason = sent.Reason
	}
	if sent.Details != nil {
		for _, cause := range sent.Details.Causes {
			switch cause.Type {
			case corev1.NamespaceTerminatingCause, metav1.CauseTypeFieldManagerConflict:
				clean.Details.Causes = append(clean.Details.Causes, metav1.StatusCause{Type: cause.Type})
			}
		}
	}
	if sent.Reason == metav1.StatusReasonInternalError && strings.Contains(sent.Message, callingWebhook) {
		clean.Details.Causes = append(clean.Details.Causes, metav1.StatusCause{Type: CauseTypeWebhook})
	}
	return clean, true
}

// callingWebhook is how an API server says it (Kubernetes,
// apiserver/pkg/util/webhook.ErrCallingWebhook), and nothing but the words does.
const callingWebhook = "failed calling webhook"

// CauseTypeWebhook is the cause of an internal error of an API server that could not call
// an admission webhook which it needs: it refuses that object, and is not ill itself.
const CauseTypeWebhook metav1.CauseType = "FailedCallingWebhook"

func answer(req *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		Status:        strconv.Itoa(code) + " " + http.StatusText(code),
		StatusCode:    code,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {runtime.ContentTypeJSON}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}
}
