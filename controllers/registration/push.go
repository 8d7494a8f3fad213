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
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/token"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// refusal says why the agent must not be put into a workload cluster that can be
// reached. The reason is one of the AgentDeployed condition.
type refusal struct {
	reason, message string
}

func (r *refusal) Error() string { return r.reason + ": " + r.message }

// managementError is an error of the management cluster during a visit to the
// workload cluster.
type managementError struct{ error }

func (e managementError) Unwrap() error { return e.error }

// push puts the agent and its credential into the workload cluster, as far as they are
// not there, and tells whether it wrote anything. It returns a *refusal where that must
// not be, and else an error for remote.Classify.
func (r *Reconciler) push(ctx context.Context, s *scope, workload *remote.Client, input agent.Input) (wrote bool, err error) {
	systemUID, err := workload.SystemNamespaceUID(ctx)
	if err != nil {
		return false, err
	}
	there, err := readAgent(ctx, workload)
	if err != nil {
		return false, err
	}
	if err := r.mayRegister(ctx, s, workload, systemUID, there); err != nil {
		return false, err
	}
	if err := r.mayReplace(ctx, s, workload, there); err != nil {
		return false, r.yield(ctx, s, err)
	}
	if s.registration.Spec.Agent.Hosted() {
		return r.pushHosted(ctx, s, workload, input, there, systemUID)
	}
	if err := r.endHosted(ctx, s); err != nil {
		return false, err
	}
	if takesOver(s.registration) && there.secret != nil && there.deployment == nil && !there.belongsTo(s.registration) {
		if err := disown(ctx, workload); err != nil {
			return false, err
		}
	}
	if s.attempt.undelivered {
		if err := mayDeliver(ctx, workload, input, there); err != nil {
			return false, err
		}
	}
	value, credential, err := r.credential(ctx, s, there)
	if err != nil {
		return false, err
	}
	pulled, err := r.pullSecrets(ctx, input)
	if err != nil {
		return false, err
	}
	scope := there.toWrite(r.beforeTurn(s), s.registration)
	secret := agent.Secret(input, value)
	if scope == whatIsMissing {
		secret.Data = agent.Renewed(there.secret, value)
	}
	done, err := write(ctx, workload, agent.Objects(input, s.attempt.revisionOf(input)), secret, pulled.copies, there, scope)
	s.attempt.undelivered = !done.credential
	if err != nil {
		return done.any, err
	}
	if scope != whatIsMissing {
		removed, err := removeOldPullSecrets(ctx, workload, input, there, s.registration.Status.Agent.Settings)
		done.any = done.any || removed
		if err != nil {
			return done.any, err
		}
	}
	done.note, done.pullSecrets = sentences(done.note, pulled.note), pulled.version
	return done.any, r.pushed(ctx, s, workload, input, there, systemUID, credential, scope, done)
}

// pushed notes in the status what was put in place, and looks at how an agent is that was
// there and was not changed.
func (r *Reconciler) pushed(ctx context.Context, s *scope, workload *remote.Client, input agent.Input, there presentAgent, systemUID types.UID, credential fleetv1.CredentialStatus, scope extent, done outcome) error {
	status := &s.registration.Status
	status.Workload.SystemNamespaceUID = systemUID
	status.Credential = credential
	was := status.Agent
	status.Agent.Revision = s.attempt.revisionOf(input)
	if scope == whatIsMissing {
		status.Agent.Revision = cmp.Or(was.Revision, unknownRevision)
	}
	status.Agent.Placement = s.registration.Spec.Agent.Placement
	status.Agent.Settings = decide.Settings(s.registration.Spec.Agent)
	status.Agent.PullSecrets = done.pullSecrets
	status.Agent.NamespaceUID = status.NamespaceUID
	status.Agent.PushedTime = metav1.NewTime(s.now)
	s.agentDeployed = &finding{ok: true, reason: fleetv1.AgentDeployedReason, message: done.note}

	// A repair is no update, and takes no place in a rollout.
	updated := was.Revision != "" && was.Revision != status.Agent.Revision
	tookOver := was.Revision == "" && done.deployment && there.runs()
	if updated || tookOver {
		status.Agent.UpdatedTime, status.Agent.AvailableTime = metav1.NewTime(s.now), metav1.Time{}
		s.attempt.checkAfter(firstCheck, s.now)
		return nil
	}
	if there.deployment == nil || done.deployment {
		return nil
	}
	return r.judgeHealth(ctx, s, workload, there.deployment)
}

// sentences puts notes together, of which any may be empty.
func sentences(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(note string) bool { return note == "" }), ". ")
}

// unknownRevision stands for the revision of an agent that was there before anything was
// known of it, and stays as it is until its turn.
const unknownRevision = "unknown"

// presentAgent is what tells whose the agent in a workload cluster is. Nil means that
// the object is not there.
type presentAgent struct {
	secret     *corev1.Secret
	deployment *appsv1.Deployment
}

func readAgent(ctx context.Context, workload *remote.Client) (presentAgent, error) {
	key := types.NamespacedName{Namespace: agent.Namespace, Name: agent.Name}
	there := presentAgent{&corev1.Secret{}, &appsv1.Deployment{}}
	if found, err := get(ctx, workload, key, there.secret); err != nil {
		return presentAgent{}, err
	} else if !found {
		there.secret = nil
	}
	if found, err := get(ctx, workload, key, there.deployment); err != nil {
		return presentAgent{}, err
	} else if !found {
		there.deployment = nil
	}
	return there, nil
}

// runs tells whether the agent has, or is to have, a pod.
func (p presentAgent) runs() bool {
	return p.deployment != nil && ptr.Deref(p.deployment.Spec.Replicas, 1) != 0
}

func (p presentAgent) holder(registrationID string) agent.Holder {
	return agent.JudgeHolder(p.secret, p.deployment, registrationID)
}

// pointedAt returns the UID of the cluster namespace that the agent was pointed at,
// empty where there is no Secret or it does not say.
func (p presentAgent) pointedAt() types.UID {
	if p.secret == nil {
		return ""
	}
	return types.UID(p.secret.Annotations[fleetv1.NamespaceUIDAnnotation])
}

// belongsTo tells whether the agent is the registration's, and works for it: one that
// another management cluster took over bears the same ID.
func (p presentAgent) belongsTo(reg *fleetv1.FleetRegistration) bool {
	return p.holder(reg.Spec.RegistrationID) == agent.HeldByUs && (p.secret == nil || p.pointedAt() == reg.Status.NamespaceUID)
}

// credential returns a token for the agent and its description: the token that the
// agent has for as long as it is good, and else a new one, which is tried before anyone
// gets it.
func (r *Reconciler) credential(ctx context.Context, s *scope, there presentAgent) (string, fleetv1.CredentialStatus, error) {
	status := &s.registration.Status
	if value, credential := r.presentToken(s, there); value != "" {
		switch rejected, err := r.tryToken(ctx, s, value); {
		case err != nil:
			return "", credential, err
		case rejected == nil:
			return value, credential, nil
		}
	}
	issued, err := r.Tokens.Issue(ctx, status.Namespace, s.registration.Spec.Credentials.Lifetime.Duration)
	if err != nil {
		s.credentialsValid = &finding{reason: fleetv1.TokenRequestFailedReason,
			message: "The management cluster did not issue a token; look into the manager's log"}
		return "", fleetv1.CredentialStatus{}, managementError{err}
	}
	rejected, err := r.tryToken(ctx, s, issued.Value)
	if err != nil {
		return "", fleetv1.CredentialStatus{}, err
	}
	if rejected != nil {
		s.credentialsValid = &finding{reason: fleetv1.TokenRejectedReason,
			message: "The management cluster does not accept the token that it has issued; look into the manager's log"}
		return "", fleetv1.CredentialStatus{}, managementError{rejected}
	}
	claims, _ := token.Read(issued.Value)
	return issued.Value, fleetv1.CredentialStatus{
		IssuedTime:        metav1.NewTime(issued.Issued),
		ExpirationTime:    metav1.NewTime(issued.Expires),
		ServiceAccountUID: claims.AccountUID,
		Rotation:          rotation(s.registration),
	}, nil
}

// presentToken returns the token that the agent has if, by all that it says of itself,
// it is good for some time yet. The Secret knows it even where the status is empty.
func (r *Reconciler) presentToken(s *scope, there presentAgent) (string, fleetv1.CredentialStatus) {
	status := &s.registration.Status
	if there.secret == nil || !there.belongsTo(s.registration) {
		return "", fleetv1.CredentialStatus{}
	}
	value := agent.Token(there.secret)
	claims, ok := token.Read(value)
	if !ok || !decide.KeepsToken(r.pushInput(s, ""), claims, r.Tokens.Subject(status.Namespace)) {
		return "", fleetv1.CredentialStatus{}
	}
	return value, keptCredential(s.registration, claims)
}

// keptCredential describes a token that an agent keeps.
func keptCredential(reg *fleetv1.FleetRegistration, claims token.Claims) fleetv1.CredentialStatus {
	credential := fleetv1.CredentialStatus{
		IssuedTime:        metav1.NewTime(claims.Issued),
		ExpirationTime:    metav1.NewTime(claims.Expires),
		ServiceAccountUID: claims.AccountUID,
		Rotation:          reg.Status.Credential.Rotation,
	}
	if reg.Status.Credential.IssuedTime.IsZero() {
		credential.Rotation = rotation(reg)
	}
	return credential
}

// rightsLag is how long after the agent's rights were given the API servers may not
// know of them yet.
const rightsLag = time.Minute

// tryToken tries a token against the management cluster. It returns why that does not
// accept it, nil where it does; the error says that it could not be tried.
func (r *Reconciler) tryToken(ctx context.Context, s *scope, value string) (rejected, err error) {
	switch err := r.TryToken(ctx, value, s.registration.Status.Namespace); {
	case err == nil:
		return nil, nil
	case apierrors.IsUnauthorized(err):
		return err, nil
	case apierrors.IsForbidden(err):
		placed := meta.FindStatusCondition(s.registration.Status.Conditions, fleetv1.FleetClusterReadyCondition)
		if s.fleetClusterReady != nil || placed == nil || s.now.Sub(placed.LastTransitionTime.Time) < rightsLag {
			return nil, nil
		}
		return err, nil
	default:
		return nil, managementError{err}
	}
}

// mayRegister refuses a workload cluster that is the management cluster, from which it
// takes our agent away, or one that is registered already: a workload cluster can claim
// any UID, and whoever was registered with it before stays so. One of which nothing is
// known has to hold our agent. An empty UID is not known and equal to none.
func (r *Reconciler) mayRegister(ctx context.Context, s *scope, workload *remote.Client, systemUID types.UID, there presentAgent) error {
	if systemUID == "" && sameCluster(s.registration, systemUID) {
		return nil
	}
	own, err := r.systemNamespaceUID(ctx)
	if err != nil {
		return managementError{err}
	}
	if systemUID == own {
		// Cluster API was moved into the cluster that it had made, where our agent still
		// runs: Fleet has one of its own for the management cluster.
		if there.holder(s.registration.Spec.RegistrationID) == agent.HeldByUs {
			if err := removeAll(ctx, workload, s.registration.Spec.RegistrationID, there); err != nil {
				return err
			}
		}
		return &refusal{fleetv1.SelfManagedReason, "The workload cluster is the management cluster itself; use Fleet's local cluster for it"}
	}
	if takesOver(s.registration) {
		return nil
	}
	if !sameCluster(s.registration, systemUID) {
		return &refusal{fleetv1.WorkloadClusterChangedReason,
			"The kubeconfig leads to another cluster than the one that was registered, where an agent may still run; " + takeOverHint(s.registration)}
	}
	known := s.registration.Status.Workload.SystemNamespaceUID
	if known == systemUID || there.secret != nil && there.belongsTo(s.registration) {
		return nil
	}
	list := &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{systemNamespaceIndex: string(systemUID)}); err != nil {
		return managementError{fmt.Errorf("looking for other registrations of the workload cluster: %w", err)}
	}
	for i := range list.Items {
		if other := &list.Items[i]; other.UID != s.registration.UID {
			return &refusal{fleetv1.AlreadyRegisteredReason,
				fmt.Sprintf("The workload cluster is registered by FleetRegistration %s; %s", client.ObjectKeyFromObject(other), takeOverHint(s.registration))}
		}
	}
	return nil
}

// takesOver tells whether a person lets the registration take over what another one
// holds. The permission ends with the cluster namespace.
func takesOver(reg *fleetv1.FleetRegistration) bool {
	uid := reg.Annotations[fleetv1.TakeOverAnnotation]
	return uid != "" && types.UID(uid) == reg.Status.NamespaceUID
}

// endTakeOver takes the permission away once it was used: taking over again, from whoever
// took over in between, needs another one.
func (r *Reconciler) endTakeOver(ctx context.Context, s *scope) error {
	reg := s.registration
	if !takesOver(reg) || reg.Status.Agent.NamespaceUID != reg.Status.NamespaceUID {
		return nil
	}
	before := reg.DeepCopy()
	delete(reg.Annotations, fleetv1.TakeOverAnnotation)
	return r.patch(ctx, reg, before)
}

func takeOverHint(reg *fleetv1.FleetRegistration) string {
	return fmt.Sprintf("to take it over, set the annotation %s=%s", fleetv1.TakeOverAnnotation, reg.Status.NamespaceUID)
}

// mayReplace refuses to touch an agent that is not ours, or to start one where it
// would uninstall what it finds.
func (r *Reconciler) mayReplace(ctx context.Context, s *scope, workload *remote.Client, there presentAgent) error {
	reg := s.registration
	if there.holder(reg.Spec.RegistrationID) == agent.HeldByOther && !mayTake(reg, there) {
		return &refusal{fleetv1.ForeignAgentReason, r.foreignAgent(ctx, reg, there)}
	}
	pointedAt := there.pointedAt()
	if pointedAt != "" && pointedAt == reg.Status.NamespaceUID {
		return nil
	}
	// A Secret that does not say is nobody's: another management cluster's would.
	if pushed := reg.Status.Agent.NamespaceUID; pointedAt != "" && pushed != "" && pointedAt != pushed && !takesOver(reg) {
		return &refusal{fleetv1.MovedAwayReason,
			"Another management cluster has taken this registration over, and its agent is left alone; " + takeOverHint(reg)}
	}
	return r.mayStart(ctx, s, workload)
}

// mayTake tells whether an agent that is not ours may become ours: one of another
// registration where a person says so, one of Fleet's own registration where the policy
// does.
func mayTake(reg *fleetv1.FleetRegistration, there presentAgent) bool {
	if there.secret == nil {
		return takesOver(reg) && agent.RegistrationID(there.deployment) != ""
	}
	return takesOver(reg) && agent.RegistrationID(there.secret) != "" ||
		adopts(reg) && agent.Registered(there.secret, types.NamespacedName(reg.Spec.FleetCluster))
}

// adopts tells whether the registration may take over from Fleet's own, which it may only
// where the Fleet Cluster is in the namespace of its Cluster.
func adopts(reg *fleetv1.FleetRegistration) bool {
	return reg.Spec.Adoption == fleetv1.AdoptionAdopt && reg.Spec.FleetCluster.Namespace == reg.Namespace
}

func get(ctx context.Context, workload *remote.Client, key types.NamespacedName, obj client.Object) (bool, error) {
	err := workload.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// foreignAgent names the holder of an agent if it is one of our registrations.
// What else the workload cluster says about it is not repeated.
func (r *Reconciler) foreignAgent(ctx context.Context, reg *fleetv1.FleetRegistration, there presentAgent) string {
	const where = agent.Namespace + "/" + agent.Name
	var holder metav1.Object = there.deployment
	if there.secret != nil {
		holder = there.secret
	}
	id := agent.RegistrationID(holder)
	if id == "" {
		return fmt.Sprintf("The workload cluster has an agent %s that is not ours; remove it, or adopt it by a policy with adoption: Adopt", where)
	}
	list := &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, list); err == nil {
		for i := range list.Items {
			if list.Items[i].Spec.RegistrationID == id {
				return fmt.Sprintf("The workload cluster's agent %s belongs to FleetRegistration %s; %s",
					where, client.ObjectKeyFromObject(&list.Items[i]), takeOverHint(reg))
			}
		}
	}
	return fmt.Sprintf("The workload cluster's agent %s belongs to a registration of another management cluster, or to one that is gone; %s",
		where, takeOverHint(reg))
}

// mayStart refuses to start an agent, or to point one at a new cluster namespace,
// while there are releases of Fleet in the workload cluster that it would uninstall: those
// that no BundleDeployment there makes.
func (r *Reconciler) mayStart(ctx context.Context, s *scope, workload *remote.Client) error {
	status := &s.registration.Status
	if uid := s.registration.Annotations[fleetv1.StartWithoutBundlesAnnotation]; uid != "" && types.UID(uid) == status.NamespaceUID {
		return nil
	}
	releases, err := fleetReleases(ctx, workload)
	if err != nil || len(releases) == 0 {
		return err
	}
	deployments, err := r.bundleDeployments(ctx, status.Namespace)
	if err != nil {
		return managementError{err}
	}
	missing := decide.MissingBundles(releases, deployments)
	if len(missing) == 0 {
		return nil
	}
	return &refusal{fleetv1.WaitingForBundlesReason, fmt.Sprintf(
		"The agent would uninstall releases that have no BundleDeployment in namespace %s, or one that is paused or deploys elsewhere: %s. "+
			"Deploy their bundles to this cluster as before, or set the annotation %s=%s",
		status.Namespace, some(missing), fleetv1.StartWithoutBundlesAnnotation, status.NamespaceUID)}
}

// deploymentPage is how many BundleDeployments are read at once. Each can hold the values
// of a chart.
const deploymentPage = 100

// bundleDeployments reads the BundleDeployments of a cluster namespace, live.
func (r *Reconciler) bundleDeployments(ctx context.Context, namespace string) ([]fleet.BundleDeployment, error) {
	var all []fleet.BundleDeployment
	for next := ""; ; {
		page := &fleet.BundleDeploymentList{}
		if err := r.APIReader.List(ctx, page, client.InNamespace(namespace), client.Limit(deploymentPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing BundleDeployments in namespace %s: %w", namespace, err)
		}
		all = append(all, page.Items...)
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}

// some lists at most three names. Names that are no object names are counted only:
// they come from the workload cluster.
func some(names []string) string {
	const limit = 3
	var shown []string
	for _, name := range names {
		if len(shown) < limit && len(validation.IsDNS1123Subdomain(name)) == 0 {
			shown = append(shown, name)
		}
	}
	if more := len(names) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("%d more", more))
	}
	return strings.Join(shown, ", ")
}

// extent says which of the agent's objects are written.
type extent int

const (
	// everything is for a workload cluster that has nothing to compare with.
	everything extent = iota
	// whatDiffers leaves out the objects that are there as they should be.
	whatDiffers
	// whatIsMissing leaves out all objects that are there.
	whatIsMissing
)

// toWrite returns what is to be written. An agent that has to stay as it is until its turn
// only gets what it lacks; without its Deployment or its Secret there is nothing that
// could stay, nor where it has to be pointed elsewhere.
func (p presentAgent) toWrite(beforeTurn bool, reg *fleetv1.FleetRegistration) extent {
	switch {
	case p.secret == nil && p.deployment == nil:
		return everything
	case beforeTurn && p.secret != nil && p.deployment != nil &&
		agent.Ours(p.secret, reg.Spec.RegistrationID) && p.pointedAt() == reg.Status.NamespaceUID:
		return whatIsMissing
	}
	return whatDiffers
}

// outcome is what became of the writing of objects.
type outcome struct {
	// any says that something was written, deployment that the Deployment was, credential
	// that the Secret is in place.
	any, deployment, credential bool
	// note is about what the cluster does not serve.
	note string
	// pullSecrets is the version of those that were read for it.
	pullSecrets string
}

// write writes the agent's objects, the Secret right after its namespace: whoever creates
// it holds the workload cluster. The outcome counts where it fails as well.
func write(ctx context.Context, workload *remote.Client, objects []client.Object, credential *corev1.Secret, pullSecrets []*corev1.Secret, there presentAgent, scope extent) (outcome, error) {
	var done outcome
	for i, obj := range objects {
		applied, err := apply(ctx, workload, obj, scope)
		done.any = done.any || applied
		switch {
		case err == nil:
		case agent.Optional(obj) && (notServed(err) || notServedInMemory(ctx, workload, obj, err)):
			done.note = "The workload cluster does not serve " + obj.GetObjectKind().GroupVersionKind().Kind
		default:
			return done, err
		}
		// It is the last one.
		done.deployment = applied
		if i > 0 {
			continue
		}
		applied, err = writeSecret(ctx, workload, credential, there.secret)
		done.any = done.any || applied
		if err != nil {
			return done, err
		}
		done.credential = true
		applied, err = writePullSecrets(ctx, workload, pullSecrets, scope)
		done.any = done.any || applied
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// mayDeliver tries whether the workload cluster takes the agent's Secret, before another
// token is issued that may not get there either.
func mayDeliver(ctx context.Context, workload *remote.Client, input agent.Input, there presentAgent) error {
	if _, err := apply(ctx, workload, agent.Objects(input, "")[0], whatDiffers); err != nil {
		return err
	}
	secret := agent.Secret(input, "")
	var err error
	if there.secret == nil {
		err = workload.Create(ctx, secret, client.FieldOwner(upstream.FieldOwner), client.DryRunAll)
	} else {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"token":""}}`))
		err = workload.Patch(ctx, secret, patch, client.FieldOwner(upstream.FieldOwner), client.DryRunAll)
	}
	return rejected(agent.Secret(input, ""), err)
}

func writeSecret(ctx context.Context, workload *remote.Client, credential, live *corev1.Secret) (wrote bool, err error) {
	if live != nil {
		// No other than the one that was judged: who took it over meanwhile keeps it.
		credential.ResourceVersion = live.ResourceVersion
		return apply(ctx, workload, credential, whatDiffers)
	}
	err = workload.Create(ctx, credential, client.FieldOwner(upstream.FieldOwner))
	return err == nil, rejected(credential, err)
}

// apply applies an object, unless the extent leaves it out.
func apply(ctx context.Context, workload *remote.Client, obj client.Object, scope extent) (wrote bool, err error) {
	desired, err := agent.ToUnstructured(obj)
	if err != nil {
		return false, fmt.Errorf("building %s %s: %w", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), err)
	}
	if scope != everything {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(desired.GroupVersionKind())
		found, err := get(ctx, workload, client.ObjectKeyFromObject(obj), live)
		if err != nil {
			return false, err
		}
		if found && (scope == whatIsMissing || agent.Contains(live.Object, desired.Object)) {
			return false, nil
		}
		if first := agent.Before(live, desired); first != nil {
			// Where there is no server-side apply, mergeInto needs nothing before it.
			if err := workload.Apply(ctx, client.ApplyConfigurationFromUnstructured(first),
				client.FieldOwner(upstream.FieldOwner), client.ForceOwnership); err != nil && !apierrors.IsUnsupportedMediaType(err) {
				return false, rejected(obj, err)
			}
		}
	}
	err = workload.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
		client.FieldOwner(upstream.FieldOwner), client.ForceOwnership)
	if apierrors.IsUnsupportedMediaType(err) {
		wrote, err = mergeInto(ctx, workload, desired)
		return wrote, rejected(obj, err)
	}
	return err == nil, rejected(obj, err)
}

// rejected turns the refusal of one object into ours. The server's words are not
// repeated.
func rejected(obj client.Object, err error) error {
	lookAt := "its admission policies, quotas and the kubeconfig's rights"
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, remote.CauseTypeWebhook):
		lookAt = "its admission webhooks, of which one cannot be called"
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
	default:
		return err
	}
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	return &refusal{fleetv1.ObjectRejectedReason, fmt.Sprintf(
		"The workload cluster refused %s %s (HTTP status %d); look at %s", kind, obj.GetName(), statusCode(err), lookAt)}
}

func statusCode(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// notServed tells whether the workload cluster does not know a kind. An API server
// says so in plain text where it does not know the whole group.
func notServed(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		remote.Classify(err).Reason == fleetv1.NotKubernetesReason
}

// removeAgent removes the registration's agent, or stops it. It leaves alone one that is not
// its own.
func removeAgent(ctx context.Context, workload *remote.Client, reg *fleetv1.FleetRegistration, what fleetv1.AgentDeletion) error {
	there, err := readAgent(ctx, workload)
	if err != nil || !there.belongsTo(reg) {
		return err
	}
	if what == fleetv1.AgentKeep {
		if _, err := stop(ctx, workload, there); err != nil {
			return err
		}
	}
	return discard(ctx, workload, reg, there, what)
}

// removeAll removes every object of an agent that was judged. If another one has taken its
// place since, nothing more is removed.
func removeAll(ctx context.Context, workload *remote.Client, registrationID string, there presentAgent) error {
	errs := []error{removePullSecrets(ctx, workload, registrationID, nil)}
	for _, obj := range agent.Leftovers() {
		switch obj.(type) {
		case *appsv1.Deployment:
			if there.deployment != nil {
				obj = there.deployment
			}
		case *corev1.Secret:
			if there.secret != nil {
				obj = there.secret
			}
		}
		err := remove(ctx, workload, obj)
		if apierrors.IsConflict(err) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// remove removes an object: the one of that UID where it has one, else any of its name.
func remove(ctx context.Context, workload *remote.Client, obj client.Object) error {
	opts := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if uid := obj.GetUID(); uid != "" {
		opts = append(opts, client.Preconditions{UID: &uid})
	}
	err := workload.Delete(ctx, obj, opts...)
	if err != nil && (notServed(err) || notServedInMemory(ctx, workload, obj, err)) {
		return nil
	}
	return err
}
