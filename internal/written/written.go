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

// Package written writes the status of capi-fleet's own objects, and remembers which
// version of an object a controller wrote last. The cache may show an older one for a
// moment, and what is decided on that would be written twice. Controllers ask it
// before they act on what they read. It never decides what is written.
package written

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Versions are the versions written last of objects of one kind. The zero value is
// empty and ready. It must not be copied.
type Versions struct {
	versions sync.Map // types.NamespacedName ► resource version
}

// Note notes an object as the API server returned it from a write.
func (v *Versions) Note(obj client.Object) {
	v.versions.Store(client.ObjectKeyFromObject(obj), obj.GetResourceVersion())
}

// Forget forgets an object that is gone.
func (v *Versions) Forget(key types.NamespacedName) { v.versions.Delete(key) }

// NewerThan tells whether obj, from the cache, is older than what was written last.
// The event that brings the cache up to date then brings another reconcile.
func (v *Versions) NewerThan(obj client.Object) bool {
	key := client.ObjectKeyFromObject(obj)
	version, ok := v.versions.Load(key)
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), version.(string))
	if err == nil && order < 0 {
		return true
	}
	v.versions.Delete(key)
	return false
}
