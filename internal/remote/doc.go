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

// Package remote turns the kubeconfig of a workload cluster into a short-lived
// client for it, and says why that failed in the reasons of the condition
// WorkloadReachable. The registration controller calls it.
//
// Both the kubeconfig and the server that it names belong to someone who may be
// hostile. So a kubeconfig can run no program, read no file, use no proxy and act
// as no other user here; addresses in denied ranges are never connected to,
// whatever a name resolves to at that moment; redirects and requests to come back
// later are not followed; answers are bounded in time, in size and in what they need
// once decoded, and checked before the rest of the program sees them.
//
// Nothing that a workload cluster sends ends up in an error: errors have words of
// this package. What a caller reads from objects is as the server sent it.
//
// The package never keeps a connection, a client or a kubeconfig beyond
// Client.Close, never asks for discovery, never retries, and never takes a proxy
// from the environment.
package remote
