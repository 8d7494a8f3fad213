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

package adopt

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

const (
	// oldAccount is the service account that Fleet's own registration made for the agent.
	oldAccount = "request-abcde"
	// oldClientID is known to whoever took part in that registration.
	oldClientID = "known-to-the-agent"
)

// stock is what Fleet's own registration makes of one cluster and goes on doing for it,
// as far as an adoption meets it: the agent's Bundle is pruned only when the namespace
// of the Fleet Cluster changes, and while it is there the agent puts back what it
// brought (Fleet 0.13 to 0.16).
type stock struct {
	t        *testing.T
	workload *env.Workload
	// namespace is the cluster namespace.
	namespace string
	// holds keeps the Bundle from being pruned.
	holds atomic.Bool
	// fights counts how often the agent put something back.
	fights atomic.Int32
}

// registerWithFleet registers the cluster, with an agent, and returns once that has
// deployed its own Bundle. modify changes the Fleet Cluster before it is made; nil
// means no change.
func registerWithFleet(t *testing.T, w *env.Workload, modify func(*unstructured.Unstructured)) *stock {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	s := &stock{t: t, workload: w, namespace: fleet.ClusterNamespace(w.Namespace, w.Name)}

	cluster := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": w.Namespace, "name": w.Name, "labels": map[string]any{"env": "prod"}},
		"spec":     map[string]any{"clientID": oldClientID, "kubeConfigSecret": w.Name + "-kubeconfig"},
	}}
	cluster.SetGroupVersionKind(fleet.GroupVersion.WithKind("Cluster"))
	if modify != nil {
		modify(cluster)
	}
	g.Expect(lab.Client.Create(ctx, cluster)).To(Succeed())
	g.Expect(lab.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   s.namespace,
		Labels: map[string]string{fleet.ManagedLabel: "true"},
		Annotations: map[string]string{
			fleet.ClusterNamespaceAnnotation: w.Namespace, fleet.ClusterAnnotation: w.Name,
		},
	}})).To(Succeed())
	before := cluster.DeepCopy()
	g.Expect(unstructured.SetNestedField(cluster.Object, s.namespace, "status", "namespace")).To(Succeed())
	g.Expect(lab.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())

	secret, deployment := s.agent(g, s.account(g, ctx))
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}},
		&corev1.ConfigMap{ObjectMeta: secret.ObjectMeta, Data: map[string]string{"config": "{}"}},
		secret.DeepCopy(), deployment.DeepCopy(),
	} {
		g.Expect(w.Client.Create(ctx, obj)).To(Succeed())
	}
	deploy(t, w, s.bundle().Name)

	var group sync.WaitGroup
	background, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	group.Go(func() { s.prune(background) })
	group.Go(func() { s.correctDrift(background, secret, deployment) })
	return s
}

// bundle is what Fleet deploys its agent with.
func (s *stock) bundle() *fleet.Bundle {
	return &fleet.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: s.workload.Namespace, Name: "fleet-agent-" + s.workload.Name}}
}

// account makes the agent's service account with its rights, and returns a token.
func (s *stock) account(g Gomega, ctx context.Context) string {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: oldAccount}}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}}
	g.Expect(lab.Client.Create(ctx, account)).To(Succeed())
	heartbeat := metav1.ObjectMeta{Namespace: s.workload.Namespace, Name: "request-" + s.workload.Name}
	bundles := metav1.ObjectMeta{Namespace: s.namespace, Name: heartbeat.Name}
	contents := metav1.ObjectMeta{Name: s.namespace + "-content"}
	for _, obj := range []client.Object{
		&rbacv1.Role{ObjectMeta: heartbeat, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{fleet.GroupVersion.Group}, Resources: []string{"clusters/status"}, ResourceNames: []string{s.workload.Name}, Verbs: []string{"patch"}},
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

// agent returns the agent's objects in the workload cluster.
func (s *stock) agent(g Gomega, token string) (*corev1.Secret, *appsv1.Deployment) {
	const name = "default"
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: lab.Management().URL(), CertificateAuthorityData: lab.Management().CA().CertificatePEM()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: s.namespace}},
		CurrentContext: name,
	})
	g.Expect(err).NotTo(HaveOccurred())
	meta := metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}
	labels := map[string]string{"app": agent.Name}
	return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{
			"kubeconfig": kubeconfig, "clusterNamespace": []byte(s.workload.Namespace), "clusterName": []byte(s.workload.Name),
			"deploymentNamespace": []byte(s.namespace),
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

// prune deletes the agent's Bundle when the namespace changes and the Fleet Cluster is
// managed by someone else.
func (s *stock) prune(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := lab.Client.Watch(ctx, &corev1.NamespaceList{}, client.MatchingFields{metav1.ObjectNameField: s.workload.Namespace})
		if err != nil {
			continue
		}
		for event := range events.ResultChan() {
			if event.Type != watch.Modified || s.holds.Load() {
				continue
			}
			cluster := &fleet.Cluster{}
			if err := lab.Client.Get(ctx, s.workload.Key(), cluster); err != nil || cluster.Labels[fleet.ClusterManagementLabel] == "" {
				continue
			}
			if err := lab.Client.Delete(ctx, s.bundle()); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				s.t.Errorf("pruning the agent's Bundle: %v", err)
			}
		}
	}
}

// correctDrift puts the agent's objects back for as long as the agent has a Bundle that
// they come from.
func (s *stock) correctDrift(ctx context.Context, secret *corev1.Secret, deployment *appsv1.Deployment) {
	tick := time.NewTicker(suite.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		key := client.ObjectKey{Namespace: s.namespace, Name: s.bundle().Name}
		if err := lab.Client.Get(ctx, key, &fleet.BundleDeployment{}); err != nil {
			continue
		}
		liveSecret, liveDeployment := &corev1.Secret{}, &appsv1.Deployment{}
		if s.workload.Client.Get(ctx, suite.AgentKey, liveSecret) != nil || s.workload.Client.Get(ctx, suite.AgentKey, liveDeployment) != nil {
			continue
		}
		image := func(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }
		if equality.Semantic.DeepEqual(liveSecret.Data, secret.Data) && image(liveDeployment) == image(deployment) {
			continue
		}
		s.fights.Add(1)
		_ = s.workload.Client.Update(ctx, secret.DeepCopy())
		_ = s.workload.Client.Update(ctx, deployment.DeepCopy())
	}
}

// deploy makes a Bundle for the cluster and waits until the agent has deployed it. It
// returns what was deployed.
func deploy(t *testing.T, w *env.Workload, name string) *corev1.ConfigMap {
	t.Helper()
	g := NewWithT(t)
	g.Expect(lab.Client.Create(t.Context(), &fleet.Bundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: fleet.BundleSpec{
			Resources: []fleet.BundleResource{{Name: "object.yaml", Content: "of " + name}},
			Targets:   []fleet.BundleTarget{{ClusterName: w.Name}},
		},
	})).To(Succeed())
	deployed := &corev1.ConfigMap{}
	g.Eventually(func() error {
		return w.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "bundle-" + name}, deployed)
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	return deployed
}

// watchFor returns how often an object was deleted since.
func watchFor(t *testing.T, w *env.Workload, deployed *corev1.ConfigMap) func() int32 {
	t.Helper()
	list := &corev1.ConfigMapList{}
	NewWithT(t).Expect(w.Client.List(t.Context(), list, client.InNamespace(deployed.Namespace))).To(Succeed())
	events, err := w.Client.Watch(t.Context(), list, client.InNamespace(deployed.Namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var deletions atomic.Int32
	go func() {
		for event := range events.ResultChan() {
			if configMap, ok := event.Object.(*corev1.ConfigMap); ok && event.Type == watch.Deleted && configMap.Name == deployed.Name {
				deletions.Add(1)
			}
		}
	}()
	return deletions.Load
}

// labelsWith returns labels and one more.
func labelsWith(labels map[string]string, key, value string) map[string]string {
	all := maps.Clone(labels)
	all[key] = value
	return all
}
