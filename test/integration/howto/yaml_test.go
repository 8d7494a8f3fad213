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

package howto

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/docs"
)

func TestObjectsInThePagesAreValid(t *testing.T) {
	g := NewWithT(t)
	pages, err := docs.Pages(root)
	g.Expect(err).NotTo(HaveOccurred())
	applied := 0
	for _, page := range pages {
		blocks, err := docs.Blocks(root, page)
		g.Expect(err).NotTo(HaveOccurred())
		for _, block := range blocks {
			if block.Language != "yaml" {
				continue
			}
			if block.NotRun != "" {
				t.Logf("%s is not applied: %s", block, block.NotRun)
				continue
			}
			for document := range strings.SplitSeq(block.Text, "---\n") {
				dryRun(t, block, document)
				applied++
			}
		}
	}
	g.Expect(applied).To(BeNumerically(">", 10))
}

// dryRun has the management cluster judge an object. What begins with a spec is a part of
// a policy.
func dryRun(t *testing.T, block docs.Block, document string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
		t.Errorf("%s: %v", block, err)
		return
	}
	if object.GetKind() == "" {
		object.SetGroupVersionKind(fleetv1.GroupVersion.WithKind("FleetRegistrationPolicy"))
	}
	kind := object.GroupVersionKind()
	mapping, err := lab.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) && kind.Group == fleet.GroupVersion.Group {
		t.Logf("%s is not applied: Fleet's %s needs Fleet's own CRDs", block, kind.Kind)
		return
	}
	if err != nil {
		t.Errorf("%s: %v", block, err)
		return
	}
	if object.GetName() == "" {
		object.SetName("shown")
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	err = lab.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner("docs"), client.ForceOwnership, client.DryRunAll)
	if err != nil {
		t.Errorf("%s: %v", block, err)
	}
}
