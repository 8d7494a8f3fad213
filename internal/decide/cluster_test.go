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

package decide

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func TestARegistrationIsThatOfTheClusterWithTheUIDOfItsOwner(t *testing.T) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", UID: "mine"}}
	own := OwnerReference(cluster)
	former := own
	former.UID = "former"
	unrelated := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "edge-1", UID: "x"}
	namesake := metav1.OwnerReference{APIVersion: "fleet.cattle.io/v1alpha1", Kind: "Cluster", Name: "edge-1", UID: "x"}
	for _, tt := range []struct {
		name       string
		references []metav1.OwnerReference
		owns       bool
	}{
		{"its own", []metav1.OwnerReference{unrelated, own}, true},
		{"a former Cluster's", []metav1.OwnerReference{former}, false},
		{"taken off", nil, true},
		{"taken off, others there", []metav1.OwnerReference{unrelated, namesake}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reg := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", OwnerReferences: tt.references}}
			NewWithT(t).Expect(Owns(cluster, reg)).To(Equal(tt.owns))
		})
	}
}
