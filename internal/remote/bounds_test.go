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

package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// list returns a list of that kind with n items, each as given.
func list(apiVersion, kind, item string, n int) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"items":[%s]}`, apiVersion, kind, strings.TrimSuffix(strings.Repeat(item+",", n), ","))
}

// releaseMetadata is that of a Secret that Helm stored a revision in.
const releaseMetadata = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{` +
	`"name":"sh.helm.release.v1.monitoring-stack.v12","namespace":"monitoring","uid":"6d6f4c0e-9a3b-4c1d-8e2f-0a1b2c3d4e5f",` +
	`"resourceVersion":"123456","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"modifiedAt":"1767323045","name":"monitoring-stack",` +
	`"owner":"helm","status":"superseded","version":"12"},"managedFields":[{"manager":"fleetagent","operation":"Update","apiVersion":"v1",` +
	`"time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:release":{}},"f:metadata":{"f:labels":{".":{},` +
	`"f:modifiedAt":{},"f:name":{},"f:owner":{},"f:status":{},"f:version":{}}},"f:type":{}}},{"manager":"backup","operation":"Update",` +
	`"apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:backup":{}}}}}]}}`

func TestTheLargestAnswersThatAreAskedForAreRead(t *testing.T) {
	const pages = 500 // Secrets in one page
	s := server(t, reply(200, jsonType, list("meta.k8s.io/v1", "PartialObjectMetadataList", releaseMetadata, pages)))
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := connect(t, dialer(), kubeconfig(t, s)).List(t.Context(), page); err != nil || len(page.Items) != pages {
		t.Errorf("got %d Secrets and error %v", len(page.Items), err)
	}

	release := strings.Repeat("x", 1<<20)
	s = server(t, reply(200, jsonType, fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"release":%q}}`,
		strings.Repeat("eHh4", 1<<20/3))))
	got := &corev1.Secret{}
	if err := connect(t, dialer(), kubeconfig(t, s)).Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "s"}, got); err != nil ||
		string(got.Data["release"]) != release[:len(release)/3*3] {
		t.Errorf("got %d bytes and error %v", len(got.Data["release"]), err)
	}

	container := `{"name":"c","env":[` + strings.TrimSuffix(strings.Repeat(`{"name":"E","value":"v"},`, 50), ",") + `]}`
	pod := `{"metadata":{"name":"p"},"spec":{"containers":[` + container + "," + container + "," + container + `]}}`
	s = server(t, reply(200, jsonType, list("v1", "PodList", pod, 20)))
	pods := &corev1.PodList{}
	if err := connect(t, dialer(), kubeconfig(t, s)).List(t.Context(), pods); err != nil || len(pods.Items) != 20 {
		t.Errorf("got %d pods and error %v", len(pods.Items), err)
	}
}

func TestAServerThatAnswersMetadataWithWholeObjectsIsUnderstood(t *testing.T) {
	s := server(t, reply(200, jsonType, list("v1", "SecretList", `{"metadata":{"name":"a"},"data":{"x":"eA=="}}`, 2)))
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := connect(t, dialer(), kubeconfig(t, s)).List(t.Context(), page); err != nil || len(page.Items) != 2 {
		t.Errorf("got %d Secrets and error %v", len(page.Items), err)
	}
}

// TestAnAnswerCostsLittleMemoryWhateverItHolds measures the garbage as well, so the
// bound is many times of what is held at once.
func TestAnAnswerCostsLittleMemoryWhateverItHolds(t *testing.T) {
	const allowed = 192 << 20
	deep := strings.Repeat(`{"":`, 1<<19) + "1" + strings.Repeat("}", 1<<19)
	for name, tc := range map[string]struct {
		body, reason string
		into         client.ObjectList
	}{
		"pods of nothing":               {list("v1", "PodList", "{}", 1200_000), fleetv1.ResponseTooLargeReason, &corev1.PodList{}},
		"as many pods as are let in":    {list("v1", "PodList", "{}", maxEntries-1), "", &corev1.PodList{}},
		"deployments for pods":          {list("apps/v1", "DeploymentList", "{}", maxEntries-1), fleetv1.NotKubernetesReason, &corev1.PodList{}},
		"containers of nothing":         {list("v1", "PodList", `{"spec":{"containers":[`+strings.Repeat("{},", 1200_000)+`{}]}}`, 1), fleetv1.ResponseTooLargeReason, &corev1.PodList{}},
		"labels":                        {list("v1", "PodList", `{"metadata":{"labels":{`+strings.Repeat(`"":"",`, 500_000)+`"":""}}}`, 1), fleetv1.ResponseTooLargeReason, &corev1.PodList{}},
		"nesting":                       {list("v1", "PodList", `{"metadata":{"managedFields":[{"fieldsV1":`+deep+`}]}}`, 1), fleetv1.ResponseTooLargeReason, &corev1.PodList{}},
		"values in a list of values":    {`{"apiVersion":"v1","kind":"PodList","items":[],"x":[` + strings.Repeat("1,", 1<<20) + `1]}`, fleetv1.ResponseTooLargeReason, &corev1.PodList{}},
		"quotes that hide what follows": {list("v1", "PodList", `{"metadata":{"name":"\\\""}},{}`, 600_000), fleetv1.ResponseTooLargeReason, &corev1.PodList{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, reply(200, jsonType, tc.body))
			c := connect(t, dialer(), kubeconfig(t, s))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := c.List(t.Context(), tc.into)
			runtime.ReadMemStats(&after)
			if tc.reason == "" && err != nil {
				t.Error(err)
			}
			if tc.reason != "" {
				expectReason(t, err, tc.reason)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > allowed {
				t.Errorf("allocated %d MiB for an answer of %d KiB", used>>20, len(tc.body)>>10)
			} else {
				t.Logf("%d MiB", used>>20)
			}
		})
	}
}

func TestLookingAtAnAnswerAllocatesNothing(t *testing.T) {
	body := []byte(list("meta.k8s.io/v1", "PartialObjectMetadataList", releaseMetadata, 500))
	if n := testing.AllocsPerRun(10, func() { withinBounds(body) }); n != 0 {
		t.Errorf("got %v allocations", n)
	}
}

func BenchmarkHostileList(b *testing.B) {
	body := list("v1", "PodList", "{}", 1200_000)
	s := server(b, reply(200, jsonType, body))
	c, err := dialer().Connect(kubeconfig(b, s))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		_ = c.List(context.Background(), &corev1.PodList{})
	}
}

// FuzzWithinBounds checks the bounds against a decoder that builds the values.
func FuzzWithinBounds(f *testing.F) {
	for _, seed := range []string{`{}`, `[]`, `[[],{"a":[1,"\"",{"b":null}]}]`, `"\\"`, `{"a":"[[[[","b":[`, `]]]]`, releaseMetadata,
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		within := withinBounds(body)
		var value any
		if json.Unmarshal(body, &value) != nil {
			return
		}
		values, entries, depth := count(value)
		if within && (values > maxValues+1 || entries > maxEntries || depth > maxDepth) {
			t.Errorf("let in %d values, %d entries, %d levels", values, entries, depth)
		}
	})
}

// count counts all values, those in lists, and how deep they are nested.
func count(value any) (values, entries, depth int) {
	values = 1
	below := func(v any) {
		n, e, d := count(v)
		values, entries, depth = values+n, entries+e, max(depth, d)
	}
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			below(v)
		}
	case []any:
		entries += len(value)
		for _, v := range value {
			below(v)
		}
	default:
		return values, entries, depth
	}
	return values, entries, depth + 1
}
