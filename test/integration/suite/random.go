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

package suite

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// seedVariable names the variable of the environment with the seed of a run that is to
// be repeated. What takes its time, as a manager that is killed, differs all the same.
const seedVariable = "CAPI_FLEET_TEST_SEED"

// Random returns a source of random numbers with the seed that the environment asks for,
// or with a new one, which it logs.
func Random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if asked := os.Getenv(seedVariable); asked != "" {
		var err error
		if seed, err = strconv.ParseUint(asked, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("repeat with %s=%d", seedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}
