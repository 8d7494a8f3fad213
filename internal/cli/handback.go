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
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/endpoint"
	"github.com/capi-fleet/capi-fleet/internal/token"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// Modes of handback.
const (
	modeToken = "token"
	modeFleet = "fleet"
)

// managerLabels are those of the manager's Deployment and pods in the shipped manifests.
var managerLabels = client.MatchingLabels{"control-plane": managerDeployment}

const (
	managerTimeout  = time.Minute
	managerInterval = time.Second
)

type handbackOptions struct {
	*app
	lookupFlags
	mode               string
	all, allNamespaces bool
	dryRun             bool
}

func newHandbackCommand(a *app) *cobra.Command {
	o := &handbackOptions{app: a}
	command := &cobra.Command{
		Use:   "handback [CLUSTER...] --mode token|fleet",
		Short: "Make clusters ready for the removal of capi-fleet",
		Long: `Make the registered clusters that are named, or with --all those of the namespace, ready for
the removal of capi-fleet. Agents and what they deployed keep running.

--mode token leaves each agent a token that does not end, with the rights that it has now.
--mode fleet lets Fleet itself register the cluster anew, with the kubeconfig that Cluster API
keeps.

First the manager is scaled to 0, also for a single cluster: it would put everything back. At
last the finalizer of the FleetRegistration goes. What stays is printed. A cluster that cannot
be handed back is left as it is, with the reason; the exit code is 3 then. Where this breaks
off, run it again.`,
		Example: `  clusterctl fleet handback --mode token --all --all-namespaces --dry-run
  clusterctl fleet handback --mode token --all --all-namespaces
  clusterctl fleet handback edge-1 --namespace team-a --mode fleet`,
		ValidArgsFunction: a.completeClusters,
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(command.Context(), args)
		},
	}
	o.add(command)
	flags := command.Flags()
	flags.StringVar(&o.mode, "mode", "", "how agents go on: token or fleet (required)")
	flags.BoolVar(&o.all, "all", false, "hand back all registered clusters of the namespace")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with --all: of all namespaces")
	flags.BoolVar(&o.dryRun, "dry-run", false, "look at everything, and change nothing")
	_ = command.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{modeToken, modeFleet}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (o *handbackOptions) complete(args []string) error {
	switch {
	case o.mode != modeToken && o.mode != modeFleet:
		return usagef("--mode must be token or fleet")
	case len(args) > 0 && (o.all || o.allNamespaces):
		return usagef("name Clusters or use --all, not both")
	case len(args) == 0 && !o.all:
		return usagef("name the Clusters, or use --all")
	}
	return o.lookupFlags.complete()
}

func (o *handbackOptions) run(ctx context.Context, names []string) error {
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	trial, err := token.NewTrial(config)
	if err != nil {
		return err
	}
	registrations, err := o.registrations(ctx, c, names)
	if err != nil {
		return err
	}
	if len(registrations) == 0 {
		fmt.Fprintln(o.Out, "There is no FleetRegistration: nothing is to be done.")
		return nil
	}
	if err := o.prepare(ctx, c); err != nil {
		return err
	}
	left := 0
	for i := range registrations {
		reg := &registrations[i]
		one := &handback{handbackOptions: o, client: c, try: trial.Try, registration: reg}
		if err := one.run(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			warnf(o.ErrOut, "%s: NOT DONE: %s", client.ObjectKeyFromObject(reg), err)
			left++
		}
	}
	return o.conclude(left, len(registrations))
}

func (o *handbackOptions) conclude(left, all int) error {
	if left > 0 {
		warnf(o.ErrOut, "%d of %d clusters were left as they are: see above, and run this again.", left, all)
		return errFinding
	}
	if !o.dryRun {
		fmt.Fprintln(o.Out, "Wait until the agents use their new credential before you remove capi-fleet: see docs/operations/uninstall.md.")
	}
	return nil
}

// registrations returns those of the Clusters that are named, else all.
func (o *handbackOptions) registrations(ctx context.Context, c client.Client, names []string) ([]fleetv1.FleetRegistration, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	if o.allNamespaces {
		namespace = ""
	}
	list := &fleetv1.FleetRegistrationList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(list.Items, func(r fleetv1.FleetRegistration) bool { return r.Name == name }) {
			return nil, fmt.Errorf("the Cluster %s/%s is not registered: %s status shows which are", namespace, name, programName)
		}
	}
	return slices.DeleteFunc(list.Items, func(r fleetv1.FleetRegistration) bool {
		return len(names) > 0 && !slices.Contains(names, r.Name)
	}), nil
}

// prepare does what is to be done before the first cluster. Nothing is changed where it
// cannot be done for any.
func (o *handbackOptions) prepare(ctx context.Context, c client.Client) error {
	if o.mode == modeFleet {
		resolver := &endpoint.Resolver{Reader: c, ManagerNamespace: o.managerNamespace, FleetNamespace: o.fleetNamespace}
		if _, err := resolver.FleetServer(ctx); err != nil {
			return err
		}
	}
	if o.mode != modeToken {
		return o.stopManager(ctx, c)
	}
	policy, err := statusPolicy(ctx, c)
	if err != nil {
		return err
	}
	if err := o.stopManager(ctx, c); err != nil || o.dryRun {
		return err
	}
	for _, obj := range append(upstream.LastingRoles(), policy, statusPolicyBinding()) {
		if err := apply(ctx, c, obj); err != nil {
			return err
		}
		o.stays(obj, "")
	}
	return nil
}

// statusPolicy returns a copy of the admission policy that holds agents to their heartbeat.
// Where that is gone already, the copy of an earlier run will do.
func statusPolicy(ctx context.Context, c client.Client) (*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	for _, name := range []string{upstream.ShippedStatusPolicy, upstream.LastingStatusPolicy} {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		switch found, err := get(ctx, c, client.ObjectKey{Name: name}, policy); {
		case err != nil:
			return nil, err
		case found:
			return &admissionregistrationv1.ValidatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: upstream.LastingStatusPolicy}, Spec: policy.Spec,
			}, nil
		}
	}
	return nil, fmt.Errorf("there is no ValidatingAdmissionPolicy %s, which comes with capi-fleet: is it installed there?", upstream.ShippedStatusPolicy)
}

func statusPolicyBinding() *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: upstream.LastingStatusPolicy},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        upstream.LastingStatusPolicy,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

// stopManager ends the manager, which would put everything back.
func (o *handbackOptions) stopManager(ctx context.Context, c client.Client) error {
	deployments := &appsv1.DeploymentList{}
	if err := c.List(ctx, deployments, managerLabels); err != nil {
		return err
	}
	deployment, err := managerAmong(deployments.Items, o.managerNamespace)
	if err != nil {
		return err
	}
	if deployment == nil {
		warnf(o.ErrOut, "There is no Deployment %s/%s. Make sure that no manager of capi-fleet runs.", o.managerNamespace, managerDeployment)
		return nil
	}
	if o.dryRun {
		fmt.Fprintf(o.Out, "Would keep Deployment %s at 0 replicas.\n", client.ObjectKeyFromObject(deployment))
		return nil
	}
	if ptr.Deref(deployment.Spec.Replicas, 1) != 0 {
		before := deployment.DeepCopy()
		deployment.Spec.Replicas = ptr.To[int32](0)
		if err := c.Patch(ctx, deployment, client.MergeFrom(before)); err != nil {
			return err
		}
		fmt.Fprintf(o.Out, "Scaled Deployment %s to 0.\n", client.ObjectKeyFromObject(deployment))
	}
	gone, err := o.eventually(ctx, managerTimeout, managerInterval, func() (bool, error) {
		pods := &corev1.PodList{}
		err := c.List(ctx, pods, client.InNamespace(o.managerNamespace), managerLabels, client.Limit(1))
		return len(pods.Items) == 0, err
	})
	if err == nil && !gone {
		err = fmt.Errorf("the pods of Deployment %s do not end: look at them, and run this again", client.ObjectKeyFromObject(deployment))
	}
	return err
}

// managerAmong returns the manager's Deployment, nil where none is there. One in another
// namespace is an error: it would go on.
func managerAmong(deployments []appsv1.Deployment, namespace string) (*appsv1.Deployment, error) {
	var elsewhere *appsv1.Deployment
	for i := range deployments {
		if deployments[i].Namespace == namespace {
			return &deployments[i], nil
		}
		elsewhere = cmp.Or(elsewhere, &deployments[i])
	}
	if elsewhere != nil {
		return nil, fmt.Errorf("the manager is Deployment %s: name its namespace with --manager-namespace", client.ObjectKeyFromObject(elsewhere))
	}
	return nil, nil
}

// stays prints what is there afterwards, in a form that is the same for all.
func (o *handbackOptions) stays(obj client.Object, note string) {
	kind := kindOf(obj)
	if note != "" {
		note = " (" + note + ")"
	}
	name := obj.GetName()
	if obj.GetNamespace() != "" {
		name = obj.GetNamespace() + "/" + name
	}
	fmt.Fprintf(o.Out, "  stays: %s %s%s\n", kind, name, note)
}

// apply makes an object on the management cluster as it should be.
func apply(ctx context.Context, c client.Client, obj client.Object) error {
	content, err := toUnstructured(obj)
	if err != nil {
		return err
	}
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(content), client.FieldOwner(userAgent), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", content.GetKind(), client.ObjectKeyFromObject(obj), err)
	}
	return nil
}
