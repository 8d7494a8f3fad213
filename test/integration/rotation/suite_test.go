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

// Package rotation tests registrations whose kubeconfigs and credentials are replaced
// while their agents run.
package rotation

import (
	"os"
	"testing"
	"time"

	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// tokenLife is the shortest life of a token that an API server grants.
const tokenLife = 10 * time.Minute

// checkin is the time between two heartbeats.
const checkin = 2 * time.Second

// lab is shared by the tests of the package. Each uses a namespace of its own.
var lab *env.Lab

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, &lab, env.Options{
		ManagerArgs:     []string{"--max-token-lifetime=" + tokenLife.String()},
		CheckinInterval: checkin,
	}))
}
