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

package agentsim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// deployNamespace is where bundles go in the workload cluster that say nothing else.
const deployNamespace = "default"

// reconcile deploys the BundleDeployment called name or, where there is none,
// uninstalls what was made of it.
func (a *Agent) reconcile(ctx context.Context, store cache.Store, name string) error {
	found, exists, err := store.GetByKey(a.management.namespace + "/" + name)
	if err != nil {
		return err
	}
	a.acting.Lock()
	defer a.acting.Unlock()
	if !exists {
		return a.uninstallDeployment(ctx, name)
	}
	deployment := found.(*fleet.BundleDeployment)
	if deployment.Spec.Paused || deployment.Spec.DeploymentID == "" {
		return nil
	}
	if err := a.readOptions(ctx, name); err != nil {
		return err
	}
	if err := a.deploy(ctx, deployment); err != nil {
		return err
	}
	if err := a.patchStatus(ctx, deployment); err != nil {
		return err
	}
	a.reporter.deployed(name)
	return nil
}

// readOptions reads the Secret with a BundleDeployment's values and a ConfigMap
// that goes with it. Few have either.
func (a *Agent) readOptions(ctx context.Context, name string) error {
	key := client.ObjectKey{Namespace: a.management.namespace, Name: name}
	for _, object := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} {
		if err := a.management.client.Get(ctx, key, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the %T of BundleDeployment %s: %w", object, key, err)
		}
	}
	return nil
}

// deploy makes a new revision of the release if the newest one is of another
// deployment.
func (a *Agent) deploy(ctx context.Context, deployment *fleet.BundleDeployment) error {
	contentName, _, _ := strings.Cut(deployment.Spec.DeploymentID, ":")
	content := &fleet.Content{}
	if err := a.management.client.Get(ctx, client.ObjectKey{Name: contentName}, content); err != nil {
		return fmt.Errorf("reading Content %s: %w", contentName, err)
	}
	key := fleet.ReleaseOf(deployment)
	if err := a.ensureNamespace(ctx, key.Namespace); err != nil {
		return err
	}
	newest, err := a.newestRelease(ctx, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	if newest != nil && newest.Info.Description == deployment.Spec.DeploymentID {
		return nil
	}
	if err := a.writeWorkload(ctx, key.Namespace, deployment.Name, content.Content); err != nil {
		return fmt.Errorf("deploying bundle %s: %w", deployment.Name, err)
	}
	next := newRelease(key, deployment.Name, a.options.Namespace, deployment.Spec.DeploymentID)
	if newest != nil {
		next.Version = newest.Version + 1
		if err := a.supersede(ctx, *newest); err != nil {
			return err
		}
	}
	return a.createRelease(ctx, next)
}

// ensureNamespace makes the namespace of a release, as Helm is told to.
func (a *Agent) ensureNamespace(ctx context.Context, name string) error {
	if name == deployNamespace {
		return nil
	}
	err := a.workload.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

// writeWorkload stands for the objects of a bundle.
func (a *Agent) writeWorkload(ctx context.Context, namespace, bundle string, content []byte) error {
	wanted := workloadOf(namespace, bundle)
	if utf8.Valid(content) {
		wanted.Data = map[string]string{"content": string(content)}
	} else {
		wanted.BinaryData = map[string][]byte{"content": content}
	}
	err := a.workload.Create(ctx, wanted.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return a.workload.Update(ctx, wanted)
}

func workloadOf(namespace, bundle string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bundle-" + bundle}}
}

// patchStatus reports a deployment, unless the status says so already.
func (a *Agent) patchStatus(ctx context.Context, deployment *fleet.BundleDeployment) error {
	wanted := fleet.BundleDeploymentStatus{
		Ready:               true,
		AppliedDeploymentID: deployment.Spec.DeploymentID,
		Release:             fleet.ReleaseOf(deployment).String(),
	}
	if deployment.Status == wanted {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"ready":               wanted.Ready,
		"appliedDeploymentID": wanted.AppliedDeploymentID,
		"release":             wanted.Release,
		// Fleet calls a bundle without this modified.
		"nonModified": true,
	}})
	if err != nil {
		return err
	}
	err = a.management.client.Status().Patch(ctx, deployment.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching the status of BundleDeployment %s: %w", client.ObjectKeyFromObject(deployment), err)
	}
	return nil
}

// uninstallDeployment uninstalls the releases of a BundleDeployment that is gone.
func (a *Agent) uninstallDeployment(ctx context.Context, name string) error {
	releases, err := a.fleetReleases(ctx)
	if err != nil {
		return err
	}
	for _, r := range releases {
		if r.bundleID() != name {
			continue
		}
		if err := a.uninstall(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// uninstall removes what a release deployed and then the release, all revisions. A
// release of the agent itself is only forgotten.
func (a *Agent) uninstall(ctx context.Context, r release) error {
	forget := strings.HasPrefix(r.bundleID(), "fleet-agent")
	if !forget {
		if err := a.workload.Delete(ctx, workloadOf(r.Namespace, r.bundleID())); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("uninstalling bundle %s: %w", r.bundleID(), err)
		}
	}
	if err := a.deleteRelease(ctx, r); err != nil {
		return err
	}
	if forget {
		a.log.Info("Forgot a release of the agent", "release", r.Name)
		return nil
	}
	a.log.Info("Uninstalled", "release", r.Name)
	a.reporter.uninstalled(r.bundleID())
	return nil
}
