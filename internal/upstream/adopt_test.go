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
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

const stockNamespace = "cluster-of-stock"

var adopting = Registration{
	ID: registration.ID, ClusterUID: registration.ClusterUID, FleetCluster: registration.FleetCluster,
	LookFirst: true, Adopt: proven, Home: registration.FleetCluster.Namespace,
}

// proven is what a workload cluster does that is the one behind the Fleet Cluster.
func proven(context.Context, string) error { return nil }

// stockCluster returns a Fleet Cluster as Fleet's own registration leaves it.
func stockCluster() *fleet.Cluster {
	return &fleet.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "edge-1", UID: "uid-of-stock",
			Labels: map[string]string{"env": "prod"}, Annotations: map[string]string{"note": "theirs"},
		},
		Spec:   fleet.ClusterSpec{ClientID: "known"},
		Status: fleet.ClusterStatus{Namespace: stockNamespace},
	}
}

// stockNamespaceOf returns the cluster namespace of a Fleet Cluster.
func stockNamespaceOf(cluster string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stockNamespace, UID: "uid-of-namespace", Annotations: map[string]string{
		fleet.ClusterNamespaceAnnotation: "team-a", fleet.ClusterAnnotation: cluster,
	}}}
}

func workspace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
}

func agentBundle() *fleet.Bundle {
	return &fleet.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "fleet-agent-edge-1"}}
}

func agentBundleDeployment() *fleet.BundleDeployment {
	return &fleet.BundleDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: stockNamespace, Name: "fleet-agent-edge-1"}}
}

// adopter returns a writer with its clock.
func (a *api) adopter() (*Writer, *testclock.FakePassiveClock) {
	w, now := a.writer(), testclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	w.Clock = now
	return w, now
}

// writes returns the requests that ask for a change.
func (a *api) writes() []string {
	var writes []string
	for _, request := range a.requests {
		if !strings.HasPrefix(request, "get ") {
			writes = append(writes, request)
		}
	}
	return writes
}

// Another tenant could make a Cluster of that name.
func TestAFleetClusterOfASharedWorkspaceIsNotAdopted(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t, stockCluster(), stockNamespaceOf("edge-1"), workspace())
	w, _ := a.adopter()
	r := adopting
	r.Home = "team-b"

	_, err := w.Ensure(t.Context(), r, free)

	g.Expect(err).To(MatchError(And(HavePrefix(fleetv1.AdoptionBlockedReason), ContainSubstring("not in the namespace of the Cluster"))))
	g.Expect(a.writes()).To(BeEmpty())
}

func TestAdoptionGoesStepByStep(t *testing.T) {
	g := NewWithT(t)
	cluster := stockCluster()
	a := newAPI(t, cluster, stockNamespaceOf("edge-1"), workspace(), agentBundle(), agentBundleDeployment())
	w, _ := a.adopter()
	ensure := func() error {
		a.requests = nil
		_, err := w.Ensure(t.Context(), adopting, free)
		return err
	}

	g.Expect(ensure()).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
	g.Expect(a.writes()).To(Equal([]string{"patch Fleet Cluster team-a/edge-1"}))
	live := a.snapshot(t, cluster).(*fleet.Cluster)
	g.Expect(live.Labels).To(Equal(map[string]string{"env": "prod", "fleet.cattle.io/cluster-management": "capi-fleet"}))
	g.Expect(live.Annotations).To(Equal(map[string]string{
		"note": "theirs", fleetv1.RegistrationIDAnnotation: adopting.ID, fleetv1.ClusterUIDAnnotation: "uid-of-the-cluster",
		fleetv1.AdoptingAnnotation: "true",
	}))
	g.Expect(live.Spec).To(Equal(cluster.Spec))

	g.Expect(ensure()).To(MatchError(And(HavePrefix(fleetv1.WaitingForAdoptionReason), HaveSuffix("Bundle team-a/fleet-agent-edge-1"))))
	g.Expect(a.writes()).To(Equal([]string{"patch namespace /team-a"}))

	g.Expect(a.WithWatch.Delete(t.Context(), agentBundle())).To(Succeed())
	g.Expect(ensure()).To(MatchError(And(HavePrefix(fleetv1.WaitingForAdoptionReason),
		HaveSuffix("BundleDeployment "+stockNamespace+"/fleet-agent-edge-1"))))
	g.Expect(a.writes()).To(BeEmpty())
	g.Expect(a.snapshot(t, cluster).(*fleet.Cluster).Spec.ClientID).To(Equal("known"))

	g.Expect(a.WithWatch.Delete(t.Context(), agentBundleDeployment())).To(Succeed())
	a.requests = nil
	placed, err := w.Ensure(t.Context(), adopting, free)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed).To(Equal(Placed{Namespace: stockNamespace, NamespaceUID: "uid-of-namespace", AccountUID: "uid-cluster-of-stock"}))
	g.Expect(a.writes()).To(Equal([]string{
		"patch Fleet Cluster team-a/edge-1",
		"create service account capi-fleet-system/" + stockNamespace,
		"create Role team-a/" + stockNamespace,
		"create RoleBinding team-a/" + stockNamespace,
		"create RoleBinding " + stockNamespace + "/capi-fleet-agent",
	}))
	adopted := a.snapshot(t, cluster).(*fleet.Cluster)
	g.Expect(adopted.UID).To(Equal(cluster.UID))
	g.Expect(adopted.Annotations).NotTo(HaveKey(fleetv1.AdoptingAnnotation))
	g.Expect(adopted.Labels).To(Equal(live.Labels))
	g.Expect(len(adopted.Spec.ClientID)*5).To(BeNumerically(">=", 128), "a base32 digit holds 5 bits")
	g.Expect(adopted.Spec.AgentNamespace).To(BeEmpty())
	g.Expect(adopted.Status.Namespace).To(Equal(stockNamespace))

	g.Expect(ensure()).To(Succeed())
	g.Expect(a.writes()).To(BeEmpty())
	g.Expect(a.snapshot(t, cluster)).To(Equal(client.Object(adopted)))
}

// A name is no proof: another workload cluster could get the bundles, and a new agent in
// it all that is deployed to the old one.
func TestNothingIsAdoptedBeforeTheWorkloadClusterHasProvedToBeTheOne(t *testing.T) {
	g := NewWithT(t)
	cluster := stockCluster()
	a := newAPI(t, cluster, stockNamespaceOf("edge-1"), workspace(), agentBundle())
	w, _ := a.adopter()
	var asked []string
	proof := error(&Refusal{fleetv1.AdoptionUnprovenReason, "no"})
	r := adopting
	r.Adopt = func(_ context.Context, namespace string) error {
		asked = append(asked, namespace)
		return proof
	}

	for range 2 {
		_, err := w.Ensure(t.Context(), r, free)
		g.Expect(err).To(MatchError(HavePrefix(fleetv1.AdoptionUnprovenReason)))
	}
	g.Expect(asked).To(Equal([]string{stockNamespace, stockNamespace}))
	g.Expect(a.writes()).To(BeEmpty())

	proof = nil
	for range 2 {
		_, err := w.Ensure(t.Context(), r, free)
		g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
	}
	g.Expect(asked).To(HaveLen(3), "what has begun needs no more proof")
}

func TestWhatMustNotBeAdopted(t *testing.T) {
	var (
		never     = func(r *Registration) { r.Adopt = nil }
		elsewhere = func(r *Registration) { r.Namespace = "cluster-of-before" }
		owner     = func(kind, name string) func(*fleet.Cluster) {
			return func(c *fleet.Cluster) {
				c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: kind, Name: name, UID: "x"}}
			}
		}
		annotation = func(key, value string) func(*fleet.Cluster) {
			return func(c *fleet.Cluster) { c.Annotations[key] = value }
		}
		inNamespace = func(name string) func(*fleet.Cluster) {
			return func(c *fleet.Cluster) { c.Status.Namespace = name }
		}
	)
	for _, tt := range []struct {
		name      string
		cluster   func(*fleet.Cluster)
		input     func(*Registration)
		namespace *corev1.Namespace
		reason    string
		message   string
	}{
		{name: "without being asked", input: never, reason: fleetv1.FleetClusterForeignReason},
		{name: "another registration's", cluster: annotation(fleetv1.RegistrationIDAnnotation, "another"), reason: fleetv1.FleetClusterForeignReason},
		{name: "another Cluster's", cluster: annotation(fleetv1.ClusterUIDAnnotation, "another"), reason: fleetv1.FleetClusterForeignReason},
		{name: "being deleted", cluster: func(c *fleet.Cluster) { terminating(c) }, reason: fleetv1.FleetClusterTerminatingReason},
		{
			name: "another's management label", reason: fleetv1.AdoptionBlockedReason, message: "fleet.cattle.io/cluster-management",
			cluster: func(c *fleet.Cluster) { c.Labels[fleet.ClusterManagementLabel] = "someone" },
		},
		{
			name: "our own management label without an ID", reason: fleetv1.AdoptionBlockedReason, message: "fleet.cattle.io/cluster-management",
			cluster: func(c *fleet.Cluster) { c.Labels[fleet.ClusterManagementLabel] = ManagementLabelValue },
		},
		{name: "owned", cluster: owner("Cluster", "edge-1"), reason: fleetv1.AdoptionBlockedReason, message: "an owner reference to Cluster edge-1"},
		{name: "owned by what is no kind", cluster: owner("look at me", "edge-1"), reason: fleetv1.AdoptionBlockedReason, message: "it has an owner reference"},
		{name: "owned by what is no name", cluster: owner("Cluster", "look at me"), reason: fleetv1.AdoptionBlockedReason, message: "it has an owner reference"},
		{name: "Rancher's", cluster: annotation("objectset.rio.cattle.io/id", "fleet-cluster"), reason: fleetv1.AdoptionBlockedReason, message: "objectset.rio.cattle.io/"},
		{
			name: "told to put its agent elsewhere", reason: fleetv1.AdoptionBlockedReason, message: "namespace cattle-fleet-system",
			cluster: func(c *fleet.Cluster) { c.Spec.AgentNamespace = "look-at-me" },
		},
		{
			name: "with its agent elsewhere", reason: fleetv1.AdoptionBlockedReason, message: "namespace cattle-fleet-system",
			cluster: func(c *fleet.Cluster) { c.Status.Agent.Namespace = "look-at-me" },
		},
		{name: "never joined by an agent", cluster: inNamespace(""), reason: fleetv1.AdoptionUnprovenReason, message: "it has no cluster namespace"},
		{name: "naming a namespace that is missing", cluster: inNamespace("cluster-missing"), reason: fleetv1.NamespaceForeignReason, message: "cluster-missing"},
		{name: "naming another's namespace", namespace: stockNamespaceOf("edge-2"), reason: fleetv1.NamespaceForeignReason, message: stockNamespace},
		{name: "naming any namespace", cluster: inNamespace("team-a"), reason: fleetv1.NamespaceForeignReason},
		{name: "naming none that there can be", cluster: inNamespace("cluster-/look at me"), reason: fleetv1.NamespaceForeignReason},
		{name: "naming another namespace than the registration has", input: elsewhere, reason: fleetv1.NamespaceForeignReason},
		{
			name: "naming one that is being deleted", reason: fleetv1.NamespaceTerminatingReason,
			namespace: terminating(stockNamespaceOf("edge-1")).(*corev1.Namespace),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			cluster, r := stockCluster(), adopting
			if tt.cluster != nil {
				tt.cluster(cluster)
			}
			if tt.input != nil {
				tt.input(&r)
			}
			if tt.namespace == nil {
				tt.namespace = stockNamespaceOf("edge-1")
			}
			mine := workspace()
			mine.Annotations = tt.namespace.Annotations
			a := newAPI(t, cluster, tt.namespace, mine)
			w, _ := a.adopter()

			_, err := w.Ensure(t.Context(), r, free)

			g.Expect(err).To(MatchError(And(HavePrefix(tt.reason+": "), ContainSubstring(tt.message))))
			g.Expect(err.Error()).NotTo(Or(ContainSubstring("look at me"), ContainSubstring("look-at-me")))
			g.Expect(a.writes()).To(BeEmpty())
		})
	}
}

// An adoption that has begun ends, or Fleet's agent would be nobody's.
func TestAnAdoptionThatHasBegunNeedsNoLeave(t *testing.T) {
	g := NewWithT(t)
	cluster := stockCluster()
	a := newAPI(t, cluster, stockNamespaceOf("edge-1"))
	w, _ := a.adopter()
	_, err := w.Ensure(t.Context(), adopting, free)
	g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))

	r := adopting
	r.Adopt = nil
	_, err = w.Ensure(t.Context(), r, free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.snapshot(t, cluster).GetAnnotations()).NotTo(HaveKey(fleetv1.AdoptingAnnotation))
}

func TestAnAdoptionEndsWhereTheLabelIsTakenOff(t *testing.T) {
	g := NewWithT(t)
	cluster := stockCluster()
	a := newAPI(t, cluster, stockNamespaceOf("edge-1"), agentBundle(), workspace())
	w, _ := a.adopter()
	_, err := w.Ensure(t.Context(), adopting, free)
	g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
	live := a.snapshot(t, cluster)
	live.SetLabels(nil)
	g.Expect(a.WithWatch.Patch(t.Context(), live, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`)))).To(Succeed())
	a.requests = nil

	_, err = w.Ensure(t.Context(), adopting, free)

	g.Expect(err).To(MatchError(HavePrefix(fleetv1.ManagementLabelRemovedReason)))
	g.Expect(a.writes()).To(BeEmpty())
}

func TestANamespaceIsTouchedNotTooOftenForEachFleetCluster(t *testing.T) {
	g := NewWithT(t)
	other := adopting
	other.ID, other.FleetCluster.Name = "id-of-the-other", "edge-2"
	otherCluster, otherBundle := stockCluster(), agentBundle()
	otherCluster.Name, otherCluster.Status.Namespace, otherBundle.Name = "edge-2", "cluster-of-the-other", "fleet-agent-edge-2"
	otherNamespace := stockNamespaceOf("edge-2")
	otherNamespace.Name = otherCluster.Status.Namespace
	a := newAPI(t, stockCluster(), stockNamespaceOf("edge-1"), agentBundle(), otherCluster, otherNamespace, otherBundle, workspace())
	w, now := a.adopter()
	start := now.Now()
	touched := func(r Registration, at time.Duration) string {
		now.SetTime(start.Add(at))
		before := a.snapshot(t, workspace()).GetResourceVersion()
		_, err := w.Ensure(t.Context(), r, free)
		g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
		after := a.snapshot(t, workspace())
		if after.GetResourceVersion() == before {
			return ""
		}
		return after.GetAnnotations()[fleetv1.AdoptingAnnotation]
	}

	g.Expect(touched(adopting, 0)).To(BeEmpty(), "the Fleet Cluster is marked first")
	g.Expect(touched(other, 0)).To(BeEmpty())
	first := touched(adopting, time.Second)
	g.Expect(first).NotTo(BeEmpty())
	g.Expect(touched(other, time.Second)).NotTo(Or(BeEmpty(), Equal(first)), "at the same time it has to be a change too")
	g.Expect(touched(adopting, 30*time.Second)).To(BeEmpty())
	g.Expect(touched(adopting, 31*time.Second)).NotTo(Or(BeEmpty(), Equal(first)))
}

func TestATouchThatFailedIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t, stockCluster(), stockNamespaceOf("edge-1"), agentBundle(), workspace())
	w, _ := a.adopter()
	_, err := w.Ensure(t.Context(), adopting, free)
	g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
	w.Client = interceptor.NewClient(a, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("broken")
		},
	})
	_, err = w.Ensure(t.Context(), adopting, free)
	g.Expect(err).To(MatchError(ContainSubstring("touching namespace team-a: broken")))
	w.Client = a

	_, err = w.Ensure(t.Context(), adopting, free)

	g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
	g.Expect(a.snapshot(t, workspace()).GetAnnotations()).To(HaveKey(fleetv1.AdoptingAnnotation))
}

// What was judged may be another's by the time that it is written.
func TestAFleetClusterThatChangesMeanwhileIsJudgedAnew(t *testing.T) {
	for _, begun := range []bool{false, true} {
		g := NewWithT(t)
		cluster := stockCluster()
		a := newAPI(t, cluster, stockNamespaceOf("edge-1"))
		w, _ := a.adopter()
		if begun {
			_, err := w.Ensure(t.Context(), adopting, free)
			g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
		}
		w.Client = interceptor.NewClient(a, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				change := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"x"}]}}`))
				g.Expect(a.WithWatch.Patch(ctx, stockCluster(), change)).To(Succeed())
				return c.Patch(ctx, obj, patch, opts...)
			},
		})
		before := a.snapshot(t, cluster).(*fleet.Cluster)

		_, err := w.Ensure(t.Context(), adopting, free)

		g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
		after := a.snapshot(t, cluster).(*fleet.Cluster)
		g.Expect(after.Annotations).To(Equal(before.Annotations))
		g.Expect(after.Spec).To(Equal(before.Spec))
	}
}

func TestAServerErrorDuringAnAdoptionIsNoRefusal(t *testing.T) {
	g := NewWithT(t)
	a := newAPI(t, stockCluster(), stockNamespaceOf("edge-1"))
	w, _ := a.adopter()
	_, err := w.Ensure(t.Context(), adopting, free)
	g.Expect(err).To(MatchError(HavePrefix(fleetv1.WaitingForAdoptionReason)))
	w.Reader = interceptor.NewClient(a, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*metav1.PartialObjectMetadata); ok {
				return apierrors.NewInternalError(errors.New("broken"))
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})

	_, err = w.Ensure(t.Context(), adopting, free)

	g.Expect(apierrors.IsInternalError(err)).To(BeTrue(), "not known to be gone")
	g.Expect(a.snapshot(t, stockCluster()).(*fleet.Cluster).Spec.ClientID).To(Equal("known"))
}

// A registration that is made anew knows nothing of the namespace, and must not point
// the Fleet Cluster at one of our own choice.
func TestAnAdoptedRegistrationMadeAnewFindsItsNamespace(t *testing.T) {
	g := NewWithT(t)
	cluster := registration.fleetCluster("secret")
	cluster.Status.Namespace = stockNamespace
	a := newAPI(t, cluster, stockNamespaceOf("edge-1"))

	placed, err := a.writer().Ensure(t.Context(), registration, free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed).To(Equal(Placed{Namespace: stockNamespace, NamespaceUID: "uid-of-namespace", AccountUID: "uid-cluster-of-stock"}))
}

func TestANamespaceOfAnotherFleetClusterIsNotTakenOver(t *testing.T) {
	g := NewWithT(t)
	cluster := registration.fleetCluster("secret")
	cluster.Status.Namespace = stockNamespace
	a := newAPI(t, cluster, stockNamespaceOf("edge-2"))
	first, _ := names()

	placed, err := a.writer().Ensure(t.Context(), registration, free)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(placed.Namespace).To(Equal(first))
}

// A registration whose status was lost does not know the name, and its Fleet Cluster, which
// did, goes before the rest.
func TestNoAccountOfAnAdoptedRegistrationIsLeftWhereItsStatusWasLost(t *testing.T) {
	for name, end := range map[string]func(*Writer) error{
		"deleted": func(w *Writer) error {
			for range 2 {
				if _, err := w.Delete(t.Context(), registration, DeleteOptions{Abandon: true}); err != nil {
					return err
				}
			}
			return nil
		},
		"orphaned": func(w *Writer) error { return w.Orphan(t.Context(), registration) },
		"denied access": func(w *Writer) error {
			w.Clock = testclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			_, err := w.EndAccess(t.Context(), registration)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := registration.fleetCluster("secret")
			cluster.Status.Namespace = stockNamespace
			placed := placedAt(stockNamespace)
			account, others := placed.serviceAccount(managerNamespace), placedAt("cluster-of-others").serviceAccount(managerNamespace)
			others.Annotations[fleetv1.RegistrationIDAnnotation] = "of someone else"
			rights := placed.rights(managerNamespace)
			a := newAPI(t, append([]client.Object{cluster, stockNamespaceOf("edge-1"), account, others}, rights...)...)

			g.Expect(end(a.writer())).To(Succeed())

			g.Expect(a.has(t, account)).To(BeFalse())
			g.Expect(a.has(t, others)).To(BeTrue())
			if name != "denied access" {
				for _, obj := range rights {
					g.Expect(a.has(t, obj)).To(BeFalse(), "%T", obj)
				}
			}
		})
	}
}
