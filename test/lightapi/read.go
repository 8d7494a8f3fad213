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
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// filter is what a list, a watch or a deletion of a collection is limited to.
type filter struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func newFilter(r *http.Request, t target) (filter, error) {
	f := filter{namespace: t.namespace}
	query := r.URL.Query()
	var err error
	if f.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return f, apierrors.NewBadRequest(err.Error())
	}
	if f.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return f, apierrors.NewBadRequest(err.Error())
	}
	for _, requirement := range f.fields.Requirements() {
		switch requirement.Field {
		case "metadata.name", "metadata.namespace", "type":
		default:
			return f, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", requirement.Field))
		}
	}
	if t.name != "" {
		f.fields = fields.AndSelectors(f.fields, fields.OneTermEqualSelector("metadata.name", t.name))
	}
	return f, nil
}

func (f filter) matches(object *unstructured.Unstructured) bool {
	if object == nil || f.namespace != "" && object.GetNamespace() != f.namespace {
		return false
	}
	kind, _, _ := unstructured.NestedString(object.Object, "type")
	return f.labels.Matches(labels.Set(object.GetLabels())) && f.fields.Matches(fields.Set{
		"metadata.name":      object.GetName(),
		"metadata.namespace": object.GetNamespace(),
		"type":               kind,
	})
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := newFilter(r, t)
	if err != nil {
		return err
	}
	objects, version := s.store.list(t.GroupResource(), t.namespace)
	items := []any{}
	for _, object := range objects {
		if f.matches(object) {
			items = append(items, present(r, t, object))
		}
	}
	list := map[string]any{
		"apiVersion": t.GroupVersion().String(),
		"kind":       s.resources.kind(t.GroupVersionResource) + "List",
		"metadata":   map[string]any{"resourceVersion": strconv.FormatInt(version, 10)},
		"items":      items,
	}
	if wantsMetadata(r) {
		list["apiVersion"], list["kind"] = metav1.SchemeGroupVersion.String(), "PartialObjectMetadataList"
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// frame is one line of the answer to a watch.
type frame struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// watch streams changes until the client or the server breaks off, or the time
// that the client gave is over.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := newFilter(r, t)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	version, err := strconv.ParseInt("0"+query.Get("resourceVersion"), 10, 64)
	if err != nil {
		return apierrors.NewBadRequest("invalid resource version")
	}
	var timeout <-chan time.Time
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		timeout = timer.C
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	send := func(kind watch.EventType, object any) bool {
		return encoder.Encode(frame{Type: kind, Object: object}) == nil
	}
	streamsList := query.Get("sendInitialEvents") == "true"
	if version == 0 || streamsList {
		var objects []*unstructured.Unstructured
		objects, version = s.store.list(t.GroupResource(), t.namespace)
		for _, object := range objects {
			if f.matches(object) && !send(watch.Added, present(r, t, object)) {
				return nil
			}
		}
		if streamsList && !send(watch.Bookmark, s.endOfInitialEvents(r, t, version)) {
			return nil
		}
	}
	flush := http.NewResponseController(w).Flush
	for {
		events, changed, err := s.store.since(version)
		if err != nil {
			send(watch.Error, statusOf(err))
			return nil
		}
		for _, e := range events {
			version = e.version
			if e.resource != t.GroupResource() {
				continue
			}
			if kind := f.eventType(e); kind != "" && !send(kind, present(r, t, e.object)) {
				return nil
			}
		}
		if err := flush(); err != nil {
			return nil
		}
		select {
		case <-changed:
		case <-timeout:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

// eventType returns what e is to a watch with this filter, empty if nothing.
func (f filter) eventType(e event) watch.EventType {
	before, after := f.matches(e.old), !e.deleted && f.matches(e.object)
	switch {
	case before && after:
		return watch.Modified
	case after:
		return watch.Added
	case before:
		return watch.Deleted
	}
	return ""
}

// endOfInitialEvents is the bookmark after the objects of a list that a client
// asked for as a stream.
func (s *Server) endOfInitialEvents(r *http.Request, t target, version int64) any {
	bookmark := &unstructured.Unstructured{Object: map[string]any{
		"kind": s.resources.kind(t.GroupVersionResource),
		"metadata": map[string]any{
			"resourceVersion": strconv.FormatInt(version, 10),
			"annotations":     map[string]any{metav1.InitialEventsAnnotationKey: "true"},
		},
	}}
	return present(r, t, bookmark)
}
