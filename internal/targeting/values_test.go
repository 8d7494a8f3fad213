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

package targeting

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// jsonRaw compares raw JSON with what it may be held in.
var jsonRaw = cmp.FilterValues(func(a, b any) bool { return isRaw(a) && isRaw(b) },
	cmp.Comparer(func(a, b any) bool {
		return string(reflect.ValueOf(a).Bytes()) == string(reflect.ValueOf(b).Bytes())
	}))

func isRaw(v any) bool {
	switch v.(type) {
	case json.RawMessage, []byte:
		return true
	}
	return false
}

func withFields() *clusterv1.Cluster {
	return newCluster(ofClass("classes", "edge"), func(c *clusterv1.Cluster) {
		c.Labels = map[string]string{"example.org/region": "eu"}
		c.Annotations = map[string]string{"contact": "me@example.org"}
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "edge.example.org", Port: 6443}
		c.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.0.0.0/16", "fd00::/64"}
		c.Spec.ClusterNetwork.ServiceDomain = "cluster.local"
		c.Spec.Topology.Version = "v1.36.0"
		for name, value := range map[string]string{
			"network": `{"mtu":1500,"ipv6":true,"ratio":0.5,"dns":["1.1.1.1"],"a.b":{"c":"deep"}}`,
			"size":    `"large"`, "count": "3", "off": "false", "nothing": "null",
			"list": `["a"]`, "huge": `"` + strings.Repeat("x", 5000) + `"`,
		} {
			c.Spec.Topology.Variables = append(c.Spec.Topology.Variables, clusterv1.ClusterVariable{Name: name, Value: raw(value)})
		}
	})
}

func TestValuesAreCopiedFromFieldsOfTheCluster(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name":                                  `"edge-1"`,
		"metadata.namespace":                             `"team-a"`,
		"metadata.labels['example.org/region']":          `"eu"`,
		"metadata.annotations['contact']":                `"me@example.org"`,
		"spec.controlPlaneEndpoint.host":                 `"edge.example.org"`,
		"spec.controlPlaneEndpoint.port":                 "6443",
		"spec.clusterNetwork.serviceDomain":              `"cluster.local"`,
		"spec.clusterNetwork.pods.cidrBlocks[1]":         `"fd00::/64"`,
		"spec.topology.version":                          `"v1.36.0"`,
		"spec.topology.classRef.name":                    `"edge"`,
		"spec.topology.variables['size']":                `"large"`,
		"spec.topology.variables['count']":               "3",
		"spec.topology.variables['off']":                 "false",
		"spec.topology.variables['network'].mtu":         "1500",
		"spec.topology.variables['network'].ipv6":        "true",
		"spec.topology.variables['network'].ratio":       "0.5",
		"spec.topology.variables['network'].dns[0]":      `"1.1.1.1"`,
		"spec.topology.variables['network']['a.b'].c":    `"deep"`,
		"spec.topology.variables['network']['a.b']['c']": `"deep"`,
	} {
		t.Run(path, func(t *testing.T) {
			g := NewWithT(t)
			target, problems := Resolve(fleetv1.TargetingSettings{Values: []fleetv1.TemplateValue{{Name: "v", FieldPath: path}}}, withFields(), own)
			g.Expect(problems).To(BeEmpty())
			g.Expect(string(target.Values["v"].Raw)).To(Equal(want))
		})
	}
}

func TestAValueThatCannotBeHadIsReportedAndTheOthersCome(t *testing.T) {
	for path, message := range map[string]string{
		"metadata.labels['missing']":              "is not there",
		"spec.controlPlaneRef.name":               "is not there",
		"spec.topology.variables['missing']":      "is not there",
		"spec.topology.variables['nothing']":      "is not there",
		"spec.topology.variables['network'].none": "is not there",
		"spec.topology.variables['size'].deeper":  "is not there",
		"spec.clusterNetwork.pods.cidrBlocks[2]":  "is not there",
		"spec.topology.variables['list'][9999]":   "is not there",
		"spec.clusterNetwork.pods.cidrBlocks":     "is a list",
		"spec.topology.variables['list']":         "is a list",
		"spec.topology.variables['network']":      "is an object",
		"spec.clusterNetwork.pods":                "is an object",
		"spec.topology.variables['huge']":         "is longer than 4096 bytes",
	} {
		t.Run(path, func(t *testing.T) {
			g := NewWithT(t)
			target, problems := Resolve(fleetv1.TargetingSettings{Values: []fleetv1.TemplateValue{
				{Name: "bad", FieldPath: path}, {Name: "good", FieldPath: "metadata.name"}, {Name: "literal", Value: "x"},
			}}, withFields(), own)
			g.Expect(target.Values).To(Equal(map[string]apiextensionsv1.JSON{"good": raw(`"edge-1"`), "literal": raw(`"x"`)}))
			g.Expect(problems).To(ConsistOf(Problem{fleetv1.ValuesIncompleteReason,
				"The Cluster does not have these values: bad (" + path + " " + message + ")"}))
		})
	}
}

func TestNothingOfAClusterBecomesAValueThatThePolicyDoesNotName(t *testing.T) {
	g := NewWithT(t)
	cluster := newCluster(func(c *clusterv1.Cluster) {
		c.Annotations = map[string]string{"region": "stolen"}
		c.Spec.Topology.Variables = []clusterv1.ClusterVariable{
			{Name: "region", Value: raw(`"stolen"`)},
			{Name: "source", Value: raw(`"eu\", \"admin\": \"true"`)},
		}
	})
	target, _ := Resolve(fleetv1.TargetingSettings{Values: []fleetv1.TemplateValue{
		{Name: "region", Value: "eu"}, {Name: "source", FieldPath: "spec.topology.variables['source']"},
	}}, cluster, shared)
	g.Expect(target.Values).To(Equal(map[string]apiextensionsv1.JSON{
		"region": raw(`"eu"`), "source": raw(`"eu\", \"admin\": \"true"`),
	}))
}
