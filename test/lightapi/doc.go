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

// Package lightapi is the API server of a workload cluster inside the test's own
// process, for tests that need more of them than the machine could run for real.
// Tests start one Server per cluster and talk to it with the clients that they
// would use against a real one.
//
// It keeps what is sent to it under any group, in memory, without schemas, and
// answers with the status codes, resource versions and watch events that
// client-go and controller-runtime rely on. Every Server has its own address,
// certificate authority, token and kube-system UID. It logs each request, counts
// connections and can be told to misbehave.
//
// It runs no controllers and no admission, knows no RBAC (whoever has a valid token
// or client certificate may do everything), and never follows owner references. What
// hangs on any of these is tested on a real API server.
package lightapi
