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

package targeting

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// Target is what should be on a Fleet Cluster.
type Target struct {
	Labels, Annotations map[string]string
	Values              map[string]apiextensionsv1.JSON
	Paused              bool
	// Class is the ClusterClass whose group the Fleet Cluster is in, nil where it is in
	// none.
	Class *Class
	// Stay keeps the Fleet Cluster in the group that it is in: the labels of a ClusterClass
	// that are there stay, whatever Labels has.
	Stay bool
	// Full says that Labels lacks those of the Cluster, which are too large. What is there
	// stays as it is: a label that goes uninstalls.
	Full bool
}

// Problem is something that keeps a Fleet Cluster from being all that its policy asks for.
// Reason is one of the condition Targeted.
type Problem struct{ Reason, Message string }

// Resolve returns what should be on the Fleet Cluster of a Cluster, in namespace, and what
// of it cannot be had, what matters most first.
func Resolve(settings fleetv1.TargetingSettings, cluster *clusterv1.Cluster, namespace string) (Target, []Problem) {
	var problems []Problem
	class, problem := ClassOf(settings, cluster, namespace)
	if problem != nil {
		problems = append(problems, *problem)
	}
	labels, full := labels(settings, cluster, namespace, problem == nil)
	if full {
		problems = append(problems, Problem{fleetv1.LabelsTooLargeReason,
			"The labels of the Cluster that spec.targeting.labels includes are too large together; those that are on the Fleet Cluster stay as they are"})
	}
	values, missing := resolveValues(settings.Values, cluster)
	if missing != nil {
		problems = append(problems, *missing)
	}
	annotations, left := annotations(settings.Annotations, cluster, namespace == cluster.Namespace)
	if len(left) > 0 {
		problems = append(problems, Problem{fleetv1.AnnotationsTooLargeReason,
			"The annotations of the Cluster that spec.targeting.annotations includes are too large together; some are left out"})
	}
	return Target{
		Labels:      labels,
		Annotations: annotations,
		Values:      values,
		Paused:      settings.Paused,
		Class:       class,
		Stay:        problem != nil,
		Full:        full,
	}, problems
}

// StayOut returns the target of a Fleet Cluster that is kept out of the group of its
// ClusterClass, which cannot be had. One that is in no group gets the labels of the class
// nevertheless; not so where Clusters of other namespaces are, which could get into a group
// of somebody else.
func (t Target) StayOut() Target {
	t.Stay = true
	if t.Class.Shared {
		t.Labels = merged(t.Labels, nil)
		maps.DeleteFunc(t.Labels, func(key, _ string) bool { return slices.Contains(classKeys, key) })
	}
	t.Class = nil
	return t
}

// Record is what capi-fleet put on an object, and so may take away. It is the value of
// the annotation fleetv1.PropagatedAnnotation.
type Record struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	Values      []string `json:"values,omitempty"`
	Paused      bool     `json:"paused,omitempty"`
	// Class is the ClusterClass that a ClusterGroup is for, see Class.ID, and Shared says
	// for which Clusters of it, see Class.
	Class  string `json:"class,omitempty"`
	Shared bool   `json:"shared,omitempty"`
}

// ReadRecord returns the record of an object. It tells whether there is one that can be
// read.
func ReadRecord(annotations map[string]string) (Record, bool) {
	var record Record
	value, ok := annotations[fleetv1.PropagatedAnnotation]
	if !ok || json.Unmarshal([]byte(value), &record) != nil {
		return Record{}, false
	}
	return record, true
}

func (r Record) String() string {
	content, err := json.Marshal(r)
	if err != nil {
		panic(err) // It holds plain values only.
	}
	return string(content)
}

func (r Record) empty() bool { return reflect.DeepEqual(r, Record{}) }

// Put puts all of it on a Fleet Cluster that is about to be made, but for the labels of a
// ClusterClass whose group is shared with Clusters of other namespaces: one that is made for
// others meanwhile would have it. They come with Patch, once the right one is there.
func (t Target) Put(cluster *fleet.Cluster) {
	if t.Class != nil && t.Class.Shared {
		t = t.StayOut()
	}
	cluster.Labels = merged(cluster.Labels, t.Labels)
	cluster.Annotations = merged(cluster.Annotations, t.Annotations)
	cluster.Spec.TemplateValues = maps.Clone(t.Values)
	cluster.Spec.Paused = t.Paused
	if record := t.record(&fleet.Cluster{}, Record{}); !record.empty() {
		cluster.Annotations[fleetv1.PropagatedAnnotation] = record.String()
	}
}

// Patch returns a merge patch that brings a Fleet Cluster in line, nil where it is. What
// others put there stays.
func (t Target) Patch(live *fleet.Cluster) map[string]any {
	before, _ := ReadRecord(live.Annotations)
	t.Labels = t.labelsOn(live, before)
	metadata, spec := map[string]any{}, map[string]any{}
	annotations := Changes(live.Annotations, t.Annotations, before.Annotations)
	if record := t.record(live, before); !record.empty() {
		if value := record.String(); live.Annotations[fleetv1.PropagatedAnnotation] != value {
			annotations[fleetv1.PropagatedAnnotation] = value
		}
	} else if _, ok := live.Annotations[fleetv1.PropagatedAnnotation]; ok {
		annotations[fleetv1.PropagatedAnnotation] = nil
	}
	set(metadata, "labels", Changes(live.Labels, t.Labels, before.Labels))
	set(metadata, "annotations", annotations)
	set(spec, "templateValues", valueChanges(live.Spec.TemplateValues, t.Values, before.Values))
	switch {
	case t.Paused && !live.Spec.Paused:
		spec["paused"] = true
	case !t.Paused && before.Paused && live.Spec.Paused:
		spec["paused"] = false
	}
	patch := map[string]any{}
	set(patch, "metadata", metadata)
	set(patch, "spec", spec)
	if len(patch) == 0 {
		return nil
	}
	return patch
}

// On returns the target for a Fleet Cluster that is there, with the labels that stay on it.
func (t Target) On(live *fleet.Cluster) Target {
	before, _ := ReadRecord(live.Annotations)
	t.Labels = t.labelsOn(live, before)
	return t
}

// labelsOn returns the labels of a Fleet Cluster that is there.
func (t Target) labelsOn(live *fleet.Cluster, before Record) map[string]string {
	labels := merged(t.Labels, nil)
	if t.Stay && LabelledClass(live.Labels) != "" {
		for _, key := range classKeys {
			delete(labels, key)
		}
	}
	for _, key := range before.Labels {
		_, wanted := labels[key]
		value, there := live.Labels[key]
		if there && !wanted && (t.Full && !Reserved(key) || t.Stay && slices.Contains(classKeys, key)) {
			labels[key] = value
		}
	}
	return labels
}

// record returns what will be ours on a Fleet Cluster. One that somebody else paused is
// not ours to unpause.
func (t Target) record(live *fleet.Cluster, before Record) Record {
	return Record{
		Labels:      sortedKeys(t.Labels),
		Annotations: sortedKeys(t.Annotations),
		Values:      sortedKeys(t.Values),
		Paused:      t.Paused && (before.Paused || !live.Spec.Paused),
	}
}

// Changes returns what a merge patch has to say of labels or annotations: those wanted
// that differ, and nil for those that were ours and are wanted no more.
func Changes(live, want map[string]string, ours []string) map[string]any {
	changes := map[string]any{}
	for key, value := range want {
		if got, ok := live[key]; !ok || got != value {
			changes[key] = value
		}
	}
	for _, key := range ours {
		_, wanted := want[key]
		if _, there := live[key]; there && !wanted && removable(key) {
			changes[key] = nil
		}
	}
	return changes
}

// removable tells whether capi-fleet can have put a key there. The record is an annotation
// that others can write, and must not make us take off what keeps the Fleet Cluster ours.
func removable(key string) bool {
	return !Reserved(key) || slices.Contains([]string{
		fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel, fleet.ShardRefLabel, fleet.ClusterDisplayNameLabel,
	}, key)
}

func valueChanges(live, want map[string]apiextensionsv1.JSON, ours []string) map[string]any {
	changes := map[string]any{}
	for name, value := range want {
		if got, ok := live[name]; !ok || !sameJSON(got.Raw, value.Raw) {
			changes[name] = json.RawMessage(value.Raw)
		}
	}
	for _, name := range ours {
		_, wanted := want[name]
		if _, there := live[name]; there && !wanted {
			changes[name] = nil
		}
	}
	return changes
}

// sameJSON tells whether a value, which is a string, a number or a boolean, says the same
// as what is there. The API server may write a number in another way than it was sent.
func sameJSON(there, value []byte) bool {
	if bytes.Equal(there, value) {
		return true
	}
	x, y := decoded(there), decoded(value)
	if m, ok := x.(json.Number); ok {
		n, ok := y.(json.Number)
		return ok && sameNumber(string(m), string(n))
	}
	return x != nil && reflect.DeepEqual(x, y)
}

func decoded(document []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// sameNumber compares numbers exactly, where a float64 would make one of two that differ.
func sameNumber(a, b string) bool {
	const bits = 256
	x, _, errX := big.ParseFloat(a, 10, bits, big.ToNearestEven)
	y, _, errY := big.ParseFloat(b, 10, bits, big.ToNearestEven)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

func set(in map[string]any, key string, value map[string]any) {
	if len(value) > 0 {
		in[key] = value
	}
}

func merged(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
