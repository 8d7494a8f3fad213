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

import "slices"

// MissingBundles returns which of the releases have no BundleDeployment of that
// name, sorted and each once. An agent that starts uninstalls those.
func MissingBundles(releases, bundleDeployments []string) []string {
	var missing []string
	for _, release := range releases {
		if !slices.Contains(bundleDeployments, release) {
			missing = append(missing, release)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}
