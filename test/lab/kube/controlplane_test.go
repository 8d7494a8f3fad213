//go:build unix

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

package kube

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const patience = 30 * time.Second

func startEtcd(t *testing.T) (*Etcd, Assets) {
	t.Helper()
	g := NewWithT(t)
	assets, err := FindAssets(t.Context(), os.Stderr)
	g.Expect(err).NotTo(HaveOccurred())
	etcd, err := StartEtcd(t.Context(), filepath.Join(t.TempDir(), "etcd"), assets)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(etcd.Close()).To(Succeed()) })
	return etcd, assets
}

func prepare(t *testing.T, spec ControlPlaneSpec) *ControlPlane {
	t.Helper()
	g := NewWithT(t)
	spec.Dir = t.TempDir()
	cp, err := PrepareControlPlane(spec)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(cp.Close()).To(Succeed()) })
	return cp
}

func start(t *testing.T, cp *ControlPlane) {
	t.Helper()
	begin := time.Now()
	NewWithT(t).Expect(cp.Start(t.Context())).To(Succeed())
	t.Logf("%s answered after %s", cp.Name(), time.Since(begin).Round(10*time.Millisecond))
}

func clientFor(g *WithT, config *rest.Config) *kubernetes.Clientset {
	client, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return client
}

func portString(cp *ControlPlane) string { return strconv.Itoa(cp.Port()) }

// logMemory logs the resident memory of processes, where the system tells it.
func logMemory(t *testing.T, processes ...*Process) {
	t.Helper()
	for _, process := range processes {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Pid()))
		if err != nil {
			return
		}
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "VmRSS") {
				t.Logf("%s: %s", process.spec.Name, strings.Join(strings.Fields(line), " "))
			}
		}
	}
}

func connect(cp *ControlPlane) error {
	connection, err := net.Dial("tcp", net.JoinHostPort(cp.Host(), portString(cp)))
	if err != nil {
		return err
	}
	return connection.Close()
}

func systemUID(ctx context.Context, g *WithT, client kubernetes.Interface) types.UID {
	namespace, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(namespace.UID).NotTo(BeEmpty())
	return namespace.UID
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// The steps share two control planes of one name on one etcd, and follow each other.
func TestControlPlanesOnOneEtcd(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	etcd, assets := startEtcd(t)
	spec := ControlPlaneSpec{Name: "same", Assets: assets, Etcd: etcd}
	first, second := prepare(t, spec), prepare(t, spec)
	firstClient := clientFor(g, first.AdminConfig())
	// The second's client is made from the kubeconfig that is handed out before.
	handedOut, err := clientcmd.RESTConfigFromKubeConfig(second.AdminKubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	secondClient := clientFor(g, handedOut)

	start(t, first)
	firstUID := systemUID(ctx, g, firstClient)
	_, err = firstClient.CoreV1().ConfigMaps("default").Create(ctx, configMap("of-first"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	t.Run("one that is only prepared refuses connections", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(connect(second)).To(MatchError(syscall.ECONNREFUSED))
		_, err := secondClient.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		g.Expect(err).To(MatchError(syscall.ECONNREFUSED))
	})

	t.Run("nobody else gets its port", func(t *testing.T) {
		g := NewWithT(t)
		_, err := net.Listen("tcp", net.JoinHostPort(second.Host(), portString(second)))
		g.Expect(err).To(MatchError(syscall.EADDRINUSE))
	})

	start(t, second)

	t.Run("the second answers its kubeconfig and sees nothing of the first", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(systemUID(ctx, g, secondClient)).NotTo(Equal(firstUID))
		_, err := secondClient.CoreV1().ConfigMaps("default").Get(ctx, "of-first", metav1.GetOptions{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})

	t.Run("what is stored is that of one alone", func(t *testing.T) {
		g := NewWithT(t)
		const path = "configmaps/default/of-first"
		g.Expect(first.Stored(ctx, path)).To(ContainSubstring("of-first"))
		_, err := second.Stored(ctx, path)
		g.Expect(err).To(MatchError(ContainSubstring("etcd has no")))
	})

	t.Run("credentials of one are nothing to the other", func(t *testing.T) {
		g := NewWithT(t)
		config := first.AdminConfig()
		config.Host = second.URL()
		_, err := clientFor(g, config).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		g.Expect(err).To(MatchError(ContainSubstring("certificate signed by unknown authority")))
		config.CAData = second.CA().CertificatePEM()
		_, err = clientFor(g, config).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		g.Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "%v", err)
	})

	t.Run("users are bound by RBAC, and the audit log counts what they ask", func(t *testing.T) {
		auditCounts(t, second, secondClient)
	})

	t.Run("Cluster API accepts its version", func(t *testing.T) {
		g := NewWithT(t)
		version, err := firstClient.Discovery().ServerVersion()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(version.GitVersion).To(HavePrefix("v1.36."))
	})

	t.Run("it runs only once", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(first.Start(ctx)).To(MatchError(ContainSubstring("runs already")))
		g.Expect(systemUID(ctx, g, firstClient)).To(Equal(firstUID))
	})

	logMemory(t, etcd.process, first.apiServer, second.apiServer)

	t.Run("stopped and started again it has its data, its address and its audit log", func(t *testing.T) {
		g := NewWithT(t)
		mark, err := first.AuditLog().Mark(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		begin := time.Now()
		g.Expect(first.Stop()).To(Succeed())
		t.Logf("stopped after %s", time.Since(begin).Round(10*time.Millisecond))
		g.Expect(connect(first)).To(MatchError(syscall.ECONNREFUSED))

		start(t, first)
		g.Expect(systemUID(ctx, g, firstClient)).To(Equal(firstUID))
		_, err = firstClient.CoreV1().ConfigMaps("default").Get(ctx, "of-first", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		events, err := first.AuditLog().Since(ctx, mark)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(events).To(ContainElement(HaveField("Name", "of-first")))
	})
}

func auditCounts(t *testing.T, cp *ControlPlane, admin kubernetes.Interface) {
	g := NewWithT(t)
	ctx := t.Context()
	kubeconfig, err := cp.Kubeconfig("jane", "writers")
	g.Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	config.UserAgent = "counting"
	jane := clientFor(g, config)
	configMaps := jane.CoreV1().ConfigMaps("default")

	beforeAll, err := cp.AuditLog().Mark(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = configMaps.Create(ctx, configMap("forbidden"), metav1.CreateOptions{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)

	_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "write"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writers-write"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "write"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "writers"}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	// The API server learns of the binding by a watch.
	g.Eventually(ctx, func() error {
		_, err := configMaps.List(ctx, metav1.ListOptions{})
		return err
	}).WithTimeout(patience).Should(Succeed())

	mark, err := cp.AuditLog().Mark(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = configMaps.Create(ctx, configMap("counted"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = configMaps.Get(ctx, "counted", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = configMaps.Patch(ctx, "counted", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(configMaps.Delete(ctx, "counted", metav1.DeleteOptions{})).To(Succeed())

	// What was answered is in the log at once, so nothing here waits.
	events, err := cp.AuditLog().Since(ctx, mark)
	g.Expect(err).NotTo(HaveOccurred())
	of := By("jane", events)
	g.Expect(of).To(HaveLen(4))
	g.Expect(of).To(HaveEach(SatisfyAll(
		HaveField("Groups", ContainElement("writers")),
		HaveField("Resource", "configmaps"),
		HaveField("Namespace", "default"),
		HaveField("Name", "counted"),
		HaveField("UserAgent", "counting"),
		HaveField("Stage", "ResponseComplete"),
		HaveField("AuthorizationReason", ContainSubstring(`"writers-write"`)),
		HaveField("Time", BeTemporally("~", time.Now(), patience)),
	)))
	writes := Writes(of)
	g.Expect(writes).To(HaveLen(3))
	for i, verb := range []string{"create", "patch", "delete"} {
		g.Expect(writes[i].Verb).To(Equal(verb))
	}

	all, err := cp.AuditLog().Since(ctx, beforeAll)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(By("jane", all)).To(ContainElement(SatisfyAll(
		HaveField("Verb", "create"), HaveField("Code", 403), HaveField("AuthorizationReason", ""))))
	fromTheStart, err := cp.AuditLog().Since(ctx, Mark{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(fromTheStart)).To(BeNumerically(">", len(all)))

	again, err := cp.AuditLog().Mark(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	none, err := cp.AuditLog().Since(ctx, again)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(By("jane", none)).To(BeEmpty())
	g.Expect(none).NotTo(ContainElement(HaveField("RequestURI", HavePrefix(markPath))))
}

func TestControllersOfAManagementCluster(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()
	etcd, assets := startEtcd(t)
	cp := prepare(t, ControlPlaneSpec{Name: "management", Assets: assets, Etcd: etcd, ControllerManager: true})
	start(t, cp)
	client := clientFor(g, cp.AdminConfig())

	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(ctx, func() error {
		_, err := client.CoreV1().ServiceAccounts("work").Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithTimeout(patience).Should(Succeed(), "a namespace gets its service account")

	token, err := client.CoreV1().ServiceAccounts("work").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	config := rest.AnonymousClientConfig(cp.AdminConfig())
	config.BearerToken = token.Status.Token
	review, err := clientFor(g, config).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(review.Status.UserInfo.Username).To(Equal("system:serviceaccount:work:default"))

	labels := map[string]string{"app": "agent"}
	_, err = client.AppsV1().Deployments("work").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
			},
		},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	pods := func() ([]corev1.Pod, error) {
		list, err := client.CoreV1().Pods("work").List(ctx, metav1.ListOptions{LabelSelector: "app=agent"})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	g.Eventually(ctx, pods).WithTimeout(patience).Should(HaveLen(1), "a Deployment gets its Pod")

	g.Expect(client.AppsV1().Deployments("work").Delete(ctx, "agent", *metav1.NewDeleteOptions(0))).To(Succeed())
	g.Eventually(ctx, pods).WithTimeout(patience).Should(BeEmpty(), "what a deleted Deployment owns is collected")

	g.Expect(client.CoreV1().Namespaces().Delete(ctx, "work", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(ctx, func() bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, "work", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(patience).Should(BeTrue(), "a deleted namespace is finished")
	logMemory(t, cp.controllers)
}

func TestAControlPlaneThatDoesNotStartSaysWhyAndLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	etcd, assets := startEtcd(t)
	broken := filepath.Join(t.TempDir(), "broken")
	g.Expect(os.WriteFile(broken, []byte("#!/bin/sh\necho 'unknown flag: --bind-address' >&2\nexit 7\n"), 0o755)).To(Succeed())

	assets.KubeAPIServer = broken
	cp := prepare(t, ControlPlaneSpec{Name: "broken", Assets: assets, Etcd: etcd})
	err := cp.Start(t.Context())
	g.Expect(err).To(MatchError(SatisfyAll(
		ContainSubstring("kube-apiserver exited"), ContainSubstring("exit status 7"), ContainSubstring("unknown flag: --bind-address"))))
	g.Expect(cp.apiServer).To(BeNil())
	g.Expect(filepath.Glob(filepath.Join(cp.spec.Dir, "*"+pidSuffix))).To(BeEmpty())

	assets.Etcd = broken
	_, err = StartEtcd(t.Context(), t.TempDir(), assets)
	g.Expect(err).To(MatchError(ContainSubstring("unknown flag")))
}

func TestAnAPIServerIsStoppedWhenItsControllersDoNotStart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	etcd, assets := startEtcd(t)
	assets.KubeControllerManager = "/bin/false"
	cp := prepare(t, ControlPlaneSpec{Name: "half", Assets: assets, Etcd: etcd, ControllerManager: true})
	g.Expect(cp.Start(t.Context())).To(MatchError(ContainSubstring("kube-controller-manager exited")))
	g.Expect(connect(cp)).To(MatchError(syscall.ECONNREFUSED))
	g.Expect(filepath.Glob(filepath.Join(cp.spec.Dir, "*"+pidSuffix))).To(BeEmpty())
}

func TestAStartThatIsGivenUpLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	etcd, assets := startEtcd(t)
	cp := prepare(t, ControlPlaneSpec{Name: "slow", Assets: assets, Etcd: etcd})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(cp.Start(ctx)).To(MatchError(context.Canceled))
	g.Expect(connect(cp)).To(MatchError(syscall.ECONNREFUSED))
	g.Expect(filepath.Glob(filepath.Join(cp.spec.Dir, "*"+pidSuffix))).To(BeEmpty())
}

func TestANameWithASlashIsRefused(t *testing.T) {
	g := NewWithT(t)
	_, err := PrepareControlPlane(ControlPlaneSpec{Name: "a/b", Dir: t.TempDir()})
	g.Expect(err).To(MatchError(ContainSubstring("without a slash")))
}
