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
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/cli"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// step finds a command in the comments of the objects of the management cluster.
var step = regexp.MustCompile(`(?m)^# \d\. (kubectl|clusterctl fleet) (.*)$`)

func TestAnAgentWorksWithWhatRenderPrintsAndKubectlApplies(t *testing.T) {
	g := NewWithT(t)
	const namespace, name = "by-hand", "edge"
	w := suite.AddCluster(t, lab, name, env.ClusterOptions{NoKubelet: true})
	management := lab.Management().AdminKubeconfigPath()

	code, objects, _ := fleetctl(t, "render", name, "--namespace", namespace, "--for", "management", "--offline")
	g.Expect(code).To(Equal(cli.ExitOK))
	steps := step.FindAllStringSubmatch(objects, -1)
	g.Expect(steps).To(HaveLen(4))
	kubectl(t, management, "apply", "--server-side", "--filename", file(t, "management.yaml", objects))
	kubectl(t, management, words(steps[1][2])...)
	token := kubectl(t, management, words(strings.TrimSuffix(steps[2][2], " > token"))...)

	render := strings.TrimSuffix(steps[3][2], " --token-file token > workload.yaml")
	code, objects, _ = fleetctl(t, append(words(render), "--token-file", file(t, "token", token), "--agent-image", "rancher/fleet-agent:v0.14.2",
		"--agent-server", lab.Config().Host, "--agent-ca-file", file(t, "ca.crt", string(lab.Config().CAData)))...)
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
	g.Expect(lab.Client.Create(t.Context(), suite.Bundle(namespace, "app"))).To(Succeed())
	g.Eventually(func(g Gomega) {
		cluster := &fleet.Cluster{}
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, cluster)).To(Succeed())
		g.Expect(cluster.Status.Agent.LastSeen.IsZero()).To(BeFalse(), "no heartbeat arrived")
		g.Expect(w.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "bundle-app"}, &corev1.ConfigMap{})).To(Succeed())
		g.Expect(sim.Report().Refused).To(BeEmpty())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())

	_, again, _ := fleetctl(t, "render", name, "--namespace", namespace, "--for", "management")
	g.Expect(clientID(again)).To(Equal(clientID(kubectl(t, management, "get", "clusters.fleet.cattle.io", name, "--namespace", namespace, "--output", "yaml"))),
		"the Fleet Cluster would get another clientID")
}

// words splits a command as a shell does, for what render prints.
func words(line string) []string {
	return strings.Split(strings.ReplaceAll(line, "'", ""), " ")
}

func clientID(manifests string) string {
	return regexp.MustCompile(`clientID: (\S+)`).FindString(manifests)
}
