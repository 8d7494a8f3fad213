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

// Package uninstall tests what becomes of agents and of what they deployed when
package uninstall

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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

const (
	fleetAgent          = "fleet-agent"
	fleetAgentNamespace = fleet.DefaultAgentNamespace
)

// fleetImports does what Fleet's import does of a Fleet Cluster, with what that says and
// nothing else: it deletes the agent in the workload cluster, and registers a new one, with
// an account of its own. It says whether there was anything to do.
func fleetImports(t *testing.T, key client.ObjectKey) bool {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(fleet.GroupVersion.WithKind("Cluster"))
	g.Expect(lab.Client.Get(ctx, key, cluster)).To(Succeed())
	name, _, _ := unstructured.NestedString(cluster.Object, "spec", "kubeConfigSecret")
	wanted, _, _ := unstructured.NestedInt64(cluster.Object, "spec", "redeployAgentGeneration")
	is, deployed, _ := unstructured.NestedInt64(cluster.Object, "status", "agentDeployedGeneration")
	if cluster.GetLabels()[fleet.ClusterManagementLabel] != "" || name == "" || deployed && is == wanted {
		return false
	}
	namespace, _, _ := unstructured.NestedString(cluster.Object, "spec", "kubeConfigSecretNamespace")
	if namespace == "" {
		namespace = key.Namespace
	}
	secret := &corev1.Secret{}
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)).To(Succeed())
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	g.Expect(err).NotTo(HaveOccurred())
	workload, err := client.New(config, client.Options{Scheme: env.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())

	meta := metav1.ObjectMeta{Namespace: fleetAgentNamespace, Name: fleetAgent}
	for _, old := range []client.Object{&appsv1.Deployment{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}} {
		g.Expect(workload.Delete(ctx, old)).To(Succeed())
	}
	clusterNamespace, _, _ := unstructured.NestedString(cluster.Object, "status", "namespace")
	kubeconfig := fleetGrants(g, ctx, key, clusterNamespace)
	g.Expect(workload.Create(ctx, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{
		"kubeconfig": kubeconfig, "clusterNamespace": []byte(key.Namespace), "clusterName": []byte(key.Name),
		"deploymentNamespace": []byte(clusterNamespace),
	}})).To(Succeed())
	labels := map[string]string{"app": fleetAgent}
	g.Expect(workload.Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](1),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{ServiceAccountName: fleetAgent, Containers: []corev1.Container{{
				Name: fleetAgent, Image: fleetAgent, Env: []corev1.EnvVar{{Name: "CHECKIN_INTERVAL", Value: "1s"}},
			}}},
		},
	}})).To(Succeed())
	g.Expect(unstructured.SetNestedField(cluster.Object, wanted, "status", "agentDeployedGeneration")).To(Succeed())
	g.Expect(lab.Client.Status().Update(ctx, cluster)).To(Succeed())
	return true
}

// fleetGrants makes the account of a new agent on the management cluster and returns the
// kubeconfig that the agent gets for it.
func fleetGrants(g *WithT, ctx context.Context, key client.ObjectKey, namespace string) []byte {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "granted-" + key.Name}}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}}
	of := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: account.Name}
	}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: account.Name}
	}
	group := []string{fleet.GroupVersion.Group}
	for _, object := range []client.Object{
		account,
		&rbacv1.Role{ObjectMeta: of(namespace), Rules: []rbacv1.PolicyRule{
			{APIGroups: group, Resources: []string{"bundledeployments"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: group, Resources: []string{"bundledeployments/status"}, Verbs: []string{"update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"get"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: of(namespace), Subjects: subjects, RoleRef: ref("Role")},
		&rbacv1.Role{ObjectMeta: of(key.Namespace), Rules: []rbacv1.PolicyRule{
			{APIGroups: group, Resources: []string{"clusters/status"}, ResourceNames: []string{key.Name}, Verbs: []string{"patch"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: of(key.Namespace), Subjects: subjects, RoleRef: ref("Role")},
		&rbacv1.ClusterRole{ObjectMeta: of(""), Rules: []rbacv1.PolicyRule{
			{APIGroups: group, Resources: []string{"contents"}, Verbs: []string{"get"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: of(""), Subjects: subjects, RoleRef: ref("ClusterRole")},
	} {
		g.Expect(lab.Client.Create(ctx, object)).To(Succeed())
	}
	token := &authenticationv1.TokenRequest{}
	g.Expect(lab.Client.SubResource("token").Create(ctx, account, token)).To(Succeed())

	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["fleet"] = &clientcmdapi.Cluster{
		Server: lab.Management().URL(), CertificateAuthorityData: lab.Management().CA().CertificatePEM(),
	}
	kubeconfig.AuthInfos["fleet"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	kubeconfig.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "fleet", Namespace: namespace}
	kubeconfig.CurrentContext = "fleet"
	content, err := clientcmd.Write(*kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	return content
}
