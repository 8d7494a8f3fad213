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

package registration

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// What a workload cluster needs whose API server knows no server-side apply: the one of
// Cluster API's in-memory provider, or a real one behind a proxy that stops it.

// mergeInto creates an object, or patches what differs from it. Of what was written before
// and is not wanted any more it takes away what agent.Merged does.
func mergeInto(ctx context.Context, workload *remote.Client, desired *unstructured.Unstructured) (wrote bool, err error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(desired.GroupVersionKind())
	found, err := get(ctx, workload, client.ObjectKeyFromObject(desired), live)
	if err != nil {
		return false, err
	}
	if !found {
		err = workload.Create(ctx, desired.DeepCopy(), client.FieldOwner(upstream.FieldOwner))
		return err == nil, err
	}
	if agent.Contains(live.Object, desired.Object) {
		return false, nil
	}
	merged := &unstructured.Unstructured{Object: agent.Merged(live.Object, desired.Object)}
	err = workload.Patch(ctx, merged, client.MergeFrom(live), client.FieldOwner(upstream.FieldOwner))
	return err == nil, err
}

// notServedInMemory tells whether the in-memory provider's API server does not know the
// kind of obj. It answers that with 500, which from any other server is an error of its
// own: that it knows no server-side apply tells it apart.
func notServedInMemory(ctx context.Context, workload *remote.Client, obj client.Object, err error) bool {
	if statusCode(err) != http.StatusInternalServerError {
		return false
	}
	desired, err := agent.ToUnstructured(obj)
	if err != nil {
		return false
	}
	err = workload.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
		client.FieldOwner(upstream.FieldOwner), client.ForceOwnership, client.DryRunAll)
	return apierrors.IsUnsupportedMediaType(err)
}
