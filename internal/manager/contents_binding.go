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

package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

const (
	// bindingInterval is the time between two looks at the binding when the last
	// one succeeded, bindingRetryInterval when it failed. A fifth is added at
	// random.
	bindingInterval      = 10 * time.Minute
	bindingRetryInterval = 30 * time.Second
)

// bindingLabels are those by which clusterctl finds what belongs to the provider,
// so that it takes the binding away with it.
var bindingLabels = map[string]string{
	clusterv1.ProviderNameLabel:   "addon-fleet",
	"clusterctl.cluster.x-k8s.io": "",
}

// Create cannot be limited to a name. The names below are those of an installation
// in the default namespace; elsewhere the binding is created but cannot be read, so
// neither repaired. "bind" lets the manager give the agents these two roles without
// having their rights itself.
//+kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterrolebindings,verbs=create
//+kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterrolebindings,resourceNames=capi-fleet-system-agent-contents,verbs=get;patch
//+kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=capi-fleet-system-agent;capi-fleet-system-agent-contents,verbs=bind

// contentsBinding runs on the leader. It makes the one ClusterRoleBinding that lets
// every agent get Contents, and repairs it. A binding to the group of all service
// accounts in the manager's namespace spares a binding for each cluster. It is made
// at run time since clusterctl would not rewrite the group in a shipped one.
type contentsBinding struct {
	// reader reads live, not from the cache.
	reader    client.Reader
	writer    client.Writer
	namespace string
	clock     clock.Clock
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (b *contentsBinding) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It looks at the binding at once and then every
// ten minutes, until the context ends. A failure is logged, when it is another than
// the last, and never ends the manager.
func (b *contentsBinding) Start(ctx context.Context) error {
	desired := b.desired()
	log := ctrl.LoggerFrom(ctx).WithName("setup").WithValues("ClusterRoleBinding", desired.Name)
	ctx = ctrl.LoggerInto(ctx, log)
	said := ""
	for {
		interval, problem := bindingInterval, ""
		if err := b.ensure(ctx, desired); err != nil && ctx.Err() == nil {
			interval, problem = bindingRetryInterval, err.Error()
			if problem != said {
				log.Error(err, "Failed to keep the agents' right to get Contents in place, trying again")
			}
		}
		said = problem

		select {
		case <-ctx.Done():
			return nil
		case <-b.clock.After(wait.Jitter(interval, pollJitter)):
		}
	}
}

func (b *contentsBinding) desired() *rbacv1.ClusterRoleBinding {
	binding := upstream.ContentsBinding(b.namespace)
	binding.Labels = maps.Clone(bindingLabels)
	return binding
}

// ensure makes the binding, or puts right what differs. It writes nothing when
// nothing differs.
func (b *contentsBinding) ensure(ctx context.Context, desired *rbacv1.ClusterRoleBinding) error {
	current := &rbacv1.ClusterRoleBinding{}
	err := b.reader.Get(ctx, client.ObjectKeyFromObject(desired), current)
	// Where the binding has another name than the shipped rule knows, the manager
	// may create it but not read it.
	unreadable := apierrors.IsForbidden(err)
	if apierrors.IsNotFound(err) || unreadable {
		err = b.writer.Create(ctx, desired.DeepCopy())
		if apierrors.IsAlreadyExists(err) && unreadable {
			return nil
		}
		if err != nil {
			return fmt.Errorf("creating ClusterRoleBinding %s: %w", desired.Name, err)
		}
		ctrl.LoggerFrom(ctx).Info("Created the binding that lets agents get Contents")
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ClusterRoleBinding %s: %w", desired.Name, err)
	}
	return b.repair(ctx, current, desired)
}

func (b *contentsBinding) repair(ctx context.Context, current, desired *rbacv1.ClusterRoleBinding) error {
	if current.RoleRef != desired.RoleRef {
		// It cannot be changed, and a person or another product made it so.
		return fmt.Errorf("ClusterRoleBinding %s refers to %s %s instead of ClusterRole %s: delete it, then it is made anew",
			current.Name, current.RoleRef.Kind, current.RoleRef.Name, desired.RoleRef.Name)
	}

	repaired := current.DeepCopy()
	repaired.Subjects = desired.Subjects
	if repaired.Labels == nil {
		repaired.Labels = map[string]string{}
	}
	maps.Copy(repaired.Labels, desired.Labels)
	if slices.Equal(current.Subjects, repaired.Subjects) && maps.Equal(current.Labels, repaired.Labels) {
		return nil
	}

	if err := b.writer.Patch(ctx, repaired, client.MergeFrom(current)); err != nil {
		return fmt.Errorf("repairing ClusterRoleBinding %s: %w", current.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Repaired the binding that lets agents get Contents")
	return nil
}
