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

package registration

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
)

// epoch is the time of the tests.
var epoch = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(epoch.Add(-d)) }

func condition(name string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, LastTransitionTime: ago(time.Hour)}
}

func newScope(change ...func(*scope)) *scope {
	s := &scope{
		now:     epoch,
		attempt: &attempt{},
		registration: &fleetv1.FleetRegistration{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1", UID: "uid-of-registration"},
			Spec:       fleetv1.FleetRegistrationSpec{RegistrationID: "id"},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func was(conditions ...metav1.Condition) func(*scope) {
	return func(s *scope) {
		s.registration.Status.Conditions = append(s.registration.Status.Conditions, conditions...)
	}
}

// placed is a registration whose objects on the management cluster are there.
func placed(s *scope) {
	was(condition(fleetv1.FleetClusterReadyCondition, metav1.ConditionTrue, fleetv1.FleetClusterCreatedReason))(s)
}

// deployed is one whose agent was put in place an hour ago, with a token that is
// valid for two more days.
func deployed(s *scope) {
	placed(s)
	was(condition(fleetv1.WorkloadReachableCondition, metav1.ConditionTrue, fleetv1.WorkloadReachableReason),
		condition(fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason))(s)
	s.registration.Status.Agent = fleetv1.AgentStatus{
		Revision: "r", Settings: decide.Settings(s.registration.Spec.Agent), NamespaceUID: "uid", PushedTime: ago(time.Hour),
	}
	s.registration.Status.Credential = fleetv1.CredentialStatus{IssuedTime: ago(24 * time.Hour), ExpirationTime: metav1.NewTime(epoch.Add(48 * time.Hour))}
}

func pushed(d time.Duration) func(*scope) {
	return func(s *scope) {
		s.registration.Status.Agent.PushedTime = ago(d)
		meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.AgentDeployedCondition).LastTransitionTime = ago(d)
	}
}

func seen(d time.Duration) func(*scope) {
	return func(s *scope) { s.heartbeat = decide.Heartbeat{Seen: ago(d).Time, Heard: ago(d).Time} }
}

// expired leaves a token that has ended a second ago.
func expired(s *scope) { s.registration.Status.Credential.ExpirationTime = ago(time.Second) }

func TestReport(t *testing.T) {
	const (
		upstream  = fleetv1.FleetClusterReadyCondition
		reachable = fleetv1.WorkloadReachableCondition
		agent     = fleetv1.AgentDeployedCondition
		token     = fleetv1.CredentialsValidCondition
		heartbeat = fleetv1.AgentConnectedCondition
	)
	// steps are the reasons of the five conditions that Ready sums up; a leading
	// "+" means True.
	type steps [5]string
	found := func(set func(*scope, *finding), ok bool, reason string) func(*scope) {
		return func(s *scope) { set(s, &finding{ok: ok, reason: reason, message: "look there"}) }
	}
	onUpstream := func(s *scope, f *finding) { s.fleetClusterReady = f }
	onReachable := func(s *scope, f *finding) { s.workloadReachable = f }
	onAgent := func(s *scope, f *finding) { s.agentDeployed = f }
	onToken := func(s *scope, f *finding) { s.credentialsValid = f }
	const limit = 45 * time.Minute

	for _, tt := range []struct {
		name  string
		scope *scope
		want  steps
		ready string
		again time.Duration // from epoch; zero means never
	}{
		{
			name: "brand new", scope: newScope(),
			want:  steps{"WaitingForFleetCluster", "WaitingForControlPlane", "WaitingForFleetCluster", "WaitingForAgent", "WaitingForAgent"},
			ready: "WaitingForFleetCluster",
		}, {
			name: "something foreign in the way", scope: newScope(found(onUpstream, false, fleetv1.NamespaceForeignReason)),
			want:  steps{"NamespaceForeign", "WaitingForControlPlane", "WaitingForFleetCluster", "WaitingForAgent", "WaitingForAgent"},
			ready: "NamespaceForeign",
		}, {
			name: "objects made, control plane not there yet", scope: newScope(found(onUpstream, true, fleetv1.FleetClusterCreatedReason), found(onReachable, false, fleetv1.WaitingForControlPlaneReason)),
			want:  steps{"+FleetClusterCreated", "WaitingForControlPlane", "WaitingForWorkload", "WaitingForAgent", "WaitingForAgent"},
			ready: "WaitingForControlPlane",
		}, {
			name: "what was found before stays", scope: newScope(placed, was(condition(reachable, metav1.ConditionFalse, fleetv1.KubeconfigMissingReason))),
			want:  steps{"+FleetClusterCreated", "KubeconfigMissing", "WaitingForWorkload", "WaitingForAgent", "WaitingForAgent"},
			ready: "KubeconfigMissing",
		}, {
			name: "address of the management cluster unknown: comes before what is waited for", scope: newScope(placed, found(onAgent, false, fleetv1.ManagementClusterUnknownReason)),
			want:  steps{"+FleetClusterCreated", "WaitingForControlPlane", "ManagementClusterUnknown", "WaitingForAgent", "WaitingForAgent"},
			ready: "ManagementClusterUnknown",
		}, {
			name: "two faults: the first one", scope: newScope(placed, found(onReachable, false, fleetv1.AddressDeniedReason), found(onAgent, false, fleetv1.AgentImageUnknownReason)),
			want:  steps{"+FleetClusterCreated", "AddressDenied", "AgentImageUnknown", "WaitingForAgent", "WaitingForAgent"},
			ready: "AddressDenied",
		}, {
			name: "refused", scope: newScope(placed, found(onReachable, true, fleetv1.WorkloadReachableReason), found(onAgent, false, fleetv1.ForeignAgentReason)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "ForeignAgent", "WaitingForAgent", "WaitingForAgent"},
			ready: "ForeignAgent",
		}, {
			name: "refused earlier, and not tried again yet", scope: newScope(placed, was(condition(reachable, metav1.ConditionTrue, fleetv1.WorkloadReachableReason), condition(agent, metav1.ConditionFalse, fleetv1.WaitingForBundlesReason))),
			want:  steps{"+FleetClusterCreated", "+Reachable", "WaitingForBundles", "WaitingForAgent", "WaitingForAgent"},
			ready: "WaitingForBundles",
		}, {
			name: "no longer reachable since the refusal", scope: newScope(placed, found(onReachable, false, fleetv1.ConnectionFailedReason), was(condition(agent, metav1.ConditionFalse, fleetv1.ForeignAgentReason))),
			want:  steps{"+FleetClusterCreated", "ConnectionFailed", "WaitingForWorkload", "WaitingForAgent", "WaitingForAgent"},
			ready: "ConnectionFailed",
		}, {
			name: "no token to be had", scope: newScope(placed, found(onReachable, true, fleetv1.WorkloadReachableReason), found(onToken, false, fleetv1.TokenRequestFailedReason)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "WaitingForWorkload", "TokenRequestFailed", "WaitingForAgent"},
			ready: "TokenRequestFailed",
		}, {
			name: "just deployed", scope: newScope(deployed, pushed(0), found(onAgent, true, fleetv1.AgentDeployedReason)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "+CredentialsIssued", "WaitingForHeartbeat"},
			ready: "WaitingForHeartbeat", again: limit,
		}, {
			name: "connected", scope: newScope(deployed, seen(5*time.Minute)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "+CredentialsIssued", "+AgentConnected"},
			ready: "+Ready", again: limit - 5*time.Minute,
		}, {
			name: "the token ends before the heartbeat is missed", scope: newScope(deployed, seen(0), func(s *scope) {
				s.registration.Status.Credential.ExpirationTime = metav1.NewTime(epoch.Add(time.Minute))
			}),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "+CredentialsIssued", "+AgentConnected"},
			ready: "+Ready", again: time.Minute,
		}, {
			name: "the last heartbeat is just too old", scope: newScope(deployed, seen(limit)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "+CredentialsIssued", "AgentSilent"},
			ready: "AgentSilent", again: 48 * time.Hour,
		}, {
			name: "never reported", scope: newScope(deployed, pushed(limit)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "+CredentialsIssued", "AgentSilent"},
			ready: "AgentSilent", again: 48 * time.Hour,
		}, {
			name: "by the interval of the agent", scope: newScope(func(s *scope) { s.registration.Spec.Agent.CheckinInterval.Duration = time.Minute }, deployed, seen(3*time.Minute)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "+CredentialsIssued", "AgentSilent"},
			ready: "AgentSilent", again: 48 * time.Hour,
		}, {
			name: "repaired, still silent", scope: newScope(deployed, pushed(0), seen(2*time.Hour)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "+CredentialsIssued", "AgentSilent"},
			ready: "AgentSilent", again: 48 * time.Hour,
		}, {
			name: "a renewal that failed does not matter yet", scope: newScope(deployed, seen(0), found(onToken, false, fleetv1.TokenRequestFailedReason)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "+CredentialsIssued", "+AgentConnected"},
			ready: "+Ready", again: limit,
		}, {
			name: "a renewal that failed matters when the token has ended", scope: newScope(deployed, seen(0), expired, found(onToken, false, fleetv1.TokenRequestFailedReason)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "TokenRequestFailed", "+AgentConnected"},
			ready: "TokenRequestFailed", again: limit,
		}, {
			name: "expired", scope: newScope(deployed, seen(2*time.Hour), expired),
			want:  steps{"+FleetClusterCreated", "+Reachable", "+AgentDeployed", "CredentialsExpired", "AgentSilent"},
			ready: "CredentialsExpired",
		}, {
			name: "connected, and the workload cluster cannot be reached", scope: newScope(deployed, seen(0), found(onReachable, false, fleetv1.ConnectionFailedReason)),
			want:  steps{"+FleetClusterCreated", "ConnectionFailed", "+AgentDeployed", "+CredentialsIssued", "+AgentConnected"},
			ready: "ConnectionFailed", again: limit,
		}, {
			name: "connected, and a change was rejected", scope: newScope(deployed, seen(0), found(onAgent, false, fleetv1.ObjectRejectedReason)),
			want:  steps{"+FleetClusterCreated", "+Reachable", "ObjectRejected", "+CredentialsIssued", "+AgentConnected"},
			ready: "ObjectRejected", again: limit,
		}, {
			name: "after a move", scope: newScope(placed, seen(0)),
			want:  steps{"+FleetClusterCreated", "WaitingForControlPlane", "WaitingForWorkload", "WaitingForAgent", "WaitingForAgent"},
			ready: "WaitingForControlPlane",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			again := report(tt.scope)

			conditions := tt.scope.registration.Status.Conditions
			get := func(name string) string {
				c := meta.FindStatusCondition(conditions, name)
				g.Expect(c).NotTo(BeNil(), name)
				if c.Status == metav1.ConditionTrue {
					return "+" + c.Reason
				}
				return c.Reason
			}
			g.Expect(steps{get(upstream), get(reachable), get(agent), get(token), get(heartbeat)}).To(Equal(tt.want))
			g.Expect(get(fleetv1.ReadyCondition)).To(Equal(tt.ready))
			g.Expect(get(fleetv1.PausedCondition)).To(Equal(fleetv1.NotPausedReason))
			g.Expect(get(fleetv1.DeletingCondition)).To(Equal(fleetv1.NotDeletingReason))
			g.Expect(get(fleetv1.SelectedCondition)).To(Equal("+" + fleetv1.SelectedReason))
			g.Expect(conditions).To(HaveLen(10))
			if tt.again == 0 {
				g.Expect(again).To(BeZero())
			} else {
				g.Expect(again).To(BeTemporally("==", epoch.Add(tt.again)))
			}

			was := tt.scope.registration.DeepCopy()
			g.Expect(report(tt.scope)).To(Equal(again))
			g.Expect(tt.scope.registration).To(Equal(was), "a second report says the same")
		})
	}
}

func TestReadyRepeatsTheMessage(t *testing.T) {
	g := NewWithT(t)
	s := newScope(placed, func(s *scope) {
		s.agentDeployed = &finding{reason: fleetv1.ForeignAgentReason, message: "look there"}
	})
	report(s)
	g.Expect(meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.ReadyCondition).Message).To(Equal("look there"))
}

func TestTheSelectionControllersConditionStays(t *testing.T) {
	g := NewWithT(t)
	lost := condition(fleetv1.SelectedCondition, metav1.ConditionFalse, fleetv1.PolicyDeletedReason)
	s := newScope(was(lost))
	report(s)
	g.Expect(s.registration.Status.Conditions).To(ContainElement(lost))
}

func TestADeletionIsReported(t *testing.T) {
	g := NewWithT(t)
	s := newScope(deployed, seen(0), func(s *scope) {
		s.registration.DeletionTimestamp = &metav1.Time{Time: s.now}
		s.deleting = &finding{true, fleetv1.WaitingForFleetReason, "Waiting for Fleet to delete namespace x"}
	})
	report(s)
	g.Expect(isTrue(s.registration, fleetv1.DeletingCondition)).To(BeTrue())
	g.Expect(hasReason(s.registration, fleetv1.DeletingCondition, fleetv1.WaitingForFleetReason)).To(BeTrue())

	s.deleting = nil
	report(s)
	g.Expect(hasReason(s.registration, fleetv1.DeletingCondition, fleetv1.WaitingForFleetReason)).To(BeTrue(), "an error is no end of it")
}

func TestADeletionThatBeginsWithAnErrorIsReported(t *testing.T) {
	g := NewWithT(t)
	s := newScope(deployed, seen(0), func(s *scope) { s.registration.DeletionTimestamp = &metav1.Time{Time: s.now} })
	report(s)
	g.Expect(isTrue(s.registration, fleetv1.DeletingCondition)).To(BeTrue())
	g.Expect(hasReason(s.registration, fleetv1.DeletingCondition, fleetv1.InternalErrorReason)).To(BeTrue())
}

func TestATransitionTimeChangesWithTheStatusOnly(t *testing.T) {
	g := NewWithT(t)
	s := newScope(placed, was(condition(fleetv1.WorkloadReachableCondition, metav1.ConditionFalse, fleetv1.WaitingForControlPlaneReason)),
		func(s *scope) { s.workloadReachable = &finding{reason: fleetv1.KubeconfigMissingReason} })
	transition := func() time.Time {
		return meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.WorkloadReachableCondition).LastTransitionTime.Time
	}
	report(s)
	g.Expect(transition()).To(BeTemporally("==", epoch.Add(-time.Hour)))
	s.workloadReachable = &finding{ok: true, reason: fleetv1.WorkloadReachableReason}
	report(s)
	g.Expect(transition()).To(BeTemporally("==", epoch))
}

func TestPaused(t *testing.T) {
	const moving = "clusterctl.cluster.x-k8s.io/delete-for-move"
	annotated := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{name: ""}}
	}
	reg := func(m metav1.ObjectMeta) *fleetv1.FleetRegistration { return &fleetv1.FleetRegistration{ObjectMeta: m} }
	plain := reg(metav1.ObjectMeta{})
	for _, tt := range []struct {
		name    string
		cluster *clusterv1.Cluster
		reg     *fleetv1.FleetRegistration
		reason  string
	}{
		{"nothing", &clusterv1.Cluster{}, plain, ""},
		{"Cluster gone", nil, plain, ""},
		{"spec.paused is false", &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: new(false)}}, plain, ""},
		{"spec.paused", &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: new(true)}}, plain, fleetv1.PausedReason},
		{"Cluster annotated", &clusterv1.Cluster{ObjectMeta: annotated(clusterv1.PausedAnnotation)}, plain, fleetv1.PausedReason},
		{"registration annotated", &clusterv1.Cluster{}, reg(annotated(clusterv1.PausedAnnotation)), fleetv1.PausedReason},
		{"registration annotated, Cluster gone", nil, reg(annotated(clusterv1.PausedAnnotation)), fleetv1.PausedReason},
		{"Cluster moving", &clusterv1.Cluster{ObjectMeta: annotated(moving)}, plain, fleetv1.MovingReason},
		{"registration moving", nil, reg(annotated(moving)), fleetv1.MovingReason},
		{"moving goes before paused", &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: new(true)}}, reg(annotated(moving)), fleetv1.MovingReason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			got := paused(tt.cluster, tt.reg)
			if tt.reason == "" {
				g.Expect(got).To(BeNil())
				return
			}
			g.Expect(got.ok).To(BeTrue())
			g.Expect(got.reason).To(Equal(tt.reason))
			g.Expect(got.message).NotTo(BeEmpty())
		})
	}
}

// statusAPI answers to applies of a status.
type statusAPI struct {
	reconciler *Reconciler
	// applied are the conditions and options of each apply.
	applied []appliedStatus
}

type appliedStatus struct {
	object *unstructured.Unstructured
	force  bool
	owner  string
}

func (a appliedStatus) condition(name string) map[string]any {
	list, _, _ := unstructured.NestedSlice(a.object.Object, "status", "conditions")
	for _, item := range list {
		if c := item.(map[string]any); c["type"] == name {
			return c
		}
	}
	return nil
}

// newStatusAPI returns an API that holds live and gives each apply the answer of
// that number.
func newStatusAPI(t *testing.T, live *fleetv1.FleetRegistration, answers ...error) *statusAPI {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(fleetv1.AddToScheme(scheme)).To(Succeed())
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&fleetv1.FleetRegistration{})
	if live != nil {
		builder = builder.WithObjects(live)
	}
	api := &statusAPI{}
	c := builder.WithInterceptorFuncs(interceptor.Funcs{
		SubResourceApply: func(_ context.Context, _ client.Client, subResource string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if subResource != "status" {
				return errors.New("apply of " + subResource)
			}
			content, err := json.Marshal(obj)
			if err != nil {
				return err
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(content); err != nil {
				return err
			}
			options := &client.SubResourceApplyOptions{}
			options.ApplyOpts(opts)
			api.applied = append(api.applied, appliedStatus{u, options.Force != nil && *options.Force, options.FieldManager})
			if n := len(api.applied); n <= len(answers) {
				return answers[n-1]
			}
			return nil
		},
	}).Build()
	api.reconciler = &Reconciler{Client: c, APIReader: c, Clock: testclock.NewFakePassiveClock(epoch)}
	return api
}

func conflict() error {
	return apierrors.NewConflict(fleetv1.GroupVersion.WithResource("fleetregistrations").GroupResource(), "edge-1", errors.New("no"))
}

func TestAStatusThatDidNotChangeIsNotWritten(t *testing.T) {
	g := NewWithT(t)
	s := newScope(deployed, seen(0))
	report(s)
	api := newStatusAPI(t, s.registration.DeepCopy())
	before := s.registration.DeepCopy()
	report(s)

	g.Expect(api.reconciler.write(t.Context(), s, before)).To(Succeed())

	g.Expect(api.applied).To(BeEmpty())
}

func TestAStatusIsWrittenInOneApplyOfWhatIsSet(t *testing.T) {
	g := NewWithT(t)
	s := newScope()
	before := s.registration.DeepCopy()
	api := newStatusAPI(t, before)
	report(s)

	g.Expect(api.reconciler.write(t.Context(), s, before)).To(Succeed())

	g.Expect(api.applied).To(HaveLen(1))
	g.Expect(api.applied[0].owner).To(Equal("capi-fleet"))
	g.Expect(api.applied[0].force).To(BeFalse(), "what someone else wrote meanwhile is looked at first")
	g.Expect(api.applied[0].object.GetUID()).To(Equal(s.registration.UID), "an object that was made anew is not written to")
	status := api.applied[0].object.Object["status"].(map[string]any)
	g.Expect(status).To(And(HaveLen(1), HaveKey("conditions")))
}

func TestAConflictKeepsWhatTheSelectionControllerSays(t *testing.T) {
	g := NewWithT(t)
	s := newScope(placed, was(condition(fleetv1.SelectedCondition, metav1.ConditionTrue, fleetv1.SelectedReason)))
	live := s.registration.DeepCopy()
	lost := condition(fleetv1.SelectedCondition, metav1.ConditionFalse, fleetv1.PolicyDeletedReason)
	meta.SetStatusCondition(&live.Status.Conditions, lost)
	api := newStatusAPI(t, live, conflict())
	before := s.registration.DeepCopy()
	report(s)

	g.Expect(api.reconciler.write(t.Context(), s, before)).To(Succeed())

	g.Expect(api.applied).To(HaveLen(2))
	g.Expect(api.applied[1].force).To(BeTrue())
	g.Expect(api.applied[1].condition(fleetv1.SelectedCondition)).To(HaveKeyWithValue("reason", fleetv1.PolicyDeletedReason))
	g.Expect(api.applied[1].condition(fleetv1.ReadyCondition)).NotTo(BeNil())
	list, _, _ := unstructured.NestedSlice(api.applied[1].object.Object, "status", "conditions")
	g.Expect(list).To(HaveLen(10))
}

func TestARegistrationThatIsGoneIsNoErrorToTheReport(t *testing.T) {
	missing := apierrors.NewNotFound(fleetv1.GroupVersion.WithResource("fleetregistrations").GroupResource(), "edge-1")
	for _, answer := range []error{missing, conflict()} {
		g := NewWithT(t)
		s := newScope()
		before := s.registration.DeepCopy()
		api := newStatusAPI(t, nil, answer)
		report(s)
		g.Expect(api.reconciler.write(t.Context(), s, before)).To(Succeed())
		g.Expect(api.applied).To(HaveLen(1))
	}
}

func TestAnErrorOfTheReportIsWrapped(t *testing.T) {
	g := NewWithT(t)
	s := newScope()
	before := s.registration.DeepCopy()
	api := newStatusAPI(t, before, apierrors.NewInternalError(errors.New("broken")))
	report(s)
	err := api.reconciler.write(t.Context(), s, before)
	g.Expect(apierrors.IsInternalError(err)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("writing the status of FleetRegistration team-a/edge-1")))
}

func TestSooner(t *testing.T) {
	g := NewWithT(t)
	result := sooner(sooner(ctrl.Result{}, time.Hour), 2*time.Hour)
	g.Expect(result.RequeueAfter).To(Equal(time.Hour))
	g.Expect(sooner(result, time.Minute).RequeueAfter).To(Equal(time.Minute))
	g.Expect(sooner(result, -time.Minute).RequeueAfter).To(Equal(time.Second), "never at once: no hot loop")
}
