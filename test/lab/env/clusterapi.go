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
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// ClusterAPI says what of Cluster API runs.
type ClusterAPI string

const (
	// ClusterAPINone means only the CRDs: the lab does by itself what the manager needs
	// of Cluster API.
	ClusterAPINone ClusterAPI = ""
	// ClusterAPICore means the controllers and webhooks of Cluster API's core, over
	// workload clusters that the lab makes, as their infrastructure and control plane
	// provider.
	ClusterAPICore ClusterAPI = "core"
	// ClusterAPIInMemory means that Cluster API makes the clusters: core, the kubeadm
	// providers, and the in-memory backend for infrastructure. One such lab runs on a
	// machine at a time, since that backend has fixed ports; the next waits.
	ClusterAPIInMemory ClusterAPI = "in-memory"
)

// providerNames returns the providers that run.
func (c ClusterAPI) providerNames() ([]string, error) {
	switch c {
	case ClusterAPINone:
		return nil, nil
	case ClusterAPICore:
		return []string{kube.CoreProvider}, nil
	case ClusterAPIInMemory:
		return []string{
			kube.CoreProvider, kube.KubeadmBootstrapProvider, kube.KubeadmControlPlaneProvider, kube.DevProvider,
		}, nil
	default:
		return nil, fmt.Errorf("%q is no way to run Cluster API: want %q or %q", c, ClusterAPICore, ClusterAPIInMemory)
	}
}

// findProviders finds or builds the providers that run.
func (l *Lab) findProviders(ctx context.Context) error {
	names, err := l.opts.ClusterAPI.providerNames()
	if err != nil || len(names) == 0 {
		return err
	}
	l.providers, err = kube.FindProviders(ctx, logWriter(l.opts.Log), names...)
	return err
}

// runningProvider is a provider of Cluster API as a process.
type runningProvider struct {
	kube.Provider
	crds     []*apiextensionsv1.CustomResourceDefinition
	webhooks []*object
	webhook  string // its address
	process  *kube.Process
	health   string // its address
}

// startProviders installs and starts the providers of Cluster API, and returns once their
// webhooks answer. They have certificates of an authority made for them, in place of
// those of cert-manager.
func (l *Lab) startProviders(ctx context.Context) error {
	if err := l.takeInMemoryPorts(ctx); err != nil {
		return err
	}
	ca, err := kube.NewCA("cluster-api-webhooks")
	if err != nil {
		return err
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	running := make([]*runningProvider, 0, len(l.providers))
	for _, provider := range l.providers {
		p := &runningProvider{Provider: provider}
		if err := l.renderProvider(ctx, p, ca); err != nil {
			return err
		}
		crds = append(crds, p.crds...)
		running = append(running, p)
	}
	if l.opts.ClusterAPI == ClusterAPICore {
		crds = append(crds, labProviderCRDs()...)
	}
	if err := l.installCRDs(ctx, crds); err != nil {
		return err
	}
	for _, p := range running {
		if err := l.startProvider(p, ca); err != nil {
			return fmt.Errorf("starting Cluster API's %s: %w", p.Name, err)
		}
	}
	for _, p := range running {
		if err := l.finishProvider(ctx, p); err != nil {
			return fmt.Errorf("starting Cluster API's %s: %w", p.Name, err)
		}
	}
	return nil
}

// takeInMemoryPorts waits until no other lab of this user has the ports of the in-memory
// backend.
func (l *Lab) takeInMemoryPorts(ctx context.Context) error {
	if l.opts.ClusterAPI != ClusterAPIInMemory {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	l.freeInMemoryPorts, err = kube.LockFile(ctx, filepath.Join(cache, "capi-fleet", "in-memory.lock"))
	return err
}

// renderProvider reads what installs the provider: of that its CRDs and webhooks, for a
// webhook server on loopback. Its process has an administrator's rights.
func (l *Lab) renderProvider(ctx context.Context, p *runningProvider, ca *kube.CA) error {
	objects, err := renderConfig(ctx, l.root, p.Config)
	if err != nil {
		return err
	}
	if p.webhook, err = freeAddress(); err != nil {
		return err
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "CustomResourceDefinition":
			crd, err := toCRD(o)
			if err != nil {
				return err
			}
			p.adaptCRD(crd, ca)
			p.crds = append(p.crds, crd)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			if err := p.adaptWebhooks(o, ca); err != nil {
				return fmt.Errorf("reading %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			p.webhooks = append(p.webhooks, o)
		}
	}
	return nil
}

func (p *runningProvider) webhookURL(path string) string { return "https://" + p.webhook + path }

// adaptCRD has the API server convert with the provider's process, and clusterctl move the
// objects, as after clusterctl init.
func (p *runningProvider) adaptCRD(crd *apiextensionsv1.CustomResourceDefinition, ca *kube.CA) {
	if crd.Labels == nil {
		crd.Labels = map[string]string{}
	}
	crd.Labels[clusterctlLabel] = ""
	if crd.Spec.Conversion == nil || crd.Spec.Conversion.Webhook == nil {
		return
	}
	url := p.webhookURL("/convert")
	crd.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca.CertificatePEM()}
}

// adaptWebhooks has the API server call the provider's process.
func (p *runningProvider) adaptWebhooks(configuration *object, ca *kube.CA) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	for i := range webhooks {
		webhook, ok := webhooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("webhook %d is no object", i)
		}
		path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil || !found {
			return errors.Join(err, fmt.Errorf("webhook %d has no path", i))
		}
		webhook["clientConfig"] = map[string]any{
			"url": p.webhookURL(path), "caBundle": base64.StdEncoding.EncodeToString(ca.CertificatePEM()),
		}
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}

func (l *Lab) startProvider(p *runningProvider, ca *kube.CA) error {
	dir := filepath.Join(l.Dir, "cluster-api", p.Name)
	if err := writeServingCertificate(dir, ca); err != nil {
		return err
	}
	_, webhookPort, err := net.SplitHostPort(p.webhook)
	if err != nil {
		return err
	}
	if p.health, err = freeAddress(); err != nil {
		return err
	}
	p.process, err = kube.StartProcess(kube.ProcessSpec{
		Name: p.Name,
		Dir:  dir,
		Path: p.Binary,
		Args: []string{
			"--kubeconfig=" + l.management.AdminKubeconfigPath(),
			"--feature-gates=ClusterTopology=true,MachinePool=false",
			"--webhook-port=" + webhookPort,
			"--webhook-cert-dir=" + dir,
			"--health-addr=" + p.health,
			"--diagnostics-address=0", // none
		},
		Env: processEnv(map[string]string{
			"POD_IP":      loopback, // where the in-memory backend listens
			"DOCKER_HOST": "unix://" + filepath.Join(dir, "no-docker.sock"),
		}),
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processes = append(l.processes, p.process)
	return nil
}

// loopback is the address that everything here listens on.
const loopback = "127.0.0.1"

// writeServingCertificate makes dir with the files that a webhook server reads.
func writeServingCertificate(dir string, ca *kube.CA) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	certificate, key, err := ca.ServingCertificate()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600),
	)
}

// finishProvider waits until the provider is ready, and has its webhooks called then.
func (l *Lab) finishProvider(ctx context.Context, p *runningProvider) error {
	ctx, cancel := context.WithTimeout(ctx, managerStartTimeout)
	defer cancel()
	err := p.process.WaitReady(ctx, func(ctx context.Context) error {
		_, err := get(ctx, http.DefaultClient, "http://"+p.health+"/readyz")
		return err
	})
	if err != nil {
		return err
	}
	for _, webhooks := range p.webhooks {
		if err := l.apply(ctx, webhooks); err != nil {
			return err
		}
	}
	l.opts.Log("Cluster API's %s: ready, log in %s", p.Name, p.process.LogPath())
	return nil
}

// splitAddress reads host:port.
func splitAddress(address string) (host string, port int32, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseInt(text, 10, 32)
	return host, int32(number), err
}
