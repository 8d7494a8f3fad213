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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestMerged(t *testing.T) {
	for _, tt := range []struct{ name, live, desired, merged string }{
		{"the same", `{"a":{"b":[{"name":"c"}]}}`, `{"a":{"b":[{"name":"c"}]}}`, `{"a":{"b":[{"name":"c"}]}}`},
		{"what others added stays", `{"a":{"b":1,"theirs":2},"theirs":{}}`, `{"a":{"b":2}}`, `{"a":{"b":2,"theirs":2},"theirs":{}}`},
		{"what is missing", `{}`, `{"a":{"b":1},"c":[1]}`, `{"a":{"b":1},"c":[1]}`},
		{"another type", `{"a":[],"b":"x"}`, `{"a":{"b":1},"b":[1]}`, `{"a":{"b":1},"b":[1]}`},
		{"an empty object is no deletion", `{"b":{"c":1}}`, `{"a":{},"b":{}}`, `{"a":{},"b":{"c":1}}`},
		{"a list is a whole", `{"a":[1,2]}`, `{"a":[2]}`, `{"a":[2]}`},
		{"an entry keeps what others gave it", `{"a":[{"name":"n","v":1,"theirs":{"x":1}},{"name":"gone"}]}`,
			`{"a":[{"name":"n","v":2},{"name":"new"}]}`, `{"a":[{"name":"n","v":2,"theirs":{"x":1}},{"name":"new"}]}`},
		{"at any depth of it", `{"a":[{"name":"n","m":{"theirs":1},"l":[{"name":"e","theirs":1}]}]}`,
			`{"a":[{"name":"n","m":{"ours":1},"l":[{"name":"e","ours":1}]}]}`,
			`{"a":[{"name":"n","m":{"ours":1,"theirs":1},"l":[{"name":"e","ours":1,"theirs":1}]}]}`},
		{"entries without a name", `{"a":[{"x":1}]}`, `{"a":[{"y":1}]}`, `{"a":[{"y":1}]}`},
		{"settings of another kind of object", `{"kind":"ConfigMap","spec":{"strategy":1}}`, `{"kind":"ConfigMap"}`, `{"kind":"ConfigMap","spec":{"strategy":1}}`},
	} {
		g := NewWithT(t)
		var live, desired map[string]any
		g.Expect(json.Unmarshal([]byte(tt.live), &live)).To(Succeed())
		g.Expect(json.Unmarshal([]byte(tt.desired), &desired)).To(Succeed())
		merged := Merged(live, desired)
		content, err := json.Marshal(merged)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(content).To(MatchJSON(tt.merged), tt.name)
		g.Expect(Contains(merged, desired)).To(BeTrue(), tt.name)
		before, err := json.Marshal(live)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(before).To(MatchJSON(tt.live), "%s: live is changed", tt.name)
	}
}

func TestWithdrawnSettingsAreGoneWhereNothingTellsWhoSetThem(t *testing.T) {
	object := func(in Input) map[string]any {
		in.RegistrationID = minimal().RegistrationID
		obj, err := ToUnstructured(deployment(in))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return obj.Object
	}
	for from, live := range goldenInputs() {
		for to, desired := range goldenInputs() {
			NewWithT(t).Expect(Merged(object(live), object(desired))).To(Equal(object(desired)), "from %s to %s", from, to)
		}
	}
	g := NewWithT(t)
	theirs := object(everything())
	g.Expect(unstructured.SetNestedField(theirs, int64(7), "spec", "template", "spec", "terminationGracePeriodSeconds")).To(Succeed())
	merged := Merged(theirs, object(minimal()))
	kept, _, _ := unstructured.NestedInt64(merged, "spec", "template", "spec", "terminationGracePeriodSeconds")
	g.Expect(kept).To(Equal(int64(7)), "no setting of ours")
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
