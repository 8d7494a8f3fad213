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

// Package rest tests that a registered cluster is left alone: nothing is written and
// nobody is connected to until there is a reason.
package rest

import (
	"os"
	"testing"
	"time"

	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// lab has agents that send several heartbeats while the test looks on.
var lab *env.Lab

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, &lab, env.Options{CheckinInterval: 10 * time.Second}))
}
