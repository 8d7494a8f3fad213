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

package upstream

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Retarget brings what Fleet selects and templates by on our Fleet Cluster in line, in one
// write, where it differs. That is judged by what is there now: what a cache shows may
// lack what was put there last, and so has to be taken away. Where the Fleet Cluster is
// gone, or not ours to write any more, it does nothing.
func (w *Writer) Retarget(ctx context.Context, r Registration) error {
	live, err := w.ourFleetCluster(ctx, r)
	if err != nil || live == nil {
		return err
	}
	patch := r.Target.Patch(live)
	if patch == nil {
		return nil
	}
	if patch["metadata"] == nil {
		patch["metadata"] = object{}
	}
	return w.merge(ctx, live, patch)
}

// namespaceMissing tells whether an object could not be created because its namespace is
// not there.
func namespaceMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}
