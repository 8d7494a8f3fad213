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

package join

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// tenant is a Cluster with two policies for it alone, each with a pull secret, and a proxy
// where its agent can have one.
type tenant struct {
	name   string
	hosted bool
	w      *env.Workload
}

// mark is in all that only this tenant may have, and in nothing else.
func (t tenant) mark() string { return "only-" + t.name }

// policy is the name of one of its policies, and of what that names.
func (t tenant) policy(second bool) string {
	return t.mark() + map[bool]string{false: "-1", true: "-2"}[second]
}

// newTenant makes a tenant's policies and its Cluster.
func newTenant(t *testing.T, name string, hosted bool) tenant {
	t.Helper()
	namespace := "apart-" + name
	made := tenant{name: name, hosted: hosted}
	for _, second := range []bool{false, true} {
		name := made.policy(second)
		pullSecret(t, name, `{"auths":{"`+name+`":{}}}`)
		settings := `{"imagePullSecrets": ["` + name + `"], "proxy": {"httpsProxy": "http://` + name + `:3128"}}`
		if hosted {
			settings = `{"imagePullSecrets": ["` + name + `"], "placement": "Management"}`
		}
		policy := settingsPolicy(t, namespace, settings)
		policy.SetName(name)
		if second {
			spec := policy.Object["spec"].(map[string]any)
			spec["priority"] = int64(1)
			spec["clusterSelector"] = map[string]any{"matchLabels": map[string]any{"second": "true"}}
		}
		apply(t, policy)
	}
	// No agent in the workload cluster reports, so that it takes what is new at once.
	made.w = suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: namespace, Register: true, NoKubelet: true, Light: &lightapi.Options{}})
	return made
}

// choose has one of its policies select the Cluster.
func (t tenant) choose(g Gomega, ctx context.Context, second bool) {
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = t.w.Namespace, t.w.Name
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"second":"%t"}}}`, second)
	g.Expect(lab.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// deployment returns the Deployment of its agent, wherever that runs.
func (t tenant) deployment(g Gomega, ctx context.Context) *appsv1.Deployment {
	c, key := client.Client(t.w.Client), suite.AgentKey
	if t.hosted {
		registration := &fleetv1.FleetRegistration{}
		g.Expect(lab.Client.Get(ctx, t.w.Key(), registration)).To(Succeed())
		c, key = lab.Client, client.ObjectKey{Namespace: env.ManagerNamespace, Name: registration.Status.Namespace}
	}
	deployment := &appsv1.Deployment{}
	g.Expect(c.Get(ctx, key, deployment)).To(Succeed())
	return deployment
}

// sightings are the marks that were seen in the objects of each tenant.
type sightings struct {
	mu    sync.Mutex
	marks map[string]map[string]string // of a tenant: where each mark was seen
}

func (s *sightings) look(of tenant, all []tenant, obj client.Object) {
	text, err := json.Marshal(obj)
	seen := string(text)
	if err != nil {
		seen = err.Error()
	}
	if secret, ok := obj.(*corev1.Secret); ok {
		for _, value := range secret.Data {
			seen += string(value)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range all {
		if strings.Contains(seen, other.mark()) {
			s.marks[of.name][other.mark()] = fmt.Sprintf("%T %s", obj, client.ObjectKeyFromObject(obj))
		}
	}
}

// of returns where each mark was seen in the tenant's objects.
func (s *sightings) of(t tenant) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.marks[t.name])
}

// agentKinds are what an agent and its pods are made of.
func agentKinds() []client.ObjectList {
	return []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{}, &corev1.SecretList{}, &corev1.ConfigMapList{},
		&corev1.ServiceAccountList{}, &networkingv1.NetworkPolicyList{},
	}
}

// follow looks at every state of every object in a namespace until the test ends.
func follow(t *testing.T, c client.WithWatch, namespace string, look func(client.Object)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	for _, list := range agentKinds() {
		watcher, err := c.Watch(ctx, list, client.InNamespace(namespace))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		group.Go(func() {
			defer watcher.Stop()
			for event := range watcher.ResultChan() {
				obj, ok := event.Object.(client.Object)
				if !ok {
					break
				}
				look(obj)
			}
			if ctx.Err() == nil {
				t.Error("the watch ended")
			}
		})
	}
}

// Clusters go back and forth between policies all at once. Every state of every object is
// looked at.
func TestPullSecretsAndProxiesAreSeenInNoOtherClusterWhilePoliciesChange(t *testing.T) {
	t.Parallel()
	const rounds = 6
	g := NewWithT(t)
	ctx := t.Context()
	tenants := []tenant{newTenant(t, "a", false), newTenant(t, "b", false), newTenant(t, "c", true), newTenant(t, "d", true)}
	seen := &sightings{marks: map[string]map[string]string{}}
	for _, of := range tenants {
		seen.marks[of.name] = map[string]string{}
	}
	expect := func(of tenant, second bool) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			pod := of.deployment(g, ctx).Spec.Template.Spec
			g.Expect(pod.ImagePullSecrets).To(ConsistOf(HaveField("Name", HaveSuffix(of.policy(second)))))
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed(), of.name)
	}
	for _, of := range tenants {
		expect(of, false)
		follow(t, of.w.Client, agent.Namespace, func(obj client.Object) { seen.look(of, tenants, obj) })
	}
	follow(t, lab.Client, env.ManagerNamespace, func(obj client.Object) {
		for _, of := range tenants {
			if strings.HasPrefix(obj.GetName(), "cluster-apart-"+of.name+"-") {
				seen.look(of, tenants, obj)
			}
		}
	})

	for round := range rounds {
		second := round%2 == 0
		for _, of := range tenants {
			of.choose(g, ctx, second)
		}
		// The others are changed again wherever they are with it.
		expect(tenants[round%len(tenants)], second)
	}
	for _, of := range tenants {
		expect(of, rounds%2 != 0)
	}
	for _, of := range tenants {
		g.Eventually(func() map[string]string { return seen.of(of) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).
			Should(HaveKey(of.mark()), "the watches see what is there")
	}
	for _, of := range tenants {
		g.Expect(seen.of(of)).To(HaveLen(1), "what was seen in %s", of.name)
	}
}
