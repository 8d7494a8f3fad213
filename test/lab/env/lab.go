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
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

const (
	// ManagerNamespace is where the manager's service account and those of the agents
	// are.
	ManagerNamespace = "capi-fleet-system"

	// ManagerAccount is the manager's service account in ManagerNamespace.
	ManagerAccount = "capi-fleet-manager"

	// ManagerUser is the manager's user in the audit log.
	ManagerUser = "system:serviceaccount:" + ManagerNamespace + ":" + ManagerAccount

	// UserAgent is the lab's own in the audit logs.
	UserAgent = "capi-fleet-lab"

	// fleetNamespace is where Fleet is on the management cluster.
	fleetNamespace = fleet.DefaultAgentNamespace

	// fieldOwner is the lab's.
	fieldOwner = client.FieldOwner("lab")
)

// Options say what Start starts. The zero value is a complete lab without clusters.
type Options struct {
	// Dir takes everything that the lab writes. It must be empty, missing, or that of
	// an earlier lab, whose remains are cleaned up. Empty means a temporary folder,
	// which Close removes.
	Dir string

	// Log gets a line for what goes on, such as testing.T's Logf. Nil means none.
	Log func(format string, args ...any)

	// OnEvent is called with every step of every cluster, one call at a time. It must
	// not block. Nil means nobody wants to know.
	OnEvent func(Event)

	// NoManager leaves the manager out. NewManager makes one later.
	NoManager bool
	// ManagerArgs are added to the flags of every manager. A later flag wins.
	ManagerArgs []string
	// ManagerBinary is run as the manager. Empty means that it is built from source.
	ManagerBinary string
	// Race builds the manager with the race detector. Close then fails if it found
	// something.
	Race bool

	// ClusterAPI says what of Cluster API runs.
	ClusterAPI ClusterAPI
	// NoClusterAPI leaves Cluster API's CRDs out, NoFleet those of Fleet.
	// InstallClusterAPI and InstallFleet install them later.
	NoClusterAPI, NoFleet bool
	// NoFleetController leaves Fleet's controller out, and its stand-in too.
	NoFleetController bool
	// FleetController is the path of Fleet's controller, run in place of the
	// stand-in. It needs FleetCRDs.
	FleetController string
	// FleetAgent is the path of Fleet's agent, run as a process for each workload
	// cluster. Empty means Agent.
	FleetAgent string
	// FleetCRDs is a file with Fleet's CRDs. Empty means the one that the variable
	// FLEET_CRDS names, else minimal CRDs that keep all fields.
	FleetCRDs string

	// Agent runs the agent of a workload cluster. Nil means agentsim, in this process.
	Agent AgentFunc
	// CheckinInterval is the time between two heartbeats in Fleet's configuration.
	// Zero means 15 seconds.
	CheckinInterval time.Duration
	// FirstHeartbeat is when agentsim sends its first one. Zero means one second; the
	// real agent takes 15.
	FirstHeartbeat time.Duration

	// Placement is where agents run, by a policy that takes all labelled Clusters. Empty
	// means in the workload clusters, without a policy.
	Placement fleetv1.AgentPlacement

	// ConfigDir is the kustomization that is installed, below the project's source where the
	// path is relative. Empty means config/default.
	ConfigDir string
}

// Lab is a running lab. Its methods may be called from any goroutine.
type Lab struct {
	// Client may do everything in the management cluster and knows all the kinds used
	// there. It reads live.
	Client client.WithWatch

	// Dir is the lab's folder, absolute.
	Dir string

	opts       Options
	temporary  bool
	root       string // of the source
	lock       *os.File
	assets     kube.Assets
	providers  []kube.Provider
	etcd       *kube.Etcd
	management *kube.ControlPlane
	timeline   *timeline
	reports    agentReports

	// ctx ends all that runs in this process; group waits for it.
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu         sync.Mutex
	processes  []*kube.Process // Fleet's controllers and Cluster API's
	managers   []*Manager
	workloads  []*Workload
	closed     bool
	closeError error

	// freeInMemoryPorts gives back what takeInMemoryPorts took, nil for nothing.
	freeInMemoryPorts func()
}

// Start starts a lab and returns once the management cluster is complete and the
// manager is ready. When it fails, nothing is left running. ctx bounds the start only.
func Start(ctx context.Context, opts Options) (*Lab, error) {
	lab, err := newLab(opts)
	if err != nil {
		return nil, err
	}
	if err := lab.start(ctx); err != nil {
		return nil, errors.Join(err, lab.Close())
	}
	return lab, nil
}

func newLab(opts Options) (*Lab, error) {
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	if opts.CheckinInterval == 0 {
		opts.CheckinInterval = 15 * time.Second
	}
	if opts.FirstHeartbeat == 0 {
		opts.FirstHeartbeat = firstHeartbeat
	}
	if opts.FleetCRDs == "" {
		opts.FleetCRDs = os.Getenv("FLEET_CRDS")
	}
	if _, err := opts.ClusterAPI.providerNames(); err != nil {
		return nil, err
	}
	if opts.FleetController != "" && opts.FleetCRDs == "" {
		return nil, errors.New("fleet's controller needs Fleet's own CRDs: name their file in FLEET_CRDS")
	}
	root, err := sourceRoot()
	if err != nil {
		return nil, err
	}
	if opts.ConfigDir == "" {
		opts.ConfigDir = filepath.Join(root, "config", "default")
	}
	lab := &Lab{opts: opts, root: root, timeline: newTimeline(opts.OnEvent)}
	lab.ctx, lab.cancel = context.WithCancel(context.Background())
	if opts.Agent == nil {
		lab.opts.Agent = lab.defaultAgent()
	}
	if opts.Dir == "" {
		lab.temporary = true
		if lab.opts.Dir, err = os.MkdirTemp("", "capi-fleet-lab-"); err != nil {
			return nil, err
		}
	}
	if lab.Dir, err = filepath.Abs(lab.opts.Dir); err != nil {
		return nil, err
	}
	if lab.lock, err = takeDir(lab.Dir); err != nil {
		return nil, err
	}
	return lab, nil
}

func (l *Lab) start(ctx context.Context) error {
	var err error
	if l.assets, err = kube.FindAssets(ctx, logWriter(l.opts.Log)); err != nil {
		return err
	}
	// Building takes the time in which the API server starts.
	var config []*object
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if !l.opts.NoManager {
			err = l.buildManager(groupCtx)
		}
		return err
	})
	group.Go(func() (err error) {
		config, err = renderConfig(groupCtx, l.root, l.opts.ConfigDir)
		return err
	})
	group.Go(func() error { return l.findProviders(groupCtx) })
	group.Go(func() error { return l.startManagement(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}

	if err := l.install(ctx, config); err != nil {
		return fmt.Errorf("installing the APIs on the management cluster: %w", err)
	}
	if err := l.setPlacement(ctx); err != nil {
		return err
	}
	l.group.Go(func() { l.timeline.run(l.ctx, l.Client) })
	l.startHostedKubelet()
	if err := l.startFleet(); err != nil {
		return err
	}
	if l.opts.NoManager {
		return nil
	}
	manager, err := l.NewManager(ctx, "manager")
	if err != nil {
		return err
	}
	if err := manager.Start(ctx); err != nil {
		return err
	}
	return l.waitForContentsBinding(ctx)
}

// waitForContentsBinding waits until there is what the manager makes when it starts, soon
// after it is ready: who counts what a cluster leaves behind must not find it later.
func (l *Lab) waitForContentsBinding(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, managerStartTimeout)
	defer cancel()
	binding := upstream.ContentsBinding(ManagerNamespace)
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		err := l.Client.Get(ctx, client.ObjectKeyFromObject(binding), binding)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("waiting for ClusterRoleBinding %s: %w", binding.Name, err)
	}
	return nil
}

func (l *Lab) startManagement(ctx context.Context) error {
	var err error
	if l.etcd, err = kube.StartEtcd(ctx, filepath.Join(l.Dir, "etcd"), l.assets); err != nil {
		return err
	}
	l.management, err = kube.PrepareControlPlane(kube.ControlPlaneSpec{
		Name: "management", Dir: filepath.Join(l.Dir, "management"), Assets: l.assets, Etcd: l.etcd, ControllerManager: true,
	})
	if err != nil {
		return err
	}
	if err := l.management.Start(ctx); err != nil {
		return err
	}
	l.opts.Log("management cluster: API server answers at %s", l.management.URL())
	l.Client, err = client.NewWithWatch(clientConfig(l.management.AdminConfig()), client.Options{Scheme: Scheme()})
	return err
}

// Management is the control plane of the management cluster.
func (l *Lab) Management() *kube.ControlPlane { return l.management }

// Config is a configuration for an admin of the management cluster.
func (l *Lab) Config() *rest.Config { return clientConfig(l.management.AdminConfig()) }

// As returns a client of the management cluster for any user, by a client certificate.
func (l *Lab) As(user string, groups ...string) (client.WithWatch, error) {
	config, err := l.configAs(user, groups...)
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: Scheme()})
}

// AsManager returns a client of the management cluster for the manager's service
// account, with a token of its own.
func (l *Lab) AsManager(ctx context.Context) (client.WithWatch, error) {
	kubeconfig, err := l.managerKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(clientConfig(config), client.Options{Scheme: Scheme()})
}

func (l *Lab) configAs(user string, groups ...string) (*rest.Config, error) {
	kubeconfig, err := l.management.Kubeconfig(user, groups...)
	if err != nil {
		return nil, err
	}
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return clientConfig(config), nil
}

// Close ends everything, and removes a temporary folder. It returns once nothing runs
// any more, and may be called again.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.closeError = l.close()
	}
	return l.closeError
}

func (l *Lab) close() error {
	var errs []error
	for _, manager := range l.managers {
		errs = append(errs, manager.Stop(), manager.races())
	}
	for _, process := range l.processes {
		errs = append(errs, process.Stop())
	}
	if l.freeInMemoryPorts != nil {
		l.freeInMemoryPorts()
	}
	l.cancel()
	var group errgroup.Group
	for _, workload := range l.workloads {
		group.Go(workload.close)
	}
	errs = append(errs, group.Wait())
	l.group.Wait()
	if l.management != nil {
		errs = append(errs, l.management.Close())
	}
	if l.etcd != nil {
		errs = append(errs, l.etcd.Close())
	}
	if l.temporary {
		errs = append(errs, os.RemoveAll(l.Dir))
	}
	return errors.Join(append(errs, l.lock.Close())...)
}

// Clean ends the processes and removes the files that a lab left behind which was
// killed. It fails with ErrInUse where the lab of dir is alive. A folder which is
// missing or empty is no error.
func Clean(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, lockName)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := takeDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(dir, lockName)), lock.Close())
}

// ErrInUse means that another lab has the folder.
var ErrInUse = errors.New("a lab is running there")

// lockName marks a folder as that of a lab.
const lockName = "lab.lock"

// takeDir makes dir ours, alone, and empty.
func takeDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == lockName }) {
		return nil, fmt.Errorf("%s is not empty and not the folder of a lab", dir)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
	}
	if err := emptyDir(dir); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("cleaning up %s: %w", dir, err)
	}
	return lock, nil
}

func emptyDir(dir string) error {
	if err := kube.KillLeftovers(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Scheme returns a scheme with Kubernetes' own kinds, Cluster API's, Fleet's and ours.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme,
		fleetv1.AddToScheme, fleet.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // two kinds of one name: a fault of the program
		}
	}
	return scheme
}

// clientConfig takes client-go's own limit of requests away: the lab does not wait
// for itself.
func clientConfig(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.UserAgent = UserAgent
	return config
}

// logWriter passes whole lines on to log.
func logWriter(log func(string, ...any)) io.Writer { return lineWriter(log) }

type lineWriter func(string, ...any)

func (w lineWriter) Write(content []byte) (int, error) {
	w("%s", strings.TrimRight(string(content), "\n"))
	return len(content), nil
}
