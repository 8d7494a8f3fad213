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

// Package workload tests registrations whose kubeconfig or workload API server is
// broken, hostile or dead. The workload APIs are light ones, so that each can be
// broken in its own way.
package workload

import (
	"os"
	"testing"

	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// deniedAddress lies in the one range that the manager of this package is told to
// stay away from. It is one of this machine, so that a connection would succeed.
const (
	deniedRange   = "127.9.0.0/16"
	deniedAddress = "127.9.0.1"
)

// lab is shared by the tests of the package.
var lab *env.Lab

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, &lab, env.Options{ManagerArgs: []string{"--denied-ranges=" + deniedRange}}))
}
