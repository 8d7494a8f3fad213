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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capisecret "sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/remote"
)

const (
	// visitTimeout bounds the whole visit of a workload cluster.
	visitTimeout = 20 * time.Second
	// maxPods bounds what is read of an agent's pods.
	maxPods = 20
)

// Names of what the shipped manifests and Fleet's chart install.
const (
	managerDeployment = "capi-fleet-manager"
	fleetDeployment   = "fleet-controller"
)

// facts is all that is known of one Cluster. What may not be read is left out, and named
// in unread.
type facts struct {
	now time.Time
	key client.ObjectKey

	// cluster is nil where there is none. namespace is never nil.
	cluster   *clusterv1.Cluster
	namespace *corev1.Namespace
	policies  []fleetv1.FleetRegistrationPolicy
	// registration and fleetCluster are nil where there are none.
	registration *fleetv1.FleetRegistration
	fleetCluster *fleet.Cluster
	bundles      *bundleCount
	// manager and fleetController are nil where there are none.
	manager, fleetController *appsv1.Deployment
	// denied are the rights that the agent's account lacks on the management cluster.
	denied []string
	// workload is what the workload cluster shows; nil where it was not visited.
	workload *visit

	unread map[unreadable]bool
}

// unreadable is a fact that may not be read with the rights that there are.
type unreadable string

const (
	unreadNamespace    unreadable = "namespace"
	unreadPolicies     unreadable = "policies"
	unreadFleetCluster unreadable = "Fleet Cluster"
	unreadBundles      unreadable = "bundles"
	unreadManager      unreadable = "manager"
	unreadFleet        unreadable = "Fleet's controller"
	unreadKubeconfig   unreadable = "kubeconfig Secret"
	unreadRights       unreadable = "rights"
)

// visit is what was found on a workload cluster. Nothing in it is printed as it came.
type visit struct {
	// kubeconfig says what is wrong with the kubeconfig, reach why there is no answer.
	kubeconfig, reach *remote.Error
	insecureTLS       bool
	holder            agent.Holder
	// deployment is nil where there is none.
	deployment *appsv1.Deployment
	ailment    *agent.Ailment
}

// lookup says where facts are looked for.
type lookup struct {
	managerNamespace, fleetNamespace string
	denied                           remote.DeniedRanges
}

// gatherer gathers the facts of one Cluster.
type gatherer struct {
	lookup
	client client.Client
	facts  *facts
}

func gatherFacts(ctx context.Context, c client.Client, where lookup, key client.ObjectKey, now time.Time) (*facts, error) {
	g := &gatherer{lookup: where, client: c, facts: &facts{now: now, key: key, unread: map[unreadable]bool{}}}
	for _, step := range []func(context.Context) error{g.own, g.others, g.agentRights, g.visit} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return g.facts, nil
}

// optional reads an object, and notes what may not be read.
func (g *gatherer) optional(ctx context.Context, what unreadable, key client.ObjectKey, obj client.Object) (bool, error) {
	found, err := get(ctx, g.client, key, obj)
	return found, g.note(what, err)
}

func (g *gatherer) note(what unreadable, err error) error {
	if apierrors.IsForbidden(err) {
		g.facts.unread[what] = true
		return nil
	}
	return err
}

// own reads what is in the Cluster's namespace, and who selects it.
func (g *gatherer) own(ctx context.Context) error {
	f := g.facts
	cluster, registration := &clusterv1.Cluster{}, &fleetv1.FleetRegistration{}
	f.namespace = &corev1.Namespace{}
	switch found, err := get(ctx, g.client, f.key, cluster); {
	case err != nil:
		return err
	case found:
		f.cluster = cluster
	}
	switch found, err := get(ctx, g.client, f.key, registration); {
	case err != nil:
		return err
	case found:
		f.registration = registration
	}
	if _, err := g.optional(ctx, unreadNamespace, client.ObjectKey{Name: f.key.Namespace}, f.namespace); err != nil {
		return err
	}
	policies := &fleetv1.FleetRegistrationPolicyList{}
	if err := g.note(unreadPolicies, g.client.List(ctx, policies)); err != nil {
		return err
	}
	f.policies = policies.Items
	return nil
}

// others reads what lies in other namespaces.
func (g *gatherer) others(ctx context.Context) error {
	f := g.facts
	for _, d := range []struct {
		what unreadable
		key  client.ObjectKey
		into **appsv1.Deployment
	}{
		{unreadManager, client.ObjectKey{Namespace: g.managerNamespace, Name: managerDeployment}, &f.manager},
		{unreadFleet, client.ObjectKey{Namespace: g.fleetNamespace, Name: fleetDeployment}, &f.fleetController},
	} {
		deployment := &appsv1.Deployment{}
		switch found, err := g.optional(ctx, d.what, d.key, deployment); {
		case err != nil:
			return err
		case found:
			*d.into = deployment
		}
	}
	if f.registration == nil {
		return nil
	}
	fleetCluster := &fleet.Cluster{}
	switch found, err := g.optional(ctx, unreadFleetCluster, types.NamespacedName(f.registration.Spec.FleetCluster), fleetCluster); {
	case err != nil:
		return err
	case found:
		f.fleetCluster = fleetCluster
	}
	return g.countBundles(ctx)
}

func (g *gatherer) countBundles(ctx context.Context) error {
	namespace := g.facts.registration.Status.Namespace
	if namespace == "" {
		return nil
	}
	list := &fleet.BundleDeploymentList{}
	if err := g.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return g.note(unreadBundles, err)
	}
	counted := count(list.Items)[namespace]
	g.facts.bundles = &counted
	return nil
}

// right is something that an agent does on the management cluster.
type right struct {
	words      string
	attributes authorizationv1.ResourceAttributes
}

// rightsOf returns what the agent of a registration does on the management cluster.
func rightsOf(reg *fleetv1.FleetRegistration) []right {
	group, version := fleet.GroupVersion.Group, fleet.GroupVersion.Version
	in, at := reg.Status.Namespace, reg.Spec.FleetCluster
	return []right{
		{"list BundleDeployments in namespace " + in,
			authorizationv1.ResourceAttributes{Group: group, Version: version, Verb: "list", Resource: "bundledeployments", Namespace: in}},
		{"patch the status of BundleDeployments in namespace " + in,
			authorizationv1.ResourceAttributes{Group: group, Version: version, Verb: "patch", Resource: "bundledeployments", Subresource: "status", Namespace: in}},
		{"patch the status of Fleet Cluster " + at.Namespace + "/" + at.Name,
			authorizationv1.ResourceAttributes{Group: group, Version: version, Verb: "patch", Resource: "clusters", Subresource: "status", Namespace: at.Namespace, Name: at.Name}},
		{"get Contents",
			authorizationv1.ResourceAttributes{Group: group, Version: version, Verb: "get", Resource: "contents", Name: "any"}},
	}
}

// agentRights asks the management cluster what the agent's account may do.
func (g *gatherer) agentRights(ctx context.Context) error {
	f := g.facts
	if f.registration == nil || f.registration.Status.Namespace == "" {
		return nil
	}
	var err error
	f.denied, err = deniedRights(ctx, g.client, f.registration, g.managerNamespace)
	return g.note(unreadRights, err)
}

// deniedRights returns what the agent's account in a namespace may not do.
func deniedRights(ctx context.Context, c client.Client, reg *fleetv1.FleetRegistration, namespace string) ([]string, error) {
	var denied []string
	for _, r := range rightsOf(reg) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               serviceaccount.MakeUsername(namespace, reg.Status.Namespace),
			Groups:             append(serviceaccount.MakeGroupNames(namespace), "system:authenticated"),
			ResourceAttributes: &r.attributes,
		}}
		if err := c.Create(ctx, review); err != nil {
			return denied, err
		}
		if !review.Status.Allowed {
			denied = append(denied, r.words)
		}
	}
	return denied, nil
}

// connect returns a client of a Cluster's workload cluster, by the kubeconfig that Cluster
// API keeps. What is wrong with that is a *remote.Error.
func connect(ctx context.Context, c client.Reader, key client.ObjectKey, denied remote.DeniedRanges) (*remote.Client, error) {
	secret := &corev1.Secret{}
	found, err := get(ctx, c, client.ObjectKey{Namespace: key.Namespace, Name: capisecret.Name(key.Name, capisecret.Kubeconfig)}, secret)
	if err != nil {
		return nil, err
	}
	if !found {
		secret = nil
	}
	kubeconfig, refused := remote.KubeconfigFromSecret(secret)
	if refused != nil {
		return nil, refused
	}
	dialer := &remote.Dialer{Denied: denied, UserAgent: userAgent}
	return dialer.Connect(kubeconfig)
}

// visit looks at the workload cluster.
func (g *gatherer) visit(ctx context.Context) error {
	f := g.facts
	if f.cluster == nil || f.registration == nil {
		return nil
	}
	workload, err := connect(ctx, g.client, f.key, g.denied)
	switch refused := (*remote.Error)(nil); {
	case errors.As(err, &refused):
		f.workload = &visit{kubeconfig: refused}
		return nil
	case err != nil:
		return g.note(unreadKubeconfig, err)
	}
	defer workload.Close()
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	f.workload = &visit{insecureTLS: workload.InsecureTLS}
	f.workload.reach = remote.Classify(look(ctx, workload, f))
	return nil
}

// look reads the agent's objects. Those of one on the management cluster are not there, and
// the conditions have to do.
func look(ctx context.Context, workload *remote.Client, f *facts) error {
	if _, err := workload.SystemNamespaceUID(ctx); err != nil {
		return err
	}
	if f.registration.Spec.Agent.Hosted() {
		return nil
	}
	key := client.ObjectKey{Namespace: agent.Namespace, Name: agent.Name}
	secret, deployment := &corev1.Secret{}, &appsv1.Deployment{}
	found, err := get(ctx, workload, key, secret)
	if err != nil {
		return err
	}
	if !found {
		secret = nil
	}
	switch found, err = get(ctx, workload, key, deployment); {
	case err != nil:
		return err
	case found:
		f.workload.deployment = deployment
	}
	f.workload.holder = agent.JudgeHolder(secret, f.workload.deployment, f.registration.Spec.RegistrationID)
	if f.workload.deployment == nil || agent.Complete(deployment) {
		return nil
	}
	pods := &corev1.PodList{}
	if err := workload.List(ctx, pods, client.InNamespace(agent.Namespace), client.MatchingLabels(agent.PodLabels()), client.Limit(maxPods)); err != nil {
		return err
	}
	f.workload.ailment = agent.WorkloadSite().Diagnose(deployment, pods.Items, f.registration.Spec.Agent.Image)
	return nil
}
