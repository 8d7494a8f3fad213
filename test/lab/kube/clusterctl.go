//go:build unix

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

package kube

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	// ClusterctlVersion is the release of clusterctl that is built. The project's own
	// go.mod and that of hack/clusterctl require the same one of Cluster API.
	ClusterctlVersion = "v1.14.2"

	clusterctlName    = "clusterctl"
	clusterctlPackage = "sigs.k8s.io/cluster-api/cmd/clusterctl"
)

// FindClusterctl returns the path of Cluster API's clusterctl in the user's cache
// folder, where it builds it the first time. Several programs may call it at once.
func FindClusterctl(ctx context.Context) (string, error) {
	cacheRoot, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a cache for clusterctl: %w", err)
	}
	finder := assetFinder{
		cache: filepath.Join(cacheRoot, "capi-fleet", clusterctlName, ClusterctlVersion),
		log:   io.Discard,
		build: buildClusterctl,
	}
	wanted := []string{clusterctlName}
	if len(missingIn(finder.cache, wanted)) > 0 {
		if err := finder.fillCache(ctx, wanted); err != nil {
			return "", fmt.Errorf("providing clusterctl in %s: %w", finder.cache, err)
		}
	}
	return filepath.Join(finder.cache, clusterctlName), nil
}

func buildClusterctl(ctx context.Context, dir string, _ []string) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	_, err = runGo(ctx, filepath.Join(root, "hack", "clusterctl"), "build", "-trimpath",
		// Like a released one it knows its version.
		"-ldflags=-s -w -X sigs.k8s.io/cluster-api/version.gitVersion="+ClusterctlVersion,
		"-o", dir+string(filepath.Separator), clusterctlPackage)
	return err
}
