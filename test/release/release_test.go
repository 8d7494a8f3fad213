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

// Package release tests that the files around the code, which other tools read, agree
// with the code and with each other. Nothing here needs a cluster.
package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// root is the project's source.
const root = "../.."

// render returns what a kustomization makes.
func render(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := env.Render(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// ofKind returns the objects of a kind.
func ofKind(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == kind {
			found = append(found, object)
		}
	}
	return found
}

// deploymentOf returns the Deployment and its one container.
func deploymentOf(g *WithT, objects []*unstructured.Unstructured) (*appsv1.Deployment, corev1.Container) {
	deployments := ofKind(objects, "Deployment")
	g.Expect(deployments).To(HaveLen(1))
	deployment := &appsv1.Deployment{}
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(deployments[0].Object, deployment)).To(Succeed())
	g.Expect(deployment.Spec.Template.Spec.Containers).To(HaveLen(1))
	return deployment, deployment.Spec.Template.Spec.Containers[0]
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// managerPackages returns the folders of the project's packages that the manager is
// made of.
func managerPackages(t *testing.T) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/manager")
	command.Dir = root
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, path := range strings.Fields(string(output)) {
		if dir, ours := strings.CutPrefix(path, "github.com/capi-fleet/capi-fleet/"); ours {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
