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
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

// clusterctl moves only objects of kinds with its label. It puts the label on when it
// installs them; kubectl does not.
func TestKindsAreMovedByClusterctlHoweverTheyWereInstalled(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	moves := map[string]bool{}
	for _, file := range files {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		g.Expect(yaml.UnmarshalStrict(readFile(t, filepath.Join("config", "crd", "bases", filepath.Base(file))), crd)).To(Succeed())
		g.Expect(crd.Labels).To(And(
			HaveKeyWithValue(clusterv1.ProviderNameLabel, "addon-fleet"),
			HaveKeyWithValue("clusterctl.cluster.x-k8s.io", ""),
		), crd.Name)
		_, moves[crd.Spec.Names.Kind] = crd.Labels["clusterctl.cluster.x-k8s.io/move"]
	}
	g.Expect(moves).To(Equal(map[string]bool{
		"FleetRegistration":       false, // goes along with its owner
		"FleetRegistrationPolicy": true,
	}))
}

// The sample is what Cluster API Operator is given.
func TestSampleAsksForAReleaseThatSpeaksTheContract(t *testing.T) {
	g := NewWithT(t)
	sample := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Spec       struct {
			Version     string `json:"version"`
			FetchConfig struct {
				Selector metav1.LabelSelector `json:"selector"`
			} `json:"fetchConfig"`
			ConfigSecret struct {
				Name string `json:"name"`
			} `json:"configSecret"`
		} `json:"spec"`
	}{}
	g.Expect(yaml.UnmarshalStrict(readFile(t, "config/samples/addonprovider.yaml"), &sample)).To(Succeed())
	g.Expect(sample.Metadata.Name).To(Equal("fleet"))
	page := string(readFile(t, "docs/operations/installation.md"))
	for label, value := range sample.Spec.FetchConfig.Selector.MatchLabels {
		g.Expect(page).To(ContainSubstring("kubectl label configmap " + sample.Spec.Version + " --namespace " + sample.Metadata.Namespace + " " + label + "=" + value))
	}
	g.Expect(page).To(ContainSubstring("kubectl create secret generic " + sample.Spec.ConfigSecret.Name + " --namespace " + sample.Metadata.Namespace))

	metadata := struct {
		ReleaseSeries []struct {
			Major, Minor int
			Contract     string
		} `json:"releaseSeries"`
	}{}
	g.Expect(yaml.Unmarshal(readFile(t, "metadata.yaml"), &metadata)).To(Succeed())
	var series []string
	for _, s := range metadata.ReleaseSeries {
		g.Expect(s.Contract).To(Equal("v1beta2"))
		series = append(series, fmt.Sprintf("v%d.%d.", s.Major, s.Minor))
	}
	g.Expect(series).To(ContainElement(sample.Spec.Version[:len("v0.1.")]))
}
