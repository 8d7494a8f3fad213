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

package suite

import (
	"testing"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// NewManager makes a manager that ends with the test.
func NewManager(t *testing.T, lab *env.Lab, name string, args ...string) *env.Manager {
	t.Helper()
	manager, err := lab.NewManager(t.Context(), t.Name()+"-"+name, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Stop(); err != nil {
			t.Error(err)
		}
	})
	return manager
}

// StartManager starts a manager that ends with the test.
func StartManager(t *testing.T, lab *env.Lab, args ...string) *env.Manager {
	t.Helper()
	manager := NewManager(t, lab, "manager", args...)
	if err := manager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return manager
}
