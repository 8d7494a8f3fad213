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

// Package agentsim is a stand-in for Fleet's agent, for the lab and for tests: an
// Agent does to both APIs what the real one does (Fleet 0.13 to 0.16), with
// nothing but what was pushed into the workload cluster. Where a test passes with
// it, the pushed Secret and ConfigMap and the rights behind them are enough, and
// what an agent would uninstall is uninstalled.
//
// It deploys a ConfigMap and a Helm release Secret per BundleDeployment instead of
// a chart, and never detects drift. It asks the management cluster for nothing
// beyond what the real agent needs, not even for discovery. It keeps no state of
// the process, so that many can run in one test.
package agentsim
