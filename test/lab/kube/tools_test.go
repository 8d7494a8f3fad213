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
	"os"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
)

func TestClusterctlIsTheOneOfTheClusterAPIThatIsUsed(t *testing.T) {
	g := NewWithT(t)
	root, err := repositoryRoot()
	g.Expect(err).NotTo(HaveOccurred())
	for _, module := range []string{root, filepath.Join(root, "hack", "clusterctl"), filepath.Join(root, providerModule)} {
		content, err := os.ReadFile(filepath.Join(module, "go.mod"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(ContainSubstring("\tsigs.k8s.io/cluster-api "+ClusterctlVersion), module)
	}
	tools, err := os.ReadFile(filepath.Join(root, "hack", "clusterctl", "go.mod"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(tools)).To(ContainSubstring("tool " + clusterctlPackage + "\n"))
}

func TestProvidersAreTheToolsOfTheirModule(t *testing.T) {
	g := NewWithT(t)
	root, err := repositoryRoot()
	g.Expect(err).NotTo(HaveOccurred())
	module, err := os.ReadFile(filepath.Join(root, providerModule, "go.mod"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, pkg := range providerPackages {
		g.Expect(string(module)).To(MatchRegexp(`(?s)tool \([^)]*\t%s\n`, regexp.QuoteMeta(pkg)))
	}
	// One release, all of it.
	g.Expect(string(module)).To(ContainSubstring("\tsigs.k8s.io/cluster-api/test " + ClusterctlVersion))
	g.Expect(string(module)).To(ContainSubstring("\tsigs.k8s.io/cluster-api/api " + ClusterctlVersion))
}

func TestKubectlIsBuiltFromTheModuleOfTheAPIServers(t *testing.T) {
	g := NewWithT(t)
	root, err := repositoryRoot()
	g.Expect(err).NotTo(HaveOccurred())
	tools, err := os.ReadFile(filepath.Join(root, "hack", "kubernetes", "go.mod"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(tools)).To(MatchRegexp(`(?s)tool \([^)]*\t%s\n`, regexp.QuoteMeta(kubectlPackage)))
}
