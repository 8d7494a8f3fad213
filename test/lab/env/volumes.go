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

package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// volumes puts the mounted Secrets of a pod on disk. It writes in one folder only:
// the paths come from a workload cluster.
type volumes struct {
	root    *os.Root
	dir     string // of root, absolute
	mounted map[string]bool
}

// openVolumes makes dir where it is missing.
func openVolumes(dir string) (*volumes, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &volumes{root: root, dir: dir, mounted: map[string]bool{}}, nil
}

func (v *volumes) close() error { return v.root.Close() }

// mount writes the Secrets that the pod's first container mounts, or writes them
// again where they have changed. It fails where a Secret is missing that is not
// optional, and where a path is outside of the folder. Other volumes are left out.
func (v *volumes) mount(ctx context.Context, c client.Client, namespace string, pod *corev1.PodSpec) error {
	if len(pod.Containers) == 0 {
		return nil
	}
	for _, mount := range pod.Containers[0].VolumeMounts {
		if err := v.mountToken(ctx, c, namespace, pod, mount); err != nil {
			return err
		}
		source := secretVolume(pod, mount.Name)
		if source == nil {
			continue
		}
		target, err := v.relative(mount.MountPath)
		if err != nil {
			return err
		}
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: namespace, Name: source.SecretName}
		if err := c.Get(ctx, key, secret); err != nil {
			if ptr.Deref(source.Optional, false) && client.IgnoreNotFound(err) == nil {
				continue
			}
			return fmt.Errorf("mounting Secret %s: %w", key, err)
		}
		if err := v.write(target, secret, source.Items); err != nil {
			return fmt.Errorf("mounting Secret %s at %s: %w", key, mount.MountPath, err)
		}
	}
	return nil
}

// mountToken writes the token of the pod's service account where a projected volume names
// one, once.
func (v *volumes) mountToken(ctx context.Context, c client.Client, namespace string, pod *corev1.PodSpec, mount corev1.VolumeMount) error {
	projection := tokenProjection(pod, mount.Name)
	if projection == nil {
		return nil
	}
	target, err := v.relative(mount.MountPath)
	if err != nil || v.mounted[target] {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.ServiceAccountName}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: projection.ExpirationSeconds}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("requesting a token of service account %s: %w", account.Name, err)
	}
	v.mounted[target] = true
	if err := v.root.MkdirAll(target, 0o700); err != nil {
		return err
	}
	return v.replace(filepath.Join(target, projection.Path), []byte(request.Status.Token))
}

func tokenProjection(pod *corev1.PodSpec, name string) *corev1.ServiceAccountTokenProjection {
	for _, volume := range pod.Volumes {
		if volume.Name != name || volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				return source.ServiceAccountToken
			}
		}
	}
	return nil
}

func secretVolume(pod *corev1.PodSpec, name string) *corev1.SecretVolumeSource {
	for _, volume := range pod.Volumes {
		if volume.Name == name {
			return volume.Secret
		}
	}
	return nil
}

func (v *volumes) relative(path string) (string, error) {
	target, err := filepath.Rel(v.dir, path)
	if err != nil || target == "." || !filepath.IsLocal(target) {
		return "", fmt.Errorf("refusing to mount a Secret at %s: it is not below %s", path, v.dir)
	}
	return target, nil
}

// write puts items of secret, or all keys where there are none, below target.
func (v *volumes) write(target string, secret *corev1.Secret, items []corev1.KeyToPath) error {
	if len(items) == 0 {
		for key := range secret.Data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	v.mounted[target] = true
	if err := v.root.MkdirAll(target, 0o700); err != nil {
		return err
	}
	for _, item := range items {
		content, ok := secret.Data[item.Key]
		if !ok {
			return fmt.Errorf("the Secret has no key %q", item.Key)
		}
		if err := v.replace(filepath.Join(target, item.Path), content); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file so that a reader sees the old content or the new.
func (v *volumes) replace(path string, content []byte) error {
	present, err := v.root.ReadFile(path)
	if err == nil && bytes.Equal(present, content) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := v.root.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return v.root.Rename(path+".new", path)
}

// unmountAll removes what was mounted.
func (v *volumes) unmountAll() {
	for target := range v.mounted {
		_ = v.root.RemoveAll(target) // what stays is overwritten by the next mount
	}
	clear(v.mounted)
}
