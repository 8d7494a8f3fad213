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
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// management is the management cluster, as the Secret describes it.
type management struct {
	client client.WithWatch
	close  func()

	namespace        string // the cluster namespace: that of the kubeconfig's context
	clusterNamespace string // the namespace of the Fleet Cluster
	clusterName      string
}

// connectUntilItWorks reads the Secret until what is in it lets the agent list
// BundleDeployments. It returns nil when ctx ends.
func (a *Agent) connectUntilItWorks(ctx context.Context) *management {
	for {
		m, err := a.connect(ctx)
		if err == nil {
			return m
		}
		if ctx.Err() != nil {
			return nil
		}
		a.log.Error(err, "Failed to register, will retry")
		a.reporter.credentialFailed(err)
		if !sleep(ctx, a.options.Retry) {
			return nil
		}
	}
}

func (a *Agent) connect(ctx context.Context) (*management, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: a.options.Namespace, Name: name}
	if err := a.workload.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	kubeconfig, err := clientcmd.NewClientConfigFromBytes(secret.Data["kubeconfig"])
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of Secret %s: %w", key, err)
	}
	config, err := kubeconfig.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of Secret %s: %w", key, err)
	}
	namespace, _, err := kubeconfig.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace in the kubeconfig of Secret %s: %w", key, err)
	}
	c, closeClient, err := a.newClient(config, "management")
	if err != nil {
		return nil, fmt.Errorf("making a client from the kubeconfig of Secret %s: %w", key, err)
	}
	if err := c.List(ctx, &fleet.BundleDeploymentList{}, client.InNamespace(namespace)); err != nil {
		closeClient()
		return nil, fmt.Errorf("listing BundleDeployments: %w", err)
	}
	m := &management{
		client:           c,
		close:            closeClient,
		namespace:        namespace,
		clusterNamespace: string(secret.Data["clusterNamespace"]),
		clusterName:      string(secret.Data["clusterName"]),
	}
	a.reporter.connected(m)
	return m, nil
}

// newInformer returns an informer that puts the name of every BundleDeployment
// that comes, changes or goes into queue. Like the real agent it keeps what it saw,
// so that it also learns of deletions from the time when its watch was broken.
func (m *management) newInformer(queue workqueue.TypedRateLimitingInterface[string], log logr.Logger) (cache.SharedInformer, error) {
	inNamespace := func(options metav1.ListOptions) client.ListOption {
		return &client.ListOptions{Namespace: m.namespace, Raw: &options}
	}
	informer := cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &fleet.BundleDeploymentList{}
			return list, m.client.List(ctx, list, inNamespace(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return m.client.Watch(ctx, &fleet.BundleDeploymentList{}, inNamespace(options))
		},
	}, &fleet.BundleDeployment{}, 0)

	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Error(err, "The watch of BundleDeployments broke")
	})
	if err != nil {
		return nil, err
	}
	enqueue := func(object any) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if err != nil {
			log.Error(err, "Unexpected object in the watch")
			return
		}
		_, name, _ := cache.SplitMetaNamespaceKey(key)
		queue.Add(name)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(old, changed any) {
			// Its own status does not wake the agent up.
			if old.(*fleet.BundleDeployment).Spec != changed.(*fleet.BundleDeployment).Spec {
				enqueue(changed)
			}
		},
		DeleteFunc: enqueue,
	})
	return informer, err
}

// newClient returns a client whose refused requests are reported, and a function
// that closes its connections. Its transport is its own: client-go's would be
// shared and kept by the process.
func (a *Agent) newClient(config *rest.Config, api string) (client.WithWatch, func(), error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, nil, err
	}
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	transport := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     tlsConfig,
		ForceAttemptHTTP2:   true,
		Proxy:               config.Proxy,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     time.Minute,
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, &refusalRecorder{next: transport, api: api, reporter: a.reporter})
	if err != nil {
		return nil, nil, err
	}
	scheme, mapper, err := newScheme()
	if err != nil {
		return nil, nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{
		HTTPClient: &http.Client{Transport: wrapped},
		Scheme:     scheme,
		Mapper:     mapper,
	})
	// A watch that was just cancelled still holds its connection for a moment, so
	// closing those that are idle is not enough.
	return c, dialer.CloseAll, err
}

// newScheme returns the kinds that the agent handles, and a mapper that knows them
// without asking a server.
func newScheme() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, fleet.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(fleet.GroupVersion.WithKind("BundleDeployment"), meta.RESTScopeNamespace)
	mapper.Add(fleet.GroupVersion.WithKind("Cluster"), meta.RESTScopeNamespace)
	mapper.Add(fleet.GroupVersion.WithKind("Content"), meta.RESTScopeRoot)
	return scheme, mapper, nil
}
