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
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/capi-fleet/capi-fleet/internal/manager"
)

// tiltProvider is what Cluster API's Tilt setup reads of a provider (Tiltfile,
// load_provider_tilt_files and enable_provider, v1.14.2).
type tiltProvider struct {
	Name   string `json:"name"`
	Config struct {
		Image           string   `json:"image"`
		Label           string   `json:"label"`
		GoMain          string   `json:"go_main"`
		LiveReloadDeps  []string `json:"live_reload_deps"`
		KustomizeFolder string   `json:"kustomize_folder"`
		ResourceDeps    []string `json:"resource_deps"`
	} `json:"config"`
}

func readTiltProvider(t *testing.T) tiltProvider {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "tilt-provider.json"))
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.DisallowUnknownFields()
	provider := tiltProvider{}
	if err := decoder.Decode(&provider); err != nil {
		t.Fatal(err)
	}
	return provider
}

func TestTiltFindsAndBuildsTheProvider(t *testing.T) {
	g := NewWithT(t)
	provider := readTiltProvider(t)
	config := provider.Config
	// The file with this name would be taken in place of ours.
	g.Expect(filepath.Join(root, "tilt-provider.yaml")).NotTo(BeAnExistingFile())
	g.Expect(provider.Name).To(Equal("fleet"))
	g.Expect(config.Label).NotTo(BeEmpty())
	g.Expect(config.ResourceDeps).To(ConsistOf("capi_controller"), "the resource of Cluster API's core, which has its kinds")

	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, config.GoMain), nil, parser.PackageClauseOnly)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.Name.Name).To(Equal("main"))
	// Tilt builds the one file, not its folder.
	files, err := filepath.Glob(filepath.Join(root, filepath.Dir(config.GoMain), "*.go"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(1))
	for _, path := range config.LiveReloadDeps {
		_, err := os.Stat(filepath.Join(root, path))
		g.Expect(err).NotTo(HaveOccurred())
	}

	objects := render(t, config.KustomizeFolder)
	label := HaveKeyWithValue(clusterv1.ProviderNameLabel, "addon-"+provider.Name)
	namespaces := ofKind(objects, "Namespace")
	g.Expect(namespaces).To(HaveLen(1), "Tilt takes the provider's namespace and name from it")
	g.Expect(namespaces[0].GetLabels()).To(label)
	deployment, container := deploymentOf(g, objects)
	g.Expect(deployment.Labels).To(label)
	g.Expect(deployment.Namespace).To(Equal(namespaces[0].GetName()))
	g.Expect(container.Name).To(Equal("manager"))
	g.Expect(container.Image).To(HavePrefix(config.Image+":"), "else Tilt does not put its own image in place")
	// Tilt puts its wrapper before this path, to which it has copied the binary.
	g.Expect(container.Command).To(Equal([]string{"/manager"}))
}

// Every package of ours that goes into the manager must be watched.
func TestTiltRebuildsOnEveryChangeOfTheManager(t *testing.T) {
	g := NewWithT(t)
	deps := readTiltProvider(t).Config.LiveReloadDeps
	for _, dir := range managerPackages(t) {
		watched := false
		for _, path := range deps {
			watched = watched || dir == path || strings.HasPrefix(dir, path+"/")
		}
		g.Expect(watched).To(BeTrue(), "changes below %s build nothing", dir)
	}
}

// The Tiltfile of this repository names things that are said elsewhere.
func TestTiltfileNamesWhatIsThere(t *testing.T) {
	g := NewWithT(t)
	tiltfile := string(readFile(t, "Tiltfile"))
	deployment, container := deploymentOf(g, render(t, "config/default"))
	named := func(pattern string) string {
		match := regexp.MustCompile(pattern).FindStringSubmatch(tiltfile)
		g.Expect(match).NotTo(BeNil(), "%s", pattern)
		return match[1]
	}
	g.Expect(named(`k8s_resource\("([^"]+)"`)).To(Equal(deployment.Name))
	g.Expect(tiltfile).To(ContainSubstring(`docker_build(
    provider["image"],`))
	// Make puts the tag in, and leaves the image's name.
	image := readTiltProvider(t).Config.Image + ":" + named(`make [^&]* TAG=(\S+)`)
	g.Expect(container.Image).To(Equal(image))
	makefile := string(readFile(t, "Makefile"))
	g.Expect(makefile).To(ContainSubstring("\nIMAGE ?= " + readTiltProvider(t).Config.Image + "\n"))
	// What is built is what the Dockerfile copies.
	binary := named(`go build -o (\S+) `)
	g.Expect(named(`docker_build\(\s+\S+\s+"([^"]+)"`) + "/" + named(`only = \["([^"]+)"\]`)).To(Equal(binary))
	g.Expect(string(readFile(t, named(`dockerfile = "([^"]+)"`)))).To(ContainSubstring("COPY " + filepath.Base(binary) + " " + container.Command[0] + "\n"))
	g.Expect(filepath.Join(root, named(`watch_file\("([^"]+)"\)`))).To(BeADirectory())
}

// The flags that Cluster API's Tilt setup adds when debugging is asked for.
func TestManagerTakesTheFlagsOfTilt(t *testing.T) {
	g := NewWithT(t)
	_, _, err := manager.ParseFlags([]string{"--leader-elect=false", "--profiler-address=:6060", "--diagnostics-address=:8080", "--insecure-diagnostics", "--v=4"})
	g.Expect(err).NotTo(HaveOccurred())
}

// settingsBlock finds the tilt-settings.yaml in the page on it.
var settingsBlock = regexp.MustCompile("(?s)```yaml\n# tilt-settings.yaml\n(.*?)```")

func TestDocumentedTiltSettingsNameWhatIsThere(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "development", "tilt.md"))
	g.Expect(err).NotTo(HaveOccurred())
	block := settingsBlock.FindSubmatch(page)
	g.Expect(block).NotTo(BeNil())
	settings := struct {
		ProviderRepos          []string            `json:"provider_repos"`
		EnableProviders        []string            `json:"enable_providers"`
		KustomizeSubstitutions map[string]string   `json:"kustomize_substitutions"`
		ExtraArgs              map[string][]string `json:"extra_args"`
		TemplateDirs           map[string][]string `json:"template_dirs"`
	}{}
	g.Expect(yaml.UnmarshalStrict(block[1], &settings)).To(Succeed())

	name := readTiltProvider(t).Name
	g.Expect(settings.EnableProviders).To(ContainElement(name))
	g.Expect(settings.ProviderRepos).To(Equal([]string{"../capi-fleet"}))
	_, _, err = manager.ParseFlags(settings.ExtraArgs[name])
	g.Expect(err).NotTo(HaveOccurred())
	// Where there is this key, Tilt's own default is gone.
	g.Expect(settings.TemplateDirs).To(HaveKeyWithValue("docker", []string{"./test/infrastructure/docker/templates"}))
	g.Expect(settings.TemplateDirs[name]).NotTo(BeEmpty())
	for _, dir := range settings.TemplateDirs[name] {
		inside := filepath.Join(root, strings.TrimPrefix(dir, "../capi-fleet/"))
		for _, named := range []string{"clusterclass-*.yaml", "cluster-template-*.yaml"} { // no other files
			files, err := filepath.Glob(filepath.Join(inside, named))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(files).NotTo(BeEmpty(), "%s/%s", dir, named)
		}
	}
	variables := map[string]bool{}
	for _, match := range regexp.MustCompile(`\$\{([A-Z_]+)`).FindAllStringSubmatch(string(readFile(t, "config/manager/manager.yaml")), -1) {
		variables[match[1]] = true
	}
	for variable := range settings.KustomizeSubstitutions {
		if strings.HasPrefix(variable, "FLEET_ADDON_") {
			g.Expect(variables).To(HaveKey(variable))
		}
	}
}
