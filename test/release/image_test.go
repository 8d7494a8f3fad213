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

package release

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// instructions returns the arguments of an instruction of the Dockerfile, in order.
func instructions(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^`+name+` (.+)$`).FindAllStringSubmatch(string(readFile(t, "Dockerfile")), -1) {
		found = append(found, match[1])
	}
	return found
}

func TestImageRunsAsTheDeploymentSays(t *testing.T) {
	g := NewWithT(t)
	deployment, container := deploymentOf(g, render(t, "config/default"))
	g.Expect(instructions(t, "ENTRYPOINT")).To(Equal([]string{fmt.Sprintf("[%q]", container.Command[0])}))
	g.Expect(instructions(t, "USER")).To(Equal([]string{fmt.Sprintf("%d:%d", *container.SecurityContext.RunAsUser, *container.SecurityContext.RunAsGroup)}))
	g.Expect(*deployment.Spec.Template.Spec.SecurityContext.RunAsNonRoot).To(BeTrue())
	// The base has no C library, and Go compiles for the platform that is asked for.
	g.Expect(instructions(t, "ARG")).To(ContainElement(And(ContainSubstring("TARGETOS"), ContainSubstring("TARGETARCH"))))
	g.Expect(string(readFile(t, "Dockerfile"))).To(MatchRegexp(`(?m)^\s+CGO_ENABLED=0 GOOS=\$TARGETOS GOARCH=\$TARGETARCH go build `))
	bases := instructions(t, "FROM")
	g.Expect(bases[len(bases)-1]).To(MatchRegexp(`^gcr\.io/distroless/static-debian12:nonroot$`))
}

// What is not copied is missing in the build, which no test here runs.
func TestImageIsBuiltFromAllThatTheManagerNeeds(t *testing.T) {
	g := NewWithT(t)
	var copied []string
	for _, arguments := range instructions(t, "COPY") {
		fields := strings.Fields(arguments)
		if !strings.HasPrefix(fields[0], "--from=") {
			copied = append(copied, fields[:len(fields)-1]...)
		}
	}
	g.Expect(copied).To(ContainElements("go.mod", "go.sum"))
	var admitted []string
	for line := range strings.FieldsSeq(string(readFile(t, ".dockerignore"))) {
		if path, found := strings.CutPrefix(line, "!"); found {
			admitted = append(admitted, path)
		}
	}
	g.Expect(admitted).To(ConsistOf(copied))
	for _, dir := range managerPackages(t) {
		g.Expect(slices.ContainsFunc(copied, func(path string) bool { return dir == path || strings.HasPrefix(dir, path+"/") })).To(BeTrue(), "%s is not copied", dir)
	}

	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(readFile(t, "go.mod")))
	g.Expect(language).NotTo(BeNil())
	g.Expect(instructions(t, "FROM")[0]).To(ContainSubstring("golang:" + language[1] + " "))
}

// The versions that more than one file names.
func TestDevelopmentClustersRunTheClusterAPIThatIsTestedAgainst(t *testing.T) {
	g := NewWithT(t)
	version := regexp.MustCompile(`sigs\.k8s\.io/cluster-api (v\S+)`).FindStringSubmatch(string(readFile(t, "go.mod")))
	g.Expect(version).NotTo(BeNil())
	g.Expect(string(readFile(t, "hack/kind-up.sh"))).To(ContainSubstring("readonly cluster_api=" + version[1] + "\n"))
	config := string(readFile(t, "test/e2e/config/capi-fleet.yaml"))
	for _, match := range regexp.MustCompile(`cluster-api/releases/download/(v[^/]+)/`).FindAllStringSubmatch(config, -1) {
		g.Expect(match[1]).To(Equal(version[1]))
	}
}
