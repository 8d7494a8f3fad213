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
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// waitsForBundle adds a cluster whose workload cluster has a release of Fleet, and
// returns once its registration waits for the bundle of it.
func waitsForBundle(t *testing.T, namespace, bundle string) (*env.Workload, *corev1.Secret) {
	t.Helper()
	g := NewWithT(t)
	release, err := agentsim.ReleaseSecret(bundle, agent.Namespace)
	g.Expect(err).NotTo(HaveOccurred())
	w := add(t, plan(namespace, "edge"))[0]
	g.Expect(w.Client.Create(t.Context(), release)).To(Succeed())
	setLabel(t, clusterOf(w), fleetv1.RegisterLabel, "true")

	expectRefused(t, w, fleetv1.AgentDeployedCondition, fleetv1.WaitingForBundlesReason, bundle, fleetv1.StartWithoutBundlesAnnotation)
	expectNoAgent(t, w)
	return w, release
}

func expectNoAgent(t *testing.T, w *env.Workload) {
	t.Helper()
	g := NewWithT(t)
	for _, obj := range []client.Object{&corev1.Secret{}, &appsv1.Deployment{}} {
		g.Expect(w.Client.Get(t.Context(), suite.AgentKey, obj)).To(Satisfy(apierrors.IsNotFound), "%T", obj)
	}
	g.Expect(writing(visits(w))).To(BeEmpty())
}

func TestTheAgentStartsOnceEveryReleaseHasItsBundleDeployment(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace, bundle = "bundles-wait", "production-database"
	w, release := waitsForBundle(t, namespace, bundle)

	create(t, suite.Bundle(namespace, bundle, fleet.BundleTarget{ClusterName: w.Name}))
	registration := suite.EventuallyReady(t, lab, w)
	deployment := &fleet.BundleDeployment{}
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: registration.Status.Namespace, Name: bundle}, deployment)).To(Succeed())
		g.Expect(deployment.Status.Ready).To(BeTrue())
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	kept := &corev1.Secret{}
	g.Expect(w.Client.Get(t.Context(), client.ObjectKeyFromObject(release), kept)).To(Succeed(), "the release stays")
	g.Expect(kept.UID).To(Equal(release.UID))
	for _, report := range w.AgentReports() {
		g.Expect(report.Uninstalled).To(BeEmpty())
	}
}

func TestAnAnnotationStartsTheAgentWithoutBundles(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w, _ := waitsForBundle(t, "bundles-override", "left-over")
	registration := registrationOf(t, w)

	seen := len(visits(w))
	setAnnotation(t, registration, fleetv1.StartWithoutBundlesAnnotation, ptr.To("of-another-namespace"))
	g.Eventually(func() int { return len(visits(w)) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeNumerically(">", seen))
	fence(t, "bundles-override")
	expectNoAgent(t, w)

	setAnnotation(t, registration, fleetv1.StartWithoutBundlesAnnotation, ptr.To(string(registration.Status.NamespaceUID)))
	suite.EventuallyReady(t, lab, w)
}
