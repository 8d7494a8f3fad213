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
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/token"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

//+kubebuilder:rbac:groups=apps,namespace=capi-fleet-system,resources=deployments,verbs=get;list;watch;create;patch;delete
//+kubebuilder:rbac:groups=networking.k8s.io,namespace=capi-fleet-system,resources=networkpolicies,verbs=get;create;patch;delete
//+kubebuilder:rbac:groups=core,namespace=capi-fleet-system,resources=secrets,verbs=create;patch;delete
//+kubebuilder:rbac:groups=core,namespace=capi-fleet-system,resources=pods,verbs=list
//+kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,resourceNames=kubernetes,verbs=get

// wasHosted tells whether the registration's agent may run on the management cluster.
func (r *Reconciler) wasHosted(ctx context.Context, s *scope) (bool, error) {
	if s.registration.Status.Agent.Placement == fleetv1.PlacementManagement {
		return true, nil
	}
	return r.Upstream.HasHosted(ctx, s.upstreamInput())
}

// hostedMissing tells whether the agent's Deployment on the management cluster is gone.
func (r *Reconciler) hostedMissing(ctx context.Context, s *scope) (bool, error) {
	if !s.registration.Spec.Agent.Hosted() || s.registration.Status.Agent.Placement != fleetv1.PlacementManagement {
		return false, nil
	}
	there, err := r.Upstream.HasHosted(ctx, s.upstreamInput())
	return !there, err
}

// pushHosted puts the agent on the management cluster, and what it reads into the workload
// cluster. It does what push does, of which it is the second half.
func (r *Reconciler) pushHosted(ctx context.Context, s *scope, workload *remote.Client, input agent.Input, there presentAgent, systemUID types.UID) (wrote bool, err error) {
	hosted, err := r.Upstream.HostedDeployment(ctx, s.upstreamInput())
	if err != nil {
		return false, hostedError(err)
	}
	hosting := r.hosting(s, workload)
	destinations, pulled, err := r.mayHost(ctx, s, workload, input, hosting, there)
	if err != nil && there.runs() && there.belongsTo(s.registration) {
		wrote, renewErr := r.renewPushed(ctx, s, workload, there)
		if renewErr != nil {
			return wrote, renewErr
		}
		return wrote, err
	}
	if err != nil {
		return false, err
	}
	if err := endInWorkload(ctx, workload, s.registration.Spec.RegistrationID, there); err != nil {
		return false, err
	}
	there.deployment = hosted
	extent := there.toWrite(r.beforeTurn(s), s.registration)
	if extent == whatIsMissing {
		// The pod that runs looks for its tokens where the manager before this one put them.
		// What is found in the workload cluster may be anything.
		input.TokenDir = agent.TokenDirOf(there.deployment)
	}
	done, err := write(ctx, workload, agent.Objects(input, ""), agent.Secret(input, ""), nil, there, extent)
	if err != nil {
		return done.any, err
	}
	if !there.runs() {
		// Whoever has an agent elsewhere learns from the Secret that it has to go.
		if err := leaseFree(ctx, workload, s); err != nil {
			return done.any, err
		}
	}
	value, credential, err := r.hostedCredential(ctx, s, workload, hosting)
	if err != nil {
		return done.any, err
	}
	done.deployment = false
	// From here on there is something to take away, whatever becomes of the Deployment, and
	// of this manager: the next one knows it by the status alone.
	before := s.registration.DeepCopy()
	s.registration.Status.Agent.Placement = fleetv1.PlacementManagement
	if err := r.write(ctx, s, before); err != nil {
		return done.any, managementError{err}
	}
	for _, obj := range []client.Object{
		agent.HostedNetworkPolicy(input, hosting, destinations),
		agent.HostedSecret(input, hosting, value),
		agent.HostedDeployment(input, hosting),
	} {
		_, isDeployment := obj.(*appsv1.Deployment)
		applied, err := r.Upstream.ApplyHosted(ctx, s.upstreamInput(), obj, isDeployment && extent == whatIsMissing)
		done.any = done.any || applied
		if err != nil {
			return done.any, hostedError(err)
		}
		done.deployment = done.deployment || applied && isDeployment
	}
	done.note, done.pullSecrets = sentences(done.note, pulled.note), pulled.version
	return done.any, r.pushed(ctx, s, workload, input, there, systemUID, credential, extent, done)
}

// mayHost looks for all that could be in the way of an agent on the management cluster,
// before the one that runs in the workload cluster is stopped for it.
func (r *Reconciler) mayHost(ctx context.Context, s *scope, workload *remote.Client, input agent.Input, hosting agent.Hosting, there presentAgent) ([]agent.Destination, pulled, error) {
	destinations, err := r.destinations(ctx, input, hosting)
	if err != nil {
		return nil, pulled{}, err
	}
	secrets, err := r.pullSecrets(ctx, input)
	if err != nil || !there.runs() {
		return destinations, secrets, err
	}
	if err := r.Upstream.MayHost(ctx, s.upstreamInput()); err != nil {
		return nil, pulled{}, hostedError(err)
	}
	_, _, err = r.requestToken(ctx, s, workload)
	if apierrors.IsNotFound(err) {
		// The service account is lost, with which the agent there has lost its rights too.
		err = nil
	}
	return destinations, secrets, err
}

// renewPushed gives an agent in the workload cluster a new token when it is time, and
// changes nothing else: it works on until the one on the management cluster may be started.
func (r *Reconciler) renewPushed(ctx context.Context, s *scope, workload *remote.Client, there presentAgent) (wrote bool, err error) {
	if there.secret == nil {
		return false, nil
	}
	value, credential, err := r.credential(ctx, s, there)
	if err != nil {
		return false, err
	}
	secret := agent.Secret(r.agentInput(s), value)
	secret.Data = agent.Renewed(there.secret, value)
	if wrote, err = writeSecret(ctx, workload, secret, there.secret); err != nil {
		return wrote, err
	}
	s.registration.Status.Credential = credential
	return wrote, nil
}

// hostedError turns a refusal of the management cluster's into ours.
func hostedError(err error) error {
	if refused := (*upstream.Refusal)(nil); errors.As(err, &refused) {
		return &refusal{refused.Reason, refused.Message}
	}
	return managementError{err}
}

func (r *Reconciler) hosting(s *scope, workload *remote.Client) agent.Hosting {
	account := s.accountUID
	if account == "" {
		account = s.registration.Status.Credential.ServiceAccountUID
	}
	return agent.Hosting{
		Namespace:    r.Upstream.ManagerNamespace,
		Registration: client.ObjectKeyFromObject(s.registration),
		AccountUID:   account,
		Workload: agent.WorkloadCluster{
			Server: workload.Server, CAData: workload.CAData, ServerName: workload.ServerName, InsecureTLS: workload.InsecureTLS,
		},
	}
}

// endInWorkload stops an agent of ours in the workload cluster, and takes away what only
// one that runs there needs. It returns a *refusal until the agent was seen to have
// stopped.
func endInWorkload(ctx context.Context, workload *remote.Client, registrationID string, there presentAgent) error {
	stopped, err := stop(ctx, workload, there)
	if err != nil {
		return err
	}
	if !stopped {
		return &refusal{fleetv1.WaitingForAgentToStopReason, "The agent is to run on the management cluster, and the one in the workload cluster has not stopped yet"}
	}
	if there.deployment == nil {
		return nil
	}
	errs := []error{removePullSecrets(ctx, workload, registrationID, nil)}
	for _, obj := range agent.Leftovers() {
		switch obj.(type) {
		case *appsv1.Deployment, *networkingv1.NetworkPolicy:
			errs = append(errs, remove(ctx, workload, obj))
		}
	}
	return errors.Join(errs...)
}

// endHosted takes an agent away that runs on the management cluster, before one is started
// in the workload cluster. It returns a *refusal until it was seen to have stopped.
func (r *Reconciler) endHosted(ctx context.Context, s *scope) error {
	was, err := r.wasHosted(ctx, s)
	if err != nil {
		return managementError{err}
	}
	if !was {
		return nil
	}
	switch _, stopped, err := r.Upstream.StopHosted(ctx, s.upstreamInput()); {
	case err != nil:
		return hostedError(err)
	case !stopped:
		return &refusal{fleetv1.WaitingForAgentToStopReason, "The agent is to run in the workload cluster, and the one on the management cluster has not stopped yet"}
	}
	if _, err := r.Upstream.RemoveHosted(ctx, s.upstreamInput(), true); err != nil {
		return managementError{err}
	}
	s.registration.Status.Agent.Placement = ""
	return nil
}

// removeHosted takes an agent on the management cluster away with the registration, and
// tells whether that is done. Its pod may go on for a while, and is bound to what it may
// connect to until it has ended, or patience has.
func (r *Reconciler) removeHosted(ctx context.Context, s *scope, patience time.Duration) (done bool, err error) {
	done, err = r.Upstream.RemoveHosted(ctx, s.upstreamInput(), s.attempt.leavingFor(s.now) >= patience)
	if err == nil && !done {
		s.deleting = &finding{true, fleetv1.StoppingAgentReason, "Waiting for the pod of the agent on the management cluster to end"}
	}
	return done, err
}

// yield stops an agent on the management cluster whose workload cluster another
// registration has taken over. Theirs waits for it.
func (r *Reconciler) yield(ctx context.Context, s *scope, refused error) error {
	var why *refusal
	if !errors.As(refused, &why) || why.reason != fleetv1.MovedAwayReason && why.reason != fleetv1.ForeignAgentReason {
		return refused
	}
	if was, err := r.wasHosted(ctx, s); err != nil || !was {
		return errors.Join(refused, err)
	}
	if _, _, err := r.Upstream.StopHosted(ctx, s.upstreamInput()); err != nil {
		return managementError{err}
	}
	return refused
}

// disown takes the rights from an agent that another management cluster hosts, and that a
// person lets us take over. It would go on until somebody there looks at the Secret. Its
// tokens end with the service account, which the next write makes anew.
func disown(ctx context.Context, workload *remote.Client) error {
	return remove(ctx, workload, &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name},
	})
}

// leaseFree returns a *refusal while an agent holds the lease of the workload cluster's
// agents: one that was just stopped or killed, or one of another management cluster.
func leaseFree(ctx context.Context, workload *remote.Client, s *scope) error {
	lease := &coordinationv1.Lease{}
	found, err := get(ctx, workload, types.NamespacedName{Namespace: agent.Namespace, Name: agent.Name}, lease)
	if err != nil || !found || agent.LeaseFree(lease, s.attempt.leaseSame(lease.ResourceVersion, s.now)) {
		return err
	}
	message := fmt.Sprintf("An agent holds the lease %s/%s in the workload cluster; this one is started once that was not renewed for %s",
		agent.Namespace, agent.Name, agent.LeaseDuration(lease))
	if !takesOver(s.registration) {
		return &refusal{fleetv1.WaitingForLeaseReason, sentences(message, "One of another management cluster that does not stop can be made to: "+takeOverHint(s.registration))}
	}
	if s.attempt.disowned != s.registration.Status.NamespaceUID {
		if err := disown(ctx, workload); err != nil {
			return err
		}
		s.attempt.disowned = s.registration.Status.NamespaceUID
	}
	return &refusal{fleetv1.WaitingForLeaseReason, message}
}

// destinations returns what a hosted agent has to reach: the management cluster, by its
// address and by what answers there, and the workload cluster.
func (r *Reconciler) destinations(ctx context.Context, input agent.Input, hosting agent.Hosting) ([]agent.Destination, error) {
	// The operator chose that address, so no range is denied.
	management, err := resolve(ctx, &remote.Dialer{DialTimeout: r.Dialer.DialTimeout}, input.Agent.ManagementCluster.Server)
	if err != nil {
		return nil, &refusal{fleetv1.ManagementClusterUnresolvedReason,
			"The host of the management cluster's address cannot be resolved in the management cluster, where the agent is to run"}
	}
	workload, err := resolve(ctx, r.Dialer, hosting.Workload.Server)
	if err != nil {
		return nil, err
	}
	servers, err := r.Upstream.APIServers(ctx)
	if err != nil {
		return nil, managementError{err}
	}
	return append(servers, management, workload), nil
}

// resolve returns where an https URL leads to.
func resolve(ctx context.Context, dialer *remote.Dialer, server string) (agent.Destination, error) {
	parsed, err := url.Parse(server)
	if err != nil {
		return agent.Destination{}, fmt.Errorf("reading the address of a server: %w", err)
	}
	port := uint64(443)
	if parsed.Port() != "" {
		if port, err = strconv.ParseUint(parsed.Port(), 10, 16); err != nil {
			return agent.Destination{}, fmt.Errorf("reading the port of a server: %w", err)
		}
	}
	addresses, err := dialer.Resolve(ctx, parsed.Hostname())
	return agent.Destination{Addresses: addresses, Port: uint16(port)}, err
}

// hostedCredential returns a token for the workload cluster and its description: the one
// that the agent has for as long as it is good, and else a new one.
func (r *Reconciler) hostedCredential(ctx context.Context, s *scope, workload *remote.Client, hosting agent.Hosting) (string, fleetv1.CredentialStatus, error) {
	value, credential, err := r.presentHostedToken(ctx, s, hosting)
	if err != nil {
		return "", credential, managementError{err}
	}
	if value == "" {
		if value, credential, err = r.requestToken(ctx, s, workload); err != nil {
			return "", credential, err
		}
	}
	credential.ServiceAccountUID = hosting.AccountUID
	return value, credential, nil
}

// presentHostedToken returns the token in the agent's Secret if it is good for some time
// yet and the workload cluster accepts it.
func (r *Reconciler) presentHostedToken(ctx context.Context, s *scope, hosting agent.Hosting) (string, fleetv1.CredentialStatus, error) {
	secret, err := r.Upstream.HostedSecret(ctx, s.upstreamInput())
	if err != nil || secret == nil {
		return "", fleetv1.CredentialStatus{}, err
	}
	value := agent.Token(secret)
	claims, ok := token.Read(value)
	push := r.pushInput(s, "")
	push.AccountUID = "" // That of the management cluster; the trial knows the other.
	claims, inTime := claims.Bounded(s.now, r.lifetime(s))
	if !ok || !inTime || !decide.KeepsToken(push, claims, workloadSubject) || !r.accepted(ctx, hosting.Workload, value) {
		return "", fleetv1.CredentialStatus{}, nil
	}
	return value, keptCredential(s.registration, claims), nil
}

// workloadSubject is the name that a workload cluster knows the agent's service account by.
const workloadSubject = "system:serviceaccount:" + agent.Namespace + ":" + agent.Name

// accepted tells whether the workload cluster accepts a token. Only its own word that it
// does not counts against the token.
func (r *Reconciler) accepted(ctx context.Context, workload agent.WorkloadCluster, value string) bool {
	connection, err := r.Dialer.Connect(workload.Kubeconfig(value, ""))
	if err != nil {
		return false
	}
	defer connection.Close()
	err = connection.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{})
	return !apierrors.IsUnauthorized(err)
}

// requestToken asks the workload cluster for a token.
func (r *Reconciler) requestToken(ctx context.Context, s *scope, workload *remote.Client) (string, fleetv1.CredentialStatus, error) {
	key := types.NamespacedName{Namespace: agent.Namespace, Name: agent.Name}
	issued, err := workload.RequestToken(ctx, key, r.lifetime(s))
	if err != nil {
		return "", fleetv1.CredentialStatus{}, err
	}
	claims, ok := token.Read(issued.Token)
	if !ok || claims.Subject != workloadSubject {
		return "", fleetv1.CredentialStatus{}, &refusal{fleetv1.ObjectRejectedReason,
			"The workload cluster did not issue a token for its service account " + key.String()}
	}
	claims.Issued = s.now
	claims, inTime := claims.Bounded(s.now, r.lifetime(s))
	if !inTime {
		return "", fleetv1.CredentialStatus{}, &refusal{fleetv1.ObjectRejectedReason, fmt.Sprintf(
			"The workload cluster issued a token for its service account %s that has ended already; compare its clock with that of the management cluster", key)}
	}
	return issued.Token, fleetv1.CredentialStatus{
		IssuedTime:     metav1.NewTime(claims.Issued),
		ExpirationTime: metav1.NewTime(claims.Expires),
		Rotation:       rotation(s.registration),
	}, nil
}

// lifetime is what the registration's credentials are asked for with.
func (r *Reconciler) lifetime(s *scope) time.Duration {
	return r.Tokens.Lifetime(s.registration.Spec.Credentials.Lifetime.Duration)
}

// agentSite is where an agent's pod is looked at.
type agentSite struct {
	agent.Site
	reader    client.Reader
	namespace string
	labels    map[string]string
}

// site returns where the agent's pod is to be. Without a client of the workload cluster
// only a hosted agent has one.
func (r *Reconciler) site(s *scope, workload *remote.Client) agentSite {
	if !s.registration.Spec.Agent.Hosted() {
		return agentSite{agent.WorkloadSite(), workload, agent.Namespace, agent.PodLabels()}
	}
	namespace, name := r.Upstream.ManagerNamespace, s.registration.Status.Namespace
	return agentSite{agent.HostedSite(namespace, name), r.APIReader, namespace, agent.HostedPodLabels(name)}
}

// checkHostedHealth looks at an agent on the management cluster that was changed, or was
// not well. Nobody has to be dialled for that. It returns a *refusal or a managementError.
func (r *Reconciler) checkHostedHealth(ctx context.Context, s *scope) error {
	deployment, err := r.Upstream.HostedDeployment(ctx, s.upstreamInput())
	if err != nil {
		return hostedError(err)
	}
	if deployment == nil {
		deployment = &appsv1.Deployment{}
	}
	if err := r.judgeHealth(ctx, s, nil, deployment); err != nil {
		return managementError{err}
	}
	return nil
}

// stopHosted is what stopAgent does for an agent that runs on the management cluster. That
// it was seen to have stopped there proves that none runs in the workload cluster.
func (r *Reconciler) stopHosted(ctx context.Context, s *scope, what fleetv1.AgentDeletion) (there, stopped bool, err error) {
	there, stopped, err = r.Upstream.StopHosted(ctx, s.upstreamInput())
	if err != nil || !there || !stopped {
		return there, stopped, err
	}
	err = r.toWorkload(ctx, s, func(ctx context.Context, workload *remote.Client) error {
		present, err := readAgent(ctx, workload)
		if err != nil || present.holder(s.registration.Spec.RegistrationID) != agent.HeldByUs {
			return err
		}
		return discard(ctx, workload, s.registration, present, what)
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Leaving what the agent read in the workload cluster", "reason", remote.Classify(err).Reason)
	}
	return true, true, nil
}

// park stops the hosted agents of a registration that is gone. That it is gone is believed
// only when the API server says so, which is not asked where there is nothing to stop.
func (r *Reconciler) park(ctx context.Context, key types.NamespacedName) error {
	names, err := r.Upstream.HostedOf(ctx, key)
	if err != nil || len(names) == 0 {
		return err
	}
	err = r.APIReader.Get(ctx, key, &fleetv1.FleetRegistration{})
	if err == nil {
		return nil
	}
	if !upstream.Gone(err) {
		return fmt.Errorf("reading FleetRegistration %s: %w", key, err)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, r.Upstream.ParkHosted(ctx, key, name))
	}
	return errors.Join(errs...)
}

// hostedToRegistrations finds the registration that a hosted agent's Deployment is for,
// also one that is gone.
func (r *Reconciler) hostedToRegistrations(ctx context.Context, obj client.Object) []reconcile.Request {
	requests := r.placedToRegistrations(ctx, obj)
	if key := upstream.HostedFor(obj); key.Name != "" && (r.Namespace == "" || r.Namespace == key.Namespace) {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}
