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

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/test/infrastructure/kind"
	"sigs.k8s.io/yaml"
)

// What the suite takes from Cluster API's test module is here, without the build tag, so
// that it is checked where no Docker is.

// podRange is that of the pods in the template of the workload cluster.
const podRange = "192.168.0.0/16"

// testModule is the folder of Cluster API's test module.
func testModule(ctx context.Context) (string, error) {
	output, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api/test").Output()
	if err != nil {
		return "", fmt.Errorf("finding Cluster API's test module: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}

// cniManifest is Cluster API's manifest of a CNI. Its variables have values, since what is
// applied to a workload cluster is applied as it is.
func cniManifest(ctx context.Context) (string, error) {
	module, err := testModule(ctx)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(module, "e2e", "data", "cni", "kindnet", "kindnet.yaml"))
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(string(content), "${DOCKER_POD_CIDRS},${DOCKER_POD_IPV6_CIDRS}", podRange), nil
}

func TestTheCNIHasTheRangeOfThePodsAndNoVariables(t *testing.T) {
	g := NewWithT(t)
	manifest, err := cniManifest(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest).NotTo(ContainSubstring("${"))
	g.Expect(manifest).To(MatchRegexp(`name: POD_SUBNET\n +value: '` + podRange + `'`))

	module, err := testModule(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	template, err := os.ReadFile(filepath.Join(module, "infrastructure", "docker", "templates", "cluster-template-development.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(template)).To(ContainSubstring(`${POD_CIDR:=["` + podRange + `"]}`))
}

func TestTheVersionOfKubernetesIsOneThatKindHasAnImageFor(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join("config", "capi-fleet.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	settings := struct {
		Variables map[string]string `json:"variables"`
	}{}
	g.Expect(yaml.Unmarshal(content, &settings)).To(Succeed())
	g.Expect(kind.GetKubernetesVersions()).To(ContainElement(settings.Variables["KUBERNETES_VERSION"]))
}
