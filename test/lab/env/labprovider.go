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
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Where Cluster API's core runs, the lab is its infrastructure and control plane provider:
// each Cluster refers to an object of these kinds, and core reads from their status what is
// written straight into that of the Cluster otherwise.
var (
	labClusterKind      = clusterv1.GroupVersionInfrastructure.WithKind("LabCluster")
	labControlPlaneKind = clusterv1.GroupVersionControlPlane.WithKind("LabControlPlane")
)

// labProviderCRDs returns the CRDs of the lab's kinds, which say what version of Cluster
// API's contract they are made for.
func labProviderCRDs() []*apiextensionsv1.CustomResourceDefinition {
	crds := []*apiextensionsv1.CustomResourceDefinition{
		minimalCRD(labClusterKind.GroupVersion(), labClusterKind.Kind, "labclusters", apiextensionsv1.NamespaceScoped),
		minimalCRD(labControlPlaneKind.GroupVersion(), labControlPlaneKind.Kind, "labcontrolplanes", apiextensionsv1.NamespaceScoped),
	}
	for _, crd := range crds {
		crd.Labels = map[string]string{
			clusterctlLabel: "",
			clusterv1.GroupVersion.Group + "/v1beta2": crd.Spec.Versions[0].Name,
		}
	}
	return crds
}

// refer has the Cluster refer to an object of each of the lab's kinds, and makes those.
func (w *Workload) refer(ctx context.Context, cluster *clusterv1.Cluster) error {
	for _, kind := range []schema.GroupVersionKind{labClusterKind, labControlPlaneKind} {
		o := w.providerObject(kind)
		if err := w.lab.Client.Create(ctx, o, fieldOwner); err != nil {
			return fmt.Errorf("creating %s %s: %w", kind.Kind, o.GetName(), err)
		}
	}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: labClusterKind.Group, Kind: labClusterKind.Kind, Name: w.Name,
	}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: labControlPlaneKind.Group, Kind: labControlPlaneKind.Kind, Name: w.Name,
	}
	return nil
}

// tellCore sets a field of status.initialization of one of the lab's kinds. An object that
// is gone is no error.
func (w *Workload) tellCore(ctx context.Context, kind schema.GroupVersionKind, field string) error {
	o := w.providerObject(kind)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"initialization":{"`+field+`":true}}}`))
	if err := w.lab.Client.Status().Patch(ctx, o, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of %s %s: %w", kind.Kind, o.GetName(), err)
	}
	return nil
}

func (w *Workload) providerObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(w.Namespace)
	o.SetName(w.Name)
	return o
}
