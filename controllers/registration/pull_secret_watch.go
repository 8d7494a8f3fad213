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
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// pullSecretInterval is the time between two looks for changed pull secrets.
const pullSecretInterval = 10 * time.Minute

// pullSecretWatch finds pull secrets that changed, with one request for each of them and
// interval: a watch would hold the contents of every Secret in the manager's namespace.
// It asks for metadata only.
type pullSecretWatch struct {
	mu sync.Mutex
	// versions of the Secrets by name, as last seen.
	versions map[string]string
	// changed brings registrations back whose workload cluster has an older version.
	changed chan event.GenericEvent
}

// noPullSecret is the version of a Secret that is not there.
const noPullSecret = "none"

func versionOf(secret metav1.Object) string {
	return string(secret.GetUID()) + "/" + secret.GetResourceVersion()
}

// saw notes the version of a Secret.
func (w *pullSecretWatch) saw(name, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions == nil {
		w.versions = map[string]string{}
	}
	w.versions[name] = version
}

// of returns one version for all those Secrets together, empty where there are none, or
// one was not seen yet.
func (w *pullSecretWatch) of(names []string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return together(names, w.versions)
}

// together returns one version for all those Secrets, empty where there are none, or one
// has no version.
func together(names []string, versions map[string]string) string {
	if len(names) == 0 {
		return ""
	}
	all := sha256.New()
	for _, name := range names {
		version, ok := versions[name]
		if !ok {
			return ""
		}
		_, _ = fmt.Fprintf(all, "%s=%s\n", name, version)
	}
	return hex.EncodeToString(all.Sum(nil)[:16])
}

// watchPullSecrets looks at once, and then again and again until ctx ends.
func (r *Reconciler) watchPullSecrets(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.lookAtPullSecrets(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to look for changed pull secrets")
		}
	}, pullSecretInterval)
	return nil
}

// lookAtPullSecrets brings back the registrations whose pull secrets changed.
func (r *Reconciler) lookAtPullSecrets(ctx context.Context) error {
	registrations := &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, registrations, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing FleetRegistrations: %w", err)
	}
	names := sets.New[string]()
	for i := range registrations.Items {
		names.Insert(registrations.Items[i].Spec.Agent.ImagePullSecrets...)
	}
	for name := range names {
		key := types.NamespacedName{Namespace: r.Upstream.ManagerNamespace, Name: name}
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		switch err := r.APIReader.Get(ctx, key, secret); {
		case apierrors.IsNotFound(err):
			r.pulls.saw(name, noPullSecret)
		case err != nil:
			return fmt.Errorf("reading the metadata of Secret %s: %w", key, err)
		default:
			r.pulls.saw(name, versionOf(secret))
		}
	}
	for i := range registrations.Items {
		reg := &registrations.Items[i]
		version := r.pulls.of(reg.Spec.Agent.ImagePullSecrets)
		if version == reg.Status.Agent.PullSecrets || reg.Status.Agent.Revision == "" {
			continue
		}
		select {
		case r.pulls.changed <- event.GenericEvent{Object: &fleetv1.FleetRegistration{
			ObjectMeta: metav1.ObjectMeta{Namespace: reg.Namespace, Name: reg.Name},
		}}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
