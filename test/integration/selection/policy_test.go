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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// eventuallyPolicy waits until the condition Ready of a policy has a reason, and
// returns the policy.
func eventuallyPolicy(t *testing.T, name, reason string, more ...func(Gomega, *fleetv1.FleetRegistrationPolicy)) *fleetv1.FleetRegistrationPolicy {
	t.Helper()
	p := &fleetv1.FleetRegistrationPolicy{}
	status := metav1.ConditionFalse
	if reason == fleetv1.ReadyReason {
		status = metav1.ConditionTrue
	}
	NewWithT(t).Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Name: name}, p)).To(Succeed())
		ready := meta.FindStatusCondition(p.Status.Conditions, fleetv1.ReadyCondition)
		g.Expect(ready).NotTo(BeNil())
		g.Expect(ready.Reason).To(Equal(reason), ready.Message)
		g.Expect(ready.Status).To(Equal(status))
		for _, m := range more {
			m(g, p)
		}
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	return p
}

func TestAPolicyCountsItsClustersAndIsNotWrittenAllTheTime(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "counted"
	const interval = 5 * time.Second // The least between two writes.
	before, begin := suite.Mark(t, lab), time.Now()
	create(t, policy(namespace, namespace))
	workloads := add(t,
		plan(namespace, "one", labelled), plan(namespace, "two", labelled), plan(namespace, "three", labelled),
		plan(namespace, "no-agent", labelled, noKubelet), plan(namespace, "not-labelled", noKubelet),
	)
	for _, w := range workloads[:3] {
		suite.EventuallyReady(t, lab, w)
	}
	eventuallyPolicy(t, namespace, fleetv1.ReadyReason, func(g Gomega, p *fleetv1.FleetRegistrationPolicy) {
		g.Expect(p.Status.Matched).To(HaveValue(BeEquivalentTo(4)))
		g.Expect(p.Status.Ready).To(HaveValue(BeEquivalentTo(3)))
	})

	// At least six changes were there to be counted.
	var last time.Time
	writes := 0
	for _, event := range suite.ManagerEvents(t, lab, before) {
		if event.Resource == "fleetregistrationpolicies" && event.Name == namespace && event.Verb == "patch" {
			last = event.Received
			writes++
		}
	}
	g.Expect(writes).To(BeNumerically(">=", 2))
	// The interval is one between decisions, of which the first came after begin, and a
	// request comes after its decision.
	g.Expect(last.Sub(begin)).To(BeNumerically(">=", time.Duration(writes-1)*interval))
}

func TestAPolicySaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const operator, missing = "wrong-operator", "wrong-ca"
	create(t, policy(operator, operator, func(spec *fleetv1.FleetRegistrationPolicySpec) {
		spec.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}}
	}))
	create(t, policy(missing, missing, func(spec *fleetv1.FleetRegistrationPolicySpec) {
		spec.ManagementCluster = fleetv1.ManagementClusterSource{
			Server: lab.Management().URL(),
			CA:     fleetv1.CASource{ConfigMap: fleetv1.KeyReference{Name: "wrong-ca"}},
		}
	}))
	w := add(t, plan(missing, "edge", labelled))[0]

	message := func(p *fleetv1.FleetRegistrationPolicy) string {
		return meta.FindStatusCondition(p.Status.Conditions, fleetv1.ReadyCondition).Message
	}
	g.Expect(message(eventuallyPolicy(t, operator, fleetv1.PolicyInvalidReason))).To(ContainSubstring("spec.clusterSelector"))
	g.Expect(message(eventuallyPolicy(t, missing, fleetv1.CAUnavailableReason))).To(ContainSubstring(env.ManagerNamespace + "/wrong-ca"))
	expectRefused(t, w, fleetv1.AgentDeployedCondition, fleetv1.ManagementClusterUnknownReason, "FleetRegistrationPolicy "+missing)
	expectNoAgent(t, w)

	create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: "wrong-ca"},
		Data:       map[string]string{"ca.crt": string(lab.Management().CA().CertificatePEM())},
	})
	eventuallyPolicy(t, missing, fleetv1.ReadyReason)
	suite.EventuallyReady(t, lab, w)
}

func TestAgentsFindTheManagementClusterByTheirPolicy(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ca := lab.Management().CA().CertificatePEM()
	here := metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: "found-ca"}
	create(t,
		&corev1.ConfigMap{ObjectMeta: here, Data: map[string]string{"ca.crt": string(ca)}},
		&corev1.Secret{ObjectMeta: here, Data: map[string][]byte{"bundle.pem": ca}},
	)
	sources := map[string]fleetv1.CASource{
		"found-inline":     {Inline: string(ca)},
		"found-config-map": {ConfigMap: fleetv1.KeyReference{Name: here.Name}},
		"found-secret":     {Secret: fleetv1.KeyReference{Name: here.Name, Key: "bundle.pem"}},
	}
	// The path is the source's mark: Fleet's own configuration has none.
	server := lab.Management().URL() + "/"
	var plans []planned
	for name, source := range sources {
		create(t, policy(name, name, func(spec *fleetv1.FleetRegistrationPolicySpec) {
			spec.ManagementCluster = fleetv1.ManagementClusterSource{Server: server, CA: source}
		}))
		plans = append(plans, plan(name, "edge", labelled))
	}
	for _, w := range add(t, plans...) {
		registration := suite.EventuallyReady(t, lab, w)
		g.Expect(registration.Spec.Agent.ManagementCluster).To(Equal(fleetv1.ManagementClusterEndpoint{Server: server, CertificateAuthorityData: ca}), w.Namespace)
	}
}

// fleetConfig is the key of Fleet's configuration.
var fleetConfig = client.ObjectKey{Namespace: "cattle-fleet-system", Name: "fleet-controller"}

// changeFleetConfig changes Fleet's configuration.
func changeFleetConfig(t *testing.T, mutate func(config map[string]any)) {
	t.Helper()
	g := NewWithT(t)
	was := &corev1.ConfigMap{}
	g.Expect(lab.Client.Get(t.Context(), fleetConfig, was)).To(Succeed())
	config := map[string]any{}
	g.Expect(json.Unmarshal([]byte(was.Data["config"]), &config)).To(Succeed())
	mutate(config)
	content, err := json.Marshal(config)
	g.Expect(err).NotTo(HaveOccurred())
	change(t, fleetConfig, &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["config"] = string(content) })
}

// It changes what all Clusters go by.
func TestAgentsFindTheManagementClusterWithoutAPolicy(t *testing.T) {
	g := NewWithT(t)
	server, ca := lab.Management().URL(), lab.Management().CA().CertificatePEM()
	managementCluster := func(registration *fleetv1.FleetRegistration) fleetv1.ManagementClusterEndpoint {
		return registration.Spec.Agent.ManagementCluster
	}
	byFleet := add(t, plan("found-by-fleet", "edge", labelled))[0]
	fromFleet := suite.EventuallyReady(t, lab, byFleet)
	g.Expect(managementCluster(fromFleet)).To(Equal(fleetv1.ManagementClusterEndpoint{Server: server, CertificateAuthorityData: ca}))

	var was struct{ server, ca any }
	changeFleetConfig(t, func(config map[string]any) {
		was.server, was.ca = config["apiServerURL"], config["apiServerCA"]
		delete(config, "apiServerURL")
		delete(config, "apiServerCA")
	})
	restore := func() {
		changeFleetConfig(t, func(config map[string]any) { config["apiServerURL"], config["apiServerCA"] = was.server, was.ca })
	}
	defer restore()
	unknown := add(t, plan("found-by-cluster-info", "edge", labelled), plan("found-again", "edge", labelled))
	for _, w := range unknown {
		expectRefused(t, w, fleetv1.AgentDeployedCondition, fleetv1.ManagementClusterUnknownReason, "apiServerURL", "spec.managementCluster.server")
		suite.EventuallyCondition(t, lab, w, fleetv1.FleetClusterReadyCondition, metav1.ConditionTrue, fleetv1.FleetClusterCreatedReason)
		expectNoAgent(t, w)
	}
	g.Expect(managementCluster(registrationOf(t, byFleet))).To(Equal(managementCluster(fromFleet)), "a connected agent keeps its address")

	// One waits on, so that it sees the other source come back.
	setAnnotation(t, clusterOf(unknown[1]), clusterv1.PausedAnnotation, ptr.To(""))
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{
		"": {Server: server + "/", CertificateAuthorityData: ca},
	}})
	g.Expect(err).NotTo(HaveOccurred())
	info := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": string(kubeconfig)},
	}
	create(t, info)
	fromInfo := suite.EventuallyReady(t, lab, unknown[0])
	g.Expect(managementCluster(fromInfo)).To(Equal(fleetv1.ManagementClusterEndpoint{Server: server + "/", CertificateAuthorityData: ca}))

	g.Expect(lab.Client.Delete(t.Context(), info)).To(Succeed())
	setAnnotation(t, clusterOf(unknown[1]), clusterv1.PausedAnnotation, nil)
	expectRefused(t, unknown[1], fleetv1.AgentDeployedCondition, fleetv1.ManagementClusterUnknownReason)
	restore()
	again := suite.EventuallyReady(t, lab, unknown[1])
	g.Expect(managementCluster(again)).To(Equal(managementCluster(fromFleet)))
}
