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
	"os/exec"
	"path/filepath"
)

const (
	// ClusterctlVersion is the release of clusterctl that is built. The project's own
	// go.mod and that of hack/clusterctl require the same one of Cluster API.
	ClusterctlVersion = "v1.14.2"

	clusterctlName    = "clusterctl"
	clusterctlPackage = "sigs.k8s.io/cluster-api/cmd/clusterctl"

	// clusterAPIVersionFlag tells a binary of Cluster API its version, like a released one.
	clusterAPIVersionFlag = "-X sigs.k8s.io/cluster-api/version.gitVersion=" + ClusterctlVersion

	kubectlName    = "kubectl"
	kubectlPackage = "k8s.io/kubernetes/cmd/kubectl"
)

// FindClusterctl returns the path of Cluster API's clusterctl in the user's cache
// folder, where it builds it the first time. Several programs may call it at once.
func FindClusterctl(ctx context.Context) (string, error) {
	return findTool(ctx, clusterctlName, ClusterctlVersion, filepath.Join("hack", "clusterctl"), clusterctlPackage,
		clusterAPIVersionFlag)
}

// FindKubectl returns the path of kubectl: that of the machine, else one in the user's
// cache folder, where it builds it the first time from the module that also builds the
// API servers. Several programs may call it at once.
func FindKubectl(ctx context.Context) (string, error) {
	if found, err := exec.LookPath(kubectlName); err == nil {
		return found, nil
	}
	return findTool(ctx, kubectlName, Version, filepath.Join("hack", "kubernetes"), kubectlPackage, versionFlag)
}

// findTool finds or builds a package that a module of this repository requires.
func findTool(ctx context.Context, name, version, module, pkg, linkerFlags string) (string, error) {
	cacheRoot, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a cache for %s: %w", name, err)
	}
	finder := assetFinder{
		cache: filepath.Join(cacheRoot, "capi-fleet", name, version),
		log:   io.Discard,
		build: func(ctx context.Context, dir string, _ []string) error {
			return buildIn(ctx, module, filepath.Join(dir, name), linkerFlags, pkg)
		},
	}
	wanted := []string{name}
	if len(missingIn(finder.cache, wanted)) > 0 {
		if err := finder.fillCache(ctx, wanted); err != nil {
			return "", fmt.Errorf("providing %s in %s: %w", name, finder.cache, err)
		}
	}
	return filepath.Join(finder.cache, name), nil
}
