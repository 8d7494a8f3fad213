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

// Package kube runs real Kubernetes control planes as local processes: one etcd
// and any number of API servers on it, each with an authority of its own, and a
// kube-controller-manager where one is asked for. It finds, downloads or builds
// the binaries, hands out credentials and reads the audit logs.
//
// The lab and the tests that need real API servers call it. It knows nothing of
// Cluster API or Fleet, installs no objects, runs no nodes, and never outlives
// its caller: on Linux its processes die with the process that started them,
// elsewhere KillLeftovers ends them on the next run.
//
// Everything listens on loopback only. etcd has neither TLS nor a password, so
// nothing that is worth a secret belongs in a control plane of this package.
package kube
