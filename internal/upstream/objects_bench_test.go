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
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

func BenchmarkObjects(b *testing.B) {
	r := Registration{
		ID:           "0123456789abcdef0123456789abcdef",
		ClusterUID:   "uid",
		FleetCluster: types.NamespacedName{Namespace: "default", Name: "edge-1"},
		Namespace:    fleet.ClusterNamespace("default", "edge-1"),
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Objects("capi-fleet-system", "")
	}
}
