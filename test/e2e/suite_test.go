//go:build e2e

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

// Package e2e runs capi-fleet with all that is real around it: a management cluster of
// kind, Fleet, and workload clusters of Cluster API's Docker provider. Run it by make
// test-e2e.
package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/bootstrap"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	ctrl "sigs.k8s.io/controller-runtime"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// artifacts is the folder for logs and for the repository of clusterctl.
const artifacts = "_artifacts"

var (
	config           *clusterctl.E2EConfig
	clusterctlConfig string
	management       framework.ClusterProxy
	provider         bootstrap.ClusterProvider
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	RunSpecs(t, "capi-fleet")
}

var _ = BeforeSuite(func(ctx context.Context) {
	dir, err := filepath.Abs(artifacts)
	Expect(err).NotTo(HaveOccurred())
	config = clusterctl.LoadE2EConfig(ctx, clusterctl.LoadE2EConfigInput{ConfigPath: completeConfig(ctx)})
	clusterctlConfig = clusterctl.CreateRepository(ctx, clusterctl.CreateRepositoryInput{
		E2EConfig: config, RepositoryFolder: filepath.Join(dir, "repository"),
	})
	provider = bootstrap.CreateKindBootstrapClusterAndLoadImages(ctx, bootstrap.CreateKindBootstrapClusterAndLoadImagesInput{
		Name:               config.ManagementClusterName,
		KubernetesVersion:  config.MustGetVariable("KUBERNETES_VERSION"),
		RequiresDockerSock: true,
		Images:             config.Images,
		LogFolder:          filepath.Join(dir, "kind"),
	})
	management = framework.NewClusterProxy("management", provider.GetKubeconfigPath(), scheme())

	// Fleet comes first, as the manager waits for it.
	command := exec.CommandContext(ctx, filepath.Join("..", "..", "hack", "install-fleet.sh"), config.ManagementClusterName)
	command.Env = append(os.Environ(), "KUBECONFIG="+provider.GetKubeconfigPath())
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	Expect(command.Run()).To(Succeed())

	clusterctl.InitManagementClusterAndWatchControllerLogs(ctx, clusterctl.InitManagementClusterAndWatchControllerLogsInput{
		ClusterProxy:            management,
		ClusterctlConfigPath:    clusterctlConfig,
		InfrastructureProviders: config.InfrastructureProviders(),
		AddonProviders:          config.AddonProviders(),
		LogFolder:               filepath.Join(dir, "management"),
	}, config.GetIntervals("default", "wait-controllers")...)
})

var _ = AfterSuite(func(ctx context.Context) {
	if management != nil {
		management.Dispose(ctx)
	}
	if provider != nil {
		provider.Dispose(ctx)
	}
})

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	framework.TryAddDefaultSchemes(s)
	Expect(fleetv1.AddToScheme(s)).To(Succeed())
	return s
}

// completeConfig writes the configuration with the folder of Cluster API's test module
// in it, and returns the path.
func completeConfig(ctx context.Context) string {
	template := filepath.Join("config", "capi-fleet.yaml")
	content, err := os.ReadFile(template)
	Expect(err).NotTo(HaveOccurred())
	module, err := testModule(ctx)
	Expect(err).NotTo(HaveOccurred())
	completed := strings.ReplaceAll(string(content), "{CLUSTER_API_TEST}", module)
	// Beside the other one, since relative paths begin there.
	path := filepath.Join("config", "_completed.yaml")
	Expect(os.WriteFile(path, []byte(completed), 0o600)).To(Succeed())
	path, err = filepath.Abs(path)
	Expect(err).NotTo(HaveOccurred())
	return path
}
