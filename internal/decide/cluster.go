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
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Owns tells whether the registration is that of the Cluster, which has its name. The
// UID says so: a Cluster that was deleted and made anew has the same name. One whose
// owner reference somebody took off is not thereby one whose Cluster is gone, which
// would end in the deletion of all that is deployed: there the name has to do.
func Owns(cluster *clusterv1.Cluster, reg *fleetv1.FleetRegistration) bool {
	for _, ref := range reg.OwnerReferences {
		if ref.UID == cluster.UID {
			return true
		}
	}
	return !HasOwner(reg)
}

// HasOwner tells whether the registration names a Cluster as its owner.
func HasOwner(reg *fleetv1.FleetRegistration) bool { return OwnerUID(reg) != "" }

// OwnerUID returns the UID of the Cluster that the registration names as its owner, empty
// where it names none.
func OwnerUID(reg *fleetv1.FleetRegistration) types.UID {
	for _, ref := range reg.OwnerReferences {
		if group, _, _ := strings.Cut(ref.APIVersion, "/"); group == clusterv1.GroupVersion.Group && ref.Kind == "Cluster" {
			return ref.UID
		}
	}
	return ""
}

// Moved tells whether the settings of the agent were found on another management
// cluster, from which Cluster and registration were moved or restored since.
func Moved(cluster *clusterv1.Cluster, reg *fleetv1.FleetRegistration) bool {
	return reg.Spec.ClusterUID != "" && reg.Spec.ClusterUID != cluster.UID
}

// OwnerReference returns what makes the Cluster the owner of its registration.
func OwnerReference(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID,
	}
}

// deleteForMoveAnnotation is set by clusterctl move on what it is about to delete
// (Cluster API 1.14, clusterctlv1.DeleteForMoveAnnotation).
const deleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

// Moving tells whether clusterctl is about to delete the object as part of a move.
func Moving(obj metav1.Object) bool {
	_, ok := obj.GetAnnotations()[deleteForMoveAnnotation]
	return ok
}
