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

package agent

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

func TestContains(t *testing.T) {
	const desired = `{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"replicas":1,"empty":{},"list":[{"name":"c","env":[{"name":"E"}]}]}}`
	for _, tt := range []struct {
		name, live string
		want       bool
	}{
		{"the same", desired, true},
		{"with defaults and others' additions", `{"metadata":{"name":"a","uid":"u","labels":{"x":"1","y":"2"}},"status":{},
			"spec":{"replicas":1,"empty":{"default":true},"list":[{"name":"c","port":1,"env":[{"name":"E","value":"v"}]}]}}`, true},
		{"a value differs", `{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"replicas":0,"empty":{},"list":[{"name":"c","env":[{"name":"E"}]}]}}`, false},
		{"a label is gone", `{"metadata":{"name":"a"},"spec":{"replicas":1,"empty":{},"list":[{"name":"c","env":[{"name":"E"}]}]}}`, false},
		{"an empty object is gone", `{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"replicas":1,"list":[{"name":"c","env":[{"name":"E"}]}]}}`, false},
		{"a list is longer", `{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"replicas":1,"empty":{},"list":[{"name":"c","env":[{"name":"E"}]},{}]}}`, false},
		{"a list is shorter", `{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"replicas":1,"empty":{},"list":[]}}`, false},
		{"deep in a list", `{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"replicas":1,"empty":{},"list":[{"name":"c","env":[{"name":"F"}]}]}}`, false},
		{"of another kind", `{"metadata":[],"spec":"x"}`, false},
	} {
		var live, want map[string]any
		g := NewWithT(t)
		g.Expect(json.Unmarshal([]byte(tt.live), &live)).To(Succeed())
		g.Expect(json.Unmarshal([]byte(desired), &want)).To(Succeed())
		g.Expect(Contains(live, want)).To(Equal(tt.want), tt.name)
	}
}
