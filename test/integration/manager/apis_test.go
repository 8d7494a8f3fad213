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

package manager

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

func TestManagerWaitsForAPIsWithoutSpinningAndTakesUpWork(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	removeAPIs(t)
	start := suite.Mark(t, lab)
	manager := suite.StartManager(t, lab)

	const asked = "/apis/cluster.x-k8s.io/v1beta2"
	looks := func(events []kube.Event) (n int) {
		for _, e := range events {
			if e.RequestURI == asked || strings.HasPrefix(e.RequestURI, asked+"?") {
				n++
			}
		}
		return n
	}
	g.Eventually(func() int { return looks(suite.ManagerEvents(t, lab, start)) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeNumerically(">=", 2))
	// What it did between the first look and the last.
	events := suite.ManagerEvents(t, lab, start)
	isLook := func(e kube.Event) bool { return looks([]kube.Event{e}) == 1 }
	events = events[slices.IndexFunc(events, isLook):]
	n := looks(events)
	for !isLook(events[len(events)-1]) {
		events = events[:len(events)-1]
	}
	g.Expect(events[len(events)-1].Received.Sub(events[0].Received)).To(BeNumerically(">", time.Duration(n-1)*5*time.Second), "there are pauses")
	events = slices.DeleteFunc(events, func(e kube.Event) bool {
		return e.Resource == "clusterrolebindings" // The one for all agents needs none of these APIs.
	})
	for _, e := range events {
		g.Expect(e.Resource).To(BeEmpty(), "asks for nothing but which APIs there are: %s", e.RequestURI)
	}
	const mostPerLook = 4
	g.Expect(len(events)).To(BeNumerically("<=", mostPerLook*n), "%d looks: %v", n, events)
	log, err := manager.Log()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(log, "Waiting for APIs")).To(Equal(1))
	for _, missing := range []string{"clusters.cluster.x-k8s.io", "clusters.fleet.cattle.io"} {
		g.Expect(log).To(ContainSubstring(missing), "it says what is missing")
	}

	g.Expect(lab.InstallClusterAPI(ctx)).To(Succeed())
	g.Expect(lab.InstallFleet(ctx)).To(Succeed())
	suite.EventuallyReady(t, lab, addLight(t, "late-apis", "edge"))
}

// removeAPIs takes away the CRDs of Cluster API and Fleet, which the lab installed,
// and what earlier tests left of them. They come back when the test ends.
func removeAPIs(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	if workloads := lab.Workloads(); len(workloads) > 0 {
		manager := suite.NewManager(t, lab, "before")
		g.Expect(manager.Start(ctx)).To(Succeed())
		group, groupCtx := errgroup.WithContext(ctx)
		for _, w := range workloads {
			group.Go(func() error { return lab.RemoveCluster(groupCtx, w) })
		}
		g.Expect(group.Wait()).To(Succeed())
		g.Expect(manager.Stop()).To(Succeed())
	}
	foreign := func() []apiextensionsv1.CustomResourceDefinition {
		list := &apiextensionsv1.CustomResourceDefinitionList{}
		g.Expect(lab.Client.List(ctx, list)).To(Succeed())
		var crds []apiextensionsv1.CustomResourceDefinition
		for _, crd := range list.Items {
			if crd.Spec.Group == clusterv1.GroupVersion.Group || crd.Spec.Group == fleet.GroupVersion.Group {
				crds = append(crds, crd)
			}
		}
		return crds
	}
	crds := foreign()
	g.Expect(crds).NotTo(BeEmpty())
	for i := range crds {
		g.Expect(crds[i].Spec.Group).NotTo(Equal(fleetv1.GroupVersion.Group))
		g.Expect(lab.Client.Delete(ctx, &crds[i])).To(Succeed())
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		g.Expect(lab.InstallClusterAPI(ctx)).To(Succeed())
		g.Expect(lab.InstallFleet(ctx)).To(Succeed())
	})
	g.Eventually(foreign).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(BeEmpty())
}
