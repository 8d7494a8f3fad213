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

// Package clusterctl tests the files of a release with Cluster API's own clusterctl:
// an installation, its upgrade, a move to another one, and its end.
package clusterctl

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

const (
	// firstVersion is installed, and nextVersion is upgraded to.
	firstVersion = "v0.1.0"
	nextVersion  = "v0.1.1"

	image = "registry.example.org/capi-fleet"
)

// source and target are management clusters without capi-fleet.
var source, target *env.Lab

// release is what clusterctl installs from.
var release repository

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "capi-fleet-release-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if release, err = newRepository(ctx, dir); err != nil {
		return 1, fmt.Errorf("making the release: %w", err)
	}
	options := env.Options{Race: true, NoManager: true, CheckinInterval: time.Second, ConfigDir: env.BareConfig}
	if testing.Verbose() {
		options.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	if source, err = env.Start(ctx, options); err != nil {
		return 1, fmt.Errorf("starting the source: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	// The agents run in the lab of the source.
	options.ManagerArgs = []string{"--agent-token-dir=" + source.AgentTokenDir()}
	if target, err = env.Start(ctx, options); err != nil {
		return 1, fmt.Errorf("starting the target: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	return m.Run(), nil
}

// repository is a folder from which clusterctl installs, and its configuration file.
type repository struct {
	dir, config string
}

// coreComponents stands for a release of Cluster API's core.
var coreComponents = filepath.Join("..", "..", "..", env.BareConfig, "cluster-api", kube.ClusterctlVersion, "core-components.yaml")

// newRepository puts two releases of ours into dir.
func newRepository(ctx context.Context, dir string) (repository, error) {
	r := repository{dir: dir, config: filepath.Join(dir, "clusterctl.yaml")}
	for _, version := range []string{firstVersion, nextVersion} {
		if err := makeRelease(ctx, version, filepath.Join(dir, "addon-fleet", version)); err != nil {
			return r, err
		}
	}
	core, err := filepath.Abs(coreComponents)
	if err != nil {
		return r, err
	}
	config := fmt.Sprintf(`providers:
- name: cluster-api
  type: CoreProvider
  url: %s
- name: fleet
  type: AddonProvider
  url: %s/addon-fleet/%s/addon-components.yaml
`, core, dir, nextVersion)
	return r, os.WriteFile(r.config, []byte(config), 0o600)
}

// makeRelease writes the files of a release as a maintainer does.
func makeRelease(ctx context.Context, version, dir string) error {
	command := exec.CommandContext(ctx, "make", "release-manifests", "RELEASE_DIR="+dir, "IMAGE="+image, "TAG="+version)
	command.Dir = filepath.Join("..", "..", "..")
	command.Env = withoutMake(os.Environ())
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("make release-manifests: %w\n%s", err, output)
	}
	return nil
}

// withoutMake takes out what a make that runs the tests says to those that it starts.
func withoutMake(environment []string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		return strings.HasPrefix(variable, "MAKE") || strings.HasPrefix(variable, "MFLAGS=")
	})
}

// clusterctl runs clusterctl, with these variables besides, and returns what it prints
// on standard output.
func clusterctl(t *testing.T, variables []string, args ...string) (string, error) {
	t.Helper()
	path, err := kube.FindClusterctl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, append(args, "--config", release.config)...)
	command.Env = append([]string{"HOME=" + t.TempDir(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true"}, variables...)
	var messages strings.Builder
	command.Stderr = &messages
	output, err := command.Output()
	if err != nil {
		return messages.String(), fmt.Errorf("clusterctl %s: %w\n%s", strings.Join(args, " "), err, messages.String())
	}
	t.Logf("clusterctl %s\n%s", strings.Join(args, " "), messages.String())
	return string(output), nil
}

// mustClusterctl runs clusterctl for a management cluster.
func mustClusterctl(t *testing.T, lab *env.Lab, args ...string) string {
	t.Helper()
	output, err := clusterctl(t, nil, append(args, "--kubeconfig", lab.Management().AdminKubeconfigPath())...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

func initialize(t *testing.T, lab *env.Lab, version string) {
	t.Helper()
	mustClusterctl(t, lab, "init", "--addon", "fleet:"+version,
		"--core", "cluster-api:"+kube.ClusterctlVersion, "--bootstrap", "-", "--control-plane", "-")
}

// startManager starts a manager as the Deployment says, that ends with the test.
func startManager(t *testing.T, lab *env.Lab, name string) *env.Manager {
	t.Helper()
	g := NewWithT(t)
	manager, err := lab.InstalledManager(t.Context(), t.Name()+"-"+name)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := manager.Stop(); err != nil {
			t.Error(err)
		}
	})
	g.Expect(manager.Start(t.Context())).To(Succeed())
	return manager
}

// inventory names every object of a management cluster, whatever its kind, in the form
// "Kind namespace/name". What comes and goes by itself is left out.
func inventory(g Gomega, ctx context.Context, lab *env.Lab) []string {
	found := map[string]bool{}
	config := lab.Config()
	config.WarningHandler = rest.NoWarnings{} // of kinds that are deprecated
	clients, err := metadata.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	for _, kind := range listedKinds(g, config) {
		list, err := clients.Resource(kind.resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // the kind has just gone
		}
		g.Expect(err).NotTo(HaveOccurred())
		for i := range list.Items {
			found[kind.name+" "+strings.TrimPrefix(client.ObjectKeyFromObject(&list.Items[i]).String(), "/")] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

type listedKind struct {
	name     string
	resource schema.GroupVersionResource
}

func listedKinds(g Gomega, config *rest.Config) []listedKind {
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	_, lists, err := discoverer.ServerGroupsAndResources()
	g.Expect(err).NotTo(HaveOccurred())
	var kinds []listedKind
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		g.Expect(err).NotTo(HaveOccurred())
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains([]string{"Event", "Lease"}, resource.Kind) {
				continue
			}
			kinds = append(kinds, listedKind{name: resource.Kind, resource: version.WithResource(resource.Name)})
		}
	}
	return kinds
}
