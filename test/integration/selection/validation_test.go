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

package selection

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
)

// ofKind returns an object of ours with a spec in JSON.
func ofKind(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal([]byte(spec), &object.Object); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	object.Object = map[string]any{"spec": object.Object}
	object.SetGroupVersionKind(fleetv1.GroupVersion.WithKind(kind))
	object.SetName("validated")
	if kind == "FleetRegistration" {
		object.SetNamespace("default")
	}
	return object
}

func expectInvalid(t *testing.T, err error, field string) {
	t.Helper()
	NewWithT(t).Expect(err).To(Satisfy(apierrors.IsInvalid))
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(field)))
}

func TestTheAPIServerRefusesAPolicyThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	const server, ca = "spec.managementCluster.server", "spec.managementCluster.ca"
	withServer := func(url string) string { return fmt.Sprintf(`{"managementCluster":{"server":%q}}`, url) }
	withCA := func(source string) string {
		return fmt.Sprintf(`{"managementCluster":{"server":"https://example.com","ca":%s}}`, source)
	}
	for name, tt := range map[string]struct{ spec, field string }{
		"valid, empty":                   {`{}`, ""},
		"valid, a server":                {withServer("https://example.com:6443/k8s/clusters/local"), ""},
		"valid, a server by IPv6":        {withServer("https://[2001:db8::1]:6443"), ""},
		"valid, a CA":                    {withCA(`{"secret":{"name":"ca","key":"ca.pem"}}`), ""},
		"valid, a lifetime":              {`{"credentials":{"lifetime":"1h"}}`, ""},
		"a lifetime that is too short":   {`{"credentials":{"lifetime":"59m59s"}}`, "spec.credentials.lifetime"},
		"a lifetime that is too long":    {`{"credentials":{"lifetime":"8760h1s"}}`, "spec.credentials.lifetime"},
		"a lifetime that is no duration": {`{"credentials":{"lifetime":"long"}}`, "spec.credentials.lifetime"},
		"valid, a batch by number":       {`{"rollout":{"maxUnavailable":1,"paused":true}}`, ""},
		"valid, a batch by percentage":   {`{"rollout":{"maxUnavailable":"100%"}}`, ""},
		"no batch":                       {`{"rollout":{"maxUnavailable":0}}`, "spec.rollout.maxUnavailable"},
		"a batch of no clusters":         {`{"rollout":{"maxUnavailable":"0%"}}`, "spec.rollout.maxUnavailable"},
		"a batch of more than all":       {`{"rollout":{"maxUnavailable":"101%"}}`, "spec.rollout.maxUnavailable"},
		"a batch that is no percentage":  {`{"rollout":{"maxUnavailable":"3"}}`, "spec.rollout.maxUnavailable"},
		"a priority that is too high":    {`{"priority":1000001}`, "spec.priority"},
		"a priority that is too low":     {`{"priority":-1000001}`, "spec.priority"},
		"an empty namespace":             {`{"fleetCluster":{"workspace":"","nameFormat":"NamespaceName","labels":{"include":["tier"]}}}`, "spec.fleetCluster.workspace"},
		"a CA without a server":          {`{"managementCluster":{"ca":{"inline":"x"}}}`, server},
		"a server over http":             {withServer("http://example.com"), server},
		"a server without a scheme":      {withServer("example.com:6443"), server},
		"a server without a host":        {withServer("https:///path"), server},
		"a server with a user":           {withServer("https://user:secret@example.com"), server},
		"a server with a query":          {withServer("https://example.com?a=b"), server},
		"a server with a fragment":       {withServer("https://example.com#a"), server},
		"a server that is too long":      {withServer("https://" + strings.Repeat("a", 512)), server},
		"a CA from nowhere":              {withCA(`{}`), ca},
		"a CA from two places":           {withCA(`{"inline":"x","secret":{"name":"ca"}}`), ca},
		"a CA from another two places":   {withCA(`{"configMap":{"name":"ca"},"secret":{"name":"ca"}}`), ca},
		"an inline CA that is empty":     {withCA(`{"inline":""}`), ca + ".inline"},
		"a CA from a nameless ConfigMap": {withCA(`{"configMap":{"key":"ca.crt"}}`), ca + ".configMap.name"},
		"a CA from a nameless Secret":    {withCA(`{"secret":{"name":""}}`), ca + ".secret.name"},
		"a CA from a key without a name": {withCA(`{"secret":{"name":"ca","key":""}}`), ca + ".secret.key"},
	} {
		t.Run(name, func(t *testing.T) {
			err := lab.Client.Create(t.Context(), ofKind(t, "FleetRegistrationPolicy", tt.spec), client.DryRunAll)
			if tt.field == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			expectInvalid(t, err, tt.field)
		})
	}
}

func TestTheAPIServerTakesTheSamplesOfPolicies(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "config", "samples", "policy-*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			g := NewWithT(t)
			content, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			policy := &unstructured.Unstructured{}
			g.Expect(yaml.Unmarshal(content, policy)).To(Succeed())
			g.Expect(policy.GetKind()).To(Equal("FleetRegistrationPolicy"))
			g.Expect(lab.Client.Create(t.Context(), policy, client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())
		})
	}
}

func TestTheAPIServerRefusesAgentSettingsThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	env := func(name string) string { return fmt.Sprintf(`{"env":[{"name":%q,"value":"x"}]}`, name) }
	many := func(field string, count int, item string) string {
		items := make([]string, count)
		for i := range items {
			items[i] = strings.ReplaceAll(item, "#", fmt.Sprint(i))
		}
		return fmt.Sprintf(`{%q:[%s]}`, field, strings.Join(items, ","))
	}
	const nodes, pods, required = "spec.agent.affinity.nodeAffinity", "spec.agent.affinity.podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
	term := func(term string) string {
		return fmt.Sprintf(`{"affinity":{"nodeAffinity":{%q:{"nodeSelectorTerms":[%s]}}}}`, required, term)
	}
	expression := func(expression string) string { return term(`{"matchExpressions":[{` + expression + `}]}`) }
	apart := func(term string) string {
		return fmt.Sprintf(`{"affinity":{"podAntiAffinity":{%q:[{%s}]}}}`, required, term)
	}
	inExpression := nodes + "." + required + ".nodeSelectorTerms[0].matchExpressions[0]"
	for name, tt := range map[string]struct{ settings, field string }{
		"valid, affinity of every kind": {`{"affinity":{
			"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
				{"matchExpressions":[{"key":"example.com/pool","operator":"In","values":["infra",""]},{"key":"a","operator":"DoesNotExist"},{"key":"cores","operator":"Gt","values":["4"]}],
				 "matchFields":[{"key":"metadata.name","operator":"NotIn","values":["node-1.example"]}]}]},
				"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"preference":{"matchExpressions":[{"key":"a","operator":"Exists","values":[]}]}}]},
			"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"topologyKey":"topology.kubernetes.io/zone","namespaces":["a"],"namespaceSelector":{}}}]},
			"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname",
				"labelSelector":{"matchLabels":{"app":"fleet-agent"},"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]},"matchLabelKeys":["a/b"]}]}}}`, ""},
		"valid, a toleration of all that a key has": {`{"tolerations":[{"key":"example.com/a","operator":"","value":"","effect":""},{"key":"","operator":"Exists"}]}`, ""},
		"an operator that no node knows":            {expression(`"key":"a","operator":"Is","values":["b"]`), inExpression + ".operator"},
		"a node's label that is none":               {expression(`"key":"a b","operator":"Exists"`), inExpression + ".key"},
		"a node's label without a name":             {expression(`"key":"","operator":"Exists"`), inExpression + ".key"},
		"a node's value that is none":               {expression(`"key":"a","operator":"In","values":["b c"]`), inExpression + ".values[0]"},
		"nothing to be in":                          {expression(`"key":"a","operator":"In"`), inExpression},
		"a value of what exists":                    {expression(`"key":"a","operator":"Exists","values":["b"]`), inExpression},
		"more than a word":                          {expression(`"key":"a","operator":"Gt","values":["b"]`), inExpression},
		"more than two numbers":                     {expression(`"key":"a","operator":"Lt","values":["1","2"]`), inExpression},
		"nodes by another field":                    {term(`{"matchFields":[{"key":"spec.taints","operator":"In","values":["a"]}]}`), "matchFields[0].key"},
		"nodes by a field of no value":              {term(`{"matchFields":[{"key":"metadata.name","operator":"In"}]}`), "matchFields[0].values"},
		"no terms of nodes":                         {term(``), nodes + "." + required + ".nodeSelectorTerms"},
		"too many terms of nodes":                   {term(strings.Repeat(`{},`, 16) + `{}`), nodes + "." + required + ".nodeSelectorTerms"},
		"a weight of nothing":                       {`{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":0,"preference":{}}]}}}`, "[0].weight"},
		"a weight of more than all":                 {`{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":101,"podAffinityTerm":{"topologyKey":"a"}}]}}}`, "[0].weight"},
		"pods apart by nothing":                     {apart(`"topologyKey":""`), pods + "." + required + "[0].topologyKey"},
		"pods apart by what is no label":            {apart(`"topologyKey":"a/b/c"`), pods + "." + required + "[0].topologyKey"},
		"pods apart by a number":                    {apart(`"topologyKey":"a","labelSelector":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}`), "labelSelector.matchExpressions[0].operator"},
		"pods apart by a wrong name of a label":     {apart(`"topologyKey":"a","labelSelector":{"matchLabels":{"a b":"c"}}`), "labelSelector.matchLabels"},
		"pods apart by a wrong value of a label":    {apart(`"topologyKey":"a","labelSelector":{"matchLabels":{"a":"b c"}}`), "labelSelector.matchLabels"},
		"pods apart in what is no namespace":        {apart(`"topologyKey":"a","namespaces":["A B"]`), "namespaces[0]"},
		"a toleration of what is no name":           {`{"tolerations":[{"key":"a b","operator":"Exists"}]}`, "spec.agent.tolerations[0].key"},
		"a toleration of a name that is too long":   {fmt.Sprintf(`{"tolerations":[{"key":%q,"operator":"Exists"}]}`, strings.Repeat("a", 64)), "spec.agent.tolerations[0].key"},
		"a toleration of a wrong value":             {`{"tolerations":[{"key":"a","value":"b c"}]}`, "spec.agent.tolerations[0].value"},
		"too many tolerations":                      {many("tolerations", 17, `{"key":"a#","operator":"Exists"}`), "spec.agent.tolerations"},
		"valid, everything": {`{"image":"rancher/fleet-agent:v1","imagePullPolicy":"Always","registry":"registry.example.com:5000/mirror",
			"imagePullSecrets":["registry","mirror.example"],"env":[{"name":"GODEBUG","value":"$(x)"},{"name":"EMPTY"}],
			"proxy":{"httpProxy":"http://proxy:3128","httpsProxy":"socks5://user:pass@[2001:db8::1]:1080","noProxy":"10.0.0.0/8,.example.com"},
			"resources":{"requests":{"cpu":0,"memory":"64Mi"},"limits":{"cpu":2,"memory":"0.5Gi"}},"nodeSelector":{"example.com/pool":"infra","empty":""},
			"tolerations":[{"operator":"Exists"},{"key":"a","value":"b","effect":"NoExecute","tolerationSeconds":60}],
			"affinity":{"nodeAffinity":{}},"network":"Host","priorityClassName":"system-node-critical","checkinInterval":"1s",
			"garbageCollectionInterval":"15m","workers":{"drift":1},"additionalCA":{"inline":"x"},"preset":"Bootstrap"}`, ""},
		"valid, the network of pods":          {`{"network":"Pod","preset":"Standard"}`, ""},
		"valid, an image by IPv6 and digest":  {`{"image":"[2001:db8::1]:5000/agent@sha256:0123"}`, ""},
		"valid, as much as there can be":      {many("env", 64, `{"name":"V#","value":"`+strings.Repeat("v", 4096)+`"}`), ""},
		"no settings":                         {`{}`, "spec.agent"},
		"an image with a blank":               {`{"image":"rancher/fleet agent"}`, "spec.agent.image"},
		"an image with a scheme":              {`{"image":"?https://registry/agent"}`, "spec.agent.image"},
		"an empty image":                      {`{"image":""}`, "spec.agent.image"},
		"an image that is too long":           {fmt.Sprintf(`{"image":%q}`, strings.Repeat("a", 257)), "spec.agent.image"},
		"an unknown pull policy":              {`{"imagePullPolicy":"Sometimes"}`, "spec.agent.imagePullPolicy"},
		"a registry with a blank":             {`{"registry":"registry example"}`, "spec.agent.registry"},
		"a registry with a scheme":            {`{"registry":"https://registry.example.com"}`, "spec.agent.registry"},
		"an empty registry":                   {`{"registry":""}`, "spec.agent.registry"},
		"a pull secret without a name":        {`{"imagePullSecrets":[""]}`, "spec.agent.imagePullSecrets"},
		"a pull secret of another namespace":  {`{"imagePullSecrets":["kube-system/registry"]}`, "spec.agent.imagePullSecrets"},
		"the same pull secret twice":          {`{"imagePullSecrets":["a","a"]}`, "spec.agent.imagePullSecrets"},
		"too many pull secrets":               {many("imagePullSecrets", 9, `"a#"`), "spec.agent.imagePullSecrets"},
		"too many variables":                  {many("env", 65, `{"name":"V#"}`), "spec.agent.env"},
		"the same variable twice":             {`{"env":[{"name":"A"},{"name":"A"}]}`, "spec.agent.env"},
		"a variable without a name":           {`{"env":[{"value":"x"}]}`, "spec.agent.env[0].name"},
		"a variable with an empty name":       {env(""), "spec.agent.env[0].name"},
		"a variable with a blank in its name": {env("A B"), "spec.agent.env[0].name"},
		"a variable from elsewhere":           {`{"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"a","key":"b"}}}]}`, "spec.agent.env[0].valueFrom"},
		"our namespace":                       {env("NAMESPACE"), "spec.agent.env[0].name"},
		"a kubeconfig":                        {env("KUBECONFIG"), "spec.agent.env[0].name"},
		"the agent's scope":                   {env("AGENT_SCOPE"), "spec.agent.env[0].name"},
		"the interval as a variable":          {env("CHECKIN_INTERVAL"), "spec.agent.env[0].name"},
		"the election as a variable":          {env("CATTLE_ELECTION_LEASE_DURATION"), "spec.agent.env[0].name"},
		"workers as a variable":               {env("DRIFT_RECONCILER_WORKERS"), "spec.agent.env[0].name"},
		"where the probe looks":               {env("FLEET_AGENT_PROBE_BIND_ADDRESS"), "spec.agent.env[0].name"},
		"a proxy as a variable":               {env("HTTPS_PROXY"), "use the field proxy"},
		"a proxy in small letters":            {env("no_proxy"), "use the field proxy"},
		"certificates as a variable":          {env("SSL_CERT_DIR"), "use the field additionalCA"},
		"a proxy without a scheme":            {`{"proxy":{"httpProxy":"proxy:3128"}}`, "spec.agent.proxy.httpProxy"},
		"a proxy without a host":              {`{"proxy":{"httpsProxy":"http://"}}`, "spec.agent.proxy.httpsProxy"},
		"a proxy of an unknown kind":          {`{"proxy":{"httpsProxy":"ftp://proxy"}}`, "spec.agent.proxy.httpsProxy"},
		"no proxy but exceptions":             {`{"proxy":{"noProxy":"10.0.0.0/8"}}`, "spec.agent.proxy"},
		"exceptions with a blank":             {`{"proxy":{"httpProxy":"http://proxy","noProxy":"a, b"}}`, "spec.agent.proxy.noProxy"},
		"no resources":                        {`{"resources":{}}`, "spec.agent.resources"},
		"a wrong quantity":                    {`{"resources":{"limits":{"memory":"64 MB"}}}`, "spec.agent.resources.limits.memory"},
		"a negative quantity":                 {`{"resources":{"requests":{"cpu":-1}}}`, "spec.agent.resources.requests"},
		"a limit of nothing":                  {`{"resources":{"limits":{"memory":"0"}}}`, "spec.agent.resources.limits"},
		"an unknown resource":                 {`{"resources":{"limits":{"gpu":1}}}`, "spec.agent.resources.limits"},
		"a request above its limit":           {`{"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"1000Mi"}}}`, "spec.agent.resources"},
		"another operating system":            {`{"nodeSelector":{"kubernetes.io/os":"windows"}}`, "spec.agent.nodeSelector"},
		"a node label that is none":           {`{"nodeSelector":{"a b":"c"}}`, "spec.agent.nodeSelector"},
		"a node label with a wrong value":     {`{"nodeSelector":{"a":"b c"}}`, "spec.agent.nodeSelector.a"},
		"an unknown operator":                 {`{"tolerations":[{"key":"a","operator":"Is"}]}`, "spec.agent.tolerations[0].operator"},
		"an unknown effect":                   {`{"tolerations":[{"key":"a","effect":"Never"}]}`, "spec.agent.tolerations[0].effect"},
		"a toleration of nothing":             {`{"tolerations":[{"value":"a"}]}`, "spec.agent.tolerations"},
		"a toleration of two minds":           {`{"tolerations":[{"key":"a","operator":"Exists","value":"b"}]}`, "spec.agent.tolerations"},
		"seconds without an eviction":         {`{"tolerations":[{"key":"a","tolerationSeconds":3}]}`, "spec.agent.tolerations"},
		"an unknown network":                  {`{"network":"Overlay"}`, "spec.agent.network"},
		"a priority class without a name":     {`{"priorityClassName":""}`, "spec.agent.priorityClassName"},
		"a priority class that is no name":    {`{"priorityClassName":"High Priority"}`, "spec.agent.priorityClassName"},
		"no time between heartbeats":          {`{"checkinInterval":"0s"}`, "spec.agent.checkinInterval"},
		"less than no time":                   {`{"checkinInterval":"-1m"}`, "spec.agent.checkinInterval"},
		"a time that is none":                 {`{"checkinInterval":"soon"}`, "spec.agent.checkinInterval"},
		"no time between collections":         {`{"garbageCollectionInterval":"999ms"}`, "spec.agent.garbageCollectionInterval"},
		"no workers":                          {`{"workers":{"drift":0}}`, "spec.agent.workers.drift"},
		"no workers for deployments":          {`{"workers":{"bundleDeployment":0}}`, "spec.agent.workers.bundleDeployment"},
		"a CA from nowhere":                   {`{"additionalCA":{}}`, "spec.agent.additionalCA"},
		"an unknown preset":                   {`{"preset":"Fast"}`, "spec.agent.preset"},
		"no CNI, but the network of pods":     {`{"network":"Pod","preset":"Bootstrap"}`, "spec.agent"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := ofKind(t, "FleetRegistrationPolicy", `{"agent":`+tt.settings+`}`)
			err := lab.Client.Create(t.Context(), policy, client.DryRunAll, client.FieldValidation("Strict"))
			switch {
			case tt.field == "":
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
			case strings.Contains(tt.settings, "valueFrom"):
				NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tt.field)))
			default:
				expectInvalid(t, err, tt.field)
			}
		})
	}
}

func TestTheAPIServerRefusesARegistrationThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 52)
	valid := map[string]string{
		"registrationID": fmt.Sprintf("%q", id),
		"fleetCluster":   `{"namespace":"default","name":"edge"}`,
		"selectedBy":     `{"label":"Cluster"}`,
	}
	// with returns a valid spec with one field replaced, or left out where it is
	// empty.
	with := func(field, value string) string {
		var fields []string
		for f, v := range valid {
			if f != field {
				fields = append(fields, fmt.Sprintf("%q:%s", f, v))
			}
		}
		if value != "" {
			fields = append(fields, fmt.Sprintf("%q:%s", field, value))
		}
		return "{" + strings.Join(fields, ",") + "}"
	}
	for name, tt := range map[string]struct{ spec, field string }{
		"valid": {with("agent", `{"image":"agent:v1","imagePullPolicy":"Always","checkinInterval":"15m","workers":{"drift":5},
			"managementCluster":{"server":"https://example.com"}}`), ""},
		"no ID":                         {with("registrationID", ""), "spec.registrationID"},
		"a short ID":                    {with("registrationID", `"abc"`), "spec.registrationID"},
		"a long ID":                     {with("registrationID", fmt.Sprintf("%q", strings.Repeat("a", 65))), "spec.registrationID"},
		"no Fleet Cluster":              {with("fleetCluster", ""), "spec.fleetCluster"},
		"a nameless Fleet Cluster":      {with("fleetCluster", `{"namespace":"default"}`), "spec.fleetCluster.name"},
		"a Fleet Cluster in no place":   {with("fleetCluster", `{"name":"edge"}`), "spec.fleetCluster.namespace"},
		"a Fleet Cluster in no name":    {with("fleetCluster", `{"namespace":"","name":"edge"}`), "spec.fleetCluster.namespace"},
		"a long name":                   {with("fleetCluster", fmt.Sprintf(`{"namespace":"default","name":%q}`, strings.Repeat("a", 64))), "spec.fleetCluster.name"},
		"selected by nothing":           {with("selectedBy", ""), "spec.selectedBy"},
		"selected by an unknown label":  {with("selectedBy", `{"label":"Machine"}`), "spec.selectedBy.label"},
		"an empty image":                {with("agent", `{"image":""}`), "spec.agent.image"},
		"an unknown pull policy":        {with("agent", `{"imagePullPolicy":"Sometimes"}`), "spec.agent.imagePullPolicy"},
		"no workers":                    {with("agent", `{"workers":{}}`), "spec.agent.workers"},
		"too few workers":               {with("agent", `{"workers":{"drift":0}}`), "spec.agent.workers.drift"},
		"too few for deployments":       {with("agent", `{"workers":{"bundleDeployment":0}}`), "spec.agent.workers.bundleDeployment"},
		"too many workers":              {with("agent", `{"workers":{"bundleDeployment":1001}}`), "spec.agent.workers.bundleDeployment"},
		"a management cluster nowhere":  {with("agent", `{"managementCluster":{}}`), "spec.agent.managementCluster.server"},
		"a management cluster by http":  {with("agent", `{"managementCluster":{"server":"http://example.com"}}`), "spec.agent.managementCluster.server"},
		"a CA that is no base64 at all": {with("agent", `{"managementCluster":{"server":"https://example.com","certificateAuthorityData":"?"}}`), "spec.agent.managementCluster.certificateAuthorityData"},
	} {
		t.Run(name, func(t *testing.T) {
			err := lab.Client.Create(t.Context(), ofKind(t, "FleetRegistration", tt.spec), client.DryRunAll)
			if tt.field == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			expectInvalid(t, err, tt.field)
		})
	}
}

func TestTheIdentityOfARegistrationDoesNotChange(t *testing.T) {
	t.Parallel()
	w := add(t, plan("immutable", "edge", labelled, noKubelet))[0]
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, "True", fleetv1.AgentDeployedReason)
	for field, patch := range map[string]string{
		"spec.registrationID": fmt.Sprintf(`{"spec":{"registrationID":%q}}`, strings.Repeat("b", 52)),
		"spec.fleetCluster":   `{"spec":{"fleetCluster":{"name":"other"}}}`,
	} {
		t.Run(field, func(t *testing.T) {
			err := lab.Client.Patch(t.Context(), registrationOf(t, w), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
			expectInvalid(t, err, field)
		})
	}
}
