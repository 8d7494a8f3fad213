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
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	patience = 10 * time.Second
	instant  = 20 * time.Millisecond
	moment   = 300 * time.Millisecond // long enough for an agent to do what it should not

	workspace        = "fleet-default"
	clusterName      = "edge"
	clusterNamespace = "cluster-edge"
	agentUser        = "system:serviceaccount:capi-fleet-system:cluster-edge"
	agentToken       = "agent-token"
)

// world is a management and a workload cluster with all that an agent needs.
type world struct {
	management, workload             *lightapi.Server
	managementClient, workloadClient client.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	g := NewWithT(t)
	scheme, mapper, err := newScheme()
	g.Expect(err).NotTo(HaveOccurred())
	newCluster := func() (*lightapi.Server, client.Client) {
		server, err := lightapi.New(lightapi.Options{Resources: []metav1.APIResource{{
			Group: fleet.GroupVersion.Group, Version: fleet.GroupVersion.Version,
			Name: "bundledeployments", Kind: "BundleDeployment", Namespaced: true,
		}}})
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(server.Close)
		c, err := client.New(server.Config(), client.Options{Scheme: scheme, Mapper: mapper})
		g.Expect(err).NotTo(HaveOccurred())
		return server, c
	}
	w := &world{}
	w.management, w.managementClient = newCluster()
	w.workload, w.workloadClient = newCluster()
	w.management.AllowToken(agentToken, agentUser)

	cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: workspace, Name: clusterName}}
	g.Expect(w.managementClient.Create(t.Context(), cluster)).To(Succeed())
	status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespace":"`+clusterNamespace+`"}}`))
	g.Expect(w.managementClient.Status().Patch(t.Context(), cluster, status)).To(Succeed())
	return w
}

// push writes what the agent starts from.
func (w *world) push(t *testing.T, config string, auth clientcmdapi.AuthInfo) {
	t.Helper()
	NewWithT(t).Expect(w.workloadClient.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.DefaultAgentNamespace, Name: name},
		Data:       map[string]string{"config": config},
	})).To(Succeed())
	w.pushSecret(t, auth)
}

func (w *world) pushSecret(t *testing.T, auth clientcmdapi.AuthInfo) {
	t.Helper()
	g := NewWithT(t)
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: w.management.URL(), CertificateAuthorityData: w.management.CA()}
	kubeconfig.AuthInfos["a"] = &auth
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "a", Namespace: clusterNamespace}
	kubeconfig.CurrentContext = "x"
	out, err := clientcmd.Write(*kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.DefaultAgentNamespace, Name: name},
		Data: map[string][]byte{
			"kubeconfig":       out,
			"clusterNamespace": []byte(workspace),
			"clusterName":      []byte(clusterName),
		},
	}
	g.Expect(client.IgnoreNotFound(w.workloadClient.Delete(t.Context(), secret.DeepCopy()))).To(Succeed())
	g.Expect(w.workloadClient.Create(t.Context(), secret)).To(Succeed())
}

// start runs an agent until the test ends or stop is called.
func (w *world) start(t *testing.T, edit ...func(*Options)) (agent *Agent, stop func()) {
	t.Helper()
	options := Options{
		Workload:         w.workload.Config(),
		InitialHeartbeat: instant,
		CheckinInterval:  instant,
		Retry:            instant,
	}
	for _, e := range edit {
		e(&options)
	}
	agent = New(options)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		NewWithT(t).Expect(<-ended).To(Succeed())
	}
	t.Cleanup(stop)
	return agent, stop
}

// bundle makes a BundleDeployment and its Content.
func (w *world) bundle(t *testing.T, name, content string) *fleet.BundleDeployment {
	t.Helper()
	g := NewWithT(t)
	w.content(t, "s-"+name, content)
	deployment := &fleet.BundleDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: name},
		Spec:       fleet.BundleDeploymentSpec{DeploymentID: "s-" + name + ":options"},
	}
	g.Expect(w.managementClient.Create(t.Context(), deployment)).To(Succeed())
	return deployment
}

func (w *world) content(t *testing.T, name, content string) {
	t.Helper()
	NewWithT(t).Expect(w.managementClient.Create(t.Context(), &fleet.Content{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Content: []byte(content),
	})).To(Succeed())
}

// leftRelease makes a release, and its workload, as an earlier agent left them.
func (w *world) leftRelease(t *testing.T, bundle, agentNamespace string) {
	t.Helper()
	g := NewWithT(t)
	secret, err := ReleaseSecret(bundle, agentNamespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.workloadClient.Create(t.Context(), secret)).To(Succeed())
	g.Expect(w.workloadClient.Create(t.Context(), workloadOf(deployNamespace, bundle))).To(Succeed())
}

// releases returns the names of the release Secrets.
func (w *world) releases(t *testing.T) []string {
	t.Helper()
	list := &corev1.SecretList{}
	NewWithT(t).Expect(w.workloadClient.List(t.Context(), list, client.MatchingLabels{"owner": "helm"})).To(Succeed())
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names
}

// workloads returns the names of the ConfigMaps that stand for bundles.
func (w *world) workloads(t *testing.T) []string {
	t.Helper()
	list := &corev1.ConfigMapList{}
	NewWithT(t).Expect(w.workloadClient.List(t.Context(), list, client.InNamespace(deployNamespace))).To(Succeed())
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names
}

func withToken() clientcmdapi.AuthInfo {
	return clientcmdapi.AuthInfo{Token: agentToken}
}

func tokenFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "token")
}
