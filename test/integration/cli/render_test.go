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

package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/cli"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// step finds a command in the comments of the objects of the management cluster.
var step = regexp.MustCompile(`(?m)^# \d\. (kubectl|clusterctl fleet) (.*)$`)

// The management cluster has Fleet, and neither capi-fleet nor Cluster API.
func TestAnAgentWorksWithWhatRenderPrintsAndKubectlApplies(t *testing.T) {
	g := NewWithT(t)
	const namespace, name = "by-hand", "edge"
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{NoKubelet: true})
	empty := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(empty, "kustomization.yaml"), []byte("resources: [namespace.yaml]\n"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(empty, "namespace.yaml"), []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: unrelated\n"), 0o600)).To(Succeed())
	bare, err := env.Start(t.Context(), env.Options{NoManager: true, NoClusterAPI: true, ConfigDir: empty, Log: t.Logf})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(bare.Close()).To(Succeed()) }()
	management := bare.Management().AdminKubeconfigPath()

	code, objects, _ := suite.Fleetctl(t, management, "render", name, "--namespace", namespace, "--for", "management")
	g.Expect(code).To(Equal(cli.ExitOK))
	steps := step.FindAllStringSubmatch(objects, -1)
	g.Expect(steps).To(HaveLen(4))
	kubectl(t, management, "apply", "--server-side", "--filename", file(t, "management.yaml", objects))
	kubectl(t, management, words(steps[1][2])...)
	token := kubectl(t, management, words(strings.TrimSuffix(steps[2][2], " > token"))...)

	render := strings.TrimSuffix(steps[3][2], " --token-file token > workload.yaml")
	code, objects, _ = suite.Fleetctl(t, management, append(words(render), "--token-file", file(t, "token", token))...)
	g.Expect(code).To(Equal(cli.ExitOK))
	kubectl(t, file(t, "workload", string(w.Kubeconfig())), "apply", "--server-side", "--filename", file(t, "workload.yaml", objects))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	sim := agentsim.New(agentsim.Options{Workload: w.Config(), InitialHeartbeat: time.Millisecond})
	go func() { ended <- sim.Run(ctx) }()
	defer func() {
		cancel()
		g.Expect(<-ended).To(Or(Succeed(), MatchError(context.Canceled)))
	}()
	g.Expect(bare.Client.Create(t.Context(), suite.Bundle(namespace, "app"))).To(Succeed())
	g.Eventually(func(g Gomega) {
		cluster := &fleet.Cluster{}
		g.Expect(bare.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, cluster)).To(Succeed())
		g.Expect(cluster.Status.Agent.LastSeen.IsZero()).To(BeFalse(), "no heartbeat arrived")
		g.Expect(w.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "bundle-app"}, &corev1.ConfigMap{})).To(Succeed())
		g.Expect(sim.Report().Refused).To(BeEmpty())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())

	agent := rest.AnonymousClientConfig(bare.Config())
	agent.BearerToken = strings.TrimSpace(token)
	asAgent, err := client.New(agent, client.Options{Scheme: bare.Client.Scheme(), Mapper: bare.Client.RESTMapper()})
	g.Expect(err).NotTo(HaveOccurred())
	other := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err = asAgent.Status().Patch(t.Context(), other, client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespace":"default"}}`)))
	g.Expect(err).To(MatchError(ContainSubstring("an agent may set nothing but status.agent")), "Fleet deletes the namespace that is there")

	_, again, _ := suite.Fleetctl(t, management, "render", name, "--namespace", namespace, "--for", "management")
	g.Expect(clientID(again)).To(Equal(clientID(kubectl(t, management, "get", "clusters.fleet.cattle.io", name, "--namespace", namespace, "--output", "yaml"))),
		"the Fleet Cluster would get another clientID")
}

// The Cluster's registration lies in a workspace, and its labels are what bundles go by.
func TestRenderPrintsWhatTheManagerWouldMake(t *testing.T) {
	g := NewWithT(t)
	const namespace, name, workspace = "render-labelled", "edge", "render-workspace"
	suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, NoKubelet: true, Light: &lightapi.Options{}})
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"env":"prod"}}}`))
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	g.Expect(lab.Client.Patch(t.Context(), cluster, label)).To(Succeed())

	_, objects, _ := fleetctl(t, "render", name, "--namespace", namespace, "--for", "management")
	g.Expect(objects).To(ContainSubstring("\n    env: prod\n"))

	id := upstream.NewID()
	g.Expect(lab.Client.Create(t.Context(), &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: fleetv1.FleetRegistrationSpec{
			RegistrationID: id, ClusterUID: cluster.UID,
			FleetCluster: fleetv1.FleetClusterReference{Namespace: workspace, Name: fleet.NamespacedClusterName(namespace, name)},
			SelectedBy:   fleetv1.SelectedBy{Policy: "p"},
			Targeting:    fleetv1.TargetingSettings{Labels: fleetv1.LabelPropagation{Static: map[string]fleetv1.LabelValue{"tier": "edge"}}},
			Agent: fleetv1.AgentSpec{
				Image:             "registry.example.com/fleet-agent:v1",
				ManagementCluster: fleetv1.ManagementClusterEndpoint{Server: "https://fleet.example.com"},
			},
		},
	})).To(Succeed())
	_, objects, _ = fleetctl(t, "render", name, "--namespace", namespace, "--for", "management", "--manager-namespace", "elsewhere")
	g.Expect(objects).To(ContainSubstring("\n    tier: edge\n"))
	g.Expect(objects).NotTo(ContainSubstring("env: prod"), "a workspace gets what its policy lists")
	last := step.FindAllStringSubmatch(objects, -1)[3][2]
	g.Expect(last).To(ContainSubstring(" --manager-namespace elsewhere "))
	code, objects, _ := fleetctl(t, append(words(strings.TrimSuffix(last, " --token-file token > workload.yaml")), "--token-file", file(t, "token", "a.b.c"))...)
	g.Expect(code).To(Equal(cli.ExitOK))
	g.Expect(objects).To(ContainSubstring("image: registry.example.com/fleet-agent:v1"), "the settings of the registration are lost")
}

// words splits a command as a shell does, for what render prints.
func words(line string) []string {
	return strings.Split(strings.ReplaceAll(line, "'", ""), " ")
}

func clientID(manifests string) string {
	return regexp.MustCompile(`clientID: (\S+)`).FindString(manifests)
}
