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

package written

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyStatus applies the status, a pointer to a struct, of one of capi-fleet's own
// objects, and gives obj the resource version that comes of it. Of obj it uses only
// kind, key and UID: an object of that name that was made anew is not touched. A
// field that the field owner applied before and leaves out now is removed.
//
// Errors are the API server's, wrapped: not found where the object is gone, a
// conflict where it is another one or where a field is someone else's.
func ApplyStatus(ctx context.Context, c client.Client, obj client.Object, status any, owner client.FieldOwner, opts ...client.SubResourceApplyOption) error {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return fmt.Errorf("finding the kind of %s: %w", client.ObjectKeyFromObject(obj), err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("converting the status of %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": obj.GetNamespace(), "name": obj.GetName(), "uid": string(obj.GetUID())},
		"status":   content,
	}}
	u.SetGroupVersionKind(gvk)
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), append(opts, owner)...); err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	obj.SetResourceVersion(u.GetResourceVersion())
	return nil
}
