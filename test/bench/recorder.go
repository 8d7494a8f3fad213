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

package main

import (
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// recorder keeps when each cluster took which step, as a lab tells it.
type recorder struct {
	mu    sync.Mutex
	steps map[client.ObjectKey]map[env.Step]time.Time
}

func (r *recorder) record(event env.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.steps == nil {
		r.steps = map[client.ObjectKey]map[env.Step]time.Time{}
	}
	if r.steps[event.Cluster] == nil {
		r.steps[event.Cluster] = map[env.Step]time.Time{}
	}
	r.steps[event.Cluster][event.Step] = event.Time
}

// at returns when a cluster took the step.
func (r *recorder) at(key client.ObjectKey, step env.Step) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, taken := r.steps[key][step]
	return at, taken
}

// all returns those who took the step.
func (r *recorder) all(step env.Step) []client.ObjectKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []client.ObjectKey
	for key, steps := range r.steps {
		if _, taken := steps[step]; taken {
			keys = append(keys, key)
		}
	}
	return keys
}

// inPlace returns how long after the first answer of its API server all was in place in a
// cluster.
func (r *recorder) inPlace(key client.ObjectKey) (time.Duration, error) {
	answered, ok := r.at(key, env.APIAnswers)
	placed, both := r.at(key, env.CredentialInPlace)
	if !ok || !both {
		return 0, fmt.Errorf("nobody saw when %s was in place", key)
	}
	return placed.Sub(answered), nil
}

// forget makes clusters ones that were never seen.
func (r *recorder) forget(keys ...client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		delete(r.steps, key)
	}
}
