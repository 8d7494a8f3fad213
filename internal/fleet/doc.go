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

// Package fleet is Rancher Fleet's API as far as capi-fleet uses it: types that
// carry the Go names and JSON tags of upstream's, and Fleet's rules for names.
// It has no client.
//
// Fleet publishes its types as the Go module github.com/rancher/fleet/pkg/apis.
// capi-fleet uses too little of them to depend on it. To use it instead, replace the
// imports of this package's types by
// github.com/rancher/fleet/pkg/apis/fleet.cattle.io/v1alpha1: the names of types
// and fields are the same.
//
// The types hold a part of the fields. They must never be written with an
// update, which would drop the others: create, apply and patch only.
//
// +kubebuilder:object:generate=true
// +groupName=fleet.cattle.io
package fleet
