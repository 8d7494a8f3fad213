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

package agent

import (
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// version is what the agent of a version of Fleet reads of what we write (Fleet,
// internal/cmd/agent and internal/config). A version that reads something else gets
// another row, and what differs a golden file of its own.
type version struct {
	name string
	// secret are the keys of the Secret, and config those of the configuration that have a
	// meaning when the agent runs.
	secret, config []string
	// variables are the environment, each with what its value must be for the agent to run.
	variables map[string]func(value string) bool
}

func versions() []version {
	secret, config := []string{"kubeconfig", "clusterNamespace", "clusterName"}, []string{"garbageCollectionInterval"}
	variables := map[string]func(string) bool{
		"NAMESPACE":                           func(value string) bool { return value == Namespace },
		"AGENT_SCOPE":                         func(value string) bool { return value == "" },
		"CHECKIN_INTERVAL":                    func(value string) bool { return value == "" || isDuration(value) },
		"CATTLE_ELECTION_LEASE_DURATION":      isDuration,
		"CATTLE_ELECTION_RENEW_DEADLINE":      isDuration,
		"CATTLE_ELECTION_RETRY_PERIOD":        isDuration,
		"BUNDLEDEPLOYMENT_RECONCILER_WORKERS": isNumber,
		"DRIFT_RECONCILER_WORKERS":            isNumber,
		"FLEET_AGENT_METRICS_BIND_ADDRESS":    isAddress,
		"FLEET_AGENT_PROBE_BIND_ADDRESS":      isAddress,
	}
	var all []version
	for _, name := range []string{"0.13", "0.14", "0.15", "0.16"} {
		all = append(all, version{name, secret, config, variables})
	}
	return all
}

// mandatory are the variables without which an agent does not start.
var mandatory = []string{"NAMESPACE", "CATTLE_ELECTION_LEASE_DURATION", "CATTLE_ELECTION_RENEW_DEADLINE", "CATTLE_ELECTION_RETRY_PERIOD"}

// notFleets are the variables that client-go and Go read, and those of the settings.
func notFleets(in Input) []string {
	names := []string{"KUBECONFIG", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
	for _, v := range in.Agent.Env {
		names = append(names, v.Name)
	}
	return names
}

func isDuration(value string) bool {
	d, err := time.ParseDuration(value)
	return err == nil && d > 0
}

func isNumber(value string) bool {
	n, err := strconv.Atoi(value)
	return err == nil && n > 0
}

func isAddress(value string) bool {
	_, port, err := net.SplitHostPort(value)
	return err == nil && isNumber(port)
}

func TestAgentsOfEveryVersionOfFleetTakeWhatIsWritten(t *testing.T) {
	for _, version := range versions() {
		for name, in := range goldenInputs() {
			t.Run(version.name+"/"+name, func(t *testing.T) {
				version.takesSecret(t, in)
				version.takesConfig(t, in)
				version.takesEnvironment(t, in)
			})
		}
	}
}

func (v version) takesSecret(t *testing.T, in Input) {
	t.Helper()
	g := NewWithT(t)
	secret := Secret(in, testToken)
	for _, key := range v.secret {
		g.Expect(secret.Data).To(HaveKeyWithValue(key, Not(BeEmpty())))
	}
	g.Expect(string(secret.Data["clusterNamespace"])).To(Equal(in.FleetCluster.Namespace))
	g.Expect(string(secret.Data["clusterName"])).To(Equal(in.FleetCluster.Name))
	loaded, err := clientcmd.NewClientConfigFromBytes(secret.Data["kubeconfig"])
	g.Expect(err).NotTo(HaveOccurred())
	namespace, overridden, err := loaded.Namespace()
	g.Expect([]any{namespace, overridden, err}).To(Equal([]any{in.ClusterNamespace, false, nil}), "the namespace that it watches")
	config, err := loaded.ClientConfig()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Host).To(Equal(in.Agent.ManagementCluster.Server))
	g.Expect(config.CAData).To(BeEquivalentTo(in.Agent.ManagementCluster.CertificateAuthorityData))
	g.Expect(config.BearerToken).To(Equal(testToken))
	g.Expect([]any{config.ExecProvider, config.AuthProvider}).To(HaveEach(BeNil()))
}

func (v version) takesConfig(t *testing.T, in Input) {
	t.Helper()
	g := NewWithT(t)
	data := configMap(in).(*corev1.ConfigMap).Data["config"]
	var keys map[string]any
	g.Expect(json.Unmarshal([]byte(data), &keys)).To(Succeed(), "an agent without one holds its lease and does nothing")
	for key := range keys {
		g.Expect(v.config).To(ContainElement(key))
	}
	var read struct {
		GarbageCollectionInterval metav1.Duration `json:"garbageCollectionInterval"`
	}
	g.Expect(json.Unmarshal([]byte(data), &read)).To(Succeed())
	g.Expect(read.GarbageCollectionInterval).To(Equal(in.Agent.GarbageCollectionInterval))
}

func (v version) takesEnvironment(t *testing.T, in Input) {
	t.Helper()
	g := NewWithT(t)
	deployment := deployment(in)
	if in.Agent.Placement == fleetv1.PlacementManagement {
		deployment = HostedDeployment(in, someHosting())
	}
	values := map[string]string{}
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		values[variable.Name] = variable.Value
		if from := variable.ValueFrom; from != nil && from.FieldRef.FieldPath == "metadata.namespace" {
			values[variable.Name] = deployment.Namespace
		}
		if slices.Contains(notFleets(in), variable.Name) {
			continue
		}
		g.Expect(v.variables).To(HaveKey(variable.Name))
		g.Expect(v.variables[variable.Name](values[variable.Name])).To(BeTrue(), "%s=%s", variable.Name, values[variable.Name])
	}
	for _, name := range mandatory {
		g.Expect(values).To(HaveKey(name))
	}
	g.Expect(deployment.Spec.Template.Spec.Containers[0].Command).To(Equal([]string{"fleetagent"}))
}
