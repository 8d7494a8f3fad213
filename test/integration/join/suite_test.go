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

// Package join tests the way of a labelled Cluster into Fleet on real API servers:
// one management cluster for the whole package, on which the manager runs as its
// own service account, and workload clusters as the tests need them.
package join

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// lab is shared by the tests. Each uses a namespace of its own.
var lab *env.Lab

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	var err error
	if lab, err = env.Start(ctx, env.Options{Race: true, Log: logf}); err != nil {
		fmt.Fprintln(os.Stderr, "starting the lab:", err)
		return 1
	}
	defer func() {
		if err := lab.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing the lab:", err)
			code = 1
		}
	}()
	return m.Run()
}

func logf(format string, args ...any) {
	if testing.Verbose() {
		fmt.Printf(format+"\n", args...)
	}
}
