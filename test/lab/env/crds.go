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

package env

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// clusterAPIVersion is the one version of Cluster API's kinds that the lab serves:
// the others need a conversion webhook, which does not run here.
const clusterAPIVersion = "v1beta2"

// clusterctlLabel is put on CRDs by clusterctl init. It moves only what has it.
const clusterctlLabel = "clusterctl.cluster.x-k8s.io"

// clusterAPICRDs returns the CRDs of Cluster API's core from the folder of its Go
// module.
func clusterAPICRDs(moduleDir string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := filepath.Glob(filepath.Join(moduleDir, "core", "config", "crd", "bases", "cluster.x-k8s.io_*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no CRDs of Cluster API below %s", moduleDir)
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(files))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		crd.Spec.Conversion = nil
		crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name != clusterAPIVersion
		})
		if len(crd.Spec.Versions) == 0 {
			continue
		}
		crd.Labels = map[string]string{clusterctlLabel: ""}
		crds = append(crds, crd)
	}
	return crds, nil
}

// fleetCRDs returns CRDs for Fleet's kinds: the full ones from file, or, where file
// is empty, minimal ones which keep whatever is written to them.
func fleetCRDs(file string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if file == "" {
		return minimalFleetCRDs(), nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the CRDs of Fleet: %w", err)
	}
	objects, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("reading the CRDs of Fleet from %s: %w", file, err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crd, err := toCRD(object)
		if err != nil {
			return nil, fmt.Errorf("reading the CRDs of Fleet from %s: %w", file, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

func minimalFleetCRDs() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{
		minimalCRD(fleet.GroupVersion, "Cluster", "clusters", apiextensionsv1.NamespaceScoped),
		minimalCRD(fleet.GroupVersion, "ClusterGroup", "clustergroups", apiextensionsv1.NamespaceScoped),
		minimalCRD(fleet.GroupVersion, "Bundle", "bundles", apiextensionsv1.NamespaceScoped),
		minimalCRD(fleet.GroupVersion, "BundleDeployment", "bundledeployments", apiextensionsv1.NamespaceScoped),
		minimalCRD(fleet.GroupVersion, "BundleNamespaceMapping", "bundlenamespacemappings", apiextensionsv1.NamespaceScoped),
		minimalCRD(fleet.GroupVersion, "Content", "contents", apiextensionsv1.ClusterScoped),
	}
}

// minimalCRD keeps whatever is written to the kind.
func minimalCRD(version schema.GroupVersion, kind, plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	root := apiextensionsv1.JSONSchemaProps{
		Type:                   "object",
		XPreserveUnknownFields: ptr.To(true),
		Properties:             map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
	}
	singular := plural[:len(plural)-1]
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + version.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: version.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: singular},
			Scope: scope,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version.Version, Served: true, Storage: true,
				Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

func toCRD(object *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	content, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, yaml.Unmarshal(content, crd)
}
