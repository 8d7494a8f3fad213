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

package rollout

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// TestRollout has one part after another: each begins where the one before it ended.
func TestRollout(t *testing.T) {
	workloads := addClusters(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, []*env.Workload)
	}{
		{"Fleet's settings change and the manager crashes halfway", settingsChange},
		{"the image cannot be pulled", imageFails},
		{"one cluster is unreachable and one paused", leftForLater},
		{"an upgrade of the manager changes the manifests", upgrade},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, workloads) }) {
			return
		}
	}
}

func settingsChange(t *testing.T, workloads []*env.Workload) {
	g := NewWithT(t)
	const image = "agent:v2"
	before, started, mark := policyStatus(t), starts(workloads), suite.Mark(t, lab)
	versionsBefore := versions(t, workloads)
	past := watchHistory(t)
	configure(t, map[string]string{"agentImage": image, "agentCheckinInterval": "16s"})

	g.Eventually(func() int { return len(withImage(t, image)) }).
		WithTimeout(rolloutPatience).WithPolling(suite.Poll).Should(BeNumerically(">=", clusters/2))
	g.Expect(lab.Manager().Kill()).To(Succeed())
	g.Expect(len(withImage(t, image))).To(BeNumerically("<", clusters), "it was killed halfway")
	g.Expect(lab.Manager().Start(t.Context())).To(Succeed())

	status := eventuallyRolledOut(t, before.Revision, fleetv1.RolledOutReason)
	g.Expect(status.Updated).To(HaveValue(BeEquivalentTo(clusters)))
	g.Expect(status.Failed).To(HaveValue(BeZero()))
	g.Expect(past.mostChanging()).To(Equal(batch))
	changed := changes(t, workloads, mark)
	g.Expect(len(changed)).To(BeNumerically(">=", clusters), "a manager that is killed may not know that it wrote")
	g.Expect(changed).To(And(ContainElement(HaveField("Started", true)), Satisfy(inBatches)))
	g.Expect(starts(workloads)).To(Equal(onceMore(started)), "each agent was restarted once")
	for _, w := range workloads {
		deployment := &appsv1.Deployment{}
		g.Expect(w.Client.Get(t.Context(), suite.AgentKey, deployment)).To(Succeed())
		container := deployment.Spec.Template.Spec.Containers[0]
		g.Expect(container.Image).To(Equal(image))
		g.Expect(container.Env).To(ContainElement(corev1.EnvVar{Name: "CHECKIN_INTERVAL", Value: "16s"}))
	}

	g.Expect(versions(t, workloads)).To(Equal(versionsBefore))
	for _, w := range workloads {
		for _, write := range writes(w, mark) {
			g.Expect(write.Path).To(HaveSuffix("/deployments/"+agent.Name), "%s in %s", write.Method, w.Name)
		}
	}
	for _, write := range kube.Writes(suite.ManagerEvents(t, lab, mark)) {
		g.Expect(write.Resource).To(Equal("fleetregistrations"), "%s %s", write.Verb, write.RequestURI)
	}
}

// versions returns the versions of all objects of the agents but their Deployments.
func versions(t *testing.T, workloads []*env.Workload) map[string]string {
	t.Helper()
	g := NewWithT(t)
	found := map[string]string{}
	for _, w := range workloads {
		for _, obj := range agent.Leftovers() {
			if _, changes := obj.(*appsv1.Deployment); changes {
				continue
			}
			err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
			g.Expect(client.IgnoreNotFound(err)).To(Succeed())
			found[fmt.Sprintf("%s: %T %s", w.Name, obj, obj.GetName())] = obj.GetResourceVersion()
		}
	}
	return found
}

func imageFails(t *testing.T, workloads []*env.Workload) {
	g := NewWithT(t)
	const good, broken = "agent:v2", "agent:broken"
	for _, w := range workloads {
		w.SetUnpullable(broken)
	}
	before, started, mark := policyStatus(t), starts(workloads), suite.Mark(t, lab)
	past := watchHistory(t)
	configure(t, map[string]string{"agentImage": broken})

	stalled := eventuallyRolledOut(t, before.Revision, fleetv1.RolloutStalledReason)
	g.Expect(stalled.Failed).To(HaveValue(BeEquivalentTo(batch)))
	ill := withImage(t, broken)
	g.Expect(ill).To(HaveLen(batch))
	message := meta.FindStatusCondition(stalled.Conditions, fleetv1.RolledOutCondition).Message
	for _, name := range ill {
		g.Expect(message).To(ContainSubstring(namespace + "/" + name + " (AgentImagePullFailed)"))
	}
	g.Expect(withImage(t, good)).To(HaveLen(clusters - batch))

	configure(t, map[string]string{"agentImage": good})
	back := eventuallyRolledOut(t, stalled.Revision, fleetv1.RolledOutReason)
	g.Expect(back.Revision).To(Equal(before.Revision))
	g.Expect(back.Updated).To(HaveValue(BeEquivalentTo(clusters)))
	g.Expect(past.mostChanging()).To(Equal(batch))
	g.Expect(changes(t, workloads, mark)).To(And(HaveLen(2*batch), Satisfy(inBatches)))
	for _, w := range workloads {
		w.SetUnpullable()
		if !slices.Contains(ill, w.Name) {
			g.Expect(w.AgentStarts()).To(HaveLen(started[w.Name]), "%s was left alone", w.Name)
		}
		suite.EventuallyReady(t, lab, w)
	}
}

func leftForLater(t *testing.T, workloads []*env.Workload) {
	g := NewWithT(t)
	const old, image = "agent:v2", "agent:v3"
	unreachable, paused := workloads[1], workloads[2]
	g.Expect(unreachable.StopAPI()).To(Succeed())
	pause(t, paused, true)
	suite.EventuallyCondition(t, lab, paused, fleetv1.PausedCondition, metav1.ConditionTrue, fleetv1.PausedReason)
	before, mark := policyStatus(t), suite.Mark(t, lab)
	configure(t, map[string]string{"agentImage": image})

	status := eventuallyRolledOut(t, before.Revision, fleetv1.RolledOutReason)
	g.Expect(meta.FindStatusCondition(status.Conditions, fleetv1.RolledOutCondition).Message).To(And(
		ContainSubstring("1 paused"), ContainSubstring("1 cannot be reached")))
	g.Expect(withImage(t, old)).To(ConsistOf(unreachable.Name, paused.Name))
	g.Expect(status.Updated).To(HaveValue(BeEquivalentTo(clusters - 2)))
	g.Expect(changes(t, workloads, mark)).To(And(HaveLen(clusters-2), allStarted, Satisfy(inBatches)))

	g.Expect(unreachable.StartAPI(t.Context())).To(Succeed())
	pause(t, paused, false)
	g.Eventually(func() *int32 { return policyStatus(t).Updated }).
		WithTimeout(rolloutPatience).WithPolling(suite.Poll).Should(HaveValue(BeEquivalentTo(clusters)))
	g.Expect(withImage(t, image)).To(HaveLen(clusters))
}

func pause(t *testing.T, w *env.Workload, is bool) {
	t.Helper()
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(t.Context(), w.Key(), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Spec.Paused = ptr.To(is)
	g.Expect(lab.Client.Patch(t.Context(), cluster, client.MergeFrom(before))).To(Succeed())
}

func upgrade(t *testing.T, workloads []*env.Workload) {
	g := NewWithT(t)
	before, started, mark := policyStatus(t), starts(workloads), suite.Mark(t, lab)
	g.Expect(lab.Manager().Stop()).To(Succeed())
	past := watchHistory(t)
	suite.StartManager(t, lab, "--agent-token-dir="+nextTokenDir())

	status := eventuallyRolledOut(t, before.Revision, fleetv1.RolledOutReason)
	g.Expect(status.Updated).To(HaveValue(BeEquivalentTo(clusters)))
	g.Expect(past.mostChanging()).To(Equal(batch))
	g.Expect(changes(t, workloads, mark)).To(And(HaveLen(clusters), allStarted, Satisfy(inBatches)))
	g.Expect(starts(workloads)).To(Equal(onceMore(started)))
	manifests := agent.Manifests(nextTokenDir())
	for _, reg := range registrations(t) {
		g.Expect(reg.Spec.Agent.Manifests).To(Equal(manifests))
	}
}
