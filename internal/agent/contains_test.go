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

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
)

func TestDifference(t *testing.T) {
	for _, tt := range []struct{ name, live, desired, patch string }{
		{"the same", `{"a":{"b":[{"name":"c"}]}}`, `{"a":{"b":[{"name":"c"}]}}`, `{}`},
		{"what others added stays", `{"a":{"b":1,"theirs":2},"theirs":{}}`, `{"a":{"b":1}}`, `{}`},
		{"only what differs", `{"a":{"b":1,"c":1,"theirs":2}}`, `{"a":{"b":1,"c":2}}`, `{"a":{"c":2}}`},
		{"what is missing", `{}`, `{"a":{"b":1},"c":[1]}`, `{"a":{"b":1},"c":[1]}`},
		{"another type", `{"a":[],"b":"x"}`, `{"a":{"b":1},"b":[1]}`, `{"a":{"b":1},"b":[1]}`},
		{"an empty object is no deletion", `{}`, `{"a":{}}`, `{"a":{}}`},
		{"a list is a whole", `{"a":[1,2]}`, `{"a":[2]}`, `{"a":[2]}`},
		{"an entry keeps what others gave it", `{"a":[{"name":"n","v":1,"theirs":{"x":1}},{"name":"gone"}]}`,
			`{"a":[{"name":"n","v":2},{"name":"new"}]}`, `{"a":[{"name":"n","v":2,"theirs":{"x":1}},{"name":"new"}]}`},
		{"at any depth of it", `{"a":[{"name":"n","m":{"theirs":1},"l":[{"name":"e","theirs":1}]}]}`,
			`{"a":[{"name":"n","m":{"ours":1},"l":[{"name":"e","ours":1}]}]}`,
			`{"a":[{"name":"n","m":{"ours":1,"theirs":1},"l":[{"name":"e","ours":1,"theirs":1}]}]}`},
		{"entries without a name", `{"a":[{"x":1}]}`, `{"a":[{"y":1}]}`, `{"a":[{"y":1}]}`},
	} {
		g := NewWithT(t)
		var live, desired map[string]any
		g.Expect(json.Unmarshal([]byte(tt.live), &live)).To(Succeed())
		g.Expect(json.Unmarshal([]byte(tt.desired), &desired)).To(Succeed())
		patch, err := json.Marshal(Difference(live, desired))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(patch).To(MatchJSON(tt.patch), tt.name)
		merged, err := jsonpatch.MergePatch([]byte(tt.live), patch)
		g.Expect(err).NotTo(HaveOccurred())
		var after map[string]any
		g.Expect(json.Unmarshal(merged, &after)).To(Succeed())
		g.Expect(Contains(after, desired)).To(BeTrue(), tt.name)
		g.Expect(Difference(after, desired)).To(BeEmpty(), tt.name)
	}
}

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
