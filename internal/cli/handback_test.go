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

package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const lastingToken = "header.lasting.signature"

// joined returns a cluster that can be handed back, and the Secret of its agent.
func joined(mode string) (*handback, *corev1.Secret) {
	reg := &fleetv1.FleetRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge", Finalizers: []string{"example.com/other", fleetv1.FleetRegistrationFinalizer}},
		Spec: fleetv1.FleetRegistrationSpec{
			RegistrationID: "edge-id", FleetCluster: fleetv1.FleetClusterReference{Namespace: "fleet-default", Name: "edge"},
		},
	}
	reg.Spec.Agent.ManagementCluster.Server = "https://mgmt.example.com"
	reg.Status.Namespace, reg.Status.NamespaceUID = "cluster-of-edge", "namespace-uid"
	reg.Status.Workload.SystemNamespaceUID = "system-uid"
	options := &handbackOptions{app: &app{clock: testclock.NewFakeClock(orphanNow)}, mode: mode}
	options.Out, options.ErrOut, options.managerNamespace = io.Discard, io.Discard, defaultManagerNamespace
	h := &handback{
		handbackOptions: options,
		registration:    reg,
		fleetCluster: &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet-default", Name: "edge", UID: "cluster-uid",
			Labels:      map[string]string{fleet.ClusterManagementLabel: upstream.ManagementLabelValue},
			Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: "edge-id"},
		}},
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster-of-edge", UID: "namespace-uid"}},
	}
	secret := agent.Secret(agent.Input{
		RegistrationID: "edge-id", ClusterNamespace: "cluster-of-edge", ClusterNamespaceUID: "namespace-uid", Agent: reg.Spec.Agent,
	}, "header.short.signature")
	return h, secret
}

func TestAClusterThatCannotBeHandedBackSaysWhy(t *testing.T) {
	for why, change := range map[string]func(*handback){
		"runs on the management cluster": func(h *handback) { h.registration.Spec.Agent.Placement = fleetv1.PlacementManagement },
		"let capi-fleet put it into the workload cluster first": func(h *handback) {
			h.registration.Status.Agent.Placement = fleetv1.PlacementManagement
		},
		"is being deleted":           func(h *handback) { h.registration.DeletionTimestamp = ptr.To(metav1.NewTime(orphanNow)) },
		"is not this registration's": func(h *handback) { h.fleetCluster = nil },
		"fleet-default/edge is not this registration's": func(h *handback) {
			h.fleetCluster.Annotations[fleetv1.RegistrationIDAnnotation] = "other"
		},
		"fleet-default/edge is being deleted": func(h *handback) { h.fleetCluster.DeletionTimestamp = ptr.To(metav1.NewTime(orphanNow)) },
		"was made anew":                       func(h *handback) { h.namespace.UID = "another" },
		"or is gone":                          func(h *handback) { h.namespace = nil },
		"was taken from capi-fleet": func(h *handback) {
			h.mode = modeFleet
			delete(h.fleetCluster.Labels, fleet.ClusterManagementLabel)
		},
		"taken from capi-fleet": func(h *handback) {
			h.kubeConfigSecret = "edge-kubeconfig"
			h.fleetCluster.Labels[fleet.ClusterManagementLabel] = "someone"
		},
	} {
		h, _ := joined(modeToken)
		change(h)
		_, err := h.judge()
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(why)), why)
	}
	g := NewWithT(t)
	h, _ := joined(modeFleet)
	g.Expect(h.judge()).To(BeFalse())
	h.kubeConfigSecret = "edge-kubeconfig"
	delete(h.fleetCluster.Labels, fleet.ClusterManagementLabel)
	g.Expect(h.judge()).To(BeTrue(), "an earlier run gave it to Fleet already")
}

// A cluster that never came up, or that was moved here, has no status yet.
func TestARegistrationThatNeverGotToItsClusterIsReleased(t *testing.T) {
	server, err := lightapi.New(lightapi.Options{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Close)
	workload, err := client.New(server.Config(), client.Options{Scheme: scheme})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	kubeconfig := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-kubeconfig"}, Data: map[string][]byte{"value": server.Kubeconfig()}}
	_, left := joined(modeToken)
	foreign := left.DeepCopy()
	foreign.Annotations[fleetv1.RegistrationIDAnnotation] = "other"

	for name, tt := range map[string]struct {
		kubeconfig bool
		agent      *corev1.Secret
		dryRun     bool
		says       string
		wants      string // an error
	}{
		"never came up":         {says: "was never registered, and is released; whether an agent is left of a move is not known"},
		"came up":               {kubeconfig: true, says: "was never registered, and is released\n"},
		"dry run":               {kubeconfig: true, dryRun: true, says: "was never registered, and would be released\n"},
		"has an agent already":  {kubeconfig: true, agent: foreign, says: "is released\n"},
		"was moved, with agent": {kubeconfig: true, agent: left, wants: "has not taken its agent over"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h, _ := joined(modeToken)
			var out strings.Builder
			h.Out, h.dryRun = &out, tt.dryRun
			h.registration.Status = fleetv1.FleetRegistrationStatus{}
			objects := []client.Object{h.registration, h.fleetCluster}
			if tt.kubeconfig {
				objects = append(objects, kubeconfig.DeepCopy())
			}
			h.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			if tt.agent != nil {
				tt.agent.ResourceVersion = ""
				g.Expect(workload.Create(t.Context(), tt.agent)).To(Succeed())
				t.Cleanup(func() { g.Expect(workload.Delete(context.Background(), tt.agent)).To(Succeed()) })
			}

			err := h.run(t.Context())

			live := &fleetv1.FleetRegistration{}
			g.Expect(h.client.Get(t.Context(), h.key(), live)).To(Succeed())
			if tt.wants != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tt.wants)))
				g.Expect(live.Finalizers).To(ContainElement(fleetv1.FleetRegistrationFinalizer))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.String()).To(ContainSubstring(tt.says))
			if tt.dryRun {
				g.Expect(live.Finalizers).To(ContainElement(fleetv1.FleetRegistrationFinalizer))
				return
			}
			g.Expect(live.Finalizers).To(ConsistOf("example.com/other"))
			g.Expect(out.String()).To(ContainSubstring("Fleet Cluster"), "it stays")
		})
	}
}

func TestAnAgentThatIsNotTheRegistrationsIsLeftAlone(t *testing.T) {
	for why, change := range map[string]func(reg *fleetv1.FleetRegistration, secret *corev1.Secret){
		"another cluster": func(reg *fleetv1.FleetRegistration, _ *corev1.Secret) {
			reg.Status.Workload.SystemNamespaceUID = "another"
		},
		"not this registration's": func(_ *fleetv1.FleetRegistration, secret *corev1.Secret) {
			secret.Annotations[fleetv1.RegistrationIDAnnotation] = "other"
		},
		"has not been given the present namespace": func(_ *fleetv1.FleetRegistration, secret *corev1.Secret) {
			secret.Annotations[fleetv1.NamespaceUIDAnnotation] = "other"
		},
		"is not as capi-fleet made it": func(_ *fleetv1.FleetRegistration, secret *corev1.Secret) {
			secret.Data["kubeconfig"] = []byte("no token")
		},
		"in the workload cluster is not as capi-fleet made it": func(_ *fleetv1.FleetRegistration, secret *corev1.Secret) {
			delete(secret.Data, "token")
		},
	} {
		h, secret := joined(modeToken)
		change(h.registration, secret)
		NewWithT(t).Expect(judgeAgent(h.registration, "system-uid", secret)).To(MatchError(ContainSubstring(why)), why)
	}
	g := NewWithT(t)
	h, secret := joined(modeToken)
	g.Expect(judgeAgent(h.registration, "system-uid", secret)).To(Succeed())
	g.Expect(judgeAgent(h.registration, "system-uid", nil)).To(MatchError(ContainSubstring("no agent")))
}

func TestAManagerInAnotherNamespaceIsNotOverlooked(t *testing.T) {
	g := NewWithT(t)
	manager := func(namespace string) appsv1.Deployment {
		return appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerDeployment}}
	}
	g.Expect(managerAmong(nil, "ours")).To(BeNil())
	g.Expect(managerAmong([]appsv1.Deployment{manager("a"), manager("ours")}, "ours")).To(HaveField("Namespace", "ours"))
	_, err := managerAmong([]appsv1.Deployment{manager("a")}, "ours")
	g.Expect(err).To(MatchError(ContainSubstring("--manager-namespace")))
}

var errBroken = errors.New("broken off")

// broken is a cluster in memory whose writes fail from a certain one on.
type broken struct {
	left *int
	// given is set once a Fleet Cluster was told of a kubeconfig, which the types here do
	// not keep.
	given *bool
}

func (b broken) write() error {
	if *b.left <= 0 {
		return errBroken
	}
	*b.left--
	return nil
}

func (b broken) client(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			obj.(*authorizationv1.SubjectAccessReview).Status.Allowed = true
			return nil
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if secret, ok := obj.(*corev1.Secret); ok && key.Name == upstream.LastingTokenSecret {
				secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(lastingToken)}
			}
			if cluster, ok := obj.(*unstructured.Unstructured); ok && err == nil && *b.given {
				err = unstructured.SetNestedField(cluster.Object, "edge-kubeconfig", "spec", "kubeConfigSecret")
			}
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := b.write(); err != nil {
				return err
			}
			data, err := patch.Data(obj)
			if err != nil {
				return err
			}
			*b.given = *b.given || strings.Contains(string(data), `"kubeConfigSecret":"edge-kubeconfig"`)
			return c.Patch(ctx, obj, patch, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := b.write(); err != nil {
				return err
			}
			return c.Apply(ctx, obj, opts...)
		},
	}).Build()
}

// What breaks off after any of its writes leaves an agent with a credential that works, and
// is done by the next run.
func TestAHandbackThatBreaksOffIsDoneByTheNextRun(t *testing.T) {
	for mode, writes := range map[string]int{modeToken: 8, modeFleet: 3} {
		for allowed := range writes + 1 {
			g := NewWithT(t)
			left := allowed
			first, secret := joined(mode)
			b := broken{&left, new(bool)}
			management, workload := b.client(first.registration, first.fleetCluster, first.namespace), b.client(secret)
			tried := ""
			again := func() error {
				h, live := &handback{}, &corev1.Secret{}
				*h = *first
				h.client, h.registration = management, &fleetv1.FleetRegistration{}
				h.try = func(_ context.Context, token, _ string) error {
					tried = token
					return nil
				}
				g.Expect(management.Get(t.Context(), client.ObjectKeyFromObject(first.registration), h.registration)).To(Succeed())
				g.Expect(h.gather(t.Context())).To(Succeed())
				done, err := h.judge()
				g.Expect(err).NotTo(HaveOccurred())
				if done {
					return h.release(t.Context())
				}
				g.Expect(workload.Get(t.Context(), client.ObjectKeyFromObject(secret), live)).To(Succeed())
				g.Expect(judgeAgent(h.registration, "system-uid", live)).To(Succeed())
				return h.act(t.Context(), workload, live)
			}
			if err := again(); allowed < writes {
				g.Expect(err).To(HaveOccurred(), "%s, %d writes", mode, allowed)
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			live, reg, cluster := &corev1.Secret{}, &fleetv1.FleetRegistration{}, &fleet.Cluster{}
			g.Expect(workload.Get(t.Context(), client.ObjectKeyFromObject(secret), live)).To(Succeed())
			g.Expect(agent.Token(live)).To(Or(Equal("header.short.signature"), Equal(tried)), "only what was tried is given to an agent")

			left = writes
			g.Expect(again()).To(Succeed())
			g.Expect(management.Get(t.Context(), client.ObjectKeyFromObject(first.registration), reg)).To(Succeed())
			g.Expect(management.Get(t.Context(), client.ObjectKeyFromObject(first.fleetCluster), cluster)).To(Succeed())
			g.Expect(workload.Get(t.Context(), client.ObjectKeyFromObject(secret), live)).To(Succeed())
			g.Expect(reg.Finalizers).To(ConsistOf("example.com/other"))
			if mode == modeFleet {
				g.Expect(cluster.Labels).To(Equal(map[string]string{fleetv1.HandedOverLabel: "true"}))
				g.Expect(agent.Token(live)).To(Equal("header.short.signature"))
				continue
			}
			g.Expect(cluster.Labels).To(HaveKey(fleet.ClusterManagementLabel))
			g.Expect(agent.Token(live)).To(Equal(lastingToken))
			g.Expect(string(live.Data["kubeconfig"])).To(And(ContainSubstring(lastingToken), Not(ContainSubstring("short"))))
		}
	}
}

func TestATokenThatDoesNotWorkIsNotGivenToAnAgent(t *testing.T) {
	g := NewWithT(t)
	h, secret := joined(modeToken)
	left := 100
	b := broken{&left, new(bool)}
	management, workload := b.client(h.registration, h.fleetCluster, h.namespace), b.client(secret)
	h.client = management
	clock := h.clock.(*testclock.FakeClock)
	h.try = func(context.Context, string, string) error {
		go func() {
			for !clock.HasWaiters() {
				if t.Context().Err() != nil {
					return
				}
			}
			clock.Step(tokenTimeout / 3)
		}()
		return errBroken
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	g.Expect(h.act(ctx, workload, secret.DeepCopy())).To(MatchError(errBroken))
	live := &corev1.Secret{}
	g.Expect(workload.Get(t.Context(), client.ObjectKeyFromObject(secret), live)).To(Succeed())
	g.Expect(agent.Token(live)).To(Equal("header.short.signature"))
	g.Expect(h.registration.Finalizers).To(ContainElement(fleetv1.FleetRegistrationFinalizer))
}

func TestNothingIsBegunThatCannotBeDoneForAnyCluster(t *testing.T) {
	g := NewWithT(t)
	h, _ := joined(modeToken)
	left := 0
	b := broken{&left, new(bool)}
	running := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: defaultManagerNamespace, Name: managerDeployment, Labels: managerLabels}}
	g.Expect(h.prepare(t.Context(), b.client(running))).To(MatchError(ContainSubstring(upstream.ShippedStatusPolicy)))

	h.mode, left = modeFleet, 1
	h.fleetNamespace = fleet.DefaultAgentNamespace
	g.Expect(h.prepare(t.Context(), b.client(running))).To(MatchError(ContainSubstring("apiServerURL")))
	g.Expect(left).To(Equal(1), "nothing was written")

	h.mode, left = modeToken, 5
	copied := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: upstream.LastingStatusPolicy}}
	c := b.client(running, copied)
	g.Expect(h.prepare(t.Context(), c)).To(Succeed(), "the copy of an earlier run will do")
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(running), running)).To(Succeed())
	g.Expect(running.Spec.Replicas).To(HaveValue(BeEquivalentTo(0)))
}
