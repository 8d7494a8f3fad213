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
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lag is how long a cache may be behind. What was written before that is forgotten: no
// event brings back a version that a restore of the API server's database has lost.
const Lag = time.Minute

// Versions are the versions written last of objects of one kind. The zero value is
// empty and ready. It must not be copied.
type Versions struct {
	versions sync.Map // types.NamespacedName ► version
}

type version struct {
	resource string
	noted    time.Time
}

// Note notes an object as the API server returned it from a write, now.
func (v *Versions) Note(obj client.Object, now time.Time) {
	v.versions.Store(client.ObjectKeyFromObject(obj), version{obj.GetResourceVersion(), now})
}

// Forget forgets an object that is gone.
func (v *Versions) Forget(key types.NamespacedName) { v.versions.Delete(key) }

// NewerThan tells whether obj, from the cache, is older than what was written last.
// The event that brings the cache up to date then brings another reconcile; for where
// none comes, look again after Lag.
func (v *Versions) NewerThan(obj client.Object, now time.Time) bool {
	key := client.ObjectKeyFromObject(obj)
	known, ok := v.versions.Load(key)
	if !ok {
		return false
	}
	last := known.(version)
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), last.resource)
	if err == nil && order < 0 && now.Sub(last.noted) < Lag {
		return true
	}
	v.versions.Delete(key)
	return false
}
