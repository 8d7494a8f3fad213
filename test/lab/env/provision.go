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
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The templates that clusters of the in-memory backend are made from.
const (
	classTemplate   = "clusterclass-in-memory.yaml"
	clusterTemplate = "cluster-template-in-memory.yaml"

	// inMemoryVersion is the Kubernetes version that a cluster of the in-memory backend
	// claims to have.
	inMemoryVersion = "v1.35.0"
)

// provision has Cluster API make a cluster of the in-memory backend from the templates of
// this repository, and returns once its API server answers.
func (l *Lab) provision(ctx context.Context, name string, opts ClusterOptions) (*Workload, error) {
	if opts.StartLater || opts.NoKubeconfig || opts.Light != nil || opts.InitializedAfter != 0 {
		return nil, errors.New("this lab's Cluster API makes the workload clusters: they have none of the lab's own options")
	}
	key := client.ObjectKey{Namespace: opts.Namespace, Name: name}
	if err := l.createFromTemplates(ctx, key, opts); err != nil {
		return nil, fmt.Errorf("adding cluster %s: %w", key, err)
	}
	return l.AdoptCluster(ctx, key, opts)
}

func (l *Lab) createFromTemplates(ctx context.Context, key client.ObjectKey, opts ClusterOptions) error {
	if err := l.InstallClusterClass(ctx, key.Namespace); err != nil {
		return err
	}
	objects, err := l.Template(clusterTemplate, map[string]string{
		"CLUSTER_NAME": key.Name, "NAMESPACE": key.Namespace, "KUBERNETES_VERSION": inMemoryVersion,
		"CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "0",
	})
	if err != nil {
		return err
	}
	for _, o := range objects {
		cluster := &clusterv1.Cluster{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, cluster); err != nil {
			return err
		}
		opts.adapt(cluster)
		if err := l.Client.Create(ctx, cluster, fieldOwner); err != nil {
			return err
		}
	}
	return nil
}

// InstallClusterClass makes a namespace, where it is missing, with the ClusterClass of the
// templates.
func (l *Lab) InstallClusterClass(ctx context.Context, namespace string) error {
	if err := l.createNamespace(ctx, namespace); err != nil {
		return err
	}
	objects, err := l.Template(classTemplate, nil)
	if err != nil {
		return err
	}
	for _, o := range objects {
		o.SetNamespace(namespace)
		if err := l.apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// Template reads a file of the folder templates, with its variables replaced as clusterctl
// does.
func (l *Lab) Template(name string, variables map[string]string) ([]*object, error) {
	content, err := os.ReadFile(filepath.Join(l.root, "templates", name))
	if err != nil {
		return nil, err
	}
	var missing []string
	expanded := os.Expand(string(content), func(expression string) string {
		variable, standard, optional := strings.Cut(expression, ":=")
		if value, ok := variables[variable]; ok {
			return value
		}
		if !optional {
			missing = append(missing, variable)
		}
		return standard
	})
	if len(missing) > 0 {
		return nil, fmt.Errorf("template %s: no value for %s", name, strings.Join(missing, ", "))
	}
	return parse([]byte(expanded))
}

// AdoptCluster takes a cluster that Cluster API makes into the lab, where an agent runs in
// it, and returns once its API server answers. Of opts it heeds NoKubelet alone.
func (l *Lab) AdoptCluster(ctx context.Context, key client.ObjectKey, opts ClusterOptions) (*Workload, error) {
	w := &Workload{Name: key.Name, Namespace: key.Namespace, lab: l, opts: ClusterOptions{NoKubelet: opts.NoKubelet, InitializedAfter: -1}}
	w.ctx, w.cancel = context.WithCancel(l.ctx)
	if err := l.adopt(w); err != nil {
		return nil, err
	}
	if err := w.findAPI(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("adopting cluster %s: %w", key, err), l.drop(w))
	}
	if err := w.StartAPI(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("adopting cluster %s: %w", key, err), l.drop(w))
	}
	return w, nil
}

// findAPI waits for the kubeconfig that Cluster API makes, and leaves a copy where those of
// other clusters are.
func (w *Workload) findAPI(ctx context.Context) error {
	found := &corev1.Secret{}
	key := client.ObjectKey{Namespace: w.Namespace, Name: w.kubeconfigMeta().Name}
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		err := w.lab.Client.Get(ctx, key, found)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("waiting for the kubeconfig: %w", err)
	}
	api, err := newProvidedAPI(found.Data[secret.KubeconfigDataName])
	if err != nil {
		return err
	}
	w.api = api
	if w.Client, err = client.NewWithWatch(w.Config(), client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	dir := filepath.Join(w.lab.Dir, "clusters", w.Namespace, w.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "admin.kubeconfig"), w.Kubeconfig(), 0o600)
}

// providedAPI is one that Cluster API runs.
type providedAPI struct {
	content    []byte
	restConfig *rest.Config
	address    clusterv1.APIEndpoint
}

func newProvidedAPI(kubeconfig []byte) (*providedAPI, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	host, port, err := splitAddress(server.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return &providedAPI{content: kubeconfig, restConfig: config, address: clusterv1.APIEndpoint{Host: host, Port: port}}, nil
}

// start waits until it answers: Cluster API starts it.
func (a *providedAPI) start(ctx context.Context) error {
	probe, err := rest.HTTPClientFor(a.restConfig)
	if err != nil {
		return err
	}
	defer probe.CloseIdleConnections()
	return poll(ctx, func(ctx context.Context) (bool, error) {
		_, err := get(ctx, probe, a.restConfig.Host+a.probePath())
		return err == nil, nil
	})
}

func (a *providedAPI) stop() error                     { return errors.New("cluster API runs this API server") }
func (a *providedAPI) close() error                    { return nil }
func (a *providedAPI) endpoint() clusterv1.APIEndpoint { return a.address }
func (a *providedAPI) kubeconfig() []byte              { return a.content }
func (a *providedAPI) config() *rest.Config            { return rest.CopyConfig(a.restConfig) }

// probePath is not /version, which the in-memory API server does not serve.
func (a *providedAPI) probePath() string { return "/api" }
