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
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

func TestTheAPIServerRefusesTargetingThatCannotBeMeant(t *testing.T) {
	const field = "spec.fleetCluster"
	const classKeys = `"clusterclass-name.fleet.addons.cluster.x-k8s.io","clusterclass-namespace.fleet.addons.cluster.x-k8s.io"`
	workspace := func(more string) string {
		return `{"workspace":"fleet-default","nameFormat":"NamespaceName"` + more + `}`
	}
	static := func(of, key string) string { return fmt.Sprintf(`{%q:{"static":{%q:"x"}}}`, of, key) }
	value := func(v string) string { return `{"values":[` + v + `]}` }
	path := func(p string) string { return value(fmt.Sprintf(`{"name":"v","fieldPath":%q}`, p)) }
	for name, tt := range map[string]struct{ settings, field string }{
		"valid, a workspace":                 {workspace(`,"labels":{"include":["env"]}`), ""},
		"valid, a workspace with groups":     {workspace(`,"groups":"ClusterClass","labels":{"include":["env",` + classKeys + `]}`), ""},
		"valid, annotations in a workspace":  {workspace(`,"labels":{"include":["env"]},"annotations":{"include":["note"],"exclude":["x*"],"static":{"a":"*"}}`), ""},
		"valid, patterns":                    {`{"labels":{"include":["*"],"exclude":["internal.example.org/*","x*"]},"annotations":{"include":["note"]}}`, ""},
		"valid, static ones":                 {`{"labels":{"static":{"example.org/tier":"edge","empty":""}},"annotations":{"static":{"note":"any text"}}}`, ""},
		"valid, groups":                      {`{"groups":"ClusterClass","classNamespaces":["classes"]}`, ""},
		"valid, settings of Fleet":           {`{"paused":true,"shard":"red","displayName":"Name","nameFormat":"NamespaceName"}`, ""},
		"valid, values":                      {value(`{"name":"a","value":"x"},{"name":"b","fieldPath":"metadata.name"}`), ""},
		"valid, a label as a value":          {path(`metadata.labels['example.org/region']`), ""},
		"valid, a variable":                  {path(`spec.topology.variables['network'].pods[0]['a.b']`), ""},
		"valid, a CIDR":                      {path(`spec.clusterNetwork.pods.cidrBlocks[0]`), ""},
		"nothing":                            {`{}`, field},
		"a workspace without a format":       {`{"workspace":"fleet-default","labels":{"include":["env"]}}`, field},
		"a workspace with names alike":       {`{"workspace":"fleet-default","nameFormat":"Name","labels":{"include":["env"]}}`, field},
		"a workspace with all labels":        {workspace(``), field},
		"a workspace with excluded labels":   {workspace(`,"labels":{"exclude":["env"]}`), field},
		"a workspace with a pattern":         {workspace(`,"labels":{"include":["env","team-*"]}`), field},
		"a workspace with all annotations":   {workspace(`,"labels":{"include":["env"]},"annotations":{"include":["note","team-*"]}`), field},
		"a workspace with display names":     {workspace(`,"labels":{"include":["env"]},"displayName":"Name"`), field},
		"a workspace with hidden groups":     {workspace(`,"groups":"ClusterClass","labels":{"include":["env"]}`), field},
		"a workspace that is no namespace":   {`{"workspace":"Fleet.Default","nameFormat":"NamespaceName","labels":{"include":["env"]}}`, field + ".workspace"},
		"a format that there is not":         {`{"nameFormat":"Hash"}`, field + ".nameFormat"},
		"namespaces without groups":          {`{"classNamespaces":["classes"]}`, field},
		"all namespaces":                     {`{"groups":"ClusterClass","classNamespaces":["*"]}`, field + ".classNamespaces"},
		"a pattern with a space":             {`{"labels":{"include":["a b"]}}`, field + ".labels.include"},
		"a static label that is no label":    {static("labels", "a b"), field + ".labels.static"},
		"a static label with a bad value":    {`{"labels":{"static":{"a":"b c"}}}`, field + ".labels.static"},
		"Fleet's own label":                  {static("labels", "fleet.cattle.io/cluster-management"), field + ".labels.static"},
		"Rancher's label":                    {static("labels", "management.cattle.io/cluster-display-name"), field + ".labels.static"},
		"our label":                          {static("labels", "fleet.addons.cluster.x-k8s.io/orphan"), field + ".labels.static"},
		"the label of a class":               {static("labels", "clusterclass-name.fleet.addons.cluster.x-k8s.io"), field + ".labels.static"},
		"Helm's label":                       {static("labels", "app.kubernetes.io/managed-by"), field + ".labels.static"},
		"Helm's annotation":                  {static("annotations", "meta.helm.sh/release-name"), field + ".annotations.static"},
		"Argo CD's annotation":               {static("annotations", "argocd.argoproj.io/tracking-id"), field + ".annotations.static"},
		"Flux's label":                       {static("labels", "kustomize.toolkit.fluxcd.io/name"), field + ".labels.static"},
		"our annotation":                     {static("annotations", "fleet.addons.cluster.x-k8s.io/registration-id"), field + ".annotations.static"},
		"a value from nowhere":               {value(`{"name":"v"}`), field + ".values"},
		"a value from two places":            {value(`{"name":"v","value":"x","fieldPath":"metadata.name"}`), field + ".values"},
		"two values of one name":             {value(`{"name":"v","value":"x"},{"name":"v","value":"y"}`), field + ".values"},
		"a value that templates cannot name": {value(`{"name":"a-b","value":"x"}`), field + ".values"},
		"the whole Cluster":                  {path(`metadata`), field + ".values"},
		"all labels":                         {path(`metadata.labels`), field + ".values"},
		"all variables":                      {path(`spec.topology.variables`), field + ".values"},
		"the status":                         {path(`status.phase`), field + ".values"},
		"a path with a wildcard":             {path(`spec.topology.variables[*]`), field + ".values"},
		"another object":                     {path(`../secrets`), field + ".values"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := lab.Client.Create(t.Context(), newPolicy(t, "validated", tt.settings), client.DryRunAll)
			if tt.field == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(Satisfy(apierrors.IsInvalid), "%v", err)
			g.Expect(err).To(MatchError(ContainSubstring(tt.field)))
		})
	}
}

func TestTheFieldsReadLikeDocumentation(t *testing.T) {
	g := NewWithT(t)
	kubectl, err := kube.FindKubectl(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(t.Context(), kubectl, "explain", "fleetregpolicy.spec.fleetCluster", "--recursive=false")
	command.Env = append(os.Environ(), "KUBECONFIG="+lab.Management().AdminKubeconfigPath(), "KUBECACHEDIR="+t.TempDir())
	output, err := command.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", output)
	text := string(output)
	for _, name := range []string{
		"annotations", "classNamespaces", "displayName", "groups", "labels", "nameFormat", "paused", "shard", "values", "workspace",
	} {
		_, after, found := strings.Cut(text, "\n  "+name+"\t")
		g.Expect(found).To(BeTrue(), "%s is not in:\n%s", name, text)
		_, description, _ := strings.Cut(after, "\n")
		for strings.HasPrefix(strings.TrimSpace(description), "enum:") {
			_, description, _ = strings.Cut(description, "\n")
		}
		first, _, _ := strings.Cut(strings.TrimSpace(description), "\n")
		g.Expect(first).To(HavePrefix(name+" "), "the description of %s", name)
	}
	g.Expect(text).NotTo(ContainSubstring("<no description>"))
}

func TestWhatChangesOnAClusterIsOneWriteAndHeartbeatsAreNone(t *testing.T) {
	g := NewWithT(t)
	apply(t, newPolicy(t, "changes", `{
		"labels":{"exclude":["secret*"],"static":{"tier":"edge"}}, "annotations":{"include":["note"]}, "shard":"red", "displayName":"Name",
		"values":[{"name":"mtu","fieldPath":"spec.topology.variables['network'].mtu"},{"name":"region","fieldPath":"metadata.labels['region']"},{"name":"kind","value":"edge"}]
	}`))
	w := join(t, "changes", "edge", "changes", func(c *clusterv1.Cluster) {
		ofClass("", "edge")(c)
		c.Labels["env"], c.Labels["tier"], c.Labels["secret-sauce"], c.Labels["region"] = "prod", "core", "x", "eu"
		c.Annotations = map[string]string{"note": "first", "other": "x"}
		c.Spec.Topology.Variables = []clusterv1.ClusterVariable{{Name: "network"}}
		c.Spec.Topology.Variables[0].Value.Raw = []byte(`{"mtu":1500}`)
	})
	labels := map[string]string{
		"policy": "changes", "env": "prod", "tier": "edge", "region": "eu", fleet.ShardRefLabel: "red", fleet.ClusterDisplayNameLabel: "edge",
		fleet.ClusterManagementLabel: "capi-fleet", fleetv1.ClassNameLabel: "edge", fleetv1.ClassNamespaceLabel: "changes",
	}
	cluster := fleetClusterOf(g, t, w)
	g.Expect(cluster.Labels).To(Equal(labels))
	g.Expect(cluster.Annotations).To(And(HaveKeyWithValue("note", "first"), Not(HaveKey("other"))))
	values := func(c *fleet.Cluster) map[string]string {
		all := map[string]string{}
		for name, value := range c.Spec.TemplateValues {
			all[name] = string(value.Raw)
		}
		return all
	}
	g.Expect(values(cluster)).To(Equal(map[string]string{"mtu": "1500", "region": `"eu"`, "kind": `"edge"`}))
	suite.EventuallyCondition(t, lab, w, fleetv1.TargetedCondition, metav1.ConditionTrue, fleetv1.TargetedReason)

	// Somebody else's, which survive all of it.
	g.Expect(lab.Client.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"theirs":"z"}},"spec":{"templateValues":{"theirs":{"a":1}}}}`)))).To(Succeed())
	key := client.ObjectKeyFromObject(cluster)
	for _, step := range []struct{ name, patch, label, want string }{
		{"added", `{"metadata":{"labels":{"new":"y"}}}`, "new", "y"},
		{"changed", `{"metadata":{"labels":{"env":"dev","region":"us"}}}`, "env", "dev"},
		{"removed", `{"metadata":{"labels":{"new":null}}}`, "new", ""},
		{"under a static one", `{"metadata":{"labels":{"tier":"core2","step":"a"}}}`, "step", "a"},
		{"variables and annotations", `{"metadata":{"labels":{"step":"b"},"annotations":{"note":"second"}},"spec":{"topology":{"variables":[{"name":"network","value":{"mtu":9000}}]}}}`, "step", "b"},
	} {
		mark := suite.Mark(t, lab)
		patch(t, w, step.patch)
		eventually(t, w, func(g Gomega, c *fleet.Cluster) { g.Expect(c.Labels[step.label]).To(Equal(step.want), step.name) })
		g.Expect(writesTo(t, key, mark)).To(Equal([]string{"patch "}), step.name)
	}
	cluster = fleetClusterOf(g, t, w)
	labels["env"], labels["region"], labels["step"], labels["theirs"] = "dev", "us", "b", "z"
	g.Expect(cluster.Labels).To(Equal(labels))
	g.Expect(cluster.Annotations).To(HaveKeyWithValue("note", "second"))
	g.Expect(values(cluster)).To(Equal(map[string]string{"mtu": "9000", "region": `"us"`, "kind": `"edge"`, "theirs": `{"a":1}`}))

	mark, seen := suite.Mark(t, lab), cluster.Status.Agent.LastSeen
	eventually(t, w, func(g Gomega, c *fleet.Cluster) {
		g.Expect(c.Status.Agent.LastSeen.Sub(seen.Time)).To(BeNumerically(">=", 4*checkin), "heartbeats pass")
	})
	g.Expect(kube.Writes(suite.ManagerEvents(t, lab, mark))).To(BeEmpty())

	// What nobody can have listed is reported, and the others stay.
	huge := strings.Repeat("x", 100<<10)
	patch(t, w, fmt.Sprintf(`{"spec":{"topology":{"variables":[{"name":"network","value":{"mtu":{"a":%q,"b":[%q]}}}]}}}`, huge, huge))
	reg := suite.EventuallyCondition(t, lab, w, fleetv1.TargetedCondition, metav1.ConditionFalse, fleetv1.ValuesIncompleteReason)
	targeted := meta.FindStatusCondition(reg.Status.Conditions, fleetv1.TargetedCondition)
	g.Expect(targeted.Message).To(Equal("The Cluster does not have these values: mtu (spec.topology.variables['network'].mtu is an object)"))
	eventually(t, w, func(g Gomega, c *fleet.Cluster) {
		g.Expect(values(c)).To(Equal(map[string]string{"region": `"us"`, "kind": `"edge"`, "theirs": `{"a":1}`}))
	})
	patch(t, w, `{"spec":{"topology":{"variables":[{"name":"network","value":{"mtu":9000}}]}}}`)
	suite.EventuallyCondition(t, lab, w, fleetv1.TargetedCondition, metav1.ConditionTrue, fleetv1.TargetedReason)

	// A value that is gone is reported, and the others stay.
	patch(t, w, `{"metadata":{"labels":{"region":null}}}`)
	suite.EventuallyCondition(t, lab, w, fleetv1.TargetedCondition, metav1.ConditionFalse, fleetv1.ValuesIncompleteReason)
	eventually(t, w, func(g Gomega, c *fleet.Cluster) { g.Expect(values(c)).To(HaveLen(3)) })
	g.Expect(suite.EventuallyReady(t, lab, w)).NotTo(BeNil(), "it is Ready all the same")
}

func TestAThousandLabelChangesEndRight(t *testing.T) {
	g := NewWithT(t)
	apply(t, newPolicy(t, "thousand", `{"labels":{"include":["l-*"]}}`))
	w := join(t, "thousand", "edge", "thousand", nil)
	cluster := fleetClusterOf(g, t, w)
	g.Expect(lab.Client.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"theirs":"z"}}}`)))).To(Succeed())
	mark := suite.Mark(t, lab)
	want := map[string]string{}
	for i := range 1000 {
		label, value := fmt.Sprintf("l-%d", i%7), fmt.Sprintf("%q", fmt.Sprint(i))
		want[label] = fmt.Sprint(i)
		if i%5 == 4 {
			value = "null"
			delete(want, label)
		}
		patch(t, w, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, label, value))
	}
	want["theirs"], want[fleet.ClusterManagementLabel] = "z", "capi-fleet"
	eventually(t, w, func(g Gomega, c *fleet.Cluster) { g.Expect(c.Labels).To(Equal(want)) })
	writes := writesTo(t, client.ObjectKeyFromObject(cluster), mark)
	g.Expect(len(writes)).To(BeNumerically("<=", 1000))
	g.Expect(slices.Compact(writes)).To(Equal([]string{"patch "}))
}

func TestPoliciesThatSwapAClusterLeaveRegistrationAndAgent(t *testing.T) {
	g := NewWithT(t)
	const a = `{"labels":{"include":["site"],"static":{"tier":"edge"}}}`
	const b = `{"labels":{"include":["env"],"static":{"level":"1"}},"paused":true}`
	apply(t, newPolicy(t, "swap-a", a))
	apply(t, newPolicy(t, "swap-b", b))
	w := join(t, "swap", "edge", "swap-a", func(c *clusterv1.Cluster) { c.Labels["env"], c.Labels["site"] = "prod", "7" })
	before, cluster, starts := registrationOf(g, t, w), fleetClusterOf(g, t, w), len(w.AgentStarts())
	g.Expect(cluster.Labels).To(Equal(map[string]string{"site": "7", "tier": "edge", fleet.ClusterManagementLabel: "capi-fleet"}))

	type swap struct {
		policy string
		labels map[string]string
		paused bool
	}
	swaps := []swap{
		{"swap-b", map[string]string{"env": "prod", "level": "1", fleet.ClusterManagementLabel: "capi-fleet"}, true},
		{"swap-a", map[string]string{"site": "7", "tier": "edge", fleet.ClusterManagementLabel: "capi-fleet"}, false},
	}
	isOf := func(swap swap) {
		t.Helper()
		eventually(t, w, func(g Gomega, c *fleet.Cluster) {
			g.Expect(registrationOf(g, t, w).Spec.SelectedBy.Policy).To(Equal(swap.policy))
			g.Expect(c.Labels).To(Equal(swap.labels))
			g.Expect(c.Spec.Paused).To(Equal(swap.paused))
		})
	}
	for _, swap := range swaps {
		patch(t, w, fmt.Sprintf(`{"metadata":{"labels":{"policy":%q}}}`, swap.policy))
		isOf(swap)
	}

	// The policies change and not the Cluster: what they select of Clusters, and of Namespaces.
	selecting := func(policy, settings, label, namespace string) {
		p := newPolicy(t, policy, settings)
		spec := p.Object["spec"].(map[string]any)
		spec["clusterSelector"] = map[string]any{"matchLabels": map[string]any{"policy": label}}
		spec["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}}
		apply(t, p)
	}
	selecting("swap-a", a, "swap-b", "swap")
	selecting("swap-b", b, "swap-a", "swap")
	isOf(swaps[0])
	selecting("swap-b", b, "swap-a", "elsewhere")
	suite.EventuallyCondition(t, lab, w, fleetv1.SelectedCondition, metav1.ConditionFalse, fleetv1.PolicyMismatchReason)
	selecting("swap-a", a, "swap-a", "swap")
	isOf(swaps[1])

	after := registrationOf(g, t, w)
	g.Expect(after.UID).To(Equal(before.UID))
	g.Expect(after.Status.Agent.Revision).To(Equal(before.Status.Agent.Revision))
	g.Expect(fleetClusterOf(g, t, w).UID).To(Equal(cluster.UID))
	g.Expect(w.AgentStarts()).To(HaveLen(starts), "no new pod")
}
