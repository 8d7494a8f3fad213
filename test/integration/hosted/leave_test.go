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

package hosted

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestAClusterThatOptsOutKeepsWhatItsHostedAgentDeployed(t *testing.T) {
	g := NewWithT(t)
	w, object := join(t, env.ClusterOptions{Namespace: "opts-out"})
	before := registrationOf(g, t, w)
	set := func(value string) {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+fleetv1.RegisterLabel+`":"`+value+`"}}}`))
		g.Expect(lab.Client.Patch(t.Context(), cluster, patch)).To(Succeed())
	}

	set("false")
	suite.EventuallyGone(t, lab, w)

	g.Expect(inManagerNamespace(g, t, before.Status.Namespace)).To(BeEmpty())
	g.Expect(lab.Client.Get(t.Context(), w.Key(), &fleet.Cluster{})).To(Satisfy(apierrors.IsNotFound))
	for _, left := range agent.Leftovers() {
		g.Expect(w.Client.Get(t.Context(), client.ObjectKeyFromObject(left), left)).To(Satisfy(apierrors.IsNotFound), "%T", left)
	}
	suite.ExpectKept(t, w, bundle, object)

	// And back again.
	set("true")
	again := suite.EventuallyReady(t, lab, w)
	g.Expect(again.Spec.RegistrationID).NotTo(Equal(before.Spec.RegistrationID))
	eventuallyPlaced(t, w, fleetv1.PlacementManagement)
	suite.ExpectKept(t, w, bundle, object)
}
