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
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-fleet/capi-fleet/internal/cli"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestTheCommandsShowAndMendARegistration(t *testing.T) {
	g := NewWithT(t)
	manager, err := lab.NewManager(t.Context(), "cli")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manager.Start(t.Context())).To(Succeed())
	defer func() { g.Expect(manager.Stop()).To(Succeed()) }()
	w := suite.AddCluster(t, lab, "shown", env.ClusterOptions{Namespace: "shown", Register: true, Light: &lightapi.Options{}})
	aside := suite.AddCluster(t, lab, "aside", env.ClusterOptions{Namespace: "shown", StartLater: true, Light: &lightapi.Options{}})
	g.Expect(lab.Client.Create(t.Context(), suite.Bundle("shown", "app"))).To(Succeed())
	suite.EventuallyReady(t, lab, w)
	suite.EventuallyDeployed(t, w, "app")

	code, out, errOut := fleetctl(t, "status", "--namespace", "shown")
	g.Expect(code).To(Equal(cli.ExitOK))
	g.Expect(errOut).To(BeEmpty())
	g.Expect(out).To(MatchRegexp(`(?m)^aside +- +NotRegistered`))
	g.Expect(out).To(MatchRegexp(`(?m)^shown +True +Ready +\S+ +\S+ ago +in \S+ +\d/1`))
	code, out, _ = fleetctl(t, "status", "aside", "--namespace", "shown", "--output", "json")
	g.Expect(code).To(Equal(cli.ExitFinding))
	var parsed struct {
		Clusters []struct{ Name, Reason string }
	}
	g.Expect(json.Unmarshal([]byte(out), &parsed)).To(Succeed())
	g.Expect(parsed.Clusters).To(HaveLen(1))
	g.Expect(parsed.Clusters[0].Reason).To(Equal("NotRegistered"))
	code, _, errOut = fleetctl(t, "status", "nobody", "--namespace", "shown")
	g.Expect(code).To(Equal(cli.ExitFailed))
	g.Expect(errOut).To(Equal("Error: there is no Cluster shown/nobody\n"))

	lookAround := []string{"--namespace", "shown", "--denied-ranges", ""}
	_, out, _ = fleetctl(t, append([]string{"describe", "shown"}, lookAround...)...)
	g.Expect(out).To(And(ContainSubstring("└─ Workload cluster: answers"), ContainSubstring("Secret cattle-fleet-system/fleet-agent: is this registration's")))
	_, out, _ = fleetctl(t, append([]string{"diagnose", "shown"}, lookAround...)...)
	g.Expect(out).To(MatchRegexp(`(?m)^Reachability +ok$`))
	g.Expect(out).To(MatchRegexp(`(?m)^RBAC +ok$`))
	_, out, _ = fleetctl(t, "diagnose", "shown", "--namespace", "shown")
	g.Expect(out).To(MatchRegexp(`(?m)^Reachability +unknown +This machine does not reach the workload cluster`), "a kubeconfig led to this host")
	code, out, _ = fleetctl(t, append([]string{"diagnose", aside.Name}, lookAround...)...)
	g.Expect(code).To(Equal(cli.ExitFinding))
	g.Expect(out).To(ContainSubstring("Label: Neither the Cluster nor its Namespace has the label"))

	before := suite.AgentSecret(g, t.Context(), w).Data["token"]
	code, _, _ = fleetctl(t, "rotate", "shown", "--namespace", "shown")
	g.Expect(code).To(Equal(cli.ExitOK))
	g.Eventually(func(g Gomega) {
		g.Expect(suite.AgentSecret(g, t.Context(), w).Data["token"]).NotTo(Equal(before))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(w.AgentStarts()).To(HaveLen(1))
}
