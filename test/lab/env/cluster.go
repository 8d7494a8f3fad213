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
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

// initializedAfter is how long after its API server a control plane counts as
// initialized, unless the options say: about what Cluster API takes to notice.
const initializedAfter = 20 * time.Second

// probeInterval is how exactly the first answer of an API server is timed.
const probeInterval = 10 * time.Millisecond

// ClusterOptions say what AddCluster adds. The zero value is a Cluster without labels
// on a real API server.
type ClusterOptions struct {
	// Namespace of the Cluster, made where it is missing. Empty means default.
	Namespace string
	// Register puts the opt-in label on the Cluster.
	Register bool
	// Labels of the Cluster besides.
	Labels map[string]string
	// Modify changes the Cluster before it is created. Nil means no change.
	Modify func(*clusterv1.Cluster)

	// StartLater leaves the API server stopped, so that connections are refused until
	// StartAPI.
	StartLater bool
	// NoKubeconfig leaves out the kubeconfig Secret. WriteKubeconfig makes it later.
	NoKubeconfig bool
	// NoKubelet leaves out the kubelet loop: no agent runs.
	NoKubelet bool

	// ControllerManager runs kube-controller-manager beside a real API server, so that
	// Deployments come to pods. It takes NoKubelet, whose part that else is.
	ControllerManager bool

	// Light makes the workload API one of lightapi, in this process, with these
	// options. Nil means a real API server.
	Light *lightapi.Options

	// InitializedAfter is the time from the API server's first answer until the
	// Cluster's status calls the control plane initialized. Zero means 20 seconds, a
	// negative value never.
	InitializedAfter time.Duration
}

// Workload is a CAPI Cluster of the lab with its workload cluster. Its methods may be
// called from any goroutine.
type Workload struct {
	// Name and Namespace are those of the CAPI Cluster.
	Name, Namespace string

	// Client may do everything in the workload cluster. It reads live.
	Client client.WithWatch

	lab     *Lab
	opts    ClusterOptions
	api     workloadAPI
	kubelet *kubelet // nil without one

	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex // for starts and stops
	started bool       // StartAPI has succeeded once
}

// workloadAPI is the API server of a workload cluster.
type workloadAPI interface {
	start(ctx context.Context) error
	stop() error
	close() error
	endpoint() clusterv1.APIEndpoint
	kubeconfig() []byte
	config() *rest.Config
	// probePath is answered with 200 as soon as the API server serves its admin.
	probePath() string
}

// AddCluster makes a Cluster and its workload cluster in the order that Cluster API
// does it: the Cluster with its address, the kubeconfig Secret, then the API server. It
// returns once that answers, or at once with StartLater. With ClusterAPIInMemory, Cluster
// API does all but the first.
func (l *Lab) AddCluster(ctx context.Context, name string, opts ClusterOptions) (*Workload, error) {
	if opts.Namespace == "" {
		opts.Namespace = metav1.NamespaceDefault
	}
	if l.opts.ClusterAPI == ClusterAPIInMemory {
		return l.provision(ctx, name, opts)
	}
	if opts.InitializedAfter == 0 {
		opts.InitializedAfter = initializedAfter
	}
	w := &Workload{Name: name, Namespace: opts.Namespace, lab: l, opts: opts}
	w.ctx, w.cancel = context.WithCancel(l.ctx)
	if err := l.adopt(w); err != nil {
		return nil, err
	}
	if err := w.create(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("adding cluster %s: %w", w.Key(), err), l.drop(w))
	}
	if opts.StartLater {
		return w, nil
	}
	if err := w.StartAPI(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("adding cluster %s: %w", w.Key(), err), l.drop(w))
	}
	return w, nil
}

// adopt makes w one of the lab's, so that Close ends it.
func (l *Lab) adopt(w *Workload) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the lab is closed")
	}
	if slices.ContainsFunc(l.workloads, func(other *Workload) bool { return other.Key() == w.Key() }) {
		return fmt.Errorf("there is a cluster %s already", w.Key())
	}
	l.workloads = append(l.workloads, w)
	return nil
}

// drop ends w for good.
func (l *Lab) drop(w *Workload) error {
	l.mu.Lock()
	l.workloads = slices.DeleteFunc(l.workloads, func(other *Workload) bool { return other == w })
	l.mu.Unlock()
	return w.close()
}

// RemoveCluster deletes the Cluster as a user does, waits until its registration is
// gone too, and then takes the workload cluster away, as an infrastructure provider
// does. The context bounds the wait.
func (l *Lab) RemoveCluster(ctx context.Context, w *Workload) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	if err := l.Client.Delete(ctx, cluster); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Cluster %s: %w", w.Key(), err)
	}
	for _, o := range []client.Object{&clusterv1.Cluster{}, &fleetv1.FleetRegistration{}} {
		err := poll(ctx, func(ctx context.Context) (bool, error) {
			err := l.Client.Get(ctx, w.Key(), o)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("waiting until %T %s is gone: %w", o, w.Key(), err)
		}
	}
	kubeconfig := &corev1.Secret{ObjectMeta: w.kubeconfigMeta()}
	if err := l.Client.Delete(ctx, kubeconfig); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the kubeconfig of %s: %w", w.Key(), err)
	}
	l.timeline.forget(w.Key())
	return l.drop(w)
}

// Workload returns the cluster of that key, nil where there is none.
func (l *Lab) Workload(key client.ObjectKey) *Workload {
	for _, w := range l.Workloads() {
		if w.Key() == key {
			return w
		}
	}
	return nil
}

// Workloads returns all clusters, the oldest first.
func (l *Lab) Workloads() []*Workload {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.workloads)
}

func (w *Workload) create(ctx context.Context) error {
	var err error
	if w.api, err = w.prepareAPI(); err != nil {
		return err
	}
	if w.Client, err = client.NewWithWatch(w.Config(), client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	if err := w.lab.createNamespace(ctx, w.Namespace); err != nil {
		return err
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: w.api.endpoint()},
	}
	w.opts.adapt(cluster)
	if w.lab.opts.ClusterAPI == ClusterAPICore {
		if err := w.refer(ctx, cluster); err != nil {
			return err
		}
	}
	if err := w.lab.Client.Create(ctx, cluster, fieldOwner); err != nil {
		return fmt.Errorf("creating the Cluster: %w", err)
	}
	if err := w.setProvisioned(ctx); err != nil {
		return err
	}
	if w.opts.NoKubeconfig {
		return nil
	}
	return w.WriteKubeconfig(ctx, w.Kubeconfig())
}

// setProvisioned says that the infrastructure is there.
func (w *Workload) setProvisioned(ctx context.Context) error {
	if w.lab.opts.ClusterAPI == ClusterAPICore {
		return w.tellCore(ctx, labClusterKind, "provisioned")
	}
	return w.patchStatus(ctx, func(status *clusterv1.ClusterStatus) {
		status.Initialization.InfrastructureProvisioned = ptr.To(true)
		status.SetTypedPhase(clusterv1.ClusterPhaseProvisioned)
	})
}

// setInitialized says that the control plane has worked once.
func (w *Workload) setInitialized(ctx context.Context) error {
	if w.lab.opts.ClusterAPI == ClusterAPICore {
		return w.tellCore(ctx, labControlPlaneKind, "controlPlaneInitialized")
	}
	return w.patchStatus(ctx, func(status *clusterv1.ClusterStatus) {
		status.Initialization.ControlPlaneInitialized = ptr.To(true)
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type:   clusterv1.ClusterControlPlaneInitializedCondition,
			Status: metav1.ConditionTrue,
			Reason: clusterv1.ClusterControlPlaneInitializedReason,
		})
	})
}

// createNamespace makes a namespace on the management cluster where it is missing.
func (l *Lab) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := l.Client.Create(ctx, namespace, fieldOwner); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

// adapt gives a Cluster what the options ask for.
func (o *ClusterOptions) adapt(cluster *clusterv1.Cluster) {
	if cluster.Labels == nil {
		cluster.Labels = map[string]string{}
	}
	delete(cluster.Labels, fleetv1.RegisterLabel) // a template's own
	maps.Copy(cluster.Labels, o.Labels)
	if o.Register {
		cluster.Labels[fleetv1.RegisterLabel] = "true"
	}
	if o.Modify != nil {
		o.Modify(cluster)
	}
}

// patchStatus changes the Cluster's status. A Cluster that is gone is no error.
func (w *Workload) patchStatus(ctx context.Context, change func(*clusterv1.ClusterStatus)) error {
	cluster := &clusterv1.Cluster{}
	if err := w.lab.Client.Get(ctx, w.Key(), cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := cluster.DeepCopy()
	change(&cluster.Status)
	if err := w.lab.Client.Status().Patch(ctx, cluster, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of Cluster %s: %w", w.Key(), err)
	}
	return nil
}

func (w *Workload) prepareAPI() (workloadAPI, error) {
	if w.opts.Light != nil {
		options := *w.opts.Light
		options.Stopped = true
		server, err := lightapi.New(options)
		if err != nil {
			return nil, err
		}
		return lightAPI{server}, nil
	}
	plane, err := kube.PrepareControlPlane(kube.ControlPlaneSpec{
		Name: w.Name, Dir: filepath.Join(w.lab.Dir, "clusters", w.Namespace, w.Name), Assets: w.lab.assets, Etcd: w.lab.etcd,
		ControllerManager: w.opts.ControllerManager,
	})
	if err != nil {
		return nil, err
	}
	return realAPI{plane}, nil
}

// StartAPI starts the API server and returns once it answers. It continues with the
// objects of before where it ran already.
func (w *Workload) StartAPI(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return w.api.start(ctx)
	}
	if !w.opts.NoKubelet && w.kubelet == nil {
		// Before the API server, to see as soon as it answers what is put there.
		if err := w.startKubelet(); err != nil {
			return err
		}
	}
	if err := w.startFirst(ctx); err != nil {
		return err
	}
	if w.opts.InitializedAfter >= 0 {
		w.group.Go(w.initialize)
	}
	w.started = true
	return nil
}

// startFirst starts the API server for the first time and records when it first
// answers its admin, which is some time before it is ready.
func (w *Workload) startFirst(ctx context.Context) error {
	probe, err := rest.HTTPClientFor(w.Config())
	if err != nil {
		return err
	}
	defer probe.CloseIdleConnections()
	probeCtx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for probeCtx.Err() == nil {
			if _, err := get(probeCtx, probe, w.Config().Host+w.api.probePath()); err == nil {
				w.lab.timeline.record(w.Key(), APIAnswers)
				return
			}
			pause(probeCtx, probeInterval)
		}
	})
	err = w.api.start(ctx)
	if err != nil {
		cancel()
	}
	group.Wait()
	cancel()
	return err
}

// StopAPI stops the API server and keeps its objects. An agent keeps running.
func (w *Workload) StopAPI() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.api.stop()
}

// initialize does what Cluster API does some time after the API server answers.
func (w *Workload) initialize() {
	pause(w.ctx, w.opts.InitializedAfter)
	if w.ctx.Err() != nil {
		return
	}
	if err := w.setInitialized(w.ctx); err != nil && w.ctx.Err() == nil {
		w.report(err)
	}
}

func (w *Workload) startKubelet() error {
	volume, err := openVolumes(agentTokensDir(w.lab.Dir))
	if err != nil {
		return err
	}
	w.kubelet = &kubelet{
		client: w.Client,
		volume: volume,
		run:    w.lab.opts.Agent,
		spec:   AgentSpec{Name: w.Namespace + "/" + w.Name, Kubeconfig: w.Kubeconfig(), Namespace: agentNamespace},
		report: w.report,
		observe: func(complete bool) {
			if complete {
				w.lab.timeline.record(w.Key(), CredentialInPlace)
			}
		},
		started: func() { w.lab.timeline.record(w.Key(), AgentStarted) },
		changed: newTrigger(),
	}
	w.group.Go(func() {
		defer volume.close() //nolint:errcheck // nothing is left to write
		w.kubelet.loop(w.ctx)
	})
	return nil
}

func (w *Workload) report(err error) { w.lab.opts.Log("%s: %v", w.Key(), err) }

func (w *Workload) close() error {
	w.cancel()
	w.group.Wait()
	if w.api == nil {
		return nil
	}
	return w.api.close()
}

// Key is the name of the Cluster and of its registration.
func (w *Workload) Key() client.ObjectKey {
	return client.ObjectKey{Namespace: w.Namespace, Name: w.Name}
}

// Config is a configuration for an admin of the workload cluster.
func (w *Workload) Config() *rest.Config { return clientConfig(w.api.config()) }

// Kubeconfig is the admin kubeconfig that the Secret has.
func (w *Workload) Kubeconfig() []byte { return w.api.kubeconfig() }

// ControlPlane is the real API server, nil where it is a light one.
func (w *Workload) ControlPlane() *kube.ControlPlane {
	if api, ok := w.api.(realAPI); ok {
		return api.plane
	}
	return nil
}

// Light is the light API server, nil where it is a real one.
func (w *Workload) Light() *lightapi.Server {
	if api, ok := w.api.(lightAPI); ok {
		return api.server
	}
	return nil
}

// AgentStarts returns every start of the agent so far, the oldest first. It is empty
// without a kubelet loop.
func (w *Workload) AgentStarts() []AgentStart {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kubelet == nil {
		return nil
	}
	return w.kubelet.agentStarts()
}

// SetUnpullable has the nodes fail to pull these images, and no others. Pods that have one
// of them go on. It does nothing without a kubelet loop.
func (w *Workload) SetUnpullable(images ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kubelet != nil {
		w.kubelet.setUnpullable(images)
	}
}

func (w *Workload) kubeconfigMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: w.Namespace,
		Name:      secret.Name(w.Name, secret.Kubeconfig),
		Labels:    map[string]string{clusterv1.ClusterNameLabel: w.Name},
	}
}

// WriteKubeconfig puts kubeconfig into the Secret <cluster>-kubeconfig, in the form of
// Cluster API, and makes that where it is missing.
func (w *Workload) WriteKubeconfig(ctx context.Context, kubeconfig []byte) error {
	desired := &corev1.Secret{
		ObjectMeta: w.kubeconfigMeta(),
		Type:       clusterv1.ClusterSecretType,
		Data:       map[string][]byte{secret.KubeconfigDataName: kubeconfig},
	}
	err := w.lab.Client.Create(ctx, desired.DeepCopy(), fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		err = w.lab.Client.Update(ctx, desired, fieldOwner)
	}
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", w.Key(), err)
	}
	return nil
}

// realAPI is an API server of package kube.
type realAPI struct{ plane *kube.ControlPlane }

func (a realAPI) start(ctx context.Context) error { return a.plane.Start(ctx) }
func (a realAPI) stop() error                     { return a.plane.Stop() }
func (a realAPI) close() error                    { return a.plane.Close() }
func (a realAPI) kubeconfig() []byte              { return a.plane.AdminKubeconfig() }
func (a realAPI) config() *rest.Config            { return a.plane.AdminConfig() }
func (a realAPI) probePath() string               { return "/version" }
func (a realAPI) endpoint() clusterv1.APIEndpoint {
	return clusterv1.APIEndpoint{Host: a.plane.Host(), Port: int32(a.plane.Port())}
}

// lightAPI is one of package lightapi.
type lightAPI struct{ server *lightapi.Server }

func (a lightAPI) start(context.Context) error { return a.server.Start() }
func (a lightAPI) stop() error                 { return a.server.Stop() }
func (a lightAPI) kubeconfig() []byte          { return a.server.Kubeconfig() }
func (a lightAPI) config() *rest.Config        { return a.server.Config() }
func (a lightAPI) probePath() string           { return "/version" }
func (a lightAPI) close() error {
	a.server.Close()
	return nil
}

func (a lightAPI) endpoint() clusterv1.APIEndpoint {
	host, port := a.server.Address()
	return clusterv1.APIEndpoint{Host: host, Port: int32(port)}
}
