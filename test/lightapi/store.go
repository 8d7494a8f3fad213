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
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// key names an object among those of its resource. The namespace is empty for a
// resource of the cluster.
type key struct{ namespace, name string }

// record is a stored object. Neither part is ever changed in place.
type record struct {
	object *unstructured.Unstructured
	// applied is the configuration that each field manager applied last.
	applied map[string]map[string]any
}

// event is a change: old is nil for a creation, object says what is there now or,
// if deleted, what was there last.
type event struct {
	version  int64
	resource schema.GroupResource
	old      *unstructured.Unstructured
	object   *unstructured.Unstructured
	deleted  bool
}

// maxEvents is how many changes a watch can go back.
const maxEvents = 4096

// store holds the objects of a Server and the latest changes to them.
type store struct {
	mu      sync.Mutex
	version int64
	records map[schema.GroupResource]map[key]record
	events  []event // a watch reads on from here, so entries are never changed
	dropped int64   // the version of the newest event that is no longer there
	changed chan struct{}
	noUIDs  bool
}

func newStore(noUIDs bool) *store {
	return &store{
		noUIDs:  noUIDs,
		version: 1,
		records: map[schema.GroupResource]map[key]record{},
		changed: make(chan struct{}),
	}
}

// makeNamespaces adds the namespaces of a new cluster and returns the UID of
// kube-system.
func (s *store) makeNamespaces() types.UID {
	var uid types.UID
	for _, name := range []string{"default", "kube-public", "kube-system"} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"status": map[string]any{"phase": "Active"},
		}}
		made, err := s.change(namespaces, key{name: name}, false, func(*record) (*record, error) {
			return &record{object: object}, nil
		})
		if err != nil {
			// Only the function above could fail.
			panic(err)
		}
		uid = made.GetUID()
	}
	return uid
}

// get returns nil if there is no such object.
func (s *store) get(resource schema.GroupResource, k key) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[resource][k].object
}

// list returns the objects of a namespace, or of all if it is empty, by name, and
// the version that the list is of.
func (s *store) list(resource schema.GroupResource, namespace string) ([]*unstructured.Unstructured, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(s.records[resource]), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	var out []*unstructured.Unstructured
	for _, k := range keys {
		if namespace == "" || k.namespace == namespace {
			out = append(out, s.records[resource][k].object)
		}
	}
	return out, s.version
}

// errNoChange is returned by the function given to change to leave things as they
// are.
var errNoChange = errors.New("no change")

// change replaces an object by what next makes of the current one, nil for none on
// either side. It fills in the metadata that is the server's, and returns the
// object as it now is, or as it last was. With dryRun nothing is stored.
func (s *store) change(resource schema.GroupResource, k key, dryRun bool, next func(current *record) (*record, error)) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var current *record
	if found, ok := s.records[resource][k]; ok {
		current = &found
	}
	wanted, err := next(current)
	if errors.Is(err, errNoChange) {
		return current.object, nil
	}
	if err != nil {
		return nil, err
	}
	if wanted == nil {
		return s.remove(resource, k, current.object, dryRun), nil
	}

	object := wanted.object.DeepCopy()
	object.SetName(k.name)
	object.SetNamespace(k.namespace)
	object.SetManagedFields(nil)
	var old *unstructured.Unstructured
	if current == nil {
		object.SetUID(uuid.NewUUID())
		if s.noUIDs {
			object.SetUID("")
		}
		object.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
		object.SetDeletionTimestamp(nil)
		unstructured.RemoveNestedField(object.Object, "metadata", "generation")
		if _, found := object.Object["spec"]; found {
			object.SetGeneration(1)
		}
	} else {
		old = current.object
		keepMetadata(object, old)
		if !reflect.DeepEqual(old.Object["spec"], object.Object["spec"]) {
			object.SetGeneration(old.GetGeneration() + 1)
		}
		if reflect.DeepEqual(old.Object, object.Object) {
			// A real server does not store what is the same either. What a manager
			// applied can differ all the same.
			if !dryRun {
				s.records[resource][k] = record{object: old, applied: wanted.applied}
			}
			return old, nil
		}
		if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
			return s.remove(resource, k, object, dryRun), nil
		}
	}
	if dryRun {
		return object, nil
	}
	s.version++
	object.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if s.records[resource] == nil {
		s.records[resource] = map[key]record{}
	}
	s.records[resource][k] = record{object: object, applied: wanted.applied}
	s.publish(event{version: s.version, resource: resource, old: old, object: object})
	return object, nil
}

// keepMetadata carries over what the server alone decides.
func keepMetadata(object, old *unstructured.Unstructured) {
	object.SetUID(old.GetUID())
	object.SetCreationTimestamp(old.GetCreationTimestamp())
	object.SetResourceVersion(old.GetResourceVersion())
	unstructured.RemoveNestedField(object.Object, "metadata", "generation")
	if generation := old.GetGeneration(); generation > 0 {
		object.SetGeneration(generation)
	}
}

// remove takes object out and, where it is a Namespace, all that is in it.
func (s *store) remove(resource schema.GroupResource, k key, object *unstructured.Unstructured, dryRun bool) *unstructured.Unstructured {
	if dryRun {
		return object
	}
	if resource == namespaces {
		for other, records := range s.records {
			for inside, r := range records {
				if inside.namespace == k.name {
					s.remove(other, inside, r.object, false)
				}
			}
		}
	}
	delete(s.records[resource], k)
	s.version++
	last := object.DeepCopy()
	last.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.publish(event{version: s.version, resource: resource, old: object, object: last, deleted: true})
	return last
}

// markDeleted returns object as it waits for its finalizers.
func markDeleted(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := object.DeepCopy()
	now := metav1.Now().Rfc3339Copy()
	none := int64(0)
	out.SetDeletionTimestamp(&now)
	out.SetDeletionGracePeriodSeconds(&none)
	return out
}

// publish wakes the watches up.
func (s *store) publish(e event) {
	if len(s.events) >= maxEvents {
		half := len(s.events) / 2
		s.dropped = s.events[half-1].version
		s.events = slices.Clone(s.events[half:])
	}
	s.events = append(s.events, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// since returns the changes after version, and a channel that is closed at the
// next one. A version from too long ago is an Expired error.
func (s *store) since(version int64) ([]event, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.dropped {
		return nil, nil, apierrors.NewResourceExpired("too old resource version")
	}
	first, _ := slices.BinarySearchFunc(s.events, version+1, func(e event, v int64) int {
		return cmp.Compare(e.version, v)
	})
	return s.events[first:], s.changed, nil
}
