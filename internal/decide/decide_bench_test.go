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

package decide

import (
	"fmt"
	"testing"
	"time"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func BenchmarkPush(b *testing.B) {
	in := registered()
	in.ResyncInterval = 10 * time.Hour
	b.ReportAllocs()
	for b.Loop() {
		if why := Push(in); why != "" {
			b.Fatal(why)
		}
	}
}

func BenchmarkNextPush(b *testing.B) {
	in := registered()
	b.ReportAllocs()
	for b.Loop() {
		if NextPush(in).IsZero() {
			b.Fatal("never")
		}
	}
}

func BenchmarkSelect(b *testing.B) {
	for _, count := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("policies=%d", count), func(b *testing.B) {
			in := SelectionInput{ClusterLabels: map[string]string{"env": "production"}}
			for i := range count {
				in.Policies = append(in.Policies, policy(fmt.Sprint("p", i), priority(int32(i)), clusters(map[string]string{"env": "production"})))
			}
			b.ReportAllocs()
			for b.Loop() {
				if Select(in).By == nil {
					b.Fatal("not selected")
				}
			}
		})
	}
}

func BenchmarkProgress(b *testing.B) {
	registrations := make([]fleetv1.FleetRegistration, 1000)
	for i := range registrations {
		registrations[i] = *running("a")
	}
	b.ReportAllocs()
	for b.Loop() {
		ProgressOf(fleetv1.RolloutSpec{}, registrations, of("b"))
	}
}
