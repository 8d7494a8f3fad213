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

package deletion

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestClusterGoesWhileTheManagerIsAway(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	makeNamespace(t)
	before := suite.Inventory(g, ctx, lab)
	w := add(t, namespace, "unmanaged")
	suite.EventuallyReady(t, lab, w)

	g.Expect(lab.Manager().Stop()).To(Succeed())
	suite.DeleteCluster(t, lab, w)
	g.Eventually(func() error { return lab.Client.Get(ctx, w.Key(), &clusterv1.Cluster{}) }).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
	reg := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(ctx, w.Key(), reg)).To(Succeed(), "what it stands for is not forgotten")

	g.Expect(lab.Manager().Start(ctx)).To(Succeed())
	expectGone(t, w)
	expectAgentRemoved(t, w)
	expectInventory(t, before)
}

func TestDeletionGoesOnAfterACrash(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	makeNamespace(t)
	before := suite.Inventory(g, ctx, lab)
	workloads := addMany(t, namespace, "crashed", 4, func(*env.ClusterOptions) {})
	for _, w := range workloads {
		suite.EventuallyReady(t, lab, w)
	}

	// The first is under way, and the others come while nobody is there.
	suite.DeleteCluster(t, lab, workloads[0])
	g.Expect(lab.Manager().Kill()).To(Succeed())
	for _, w := range workloads[1:] {
		suite.DeleteCluster(t, lab, w)
	}
	g.Expect(lab.Manager().Start(ctx)).To(Succeed())
	for _, w := range workloads {
		expectGone(t, w)
		expectAgentRemoved(t, w)
	}
	expectInventory(t, before)
}
