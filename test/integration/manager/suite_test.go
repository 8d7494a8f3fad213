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

// Package manager tests the manager as a program: its start before the APIs that it
// needs, what it tells in metrics and logs, and which Clusters it looks at.
package manager

import (
	"os"
	"testing"

	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// lab has no manager: each test starts those that it needs and ends them, so no two
// tests run at once. The clusters of earlier tests are there, and at rest.
var lab *env.Lab

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &lab, env.Options{NoManager: true})) }

// addLight adds a labelled Cluster on a light API server.
func addLight(t *testing.T, namespace, name string) *env.Workload {
	t.Helper()
	return suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}})
}
