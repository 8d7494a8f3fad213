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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// gitVersion is the version of Kubernetes that a Server claims to be.
const gitVersion = "v1.36.3"

// answer is what a well-behaved server does with a request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz":
		_, _ = w.Write([]byte("ok"))
		return
	case "/version":
		writeJSON(w, http.StatusOK, version.Info{Major: "1", Minor: "36", GitVersion: gitVersion, Platform: "linux/amd64"})
		return
	}
	if UserOf(r) == "" {
		writeError(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if s.discover(w, r) {
		return
	}
	t, ok := parseTarget(r)
	if !ok || !s.resources.serves(t) {
		http.NotFound(w, r)
		return
	}
	if s.inMemory {
		if refuseInMemory(w, r, t) {
			return
		}
		// It answers with whole objects, whatever it is asked for.
		r.Header.Del("Accept")
	}
	switch err := s.answerResource(w, r, t); {
	case err != nil && s.inMemory:
		status := statusOf(err)
		writeJSON(w, int(status.Code), map[string]any{"ErrStatus": status})
	case err != nil:
		writeError(w, err)
	}
}

// answerResource answers, or returns the error to answer with.
func (s *Server) answerResource(w http.ResponseWriter, r *http.Request, t target) error {
	if t.subresource == "token" && t.GroupResource() == serviceAccounts && t.verb == "create" {
		return s.requestToken(w, r, t)
	}
	if t.subresource != "" && t.subresource != "status" {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, t.verb, t.GroupResource(), t.name, "", 0, true)
	}
	switch t.verb {
	case "get":
		object := s.store.get(t.GroupResource(), t.key())
		if object == nil {
			return apierrors.NewNotFound(t.GroupResource(), t.name)
		}
		writeObject(w, r, t, http.StatusOK, object)
		return nil
	case "list":
		return s.list(w, r, t)
	case "watch":
		return s.watch(w, r, t)
	case "create":
		return s.create(w, r, t)
	case "update":
		return s.update(w, r, t)
	case "patch":
		return s.patch(w, r, t)
	case "delete":
		return s.delete(w, r, t)
	case "deletecollection":
		return s.deleteCollection(w, r, t)
	}
	return apierrors.NewMethodNotSupported(t.GroupResource(), t.verb)
}

// discover answers requests for discovery. It returns false for any other.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	switch path := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case len(path) == 1 && path[0] == "api":
		writeJSON(w, http.StatusOK, metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"},
		})
	case len(path) == 1 && path[0] == "apis":
		writeJSON(w, http.StatusOK, s.groups())
	case len(path) == 2 && path[0] == "api":
		s.writeResources(w, r, schema.GroupVersion{Version: path[1]})
	case len(path) == 3 && path[0] == "apis":
		s.writeResources(w, r, schema.GroupVersion{Group: path[1], Version: path[2]})
	default:
		return false
	}
	return true
}

func (s *Server) writeResources(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	resources := s.resources.resourcesOf(gv)
	if len(resources) == 0 {
		http.NotFound(w, r)
		return
	}
	writeJSON(w, http.StatusOK, metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: resources,
	})
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, gv := range s.resources.groupVersions() {
		if gv.Group == "" {
			continue
		}
		offered := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		if last := len(list.Groups) - 1; last >= 0 && list.Groups[last].Name == gv.Group {
			list.Groups[last].Versions = append(list.Groups[last].Versions, offered)
			continue
		}
		list.Groups = append(list.Groups, metav1.APIGroup{
			Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{offered}, PreferredVersion: offered,
		})
	}
	return list
}

// key returns the key of the object that t names.
func (t target) key() key {
	return key{namespace: t.namespace, name: t.name}
}

// wantsMetadata says whether the client asked for metadata only.
func wantsMetadata(r *http.Request) bool {
	for clause := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		_, parameters, err := mime.ParseMediaType(clause)
		if err == nil && strings.HasPrefix(parameters["as"], "PartialObjectMetadata") {
			return true
		}
	}
	return false
}

// present returns object as the client asked for it: in the version of the path,
// whole or as metadata only.
func present(r *http.Request, t target, object *unstructured.Unstructured) map[string]any {
	if wantsMetadata(r) {
		return map[string]any{
			"apiVersion": metav1.SchemeGroupVersion.String(),
			"kind":       "PartialObjectMetadata",
			"metadata":   object.Object["metadata"],
		}
	}
	out := make(map[string]any, len(object.Object))
	maps.Copy(out, object.Object)
	out["apiVersion"] = t.GroupVersion().String()
	return out
}

func writeObject(w http.ResponseWriter, r *http.Request, t target, code int, object *unstructured.Unstructured) {
	writeJSON(w, code, present(r, t, object))
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// writeError answers with err as a metav1.Status.
func writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	writeJSON(w, int(status.Code), status)
}

func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(fmt.Errorf("light API server: %w", err))
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}
