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

package endpoint

import "testing"

func BenchmarkParseFleetSettings(b *testing.B) {
	const config = `{"agentImage":"rancher/fleet-agent:v0.15.0","agentCheckinInterval":"15m","apiServerURL":"https://management.example.com:6443","agentTLSMode":"system-store"}`
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseFleetSettings(config); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseCA(b *testing.B) {
	ca := []byte(testCA(b, "management"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCA(ca); err != nil {
			b.Fatal(err)
		}
	}
}
