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
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/metrics"
	"github.com/capi-fleet/capi-fleet/internal/remote"
)

const (
	// youngAge is how long a control plane may take to answer for the first time
	// before that counts as a fault.
	youngAge = 10 * time.Minute

	// settleTime is how long an API server that has begun to answer may refuse us
	// before that counts as a fault: it serves before its own start is over.
	settleTime = 10 * time.Second

	// hangTime is how long a visit takes at least before the workload cluster is said to
	// hang, and not to refuse.
	hangTime = 5 * time.Second

	// probeTimeout bounds the first connection to an endpoint. One that drops packets
	// instead of refusing them holds a worker for as long.
	probeTimeout = 2 * time.Second
)

// reconcileAgent visits the workload cluster if there is a reason to.
func (r *Reconciler) reconcileAgent(ctx context.Context, s *scope) (ctrl.Result, error) {
	reg := s.registration
	if decide.Moved(s.cluster, reg) {
		// What the agent would be made from leads to another management cluster. The
		// selection controller finds it out anew, which brings us back.
		return ctrl.Result{}, nil
	}
	switch {
	case reg.Spec.Agent.ManagementCluster.Server == "":
		s.agentDeployed = &finding{reason: fleetv1.ManagementClusterUnknownReason, message: managementClusterUnknown(reg)}
		return ctrl.Result{}, nil
	case reg.Spec.Agent.Image == "":
		s.agentDeployed = &finding{reason: fleetv1.AgentImageUnknownReason,
			message: "Set agentImage in Fleet's configuration or the manager's flag --agent-image"}
		return ctrl.Result{}, nil
	}

	if hasReason(reg, fleetv1.AgentDeployedCondition, fleetv1.MovedAwayReason) && !takesOver(reg) {
		// Only a person can say that it is ours again.
		return ctrl.Result{}, nil
	}

	input := r.agentInput(s)
	confirmUpdate(s)
	if updating(s) || reportsAgain(s) {
		s.attempt.checkHint()
	}
	missing, err := r.hostedMissing(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	push := r.pushInput(s, r.revision(s, input))
	push.HostedMissing = missing
	why := decide.Push(push)
	if why == "" {
		if err := r.endTakeOver(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
		// Settings that make no other objects are in place at once.
		reg.Status.Agent.Settings = decide.Settings(reg.Spec.Agent)
		return sooner(ctrl.Result{}, decide.NextPush(push).Sub(s.now)), nil
	}
	if wait := s.attempt.wait(hint(s), s.now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}

	if err := r.visit(ctx, s, input, why); err != nil {
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			// The manager is about to end; that is no finding about the workload cluster.
			s.workloadReachable, s.agentDeployed, s.credentialsValid = nil, nil, nil
			return ctrl.Result{}, ctx.Err()
		case ctx.Err() != nil:
			s.workloadReachable = &finding{reason: fleetv1.ResponseTimeoutReason,
				message: "the workload cluster did not answer in time"}
		}
		return ctrl.Result{RequeueAfter: r.failedVisit(s)}, nil
	}
	s.attempt.failures = 0
	after := r.pushInput(s, r.revision(s, input))
	return sooner(ctrl.Result{}, decide.NextPush(after).Sub(s.now)), nil
}

// failedVisit notes a visit that failed and returns how long the next one has to wait. A
// cluster that is waited for may drop packets until it answers, which is to be seen at once.
// One that was registered and hangs is dead, however young it is.
func (r *Reconciler) failedVisit(s *scope) time.Duration {
	now := r.Clock.Now()
	took := now.Sub(s.now)
	switch {
	case s.registration.Status.Agent.Revision == "":
		return s.attempt.failed(now, 0, r.retryCap(s, now))
	case took >= hangTime:
		return s.attempt.failed(now, took, oldRetryCap)
	}
	return s.attempt.failed(now, took, r.retryCap(s, now))
}

func managementClusterUnknown(reg *fleetv1.FleetRegistration) string {
	if policy := reg.Spec.SelectedBy.Policy; policy != "" {
		return fmt.Sprintf("No usable address of the management cluster: the conditions of FleetRegistrationPolicy %s say why", policy)
	}
	return "No address of the management cluster: set apiServerURL in Fleet's configuration, or spec.managementCluster.server in a FleetRegistrationPolicy"
}

func (r *Reconciler) agentInput(s *scope) agent.Input {
	reg := s.registration
	return agent.Input{
		RegistrationID:      reg.Spec.RegistrationID,
		FleetCluster:        types.NamespacedName(reg.Spec.FleetCluster),
		ClusterNamespace:    reg.Status.Namespace,
		ClusterNamespaceUID: reg.Status.NamespaceUID,
		Agent:               reg.Spec.Agent,
		TokenDir:            path.Clean(strings.ReplaceAll(r.TokenDir, "{namespace}", reg.Status.Namespace)),
	}
}

func (r *Reconciler) pushInput(s *scope, revision string) decide.PushInput {
	return decide.PushInput{
		Now:             s.now,
		RegistrationID:  s.registration.Spec.RegistrationID,
		Revision:        revision,
		Rotation:        rotation(s.registration),
		Status:          &s.registration.Status,
		Heard:           s.heartbeat.Heard,
		CheckinInterval: s.registration.Spec.Agent.CheckinInterval.Duration,
		AccountUID:      s.accountUID,
		PullSecrets:     r.pulls.of(s.registration.Spec.Agent.ImagePullSecrets),
		NextCheck:       s.attempt.nextCheck,
		ResyncInterval:  r.ResyncInterval,
	}
}

// beforeTurn tells whether the agent is to stay at the manifests of another version of
// capi-fleet until the rollout of its policy gives it this one's.
func (r *Reconciler) beforeTurn(s *scope) bool {
	return s.registration.Spec.Agent.Manifests != r.Manifests
}

// revision returns the revision that the agent should have. Before its turn that is the
// one it has.
func (r *Reconciler) revision(s *scope, input agent.Input) string {
	if present := s.registration.Status.Agent.Revision; present != "" && r.beforeTurn(s) {
		return present
	}
	return s.attempt.revisionOf(input)
}

// rotation returns a hash of the annotation that asks for a new credential, empty
// where there is none. The annotation itself can be long.
func rotation(reg *fleetv1.FleetRegistration) string {
	asked, ok := reg.Annotations[fleetv1.RotateAnnotation]
	if !ok {
		return ""
	}
	sum := sha256.Sum256([]byte(asked))
	return hex.EncodeToString(sum[:8])
}

// hint changes when a new try is worthwhile at once.
func hint(s *scope) string {
	var parts []string
	parts = append(parts, s.cluster.Spec.ControlPlaneEndpoint.String(),
		fmt.Sprint(ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false)),
		fmt.Sprint(s.registration.Generation),
		s.registration.Annotations[fleetv1.StartWithoutBundlesAnnotation],
		s.registration.Annotations[fleetv1.TakeOverAnnotation])
	for _, condition := range s.cluster.Status.Conditions {
		if condition.Type == clusterv1.ClusterRemoteConnectionProbeCondition {
			parts = append(parts, string(condition.Status))
		}
	}
	return strings.Join(parts, "|")
}

// retryCap returns how long the next try has to wait at most, and books its turn where it
// takes turns with others. A control plane that
// is waited for and says so at once, by refusing the connection, is tried often: it
// costs the management cluster nothing, and hardly a worker. One that has begun to
// answer is as good as there.
func (r *Reconciler) retryCap(s *scope, now time.Time) time.Duration {
	waiting := s.workloadReachable != nil && s.workloadReachable.reason == fleetv1.WaitingForControlPlaneReason
	switch {
	case waiting && !s.attempt.answered.IsZero() && s.now.Sub(s.attempt.answered) <= settleTime:
		return settleRetryCap
	case waiting && now.Sub(s.now) < refusedTime:
		return max(now.Sub(s.now), r.attempts.eagerPause(now))
	case s.now.Sub(s.cluster.CreationTimestamp.Time) < youngAge:
		return youngRetryCap
	}
	return oldRetryCap
}

// errNotYet ends a visit that did not come about; the finding says why.
var errNotYet = errors.New("not yet")

// visit reaches the workload cluster and puts the agent there. Its findings are in
// the scope; the error only says that it is to be tried again.
func (r *Reconciler) visit(ctx context.Context, s *scope, input agent.Input, why decide.PushReason) error {
	first := s.registration.Status.Agent.Revision == ""
	if why == decide.HealthDue && s.registration.Spec.Agent.Hosted() {
		err := r.checkHostedHealth(ctx, s)
		r.refused(ctx, s, err)
		return err
	}
	workload, err := r.reach(ctx, s, first)
	if err != nil {
		s.workloadReachable = unreachable(s, first, err)
		return err
	}
	defer workload.Close()

	if why == decide.HealthDue {
		if err := r.checkHealth(ctx, s, workload); err != nil {
			s.workloadReachable = unreachable(s, first, err)
			return err
		}
		s.workloadReachable = reachable(workload)
		return nil
	}
	if why == decide.AgentSilent {
		// What the agent lacks may be on the management cluster.
		in := s.upstreamInput()
		in.LookFirst = true
		if _, err := r.ensureUpstream(ctx, s, in); err != nil {
			// The finding says to look into the log, and a visit's error ends here.
			ctrl.LoggerFrom(ctx).Error(err, "Failed to look after the objects on the management cluster")
			return err
		}
		if !s.fleetClusterReady.ok {
			return errNotYet
		}
		input = r.agentInput(s)
	}
	wrote, err := r.push(ctx, s, workload, input)
	if err == nil && !wrote && why == decide.AgentSilent {
		wrote, err = r.restart(ctx, workload, s)
	}
	if wrote {
		metrics.Pushed()
	}
	if err != nil {
		r.failed(ctx, s, workload, first, err)
		return err
	}
	s.workloadReachable = reachable(workload)
	if first {
		answered := time.Duration(-1)
		if !s.attempt.answered.IsZero() {
			answered = r.Clock.Since(s.attempt.answered)
		}
		metrics.ObserveRegistered(answered, r.Clock.Since(s.registration.CreationTimestamp.Time))
	}
	return nil
}

// failed turns the error of a push into findings.
func (r *Reconciler) failed(ctx context.Context, s *scope, workload *remote.Client, first bool, err error) {
	if r.refused(ctx, s, err) {
		s.workloadReachable = reachable(workload)
		return
	}
	s.workloadReachable = unreachable(s, first, err)
}

// refused turns an error into a finding that says nothing of the way to the workload
// cluster, and tells whether it is one.
func (r *Reconciler) refused(ctx context.Context, s *scope, err error) bool {
	var refused *refusal
	var management managementError
	switch {
	case errors.As(err, &refused):
		s.agentDeployed = &finding{reason: refused.reason, message: refused.message}
		metrics.PushFailed(refused.reason)
	case errors.As(err, &management):
		ctrl.LoggerFrom(ctx).Error(management, "Failed to talk to the management cluster during a push")
		if s.credentialsValid == nil {
			s.agentDeployed = internalError()
		}
		metrics.PushFailed(fleetv1.InternalErrorReason)
	default:
		return false
	}
	return true
}

func reachable(workload *remote.Client) *finding {
	f := &finding{ok: true, reason: fleetv1.WorkloadReachableReason}
	if workload.InsecureTLS {
		f.message = "The kubeconfig turns off the check of the server's certificate"
	}
	return f
}

// unreachable turns an error into the finding. A control plane that is young, or
// has only just begun to answer, is waited for rather than blamed.
func unreachable(s *scope, first bool, err error) *finding {
	classified := remote.Classify(err)
	if errors.Is(err, errNotYet) || first && settling(s, classified.Reason) {
		return &finding{reason: fleetv1.WaitingForControlPlaneReason,
			message: "Waiting for the control plane to have an endpoint that answers"}
	}
	metrics.PushFailed(classified.Reason)
	return &finding{reason: classified.Reason, message: classified.Message}
}

// settling tells whether a fault may be one of an API server that is starting.
func settling(s *scope, reason string) bool {
	if s.attempt.answered.IsZero() || s.now.Sub(s.attempt.answered) > settleTime {
		return false
	}
	switch reason {
	case fleetv1.ConnectionFailedReason, fleetv1.ServerErrorReason, fleetv1.ResponseTimeoutReason,
		fleetv1.CredentialsRejectedReason, fleetv1.AccessDeniedReason, fleetv1.KubeconfigMissingReason,
		fleetv1.NotKubernetesReason:
		return true
	}
	return false
}

// reach connects to the workload cluster. Before the first registration it tries
// the control plane's endpoint, which costs the management cluster nothing, and
// reads the Secret only when that answers or, now and then, when it does not.
func (r *Reconciler) reach(ctx context.Context, s *scope, first bool) (*remote.Client, error) {
	var notAnswered error
	if first {
		notAnswered = r.probe(ctx, s)
		if notAnswered != nil && !s.attempt.slowDue(s.now) {
			return nil, notAnswered
		}
	}
	kubeconfig, err := r.kubeconfig(ctx, s)
	if err != nil {
		if notAnswered != nil {
			return nil, notAnswered
		}
		return nil, err
	}
	workload, err := r.Dialer.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	if notAnswered != nil {
		if _, err := workload.SystemNamespaceUID(ctx); err != nil {
			workload.Close()
			if remote.Classify(err).Reason == fleetv1.ConnectionFailedReason {
				return nil, notAnswered
			}
			return nil, err
		}
	}
	return workload, nil
}

// probe tries to connect to the control plane's endpoint. Nil means that it
// answers, or that only the kubeconfig can tell.
func (r *Reconciler) probe(ctx context.Context, s *scope) error {
	endpoint := s.cluster.Spec.ControlPlaneEndpoint
	initialized := ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false)
	young := !initialized && s.now.Sub(s.cluster.CreationTimestamp.Time) < youngAge
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := r.Dialer.Probe(ctx, endpoint.Host, endpoint.Port)
	switch {
	case err == nil:
		if s.attempt.answered.IsZero() {
			s.attempt.answered = s.now
			s.attempt.failures = 0
		}
		return nil
	case remote.Classify(err).Reason == fleetv1.AddressDeniedReason:
		return nil
	case young:
		return errNotYet
	}
	return err
}

// kubeconfig reads the Secret that holds the Cluster's kubeconfig, anew each time.
func (r *Reconciler) kubeconfig(ctx context.Context, s *scope) ([]byte, error) {
	key := types.NamespacedName{Namespace: s.registration.Namespace, Name: secret.Name(s.registration.Name, secret.Kubeconfig)}
	live := &corev1.Secret{}
	if err := r.APIReader.Get(ctx, key, live); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, &remote.Error{Reason: fleetv1.InternalErrorReason, Message: "the kubeconfig Secret could not be read"}
		}
		live = nil
	}
	if live != nil && s.cluster != nil && ofAnotherCluster(live, s.cluster) {
		return nil, &remote.Error{Reason: fleetv1.KubeconfigMissingReason, Message: "the kubeconfig Secret is owned by another Cluster that had this name"}
	}
	kubeconfig, refused := remote.KubeconfigFromSecret(live)
	if refused != nil {
		return nil, refused
	}
	return kubeconfig, nil
}

// ofAnotherCluster tells whether an object is owned by another Cluster: one that had the
// name before, and whose API server may still answer.
func ofAnotherCluster(obj metav1.Object, cluster *clusterv1.Cluster) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		group, err := schema.ParseGroupVersion(owner.APIVersion)
		return err == nil && group.Group == clusterv1.GroupVersion.Group && owner.Kind == clusterv1.ClusterKind && owner.UID != cluster.UID
	})
}

func internalError() *finding {
	return &finding{reason: fleetv1.InternalErrorReason, message: "Look into the manager's log"}
}
