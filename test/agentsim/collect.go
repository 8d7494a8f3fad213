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

package agentsim

import (
	"context"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// collect uninstalls releases that have no BundleDeployment: one at once, and one
// more after every interval, until ctx ends.
func (a *Agent) collect(ctx context.Context, store cache.Store) {
	for {
		if err := a.collectOne(ctx, store); err != nil && ctx.Err() == nil {
			a.log.Error(err, "Failed to collect releases")
		}
		// As the real agent: up to twice the interval.
		if !sleep(ctx, wait.Jitter(a.interval, 1)) {
			return
		}
	}
}

// collectOne uninstalls the first release that has no BundleDeployment in the
// cluster namespace, and before it all those whose BundleDeployment makes another one.
func (a *Agent) collectOne(ctx context.Context, store cache.Store) error {
	a.acting.Lock()
	defer a.acting.Unlock()
	releases, err := a.fleetReleases(ctx)
	if err != nil {
		return err
	}
	for _, r := range releases {
		found, exists, err := store.GetByKey(a.management.namespace + "/" + r.bundleID())
		if err != nil {
			return err
		}
		if !exists {
			return a.uninstall(ctx, r)
		}
		if fleet.ReleaseOf(found.(*fleet.BundleDeployment)) != r.key() {
			if err := a.uninstall(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}
