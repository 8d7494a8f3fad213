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
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capisecret "sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/remote"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// tokenTimeout is how long the API server has to fill in a token, and to heed the rights
	// of its account.
	tokenTimeout  = 30 * time.Second
	tokenInterval = 500 * time.Millisecond
)

// handback hands one cluster back. Each step can be done again.
type handback struct {
	*handbackOptions
	client client.Client
	// try does with a token what an agent does first.
	try func(ctx context.Context, token, namespace string) error

	registration *fleetv1.FleetRegistration
	// fleetCluster and namespace are nil where there are none.
	fleetCluster *fleet.Cluster
	namespace    *corev1.Namespace
	// kubeConfigSecret is what the Fleet Cluster names already. generation is that of the
	// agent that Fleet last deployed, nil where it never did.
	kubeConfigSecret string
	generation       *int64
}

func (h *handback) key() client.ObjectKey { return client.ObjectKeyFromObject(h.registration) }

func (h *handback) run(ctx context.Context) error {
	if err := h.gather(ctx); err != nil {
		return err
	}
	if h.untouched() {
		return h.letGo(ctx)
	}
	switch done, err := h.judge(); {
	case err != nil:
		return err
	case done:
		fmt.Fprintf(h.Out, "%s: is Fleet's already\n", h.key())
		return h.release(ctx)
	}
	workload, err := connect(ctx, h.client, h.key(), h.denied)
	if err != nil {
		return err
	}
	defer workload.Close()
	secret, err := h.agentSecret(ctx, workload)
	switch {
	case err != nil:
		return err
	case h.dryRun:
		fmt.Fprintf(h.Out, "%s: would be handed back\n", h.key())
		return nil
	}
	return h.act(ctx, workload, secret)
}

// untouched tells whether the registration has not put an agent in place, so that there is
// nothing to hand back.
func (h *handback) untouched() bool {
	status := h.registration.Status
	return h.registration.DeletionTimestamp.IsZero() && status.NamespaceUID == "" && status.Agent.Revision == ""
}

// letGo releases a registration that is untouched. One that was moved and has not taken its
// agent over is so too: where that agent can be seen, it is left for capi-fleet to do so.
func (h *handback) letGo(ctx context.Context) error {
	found, err := h.hasAgent(ctx)
	note := ""
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case found:
		return errors.New("it has not taken its agent over yet, as after a move: let capi-fleet finish that first")
	case err != nil:
		note = fmt.Sprintf("; whether an agent is left of a move is not known: %s", err)
	}
	if h.dryRun {
		fmt.Fprintf(h.Out, "%s: was never registered, and would be released%s\n", h.key(), note)
		return nil
	}
	if err := h.release(ctx); err != nil {
		return err
	}
	fmt.Fprintf(h.Out, "%s: was never registered, and is released%s\n", h.key(), note)
	if h.fleetCluster != nil && h.fleetCluster.Annotations[fleetv1.RegistrationIDAnnotation] == h.registration.Spec.RegistrationID {
		h.stays(h.fleetCluster, "without an agent")
	}
	h.stays(h.registration, "until its CRD goes")
	return nil
}

// hasAgent tells whether the workload cluster has the registration's agent.
func (h *handback) hasAgent(ctx context.Context) (bool, error) {
	workload, err := connect(ctx, h.client, h.key(), h.denied)
	if err != nil {
		return false, err
	}
	defer workload.Close()
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	found, err := get(ctx, workload, client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)
	if err != nil {
		return false, remote.Classify(err)
	}
	return found && agent.Ours(secret, h.registration.Spec.RegistrationID), nil
}

// act hands the cluster back, for which nothing is in the way.
func (h *handback) act(ctx context.Context, workload client.Client, secret *corev1.Secret) error {
	var err error
	if h.mode == modeToken {
		err = h.leaveToken(ctx, workload, secret)
	} else {
		err = h.giveToFleet(ctx)
	}
	if err != nil {
		return err
	}
	if err := h.release(ctx); err != nil {
		return err
	}
	h.report()
	return nil
}

// gather reads what is on the management cluster.
func (h *handback) gather(ctx context.Context) error {
	reg := h.registration
	cluster, namespace, raw := &fleet.Cluster{}, &corev1.Namespace{}, &unstructured.Unstructured{}
	raw.SetGroupVersionKind(fleet.GroupVersion.WithKind("Cluster"))
	switch found, err := get(ctx, h.client, types.NamespacedName(reg.Spec.FleetCluster), raw); {
	case err != nil:
		return err
	case found:
		if _, err := get(ctx, h.client, types.NamespacedName(reg.Spec.FleetCluster), cluster); err != nil {
			return err
		}
		h.fleetCluster = cluster
		h.kubeConfigSecret, _, _ = unstructured.NestedString(raw.Object, "spec", "kubeConfigSecret")
		if generation, found, err := unstructured.NestedInt64(raw.Object, "status", "agentDeployedGeneration"); found && err == nil {
			h.generation = &generation
		}
	}
	if reg.Status.Namespace == "" {
		return nil
	}
	switch found, err := get(ctx, h.client, client.ObjectKey{Name: reg.Status.Namespace}, namespace); {
	case err != nil:
		return err
	case found:
		h.namespace = namespace
	}
	return nil
}

// judge says what is in the way on the management cluster, or that nothing is to be done
// but to release the registration.
func (h *handback) judge() (done bool, _ error) {
	reg, cluster := h.registration, h.fleetCluster
	switch {
	case reg.Spec.Agent.Hosted() || reg.Status.Agent.Placement == fleetv1.PlacementManagement:
		return false, errors.New("its agent runs on the management cluster, and ends with capi-fleet: let capi-fleet put it into the workload cluster first (spec.agent.placement of the policy), or keep capi-fleet where that has no way out")
	case !reg.DeletionTimestamp.IsZero():
		return false, errors.New("the FleetRegistration is being deleted: let capi-fleet finish that first")
	case cluster == nil || cluster.Annotations[fleetv1.RegistrationIDAnnotation] != reg.Spec.RegistrationID:
		return false, fmt.Errorf("Fleet Cluster %s is not this registration's", types.NamespacedName(reg.Spec.FleetCluster))
	case !cluster.DeletionTimestamp.IsZero():
		return false, fmt.Errorf("Fleet Cluster %s is being deleted", types.NamespacedName(reg.Spec.FleetCluster))
	case h.namespace == nil || h.namespace.UID != reg.Status.NamespaceUID:
		return false, fmt.Errorf("namespace %s was made anew or is gone: let capi-fleet put that right first", reg.Status.Namespace)
	case cluster.Labels[fleet.ClusterManagementLabel] == upstream.ManagementLabelValue:
		return false, nil
	case h.mode == modeFleet && h.kubeConfigSecret != "":
		return true, nil
	}
	return false, fmt.Errorf("Fleet Cluster %s was taken from capi-fleet (label %s)", types.NamespacedName(reg.Spec.FleetCluster), fleet.ClusterManagementLabel)
}

// agentSecret reads what the agent has.
func (h *handback) agentSecret(ctx context.Context, workload *remote.Client) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	systemUID, err := workload.SystemNamespaceUID(ctx)
	if err != nil {
		return nil, fmt.Errorf("the workload cluster cannot be reached: %w", remote.Classify(err))
	}
	secret := &corev1.Secret{}
	found, err := get(ctx, workload, client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}, secret)
	switch {
	case err != nil:
		return nil, remote.Classify(err)
	case !found:
		secret = nil
	}
	return secret, judgeAgent(h.registration, systemUID, secret)
}

// judgeAgent says what is in the way on the workload cluster. The Secret is nil where there
// is none.
func judgeAgent(reg *fleetv1.FleetRegistration, systemUID types.UID, secret *corev1.Secret) error {
	name := agent.Namespace + "/" + agent.Name
	switch recorded := reg.Status.Workload.SystemNamespaceUID; {
	case recorded != "" && recorded != systemUID:
		return errors.New("the kubeconfig leads to another cluster than the one that was registered")
	case secret == nil:
		return fmt.Errorf("the workload cluster has no Secret %s, so no agent", name)
	case !agent.Ours(secret, reg.Spec.RegistrationID):
		return errors.New("the agent in the workload cluster is not this registration's")
	case secret.Annotations[fleetv1.NamespaceUIDAnnotation] != string(reg.Status.NamespaceUID):
		// In a namespace that was made anew bundles may be missing, and an agent that could
		// see it would uninstall them.
		return fmt.Errorf("the agent has not been given the present namespace %s yet: let capi-fleet put that right first", reg.Status.Namespace)
	}
	if token := agent.Token(secret); token == "" || !bytes.Contains(secret.Data["kubeconfig"], []byte(token)) {
		return fmt.Errorf("Secret %s in the workload cluster is not as capi-fleet made it", name)
	}
	return nil
}

func (h *handback) upstream() upstream.Registration {
	reg := h.registration
	return upstream.Registration{
		ID:           reg.Spec.RegistrationID,
		FleetCluster: types.NamespacedName(reg.Spec.FleetCluster),
		Namespace:    reg.Status.Namespace,
		NamespaceUID: reg.Status.NamespaceUID,
	}
}

// leaveToken gives the agent a token that does not end, once that is seen to work.
func (h *handback) leaveToken(ctx context.Context, workload client.Client, secret *corev1.Secret) error {
	for _, obj := range h.upstream().Lasting(h.fleetCluster.UID) {
		if err := apply(ctx, h.client, obj); err != nil {
			return err
		}
	}
	token, err := h.token(ctx)
	if err != nil {
		return err
	}
	if err := h.tryToken(ctx, token); err != nil {
		return err
	}
	if token == agent.Token(secret) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	// The pod sees the new token as a file, so it needs no restart.
	before := secret.DeepCopy()
	secret.Data = agent.Renewed(secret, token)
	if err := workload.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("the token cannot be written to Secret %s/%s in the workload cluster: %w", agent.Namespace, agent.Name, remote.Classify(err))
	}
	return nil
}

// token returns the token that Kubernetes fills in.
func (h *handback) token(ctx context.Context) (string, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: h.registration.Status.Namespace, Name: upstream.LastingTokenSecret}
	filled, err := h.eventually(ctx, tokenTimeout, tokenInterval, func() (bool, error) {
		err := h.client.Get(ctx, key, secret)
		return len(secret.Data[corev1.ServiceAccountTokenKey]) > 0, err
	})
	if err == nil && !filled {
		err = fmt.Errorf("Secret %s is not given a token", key)
	}
	return string(secret.Data[corev1.ServiceAccountTokenKey]), err
}

// tryToken makes sure that the agent can do with the token what it does.
func (h *handback) tryToken(ctx context.Context, token string) error {
	namespace := h.registration.Status.Namespace
	var why error
	works, err := h.eventually(ctx, tokenTimeout, tokenInterval, func() (bool, error) {
		if why = h.try(ctx, token, namespace); why != nil {
			return false, ctx.Err()
		}
		denied, err := deniedRights(ctx, h.client, h.registration, namespace)
		if len(denied) > 0 {
			why = fmt.Errorf("the new account may not %s", denied[0])
		}
		return len(denied) == 0, err
	})
	if err == nil && !works {
		err = fmt.Errorf("the management cluster does not accept the new token: %w", why)
	}
	return err
}

// giveToFleet tells Fleet how to reach the workload cluster, and then takes the label off
// that keeps Fleet from registering it. Another label takes its place: Fleet fills in no
// templates for a cluster without labels.
func (h *handback) giveToFleet(ctx context.Context) error {
	spec := map[string]any{"kubeConfigSecret": capisecret.Name(h.registration.Name, capisecret.Kubeconfig)}
	if h.registration.Namespace != h.fleetCluster.Namespace {
		spec["kubeConfigSecretNamespace"] = h.registration.Namespace
	}
	// Where Fleet has registered the cluster once, it does so again only for a new generation.
	if h.generation != nil {
		spec["redeployAgentGeneration"] = *h.generation + 1
	}
	if err := h.patchFleetCluster(ctx, map[string]any{"spec": spec}); err != nil {
		return err
	}
	return h.patchFleetCluster(ctx, map[string]any{"metadata": map[string]any{
		"labels": map[string]any{fleetv1.HandedOverLabel: "true", fleet.ClusterManagementLabel: nil},
	}})
}

// patchFleetCluster merges a patch into the Fleet Cluster that was judged.
func (h *handback) patchFleetCluster(ctx context.Context, patch map[string]any) error {
	if patch["metadata"] == nil {
		patch["metadata"] = map[string]any{}
	}
	patch["metadata"].(map[string]any)["uid"] = h.fleetCluster.UID
	return mergePatch(ctx, h.client, h.fleetCluster.DeepCopy(), patch)
}

// release takes our finalizer off, so that the registration can go without the manager, and
// nothing with it.
func (h *handback) release(ctx context.Context) error {
	before := h.registration.DeepCopy()
	if h.dryRun || !controllerutil.RemoveFinalizer(h.registration, fleetv1.FleetRegistrationFinalizer) {
		return nil
	}
	err := h.client.Patch(ctx, h.registration, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// report prints what was done, and what is there afterwards.
func (h *handback) report() {
	reg, until := h.registration, "needed until Fleet's own agent reports"
	if h.mode == modeToken {
		until = "needed until the agent uses its new token"
		fmt.Fprintf(h.Out, "%s: its agent has a token that does not end\n", h.key())
		for _, obj := range h.upstream().Lasting(h.fleetCluster.UID) {
			h.stays(obj, "")
		}
	} else {
		fmt.Fprintf(h.Out, "%s: Fleet registers it anew\n", h.key())
	}
	h.stays(h.fleetCluster, "")
	h.stays(h.namespace, "")
	h.stays(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: reg.Namespace, Name: reg.Name}}, "with its condition FleetRegistered")
	h.stays(reg, "until its CRD goes")
	for _, obj := range h.upstream().Made(h.managerNamespace) {
		h.stays(obj, until)
	}
}

// kindOf returns what people call an object of that kind.
func kindOf(obj client.Object) string {
	if _, ok := obj.(*fleet.Cluster); ok {
		return "Fleet Cluster"
	}
	kind, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return "object"
	}
	return kind.Kind
}
