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

// Package env is the lab as a library: a management cluster with Cluster API's,
// Fleet's and our own APIs, the manager with exactly the rights that we ship, and any
// number of workload clusters with an agent in each. All control planes are real API
// servers, run as local processes without nodes and containers. The command
// test/lab and the integration tests stand on it:
//
//	lab, err := env.Start(ctx, env.Options{Log: t.Logf})
//	defer lab.Close()
//	edge, err := lab.AddCluster(ctx, "edge-1", env.ClusterOptions{Register: true})
//	lab.Client.Get(ctx, edge.Key(), &registration)
//
// What a whole system does around the manager, the lab does here. As a control plane
// provider it makes the Cluster, with its address, and the kubeconfig Secret before
// the API server answers. As kubelet it runs the agent, see kubelet. As Fleet's
// controller it targets Bundles and deletes cluster namespaces, see fleetStandIn. All
// this is done by an admin, never with the manager's credential, so that the audit log
// tells them apart.
//
// Everything is written below one folder and listens on loopback. Close ends all of
// it. On Linux the processes die with the program that started them, however it ends;
// elsewhere, and for files, Clean puts things right.
//
// The package never writes to a cluster that it did not start itself.
package env
