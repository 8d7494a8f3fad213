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
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxBody is the largest body that is accepted, in bytes, as by a real server.
const maxBody = 3 << 20

func (s *Server) create(w http.ResponseWriter, r *http.Request, t target) error {
	if t.name != "" {
		return apierrors.NewMethodNotSupported(t.GroupResource(), "create")
	}
	if known, found := s.resources.known[t.GroupVersionResource]; found && known.namespaced && t.namespace == "" {
		return apierrors.NewMethodNotSupported(t.GroupResource(), "create")
	}
	object, err := s.readObject(r, t)
	if err != nil {
		return err
	}
	if prefix := object.GetGenerateName(); object.GetName() == "" && prefix != "" {
		object.SetName(prefix + strings.ToLower(rand.Text()[:5]))
	}
	t.name = object.GetName()
	if t.name == "" {
		return apierrors.NewInvalid(object.GroupVersionKind().GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "name or generateName is required"),
		})
	}
	if object.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	created, err := s.store.change(t.GroupResource(), t.key(), dryRun(r), func(current *record) (*record, error) {
		if current != nil {
			return nil, apierrors.NewAlreadyExists(t.GroupResource(), t.name)
		}
		return &record{object: newObject(t, object)}, nil
	})
	if err != nil {
		return err
	}
	writeObject(w, r, t, http.StatusCreated, created)
	return nil
}

func (s *Server) update(w http.ResponseWriter, r *http.Request, t target) error {
	object, err := s.readObject(r, t)
	if err != nil {
		return err
	}
	if object.GetName() != t.name {
		return apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	updated, err := s.store.change(t.GroupResource(), t.key(), dryRun(r), func(current *record) (*record, error) {
		if current == nil {
			return nil, apierrors.NewNotFound(t.GroupResource(), t.name)
		}
		if err := checkPreconditions(t, current.object, object); err != nil {
			return nil, err
		}
		return &record{object: ownPart(t, current.object, object), applied: current.applied}, nil
	})
	if err != nil {
		return err
	}
	writeObject(w, r, t, http.StatusOK, updated)
	return nil
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return apierrors.NewBadRequest("no content type")
	}
	if types.PatchType(mediaType) == types.ApplyYAMLPatchType {
		return s.apply(w, r, t, body)
	}
	var merge map[string]any
	switch types.PatchType(mediaType) {
	case types.MergePatchType, types.StrategicMergePatchType:
		if err := json.Unmarshal(body, &merge); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("reading the patch: %v", err))
		}
	case types.JSONPatchType:
	default:
		return unsupported(t, mediaType)
	}
	patched, err := s.store.change(t.GroupResource(), t.key(), dryRun(r), func(current *record) (*record, error) {
		if current == nil {
			return nil, apierrors.NewNotFound(t.GroupResource(), t.name)
		}
		changed := mergePatch(current.object.Object, merge)
		if types.PatchType(mediaType) == types.JSONPatchType {
			if changed, err = jsonPatch(current.object.Object, body); err != nil {
				return nil, err
			}
		}
		object := &unstructured.Unstructured{Object: changed}
		if err := checkPreconditions(t, current.object, object); err != nil {
			return nil, err
		}
		finishSecret(t, object)
		return &record{object: ownPart(t, current.object, object), applied: current.applied}, nil
	})
	if err != nil {
		return err
	}
	writeObject(w, r, t, http.StatusOK, patched)
	return nil
}

// apply is server-side apply with every list taken as a whole and every conflict
// won: what the manager applied before and applies no more goes.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, t target, body []byte) error {
	manager := r.URL.Query().Get("fieldManager")
	if manager == "" {
		return apierrors.NewBadRequest("fieldManager is required for apply patch")
	}
	applied, err := s.parseObject(t, body)
	if err != nil {
		return err
	}
	if len(applied.GetManagedFields()) > 0 {
		return apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	if applied.GetName() != "" && applied.GetName() != t.name {
		return apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	if t.subresource != "" {
		manager += "/" + t.subresource
	}
	// Two requests at once must not both say that they created it.
	created := false
	object, err := s.store.change(t.GroupResource(), t.key(), dryRun(r), func(current *record) (*record, error) {
		if current == nil {
			if t.subresource != "" {
				return nil, apierrors.NewNotFound(t.GroupResource(), t.name)
			}
			if applied.GetUID() != "" || applied.GetResourceVersion() != "" {
				return nil, apierrors.NewConflict(t.GroupResource(), t.name, errors.New("the object does not exist"))
			}
			created = true
			// Merging into nothing takes the nulls out.
			object := &unstructured.Unstructured{Object: mergePatch(nil, applied.Object)}
			return &record{
				object:  newObject(t, object),
				applied: map[string]map[string]any{manager: applied.Object},
			}, nil
		}
		if err := checkPreconditions(t, current.object, applied); err != nil {
			return nil, err
		}
		others := maps.Clone(current.applied)
		delete(others, manager)
		object := mergePatch(current.object.Object, applied.Object)
		prune(object, current.applied[manager], applied.Object, slices.Collect(maps.Values(others)))
		all := maps.Clone(others)
		if all == nil {
			all = map[string]map[string]any{}
		}
		all[manager] = applied.Object
		return &record{object: ownPart(t, current.object, &unstructured.Unstructured{Object: object}), applied: all}, nil
	})
	if err != nil {
		return err
	}
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	writeObject(w, r, t, code, object)
	return nil
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, t target) error {
	if t.subresource != "" {
		return apierrors.NewMethodNotSupported(t.GroupResource(), "delete")
	}
	options, err := readDeleteOptions(r)
	if err != nil {
		return err
	}
	last, err := s.deleteOne(t, dryRun(r) || len(options.DryRun) > 0, options.Preconditions)
	if err != nil {
		return err
	}
	if s.inMemory {
		return nil // 200 and no body
	}
	if last.GetDeletionTimestamp() != nil && len(last.GetFinalizers()) > 0 {
		writeObject(w, r, t, http.StatusOK, last)
		return nil
	}
	writeJSON(w, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: t.name, Group: t.Group, Kind: t.Resource, UID: last.GetUID()},
	})
	return nil
}

func (s *Server) deleteCollection(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := newFilter(r, t)
	if err != nil {
		return err
	}
	objects, _ := s.store.list(t.GroupResource(), t.namespace)
	for _, object := range objects {
		if !f.matches(object) {
			continue
		}
		one := t
		one.namespace, one.name = object.GetNamespace(), object.GetName()
		if _, err := s.deleteOne(one, dryRun(r), nil); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	writeJSON(w, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
	})
	return nil
}

func (s *Server) deleteOne(t target, dryRun bool, preconditions *metav1.Preconditions) (*unstructured.Unstructured, error) {
	return s.store.change(t.GroupResource(), t.key(), dryRun, func(current *record) (*record, error) {
		if current == nil {
			return nil, apierrors.NewNotFound(t.GroupResource(), t.name)
		}
		object := current.object
		if p := preconditions; p != nil {
			if p.UID != nil && *p.UID != object.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != object.GetResourceVersion() {
				return nil, apierrors.NewConflict(t.GroupResource(), t.name, errors.New("a precondition of the deletion does not hold"))
			}
		}
		switch {
		case len(object.GetFinalizers()) == 0:
			return nil, nil
		case object.GetDeletionTimestamp() != nil:
			return nil, errNoChange
		}
		return &record{object: markDeleted(object), applied: current.applied}, nil
	})
}

// checkPreconditions compares the UID and the resource version that a client may
// have sent along with those that are stored.
func checkPreconditions(t target, current, sent *unstructured.Unstructured) error {
	if uid := sent.GetUID(); uid != "" && uid != current.GetUID() {
		return apierrors.NewConflict(t.GroupResource(), t.name, fmt.Errorf("the UID in the precondition (%s) is not that of the object", uid))
	}
	if v := sent.GetResourceVersion(); v != "" && v != current.GetResourceVersion() {
		return apierrors.NewConflict(t.GroupResource(), t.name,
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// ownPart returns what the path may change of current: the status through the
// status subresource, all but it and the mark of deletion without.
func ownPart(t target, current, wanted *unstructured.Unstructured) *unstructured.Unstructured {
	from, to := current, wanted
	if t.subresource == "status" {
		from, to = wanted, current
	}
	out := to.DeepCopy()
	if status, found := from.Object["status"]; found {
		out.Object["status"] = runtime.DeepCopyJSONValue(status)
	} else {
		delete(out.Object, "status")
	}
	out.SetDeletionTimestamp(current.GetDeletionTimestamp())
	out.SetDeletionGracePeriodSeconds(current.GetDeletionGracePeriodSeconds())
	return out
}

// newObject returns object as it is stored at first: without a status, and with
// what the server would add.
func newObject(t target, object *unstructured.Unstructured) *unstructured.Unstructured {
	out := object.DeepCopy()
	delete(out.Object, "status")
	switch t.GroupResource() {
	case namespaces:
		out.Object["status"] = map[string]any{"phase": "Active"}
	case secrets:
		if _, found := out.Object["type"]; !found {
			out.Object["type"] = "Opaque"
		}
	}
	return out
}

// readObject reads the body as an object of the target's kind.
func (s *Server) readObject(r *http.Request, t target) (*unstructured.Unstructured, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch mediaType {
	case runtime.ContentTypeProtobuf:
		// What client-go has types of comes like this.
		typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the object: %v", err))
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the object: %v", err))
		}
		if body, err = json.Marshal(content); err != nil {
			return nil, err
		}
	case runtime.ContentTypeJSON, runtime.ContentTypeYAML, "":
	default:
		return nil, unsupported(t, mediaType)
	}
	return s.parseObject(t, body)
}

// parseObject reads JSON or YAML as an object of the target's kind.
func (s *Server) parseObject(t target, body []byte) (*unstructured.Unstructured, error) {
	body, err := yaml.ToJSON(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the object: %v", err))
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &object.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the object: %v", err))
	}
	gvk := object.GroupVersionKind()
	if gvk.Kind == "" || gvk.GroupVersion() != t.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s is not a kind of %s", gvk, t.GroupVersion()))
	}
	if known, found := s.resources.known[t.GroupVersionResource]; found && known.kind != gvk.Kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s is not of kind %s", t.Resource, gvk.Kind))
	}
	if ns := object.GetNamespace(); ns != "" && ns != t.namespace {
		return nil, apierrors.NewBadRequest("the namespace of the object does not match the namespace on the request")
	}
	s.resources.learn(t.GroupResource(), gvk.Kind)
	finishSecret(t, object)
	return object, nil
}

// finishSecret moves stringData to data where object is a Secret.
func finishSecret(t target, object *unstructured.Unstructured) {
	if t.GroupResource() != secrets {
		return
	}
	text, found, err := unstructured.NestedStringMap(object.Object, "stringData")
	if err != nil || !found {
		return
	}
	data, _, _ := unstructured.NestedMap(object.Object, "data")
	if data == nil {
		data = map[string]any{}
	}
	for name, value := range text {
		data[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	object.Object["data"] = data
	delete(object.Object, "stringData")
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
	}
	if len(body) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return body, nil
}

func readDeleteOptions(r *http.Request) (*metav1.DeleteOptions, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) == 0 {
		return options, nil
	}
	if mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); mediaType == runtime.ContentTypeProtobuf {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, options)
	} else {
		// The options are of the group of the object, which may be an unknown one.
		err = json.Unmarshal(body, options)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the options: %v", err))
	}
	return options, nil
}

func dryRun(r *http.Request) bool {
	return r.URL.Query().Get("dryRun") != ""
}

func unsupported(t target, mediaType string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, t.verb, t.GroupResource(), t.name,
		fmt.Sprintf("unsupported media type %q", mediaType), 0, false)
}
