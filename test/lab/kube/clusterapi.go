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
	"strings"
)

// Provider is a provider of Cluster API, as its Go module has it.
type Provider struct {
	// Name is that of the binary.
	Name string
	// Binary is the path of its manager.
	Binary string
	// Config is the folder of the kustomization that installs it.
	Config string
}

// providerModule is the module of this repository that requires the providers' modules.
var providerModule = filepath.Join("test", "capi")

const (
	// CoreProvider is the name of Cluster API's core.
	CoreProvider = "core"
	// KubeadmBootstrapProvider makes machines' configurations for kubeadm.
	KubeadmBootstrapProvider = "kubeadm-bootstrap"
	// KubeadmControlPlaneProvider makes control planes of such machines.
	KubeadmControlPlaneProvider = "kubeadm-control-plane"
	// DevProvider is the infrastructure provider that Cluster API tests itself with. Its
	// in-memory backend simulates machines and workload clusters.
	DevProvider = "dev"
)

// providerPackages are the Go packages of the providers' managers. The kustomization of
// each is beside it.
var providerPackages = map[string]string{
	CoreProvider:                "sigs.k8s.io/cluster-api/core",
	KubeadmBootstrapProvider:    "sigs.k8s.io/cluster-api/bootstrap/kubeadm",
	KubeadmControlPlaneProvider: "sigs.k8s.io/cluster-api/controlplane/kubeadm",
	DevProvider:                 "sigs.k8s.io/cluster-api/test/infrastructure/docker",
}

// FindProviders returns providers of Cluster API, with their managers in the user's cache
// folder, where it builds them the first time. That takes some minutes, and log says so.
// Several programs may call it at once.
func FindProviders(ctx context.Context, log io.Writer, names ...string) ([]Provider, error) {
	cacheRoot, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("finding a cache for Cluster API's providers: %w", err)
	}
	finder := assetFinder{
		cache: filepath.Join(cacheRoot, "capi-fleet", "cluster-api", ClusterctlVersion),
		log:   log,
		build: buildProviders,
	}
	if missing := missingIn(finder.cache, names); len(missing) > 0 {
		if err := finder.fillCache(ctx, missing); err != nil {
			return nil, fmt.Errorf("providing %s in %s: %w", strings.Join(missing, ", "), finder.cache, err)
		}
	}
	providers := make([]Provider, 0, len(names))
	for _, name := range names {
		config, err := providerConfig(ctx, name)
		if err != nil {
			return nil, err
		}
		providers = append(providers, Provider{Name: name, Binary: filepath.Join(finder.cache, name), Config: config})
	}
	return providers, nil
}

// buildProviders builds one after the other: each takes all processors, and much memory.
func buildProviders(ctx context.Context, dir string, names []string) error {
	for _, name := range names {
		err := buildIn(ctx, providerModule, filepath.Join(dir, name), clusterAPIVersionFlag, providerPackages[name])
		if err != nil {
			return err
		}
	}
	return nil
}

// providerConfig returns the folder of a provider's kustomization in the cache of modules,
// where go list puts a module that is missing.
func providerConfig(ctx context.Context, name string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	dir, err := runGo(ctx, filepath.Join(root, providerModule), "list", "-find", "-f", "{{.Dir}}", providerPackages[name])
	if err != nil {
		return "", err
	}
	return filepath.Join(strings.TrimSpace(dir), "config", "default"), nil
}
