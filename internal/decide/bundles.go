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
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// Release is a Helm release that an agent of Fleet made.
type Release struct {
	types.NamespacedName

	// Bundle is the name of the BundleDeployment that it was made of.
	Bundle string
}

// MissingBundles returns the bundles of those releases that an agent which starts would
// uninstall, sorted and each once: no BundleDeployment makes just this release, now and
// to stay. One that is going is as good as gone. One that Fleet has given nothing to
// deploy, such as a paused one, has no options yet, and so stands for another release than
// the one that it will make.
func MissingBundles(releases []Release, deployments []fleet.BundleDeployment) []string {
	made := map[Release]bool{}
	for i := range deployments {
		deployment := &deployments[i]
		if deployment.DeletionTimestamp.IsZero() && deployment.Spec.DeploymentID != "" {
			made[Release{fleet.ReleaseOf(deployment), deployment.Name}] = true
		}
	}
	var missing []string
	for _, release := range releases {
		if !made[release] {
			missing = append(missing, release.Bundle)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}
