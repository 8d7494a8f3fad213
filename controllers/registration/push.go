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
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/remote"
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

// push puts the agent and its credential into the workload cluster. It returns a
// *refusal where that must not be, and else an error for remote.Classify.
func (r *Reconciler) push(ctx context.Context, s *scope, workload *remote.Client, input agent.Input, why decide.PushReason) error {
	systemUID, err := workload.SystemNamespaceUID(ctx)
	if err != nil {
		return err
	}
	if err := r.mayRegister(ctx, s, systemUID); err != nil {
		return err
	}
	live, err := r.mayReplace(ctx, s, workload)
	if err != nil {
		return err
	}

	status := &s.registration.Status
	credential := status.Credential
	value := ""
	pointedHere := live != nil && types.UID(live.Annotations[fleetv1.NamespaceUIDAnnotation]) == status.NamespaceUID
	if pointedHere && why == decide.RevisionChanged && !decide.CredentialIsDue(pushInput(s, "")) {
		// The token that is there goes on; minting another would serve nobody.
		value = agent.Token(live)
	}
	if value == "" {
		issued, err := r.Tokens.Issue(ctx, status.Namespace, s.registration.Spec.Credentials.Lifetime.Duration)
		if err != nil {
			s.credentialsValid = &finding{reason: fleetv1.TokenRequestFailedReason,
				message: "The management cluster did not issue a token; look into the manager's log"}
			return managementError{err}
		}
		value = issued.Value
		credential = fleetv1.CredentialStatus{
			IssuedTime: metav1.NewTime(issued.Issued), ExpirationTime: metav1.NewTime(issued.Expires), Rotation: rotation(s.registration),
		}
	}

	note, err := write(ctx, workload, input, agent.Secret(input, value), live == nil)
	if err != nil {
		return err
	}
	status.Workload.SystemNamespaceUID = systemUID
	status.Agent = fleetv1.AgentStatus{
		Revision:     agent.Revision(input),
		NamespaceUID: status.NamespaceUID,
		PushedTime:   metav1.NewTime(s.now),
	}
	status.Credential = credential
	s.agentDeployed = &finding{ok: true, reason: fleetv1.AgentDeployedReason, message: note}
	return nil
}

// mayRegister refuses a workload cluster that is the management cluster or is
// registered already. An empty UID is not known and equal to none.
func (r *Reconciler) mayRegister(ctx context.Context, s *scope, systemUID types.UID) error {
	if systemUID == "" {
		return nil
	}
	own, err := r.systemNamespaceUID(ctx)
	if err != nil {
		return managementError{err}
	}
	if systemUID == own {
		return &refusal{fleetv1.SelfManagedReason, "The workload cluster is the management cluster itself; use Fleet's local cluster for it"}
	}
	list := &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{systemNamespaceIndex: string(systemUID)}); err != nil {
		return managementError{fmt.Errorf("looking for other registrations of the workload cluster: %w", err)}
	}
	for i := range list.Items {
		if other := &list.Items[i]; other.UID != s.registration.UID {
			return &refusal{fleetv1.AlreadyRegisteredReason,
				fmt.Sprintf("The workload cluster is registered by FleetRegistration %s", client.ObjectKeyFromObject(other))}
		}
	}
	return nil
}

// mayReplace refuses to touch an agent that is not ours, or to start one where it
// would uninstall what it finds. It returns the live Secret, nil where there is
// none.
func (r *Reconciler) mayReplace(ctx context.Context, s *scope, workload *remote.Client) (*corev1.Secret, error) {
	key := types.NamespacedName{Namespace: agent.Namespace, Name: agent.Name}
	live, deployment := &corev1.Secret{}, &appsv1.Deployment{}
	found, err := get(ctx, workload, key, live)
	if err != nil {
		return nil, err
	}
	if !found {
		live = nil
	}
	if found, err = get(ctx, workload, key, deployment); err != nil {
		return nil, err
	}
	if !found {
		deployment = nil
	}
	if agent.JudgeHolder(live, deployment, s.registration.Spec.RegistrationID) == agent.HeldByOther {
		return nil, &refusal{fleetv1.ForeignAgentReason, r.foreignAgent(ctx, live, deployment)}
	}
	status := &s.registration.Status
	var pointedAt types.UID
	if live != nil {
		pointedAt = types.UID(live.Annotations[fleetv1.NamespaceUIDAnnotation])
	}
	if pointedAt != "" && pointedAt == status.NamespaceUID {
		return live, nil
	}
	if pushed := status.Agent.NamespaceUID; live != nil && pushed != "" && pointedAt != pushed {
		return nil, &refusal{fleetv1.MovedAwayReason, "Another management cluster has taken this registration over; its agent is left alone"}
	}
	return live, r.mayStart(ctx, s, workload)
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
func (r *Reconciler) foreignAgent(ctx context.Context, live *corev1.Secret, deployment *appsv1.Deployment) string {
	const where = agent.Namespace + "/" + agent.Name
	var holder metav1.Object = live
	if live == nil {
		holder = deployment
	}
	if id := holder.GetAnnotations()[fleetv1.RegistrationIDAnnotation]; id != "" {
		list := &fleetv1.FleetRegistrationList{}
		if err := r.Client.List(ctx, list); err == nil {
			for i := range list.Items {
				if list.Items[i].Spec.RegistrationID == id {
					return fmt.Sprintf("The workload cluster's agent %s belongs to FleetRegistration %s",
						where, client.ObjectKeyFromObject(&list.Items[i]))
				}
			}
		}
		return fmt.Sprintf("The workload cluster's agent %s belongs to a registration of another management cluster, or to one that is gone", where)
	}
	return fmt.Sprintf("The workload cluster has an agent %s that is not ours; remove it", where)
}

// mayStart refuses to start an agent, or to point one at a new cluster namespace,
// while there are releases of Fleet in the workload cluster that have no
// BundleDeployment there: the agent would uninstall them.
func (r *Reconciler) mayStart(ctx context.Context, s *scope, workload *remote.Client) error {
	status := &s.registration.Status
	if uid := s.registration.Annotations[fleetv1.StartWithoutBundlesAnnotation]; uid != "" && types.UID(uid) == status.NamespaceUID {
		return nil
	}
	bundles, err := fleetReleases(ctx, workload)
	if err != nil || len(bundles) == 0 {
		return err
	}
	deployments := &metav1.PartialObjectMetadataList{}
	deployments.SetGroupVersionKind(fleet.GroupVersion.WithKind("BundleDeploymentList"))
	if err := r.APIReader.List(ctx, deployments, client.InNamespace(status.Namespace)); err != nil {
		return managementError{fmt.Errorf("listing BundleDeployments in namespace %s: %w", status.Namespace, err)}
	}
	var present []string
	for i := range deployments.Items {
		present = append(present, deployments.Items[i].Name)
	}
	missing := decide.MissingBundles(bundles, present)
	if len(missing) == 0 {
		return nil
	}
	return &refusal{fleetv1.WaitingForBundlesReason, fmt.Sprintf(
		"The agent would uninstall releases that have no BundleDeployment in namespace %s: %s. Deploy their bundles to this cluster, or set the annotation %s=%s",
		status.Namespace, some(missing), fleetv1.StartWithoutBundlesAnnotation, status.NamespaceUID)}
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

// write writes the agent's objects, the Secret right after its namespace: whoever
// creates it holds the workload cluster. It returns a note on what the cluster
// does not serve.
func write(ctx context.Context, workload *remote.Client, input agent.Input, credential *corev1.Secret, create bool) (note string, err error) {
	for i, obj := range agent.Objects(input) {
		err := apply(ctx, workload, obj)
		switch {
		case err == nil:
		case agent.Optional(obj) && notServed(err):
			note = "The workload cluster does not serve " + obj.GetObjectKind().GroupVersionKind().Kind
		default:
			return "", err
		}
		if i > 0 {
			continue
		}
		if err := writeSecret(ctx, workload, credential, create); err != nil {
			return "", err
		}
	}
	return note, nil
}

func writeSecret(ctx context.Context, workload *remote.Client, credential *corev1.Secret, create bool) error {
	if !create {
		return apply(ctx, workload, credential)
	}
	err := workload.Create(ctx, credential, client.FieldOwner(upstream.FieldOwner))
	return rejected(credential, err)
}

func apply(ctx context.Context, workload *remote.Client, obj client.Object) error {
	clean, err := agent.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("building %s %s: %w", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), err)
	}
	err = workload.Apply(ctx, client.ApplyConfigurationFromUnstructured(clean),
		client.FieldOwner(upstream.FieldOwner), client.ForceOwnership)
	return rejected(obj, err)
}

// rejected turns the refusal of one object into ours. The server's words are not
// repeated.
func rejected(obj client.Object, err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		return &refusal{fleetv1.ObjectRejectedReason, fmt.Sprintf(
			"The workload cluster refused %s %s (HTTP status %d); look at its admission policies, quotas and the kubeconfig's rights",
			kind, obj.GetName(), statusCode(err))}
	}
	return err
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

// removeAgent removes our agent's objects. It leaves alone an agent that is not
// ours.
func removeAgent(ctx context.Context, workload *remote.Client, registrationID string) error {
	live := &corev1.Secret{}
	found, err := get(ctx, workload, types.NamespacedName{Namespace: agent.Namespace, Name: agent.Name}, live)
	if err != nil || !found || !agent.Ours(live, registrationID) {
		return err
	}
	var errs []error
	for _, obj := range agent.Leftovers() {
		if err := workload.Delete(ctx, obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil && !notServed(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
