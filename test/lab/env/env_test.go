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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// patience is how long a condition may take on a busy machine.
const patience = 30 * time.Second

// TestLab runs everything that needs real API servers in one lab.
func TestLab(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	agents := &fakeAgents{crash: make(chan struct{}), running: make(chan bool, 100)}
	lab, err := Start(ctx, Options{Log: t.Logf, NoManager: true, Agent: agents.run})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})

	var edge *Workload
	t.Run("the kubeconfig is there before the API server answers", func(t *testing.T) {
		edge = testAddCluster(t, lab)
	})
	t.Run("the control plane counts as initialized some time later", func(t *testing.T) {
		g := NewWithT(t)
		g.Eventually(func(g Gomega) {
			cluster := &clusterv1.Cluster{}
			g.Expect(lab.Client.Get(ctx, edge.Key(), cluster)).To(Succeed())
			g.Expect(cluster.Status.Initialization.ControlPlaneInitialized).To(HaveValue(BeTrue()))
			g.Expect(meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition)).To(BeTrue())
		}, patience).Should(Succeed())
	})
	t.Run("the agent runs while its Deployment wants it", func(t *testing.T) { testAgentRuns(t, lab, edge, agents) })
	t.Run("an agent on a light API server runs too", func(t *testing.T) {
		g := NewWithT(t)
		light, err := lab.AddCluster(ctx, "light", ClusterOptions{Light: &lightapi.Options{}})
		g.Expect(err).NotTo(HaveOccurred())
		deployAgent(t, lab, light, "cluster-light")
		g.Eventually(agents.running, patience).Should(Receive(BeTrue()))
		g.Eventually(func(g Gomega) { expectAvailable(g, light, 1) }, patience).Should(Succeed())
		g.Expect(lab.drop(light)).To(Succeed())
		g.Eventually(agents.running, patience).Should(Receive(BeFalse()))
	})
	t.Run("no Secret is mounted outside of the lab", func(t *testing.T) { testMountRefused(t, lab, edge) })
	t.Run("a deleted namespace goes", func(t *testing.T) { testNamespaceFinished(t, edge) })
	t.Run("Fleet's stand-in targets Bundles and deletes cluster namespaces", func(t *testing.T) { testStandIn(t, lab) })
	t.Run("the manager's credential is that of its account", func(t *testing.T) {
		g := NewWithT(t)
		kubeconfig, err := lab.managerKubeconfig(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		config, err := restConfig(kubeconfig)
		g.Expect(err).NotTo(HaveOccurred())
		manager, err := client.New(config, client.Options{Scheme: Scheme()})
		g.Expect(err).NotTo(HaveOccurred())
		err = manager.List(ctx, &corev1.SecretList{})
		g.Expect(err).To(MatchError(ContainSubstring(ManagerUser)))
	})
	t.Run("the state names every cluster and what was not done", func(t *testing.T) {
		g := NewWithT(t)
		statuses, err := lab.Status(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(statuses).To(HaveLen(1))
		g.Expect(statuses[0].Name).To(Equal("edge-1"))
		g.Expect(statuses[0].Label).To(Equal("true"))
		g.Expect(statuses[0].Registered).To(BeFalse())
		g.Expect(statuses[0].Times).To(HaveKey(APIAnswers))
		g.Expect(statuses[0].Usage).To(Equal(Usage{}))
	})
	t.Run("another lab does not get the folder", func(t *testing.T) {
		g := NewWithT(t)
		_, err := Start(ctx, Options{Dir: lab.Dir})
		g.Expect(err).To(MatchError(ErrInUse))
		g.Expect(Clean(lab.Dir)).To(MatchError(ErrInUse))
	})
	t.Run("a removed cluster takes everything along", func(t *testing.T) {
		g := NewWithT(t)
		address := addressOf(edge)
		g.Expect(lab.RemoveCluster(ctx, edge)).To(Succeed())
		g.Expect(lab.Workloads()).To(BeEmpty())
		g.Expect(canDial(address)).To(BeFalse())
		err := lab.Client.Get(ctx, client.ObjectKeyFromObject(&corev1.Secret{ObjectMeta: edge.kubeconfigMeta()}), &corev1.Secret{})
		g.Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
		g.Expect(err).To(HaveOccurred())
	})
	t.Run("a manager runs as its account and again after a crash", func(t *testing.T) { testManager(t, lab) })
	t.Run("nothing is left after the end", func(t *testing.T) { testClose(t, lab) })
}

func testAddCluster(t *testing.T, lab *Lab) *Workload {
	g := NewWithT(t)
	ctx := t.Context()
	edge, err := lab.AddCluster(ctx, "edge-1", ClusterOptions{
		Register: true, StartLater: true, InitializedAfter: time.Millisecond,
	})
	g.Expect(err).NotTo(HaveOccurred())

	cluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(ctx, edge.Key(), cluster)).To(Succeed())
	g.Expect(cluster.Spec.ControlPlaneEndpoint.Port).To(BeNumerically(">", 0))
	g.Expect(cluster.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
	g.Expect(cluster.Status.Initialization.ControlPlaneInitialized).To(BeNil())
	secret := &corev1.Secret{}
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "edge-1-kubeconfig"}, secret)).To(Succeed())
	g.Expect(secret.Type).To(Equal(clusterv1.ClusterSecretType))
	g.Expect(secret.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "edge-1"))
	g.Expect(canDial(addressOf(edge))).To(BeFalse())

	g.Expect(edge.StartAPI(ctx)).To(Succeed())
	config, err := restConfig(secret.Data["value"])
	g.Expect(err).NotTo(HaveOccurred())
	admin, err := client.New(config, client.Options{Scheme: Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{})).To(Succeed())
	return edge
}

func testAgentRuns(t *testing.T, lab *Lab, edge *Workload, agents *fakeAgents) {
	g := NewWithT(t)
	ctx := t.Context()
	deployAgent(t, lab, edge, "cluster-edge")
	token := filepath.Join(agentTokensDir(lab.Dir), "cluster-edge", "token")

	g.Eventually(agents.running, patience).Should(Receive(BeTrue()))
	g.Eventually(func(g Gomega) {
		expectAvailable(g, edge, 1)
		pods := agentPods(g, edge)
		g.Expect(pods).To(HaveLen(1))
		g.Expect(pods[0].Status.Phase).To(Equal(corev1.PodRunning))
	}, patience).Should(Succeed())
	g.Expect(os.ReadFile(token)).To(BeEquivalentTo("first"))
	g.Expect(agents.lastSpec().Env).To(Equal(map[string]string{"NAMESPACE": agentNamespace, "CHECKIN_INTERVAL": "1m"}))
	g.Expect(edge.AgentStarts()).To(HaveLen(1))

	// A new token reaches the disk, and the agent goes on.
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: agentNamespace, Name: agentName}
	g.Expect(edge.Client.Get(ctx, key, secret)).To(Succeed())
	secret.Data["token"] = []byte("second")
	g.Expect(edge.Client.Update(ctx, secret)).To(Succeed())
	g.Eventually(func() (string, error) {
		content, err := os.ReadFile(token)
		return string(content), err
	}, patience).Should(Equal("second"))
	g.Expect(edge.AgentStarts()).To(HaveLen(1))

	// An agent that ends by itself runs again in the same pod.
	agents.crash <- struct{}{}
	g.Eventually(agents.running, patience).Should(Receive(BeFalse()))
	g.Eventually(agents.running, patience).Should(Receive(BeTrue()))
	g.Eventually(func(g Gomega) {
		pods := agentPods(g, edge)
		g.Expect(pods).To(HaveLen(1))
		g.Expect(pods[0].Status.ContainerStatuses[0].RestartCount).To(BeEquivalentTo(1))
	}, patience).Should(Succeed())
	starts := edge.AgentStarts()
	g.Expect(starts).To(HaveLen(2))
	g.Expect(starts[1].Pod).To(Equal(starts[0].Pod))

	// A new pod template makes a new pod, after the old agent has ended.
	changeDeployment(t, edge, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"changed": "yes"}
	})
	g.Eventually(agents.running, patience).Should(Receive(BeFalse()))
	g.Eventually(agents.running, patience).Should(Receive(BeTrue()))
	starts = edge.AgentStarts()
	g.Expect(starts).To(HaveLen(3))
	g.Expect(starts[2].Pod).NotTo(Equal(starts[1].Pod))
	g.Expect(starts[2].Template).NotTo(Equal(starts[1].Template))

	// No replicas, no agent, no pod, no token.
	changeDeployment(t, edge, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) })
	g.Eventually(agents.running, patience).Should(Receive(BeFalse()))
	g.Eventually(func(g Gomega) {
		expectAvailable(g, edge, 0)
		g.Expect(agentPods(g, edge)).To(BeEmpty())
		g.Expect(token).NotTo(BeAnExistingFile())
	}, patience).Should(Succeed())

	// An API server that is away for a while ends no agent.
	changeDeployment(t, edge, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
	g.Eventually(agents.running, patience).Should(Receive(BeTrue()))
	g.Expect(edge.StopAPI()).To(Succeed())
	g.Expect(edge.StartAPI(ctx)).To(Succeed())
	changeDeployment(t, edge, func(d *appsv1.Deployment) { d.Labels = map[string]string{"seen": "yes"} })
	g.Consistently(agents.running, 500*time.Millisecond).ShouldNot(Receive())

	// A foreground deletion ends as well, although nobody collects garbage here.
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: agentName}}
	g.Expect(edge.Client.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
	g.Eventually(agents.running, patience).Should(Receive(BeFalse()))
	g.Eventually(func(g Gomega) {
		g.Expect(edge.Client.Get(ctx, key, &appsv1.Deployment{})).To(MatchError(ContainSubstring("not found")))
		g.Expect(agentPods(g, edge)).To(BeEmpty())
	}, patience).Should(Succeed())
}

func testMountRefused(t *testing.T, lab *Lab, edge *Workload) {
	g := NewWithT(t)
	outside := filepath.Join(t.TempDir(), "outside")
	volume, err := openVolumes(agentTokensDir(lab.Dir))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = volume.close() })
	g.Expect(os.Symlink(filepath.Dir(outside), filepath.Join(agentTokensDir(lab.Dir), "link"))).To(Succeed())
	for _, path := range []string{
		outside,
		agentTokensDir(lab.Dir),
		filepath.Join(agentTokensDir(lab.Dir), "..", "tokens-of-others"),
		filepath.Join(agentTokensDir(lab.Dir), "link", "outside"),
	} {
		pod := agentDeployment(path).Spec.Template.Spec
		g.Expect(volume.mount(t.Context(), edge.Client, agentNamespace, &pod)).NotTo(Succeed(), path)
	}
	g.Expect(outside).NotTo(BeADirectory())
}

func testNamespaceFinished(t *testing.T, edge *Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}
	g.Expect(edge.Client.Create(ctx, namespace)).To(Succeed())
	g.Eventually(func() error {
		return edge.Client.Get(ctx, client.ObjectKey{Namespace: "short-lived", Name: "default"}, &corev1.ServiceAccount{})
	}, patience).Should(Succeed())
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "short-lived", Name: "kept", Finalizers: []string{"example.com/test"}}}
	g.Expect(edge.Client.Create(ctx, kept)).To(Succeed())
	g.Expect(edge.Client.Delete(ctx, namespace)).To(Succeed())

	// What has a finalizer holds the namespace up.
	g.Eventually(func(g Gomega) {
		g.Expect(edge.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
		g.Expect(kept.DeletionTimestamp).NotTo(BeNil())
	}, patience).Should(Succeed())
	g.Expect(edge.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
	kept.Finalizers = nil
	g.Expect(edge.Client.Update(ctx, kept)).To(Succeed())
	g.Eventually(func() error { return edge.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) }, patience).
		Should(MatchError(ContainSubstring("not found")))
}

func testStandIn(t *testing.T, lab *Lab) {
	g := NewWithT(t)
	ctx := t.Context()
	for _, name := range []string{"workspace", "cluster-one"} {
		g.Expect(lab.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "workspace", Name: "one", Labels: map[string]string{"tier": "edge"}}}
	g.Expect(lab.Client.Create(ctx, cluster)).To(Succeed())
	cluster.Status.Namespace = "cluster-one"
	g.Expect(lab.Client.Status().Update(ctx, cluster)).To(Succeed())
	bundle := &fleet.Bundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: "workspace", Name: "app"},
		Spec: fleet.BundleSpec{
			Resources: []fleet.BundleResource{{Name: "app.yaml", Content: "kind: ConfigMap"}},
			Targets:   []fleet.BundleTarget{{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "edge"}}}},
		},
	}
	g.Expect(lab.Client.Create(ctx, bundle)).To(Succeed())

	deployment := &fleet.BundleDeployment{}
	key := client.ObjectKey{Namespace: "cluster-one", Name: "app"}
	g.Eventually(func() error { return lab.Client.Get(ctx, key, deployment) }, patience).Should(Succeed())
	g.Expect(deployment.Labels).To(HaveKeyWithValue(fleet.BundleNamespaceLabel, "workspace"))
	first, _, _ := strings.Cut(deployment.Spec.DeploymentID, ":")
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Name: first}, &fleet.Content{})).To(Succeed())

	// New resources have a new deployment ID, and the old Content goes.
	bundle.Spec.Resources[0].Content = "kind: Secret"
	g.Expect(lab.Client.Update(ctx, bundle)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(ctx, key, deployment)).To(Succeed())
		g.Expect(deployment.Spec.DeploymentID).NotTo(HavePrefix(first))
		g.Expect(lab.Client.Get(ctx, client.ObjectKey{Name: first}, &fleet.Content{})).To(MatchError(ContainSubstring("not found")))
	}, patience).Should(Succeed())

	// A Cluster that no longer matches loses it, and one that matches again gets it.
	setTier := func(tier string) {
		g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		cluster.Labels["tier"] = tier
		g.Expect(lab.Client.Update(ctx, cluster)).To(Succeed())
	}
	setTier("other")
	g.Eventually(func() error { return lab.Client.Get(ctx, key, deployment) }, patience).Should(MatchError(ContainSubstring("not found")))
	setTier("edge")
	g.Eventually(func() error { return lab.Client.Get(ctx, key, deployment) }, patience).Should(Succeed())

	g.Expect(lab.Client.Delete(ctx, cluster)).To(Succeed())
	g.Eventually(func() error {
		return lab.Client.Get(ctx, client.ObjectKey{Name: "cluster-one"}, &corev1.Namespace{})
	}, patience).Should(MatchError(ContainSubstring("not found")))
}

func testManager(t *testing.T, lab *Lab) {
	g := NewWithT(t)
	ctx := t.Context()
	manager, err := lab.NewManager(ctx, "late")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manager.Running()).To(BeFalse())
	mark, err := lab.Management().AuditLog().Mark(ctx)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(manager.Start(ctx)).To(Succeed())
	g.Expect(manager.Start(ctx)).NotTo(Succeed(), "it runs already")
	metrics, err := manager.Metrics(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(metrics).To(HaveKey("go_goroutines"))
	g.Eventually(func(g Gomega) {
		events, err := lab.Management().AuditLog().Since(ctx, mark)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(kube.By(ManagerUser, events)).NotTo(BeEmpty())
	}, patience).Should(Succeed())

	g.Expect(manager.Kill()).To(Succeed())
	g.Expect(manager.Running()).To(BeFalse())
	g.Expect(manager.Restart(ctx)).To(Succeed())
	g.Expect(manager.Running()).To(BeTrue())
	g.Expect(manager.Log()).NotTo(BeEmpty())
}

func testClose(t *testing.T, lab *Lab) {
	g := NewWithT(t)
	pids := processesOf(t, lab.Dir)
	g.Expect(len(pids)).To(BeNumerically(">=", 4), "etcd, kube-apiserver, kube-controller-manager and the manager")
	address := lab.Management().Host() + ":" + strconv.Itoa(lab.Management().Port())
	g.Expect(canDial(address)).To(BeTrue())

	g.Expect(lab.Close()).To(Succeed())
	for _, pid := range pids {
		g.Expect(syscall.Kill(pid, 0)).To(MatchError(syscall.ESRCH), "process %d", pid)
	}
	g.Expect(canDial(address)).To(BeFalse())
	g.Expect(lab.Dir).NotTo(BeADirectory())
	_, err := lab.AddCluster(t.Context(), "late", ClusterOptions{})
	g.Expect(err).To(HaveOccurred())
}

func TestStartLeavesNothingBehindWhenItFails(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "lab")
	_, err := Start(t.Context(), Options{Dir: dir, NoManager: true, ConfigDir: filepath.Join(dir, "missing")})
	g.Expect(err).To(MatchError(ContainSubstring("missing")))
	g.Expect(processesOf(t, dir)).To(BeEmpty())
	g.Expect(Clean(dir)).To(Succeed())
	entries, err := os.ReadDir(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(BeEmpty())
}

func TestAFolderWithOtherThingsIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	g.Expect(os.WriteFile(precious, nil, 0o600)).To(Succeed())
	_, err := Start(t.Context(), Options{Dir: dir, NoManager: true})
	g.Expect(err).To(MatchError(ContainSubstring("not the folder of a lab")))
	g.Expect(Clean(dir)).To(Succeed())
	g.Expect(precious).To(BeAnExistingFile())
}

// fakeAgents run in place of agentsim and say when they do.
type fakeAgents struct {
	crash   chan struct{}
	running chan bool

	specs []AgentSpec // written before running says so
}

func (f *fakeAgents) run(ctx context.Context, spec AgentSpec) error {
	f.specs = append(f.specs, spec)
	f.running <- true
	defer func() { f.running <- false }()
	select {
	case <-ctx.Done():
		return nil
	case <-f.crash:
		return errors.New("crashed")
	}
}

func (f *fakeAgents) lastSpec() AgentSpec { return f.specs[len(f.specs)-1] }

// deployAgent makes what an agent's Deployment needs.
func deployAgent(t *testing.T, lab *Lab, w *Workload, clusterNamespace string) {
	t.Helper()
	g := NewWithT(t)
	meta := metav1.ObjectMeta{Namespace: agentNamespace, Name: agentName}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}},
		&corev1.ServiceAccount{ObjectMeta: meta},
		agentDeployment(filepath.Join(agentTokensDir(lab.Dir), clusterNamespace)),
		// Last: until then the pod waits for it.
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"token": []byte("first"), "kubeconfig": []byte("unused")}},
	} {
		g.Expect(w.Client.Create(t.Context(), o)).To(Succeed())
	}
}

func agentDeployment(mountPath string) *appsv1.Deployment {
	labels := map[string]string{"app": agentName}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: agentName},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: agentName,
					Containers: []corev1.Container{{
						Name: agentName, Image: "example.com/agent",
						Env: []corev1.EnvVar{
							{Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
							{Name: "CHECKIN_INTERVAL", Value: "1m"},
						},
						VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: mountPath}, {Name: "tmp", MountPath: "/tmp"}},
					}},
					Volumes: []corev1.Volume{
						{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
						{Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
							SecretName: agentName, Items: []corev1.KeyToPath{{Key: "token", Path: "token"}},
						}}},
					},
				},
			},
		},
	}
}

func changeDeployment(t *testing.T, w *Workload, change func(*appsv1.Deployment)) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func(g Gomega) { // the kubelet loop may write its status in between
		deployment := &appsv1.Deployment{}
		g.Expect(w.Client.Get(t.Context(), client.ObjectKey{Namespace: agentNamespace, Name: agentName}, deployment)).To(Succeed())
		change(deployment)
		g.Expect(w.Client.Update(t.Context(), deployment)).To(Succeed())
	}, patience).Should(Succeed())
}

func expectAvailable(g Gomega, w *Workload, replicas int32) {
	deployment := &appsv1.Deployment{}
	g.Expect(w.Client.Get(context.Background(), client.ObjectKey{Namespace: agentNamespace, Name: agentName}, deployment)).To(Succeed())
	g.Expect(deployment.Status.ObservedGeneration).To(Equal(deployment.Generation))
	g.Expect(deployment.Status.Replicas).To(Equal(replicas))
	g.Expect(deployment.Status.AvailableReplicas).To(Equal(replicas))
}

func agentPods(g Gomega, w *Workload) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(w.Client.List(context.Background(), &pods, client.InNamespace(agentNamespace), client.MatchingLabels{"app": agentName})).To(Succeed())
	return pods.Items
}

func addressOf(w *Workload) string {
	return net.JoinHostPort(w.ControlPlane().Host(), strconv.Itoa(w.ControlPlane().Port()))
}

func canDial(address string) bool {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// processesOf returns the processes that the pid files below dir name.
func processesOf(t *testing.T, dir string) []int {
	t.Helper()
	var pids []int
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".pid" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
		pids = append(pids, pid)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pids
}
