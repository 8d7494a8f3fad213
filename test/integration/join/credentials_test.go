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

package join

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// agentClient returns a client with nothing but the credential that was pushed
// into the workload cluster.
func agentClient(t *testing.T, w *env.Workload) client.Client {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.RESTConfigFromKubeConfig(suite.AgentSecret(g, t.Context(), w).Data["kubeconfig"])
	g.Expect(err).NotTo(HaveOccurred())
	config.BearerTokenFile = ""
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func TestAgentCredentialCanDoNothingElse(t *testing.T) {
	g := NewWithT(t)
	const namespace = "credentials"
	own := suite.AddCluster(t, lab, "own", env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}})
	other := suite.AddCluster(t, lab, "other", env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}})
	ownReg, otherReg := suite.EventuallyReady(t, lab, own), suite.EventuallyReady(t, lab, other)
	c := agentClient(t, own)

	fleetCluster := func(name string) *fleet.Cluster {
		return &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	jsonPatch := func(path string) client.Patch {
		return client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op":"add","path":"/status/%s","value":%s}]`, path,
			map[string]string{"namespace": `"kube-system"`, "conditions": `[]`, "agent": `{"lastSeen":"2030-01-01T00:00:00Z","namespace":"x"}`, "summary": `{"ready":1}`}[path]))
	}
	configMap := func(namespace string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}
	}

	g.Expect(c.Status().Patch(t.Context(), fleetCluster("own"), jsonPatch("agent"))).To(Succeed(), "its own heartbeat is allowed, so the credential works")
	g.Expect(c.List(t.Context(), &fleet.BundleDeploymentList{}, client.InNamespace(ownReg.Status.Namespace))).To(Succeed())

	for name, try := range map[string]func(context.Context) error{
		"list BundleDeployments of another cluster": func(ctx context.Context) error {
			return c.List(ctx, &fleet.BundleDeploymentList{}, client.InNamespace(otherReg.Status.Namespace))
		},
		"list BundleDeployments everywhere": func(ctx context.Context) error { return c.List(ctx, &fleet.BundleDeploymentList{}) },
		"read a Secret of another cluster": func(ctx context.Context) error {
			return c.Get(ctx, types.NamespacedName{Namespace: otherReg.Status.Namespace, Name: "x"}, &corev1.Secret{})
		},
		"read a Secret of its Cluster's namespace": func(ctx context.Context) error {
			return c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "own-kubeconfig"}, &corev1.Secret{})
		},
		"list Secrets in its own namespace": func(ctx context.Context) error {
			return c.List(ctx, &corev1.SecretList{}, client.InNamespace(ownReg.Status.Namespace))
		},
		"read its own Fleet Cluster": func(ctx context.Context) error {
			return c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "own"}, &fleet.Cluster{})
		},
		"patch the heartbeat of another Fleet Cluster": func(ctx context.Context) error {
			return c.Status().Patch(ctx, fleetCluster("other"), jsonPatch("agent"))
		},
		"change its own status.namespace": func(ctx context.Context) error {
			return c.Status().Patch(ctx, fleetCluster("own"), jsonPatch("namespace"))
		},
		"change its own conditions": func(ctx context.Context) error {
			return c.Status().Patch(ctx, fleetCluster("own"), jsonPatch("conditions"))
		},
		"send a heartbeat that Go cannot read": func(ctx context.Context) error {
			return c.Status().Patch(ctx, fleetCluster("own"), client.RawPatch(types.MergePatchType, []byte(`{"status":{"agent":{"lastSeen":"2030-01-01t00:00:00z"}}}`)))
		},
		"change its own summary": func(ctx context.Context) error {
			return c.Status().Patch(ctx, fleetCluster("own"), jsonPatch("summary"))
		},
		"patch its own Fleet Cluster": func(ctx context.Context) error {
			return c.Patch(ctx, fleetCluster("own"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
		},
		"list Contents": func(ctx context.Context) error { return c.List(ctx, &fleet.ContentList{}) },
		"create a BundleDeployment": func(ctx context.Context) error {
			return c.Create(ctx, &fleet.BundleDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: ownReg.Status.Namespace, Name: "x"}})
		},
		"create a ConfigMap in its own namespace": func(ctx context.Context) error { return c.Create(ctx, configMap(ownReg.Status.Namespace)) },
		"create a ConfigMap elsewhere":            func(ctx context.Context) error { return c.Create(ctx, configMap(env.ManagerNamespace)) },
		"get a token": func(ctx context.Context) error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: ownReg.Status.Namespace}}
			return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := try(t.Context())
			NewWithT(t).Expect(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)).To(BeTrue(), "got: %v", err)
		})
	}
}

func TestAgentCannotSetStatusNamespaceWhereItIsMissing(t *testing.T) {
	g := NewWithT(t)
	const namespace = "no-status-namespace"
	w := suite.AddCluster(t, lab, "own", env.ClusterOptions{Namespace: namespace, Register: true, Light: &lightapi.Options{}})
	suite.EventuallyReady(t, lab, w)
	cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}}
	g.Expect(lab.Client.Status().Patch(t.Context(), cluster, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/status/namespace"}]`)))).To(Succeed())

	err := agentClient(t, w).Status().Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespace":"kube-system"}}`)))
	g.Expect(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)).To(BeTrue(), "got: %v", err)
}

func TestManagerCredentialIsBounded(t *testing.T) {
	g := NewWithT(t)
	c, err := lab.AsManager(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Get(t.Context(), types.NamespacedName{Namespace: env.ManagerNamespace, Name: "none"}, &corev1.ServiceAccount{})).
		To(Satisfy(apierrors.IsNotFound), "what it may do works, so the credential is its own")

	secret := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}
	}
	for name, try := range map[string]func(context.Context) error{
		"get a token of another namespace": func(ctx context.Context) error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
			return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
		},
		"list Secrets": func(ctx context.Context) error { return c.List(ctx, &corev1.SecretList{}) },
		"list Secrets of its own namespace": func(ctx context.Context) error {
			return c.List(ctx, &corev1.SecretList{}, client.InNamespace(env.ManagerNamespace))
		},
		"create a Secret": func(ctx context.Context) error { return c.Create(ctx, secret(metav1.NamespaceDefault)) },
		"delete a Secret": func(ctx context.Context) error { return c.Delete(ctx, secret(metav1.NamespaceDefault)) },
		"create a service account elsewhere": func(ctx context.Context) error {
			return c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "x"}})
		},
		"delete a namespace": func(ctx context.Context) error {
			return c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(try(t.Context())).To(Satisfy(apierrors.IsForbidden))
		})
	}
}
