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

package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

func TestSharedRolesAreThoseOfTheManifests(t *testing.T) {
	g := NewWithT(t)
	shipped, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "agent_roles.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	objects := SharedObjects("capi-fleet-system")
	documents := strings.Split(string(shipped), "---\n")
	g.Expect(documents).To(HaveLen(2))
	for i, document := range documents {
		role := &rbacv1.ClusterRole{}
		g.Expect(yaml.UnmarshalStrict([]byte(document), role)).To(Succeed())
		ours := objects[i].(*rbacv1.ClusterRole)
		g.Expect(ours.Name).To(Equal(role.Name))
		g.Expect(ours.Rules).To(Equal(role.Rules))
	}
	binding := objects[2].(*rbacv1.ClusterRoleBinding)
	g.Expect(binding.Name).To(Equal("capi-fleet-system-agent-contents"))
	g.Expect(binding.RoleRef.Name).To(Equal(objects[1].GetName()))
	g.Expect(binding.Subjects[0].Name).To(Equal("system:serviceaccounts:capi-fleet-system"))
}
