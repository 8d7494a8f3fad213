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

package upstream

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
)

func targeted(labels map[string]string) Registration {
	r := registration
	r.Target = targeting.Target{Labels: labels}
	return r
}

func (a *api) fleetClusterNow(t *testing.T) *fleet.Cluster {
	t.Helper()
	return a.snapshot(t, registration.fleetCluster("")).(*fleet.Cluster)
}

func TestAFleetClusterIsMadeWithAllThatFleetSelectsBy(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t)
	r := targeted(map[string]string{"env": "prod"})
	r.Target.Annotations = map[string]string{"note": "x"}
	r.Target.Values = map[string]apiextensionsv1.JSON{"region": {Raw: []byte(`"eu"`)}}
	r.Target.Paused = true

	_, err := a.writer().Ensure(t.Context(), r, free)

	g.Expect(err).NotTo(HaveOccurred())
	first, _ := names()
	g.Expect(a.requests).To(Equal(requestsFor(first)), "in the create, or it would be without for a moment")
	cluster := a.fleetClusterNow(t)
	g.Expect(cluster.Labels).To(Equal(map[string]string{"env": "prod", fleet.ClusterManagementLabel: ManagementLabelValue}))
	g.Expect(cluster.Annotations).To(HaveKeyWithValue("note", "x"))
	g.Expect(cluster.Annotations).To(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, r.ID))
	g.Expect(string(cluster.Spec.TemplateValues["region"].Raw)).To(Equal(`"eu"`))
	g.Expect(cluster.Spec.Paused).To(BeTrue())
}

func TestAChangeIsOneWriteAndWhatOthersPutThereStays(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t)
	_, err := a.writer().Ensure(t.Context(), targeted(map[string]string{"env": "prod", "site": "7"}), free)
	g.Expect(err).NotTo(HaveOccurred())
	cluster := a.fleetClusterNow(t)
	cluster.Labels["theirs"] = "z"
	g.Expect(a.WithWatch.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"theirs":"z"}}}`)))).To(Succeed())
	a.requests = nil

	g.Expect(a.writer().Retarget(t.Context(), targeted(map[string]string{"env": "dev", "new": "y"}))).To(Succeed())

	g.Expect(a.requests).To(Equal([]string{"get Fleet Cluster team-a/edge-1", "patch Fleet Cluster team-a/edge-1"}))
	g.Expect(a.fleetClusterNow(t).Labels).To(Equal(map[string]string{
		"env": "dev", "new": "y", "theirs": "z", fleet.ClusterManagementLabel: ManagementLabelValue,
	}))
	a.requests = nil
	g.Expect(a.writer().Retarget(t.Context(), targeted(map[string]string{"env": "dev", "new": "y"}))).To(Succeed())
	g.Expect(a.requests).To(Equal([]string{"get Fleet Cluster team-a/edge-1"}), "nothing differs")
}

func TestAFleetClusterThatIsNotOursIsNotRetargeted(t *testing.T) {
	for name, change := range map[string]func(*fleet.Cluster){
		"another registration's": func(c *fleet.Cluster) { c.Annotations[fleetv1.RegistrationIDAnnotation] = "another" },
		"handed over":            func(c *fleet.Cluster) { delete(c.Labels, fleet.ClusterManagementLabel) },
		"gone":                   nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := newAPI(t)
			if change != nil {
				cluster := everything()[fleetCluster].(*fleet.Cluster)
				change(cluster)
				a = newAPI(t, cluster)
			}
			g.Expect(a.writer().Retarget(t.Context(), targeted(map[string]string{"env": "prod"}))).To(Succeed())
			g.Expect(a.requests).To(Equal([]string{"get Fleet Cluster team-a/edge-1"}))
		})
	}
}

// Before a Fleet Cluster goes to another group, that has to be there: Retarget alone does it.
func TestAFleetClusterThatIsThereIsNotRetargetedByTheWay(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t, everything()...)
	r := targeted(map[string]string{"env": "prod"})
	r.LookFirst = true
	_, err := a.writer().Ensure(t.Context(), r, free)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.fleetClusterNow(t).Labels).NotTo(HaveKey("env"))
}

func TestAWorkspaceThatIsMissingIsNamed(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t)
	a.WithWatch = interceptor.NewClient(a.WithWatch, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "team-a")
		},
	})
	_, err := a.writer().Ensure(t.Context(), registration, free)
	var refusal *Refusal
	g.Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
	g.Expect(refusal.Reason).To(Equal(fleetv1.WorkspaceMissingReason))
	g.Expect(refusal.Message).To(ContainSubstring("team-a"))
}
