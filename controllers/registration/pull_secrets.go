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
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/decide"
	"github.com/capi-fleet/capi-fleet/internal/remote"
)

// pulled are the pull secrets that an agent's settings name, as they were read.
type pulled struct {
	copies []*corev1.Secret
	// note is about those that are not to be had: the agent's image may be there for
	// everybody, so they keep nothing from being pushed.
	note string
	// version is that of all of them together. One that changes during the push is newer,
	// and so the next look finds it.
	version string
}

// pullSecrets reads the pull secrets from the manager's namespace right now.
func (r *Reconciler) pullSecrets(ctx context.Context, input agent.Input) (pulled, error) {
	var found []corev1.Secret
	versions := map[string]string{}
	for _, name := range input.Agent.ImagePullSecrets {
		key := types.NamespacedName{Namespace: r.Upstream.ManagerNamespace, Name: name}
		live := &corev1.Secret{}
		switch err := r.APIReader.Get(ctx, key, live); {
		case apierrors.IsNotFound(err):
			versions[name] = noPullSecret
		case err != nil:
			return pulled{}, managementError{fmt.Errorf("reading Secret %s: %w", key, err)}
		default:
			versions[name] = versionOf(live)
			found = append(found, *live)
		}
		r.pulls.saw(name, versions[name])
	}
	copies, missing := agent.PullSecrets(input, found)
	all := pulled{copies: copies, version: together(input.Agent.ImagePullSecrets, versions)}
	if len(missing) > 0 {
		all.note = fmt.Sprintf("Pull secrets that are not in namespace %s, or not of type %s: %s",
			r.Upstream.ManagerNamespace, corev1.SecretTypeDockerConfigJson, strings.Join(missing, ", "))
	}
	return all, nil
}

// writePullSecrets writes those pull secrets that differ from what is there.
func writePullSecrets(ctx context.Context, workload *remote.Client, copies []*corev1.Secret, scope extent) (wrote bool, err error) {
	for _, copied := range copies {
		// What is in them needs no new pod.
		applied, err := apply(ctx, workload, copied, min(scope, whatDiffers))
		wrote = wrote || applied
		if err != nil {
			return wrote, err
		}
	}
	return wrote, nil
}

// removeOldPullSecrets takes away the pull secrets that the Deployment named before and the
// settings do not, once it names them no more. Where the last push broke off, only the
// settings of the last one that did not tell that there may be some.
func removeOldPullSecrets(ctx context.Context, workload *remote.Client, input agent.Input, there presentAgent, settings string) (wrote bool, err error) {
	keep := agent.PullSecretNames(input)
	changed := there.deployment != nil && settings != decide.Settings(input.Agent)
	if !changed && !namesOther(there.deployment, keep) {
		return false, nil
	}
	return true, removePullSecrets(ctx, workload, input.RegistrationID, keep)
}

// namesOther tells whether a Deployment, nil where there is none, names copies of pull
// secrets beside those in names.
func namesOther(deployment *appsv1.Deployment, names []string) bool {
	return deployment != nil && slices.ContainsFunc(deployment.Spec.Template.Spec.ImagePullSecrets,
		func(reference corev1.LocalObjectReference) bool {
			return agent.IsPullSecret(reference.Name) && !slices.Contains(names, reference.Name)
		})
}

// removePullSecrets takes away the pull secrets that the registration has put into the
// workload cluster, but for those in keep.
func removePullSecrets(ctx context.Context, workload *remote.Client, registrationID string, keep []string) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := workload.List(ctx, list, client.InNamespace(agent.Namespace), client.MatchingLabels(agent.Labels())); err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		item := &list.Items[i]
		if agent.IsPullSecret(item.Name) && agent.Ours(item, registrationID) && !slices.Contains(keep, item.Name) {
			errs = append(errs, remove(ctx, workload, item))
		}
	}
	return errors.Join(errs...)
}
