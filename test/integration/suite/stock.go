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

package suite

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

const (
	// StockAccount is the service account that Fleet's own registration makes for an agent.
	StockAccount = "request-abcde"
	// StockClientID is known to whoever took part in that registration.
	StockClientID = "known-to-the-agent"
)

// Stock is what Fleet's own registration made of a cluster.
type Stock struct {
	// Namespace is the cluster namespace.
	Namespace string
	// Secret and Deployment are the agent's in the workload cluster, as they were made.
	Secret     *corev1.Secret
	Deployment *appsv1.Deployment
}

// RegisterWithFleet makes what Fleet's own registration makes of a cluster (Fleet 0.13 to
// 0.16): the Fleet Cluster with its namespace, and an agent with a token that has no end.
// modify changes the Fleet Cluster before it is made; nil means no change.
func RegisterWithFleet(t *testing.T, lab *env.Lab, w *env.Workload, modify func(*unstructured.Unstructured)) Stock {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	namespace := fleet.ClusterNamespace(w.Namespace, w.Name)
	cluster := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": w.Namespace, "name": w.Name, "labels": map[string]any{"env": "prod"}},
		"spec":     map[string]any{"clientID": StockClientID, "kubeConfigSecret": w.Name + "-kubeconfig"},
	}}
	cluster.SetGroupVersionKind(fleet.GroupVersion.WithKind("Cluster"))
	if modify != nil {
		modify(cluster)
	}
	g.Expect(lab.Client.Create(ctx, cluster)).To(Succeed())
	g.Expect(lab.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   namespace,
		Labels: map[string]string{fleet.ManagedLabel: "true"},
		Annotations: map[string]string{
			fleet.ClusterNamespaceAnnotation: w.Namespace, fleet.ClusterAnnotation: w.Name,
		},
	}})).To(Succeed())
	before := cluster.DeepCopy()
	g.Expect(unstructured.SetNestedField(cluster.Object, namespace, "status", "namespace")).To(Succeed())
	g.Expect(lab.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())

	secret, deployment := StockAgent(g, ctx, lab, w.Key(), namespace)
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}},
		&corev1.ConfigMap{ObjectMeta: secret.ObjectMeta, Data: map[string]string{"config": "{}"}},
		secret.DeepCopy(), deployment.DeepCopy(),
	} {
		g.Expect(w.Client.Create(ctx, obj)).To(Succeed())
	}
	return Stock{namespace, secret, deployment}
}

// StockAgent makes what Fleet's own registration gives the agent of a Fleet Cluster with that
// cluster namespace, and returns the agent's objects for the workload cluster.
func StockAgent(g Gomega, ctx context.Context, lab *env.Lab, cluster client.ObjectKey, namespace string) (*corev1.Secret, *appsv1.Deployment) {
	return stockAgent(g, lab, cluster, namespace, stockToken(g, ctx, lab, cluster, namespace))
}

// stockToken makes the agent's service account with its rights, and returns a token.
func stockToken(g Gomega, ctx context.Context, lab *env.Lab, cluster client.ObjectKey, namespace string) string {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: StockAccount}}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}}
	g.Expect(lab.Client.Create(ctx, account)).To(Succeed())
	heartbeat := metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "request-" + cluster.Name}
	bundles := metav1.ObjectMeta{Namespace: namespace, Name: heartbeat.Name}
	contents := metav1.ObjectMeta{Name: namespace + "-content"}
	for _, obj := range []client.Object{
		&rbacv1.Role{ObjectMeta: heartbeat, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{fleet.GroupVersion.Group}, Resources: []string{"clusters/status"}, ResourceNames: []string{cluster.Name}, Verbs: []string{"patch"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: heartbeat, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: heartbeat.Name}},
		&rbacv1.Role{ObjectMeta: bundles, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{fleet.GroupVersion.Group}, Resources: []string{"bundledeployments"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{fleet.GroupVersion.Group}, Resources: []string{"bundledeployments/status"}, Verbs: []string{"update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"get"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: bundles, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: bundles.Name}},
		&rbacv1.ClusterRole{ObjectMeta: contents, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{fleet.GroupVersion.Group}, Resources: []string{"contents"}, Verbs: []string{"get"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: contents, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: contents.Name}},
	} {
		g.Expect(lab.Client.Create(ctx, obj)).To(Succeed())
	}
	request := &authenticationv1.TokenRequest{}
	g.Expect(lab.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// stockAgent returns the agent's objects in the workload cluster.
func stockAgent(g Gomega, lab *env.Lab, cluster client.ObjectKey, namespace, token string) (*corev1.Secret, *appsv1.Deployment) {
	const name = "default"
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: lab.Management().URL(), CertificateAuthorityData: lab.Management().CA().CertificatePEM()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: namespace}},
		CurrentContext: name,
	})
	g.Expect(err).NotTo(HaveOccurred())
	meta := metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}
	labels := map[string]string{"app": agent.Name}
	return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{
			"kubeconfig": kubeconfig, "clusterNamespace": []byte(cluster.Namespace), "clusterName": []byte(cluster.Name),
			"deploymentNamespace": []byte(namespace),
		}}, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: agent.Name, Image: "rancher/fleet-agent:v0.14.0", Command: []string{"fleetagent"},
					Env: []corev1.EnvVar{{Name: "CHECKIN_INTERVAL", Value: "1s"}},
				}}},
			},
		}}
}
