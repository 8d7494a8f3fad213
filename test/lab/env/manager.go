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
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

const (
	// managerTokenLife is how long the manager can work without a restart.
	managerTokenLife = 7 * 24 * time.Hour

	// managerStartTimeout bounds the start of the manager on a busy machine.
	managerStartTimeout = time.Minute
)

// Manager is one manager of the lab. It is not for use by several goroutines at once.
type Manager struct {
	lab  *Lab
	name string
	dir  string
	args []string

	mu         sync.Mutex
	process    *kube.Process
	metricsURL string
}

// NewManager makes a manager with its own credential, which does not run until Start.
// args come behind those of Options.ManagerArgs. Leader election is off unless they
// turn it on.
func (l *Lab) NewManager(ctx context.Context, name string, args ...string) (*Manager, error) {
	if err := l.buildManager(ctx); err != nil {
		return nil, err
	}
	manager := &Manager{lab: l, name: name, dir: filepath.Join(l.Dir, "managers", name)}
	manager.args = append(append(manager.args, l.opts.ManagerArgs...), args...)
	if err := os.MkdirAll(manager.dir, 0o700); err != nil {
		return nil, err
	}
	kubeconfig, err := l.managerKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(manager.kubeconfigPath(), kubeconfig, 0o600); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.managers = append(l.managers, manager)
	return manager, nil
}

// Manager is the manager that Start started, nil where there is none.
func (l *Lab) Manager() *Manager {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opts.NoManager || len(l.managers) == 0 {
		return nil
	}
	return l.managers[0]
}

// managerKubeconfig is a kubeconfig for the manager's service account.
func (l *Lab) managerKubeconfig(ctx context.Context) ([]byte, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ManagerNamespace, Name: ManagerAccount}}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(managerTokenLife.Seconds()))},
	}
	if err := l.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("getting a token for the manager: %w", err)
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"management": {
			Server: l.management.URL(), CertificateAuthorityData: l.management.CA().CertificatePEM(),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{ManagerAccount: {Token: request.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"management": {Cluster: "management", AuthInfo: ManagerAccount}},
		CurrentContext: "management",
	})
}

func (m *Manager) kubeconfigPath() string { return filepath.Join(m.dir, "kubeconfig") }

// Start runs the manager and waits until it says that it is ready. Its ports are new
// ones each time.
func (m *Manager) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, managerStartTimeout)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs() {
		return fmt.Errorf("manager %s runs already", m.name)
	}
	health, err := freeAddress()
	if err != nil {
		return err
	}
	diagnostics, err := freeAddress()
	if err != nil {
		return err
	}
	m.metricsURL = "http://" + diagnostics + "/metrics"
	m.process, err = kube.StartProcess(kube.ProcessSpec{
		Name: "manager",
		Dir:  m.dir,
		Path: m.lab.managerPath(),
		Args: append([]string{
			"--kubeconfig=" + m.kubeconfigPath(),
			"--health-addr=" + health,
			"--diagnostics-address=" + diagnostics,
			"--insecure-diagnostics",
			"--denied-ranges=", // everything here is on loopback
			"--manager-namespace=" + ManagerNamespace,
			"--agent-token-dir=" + m.lab.AgentTokenDir(),
		}, m.args...),
		Env: processEnv(nil),
	})
	if err != nil {
		return err
	}
	err = m.process.WaitReady(ctx, func(ctx context.Context) error {
		_, err := get(ctx, http.DefaultClient, "http://"+health+"/readyz")
		return err
	})
	if err != nil {
		return errors.Join(err, m.process.Stop())
	}
	m.lab.opts.Log("%s: ready, log in %s", m.name, m.LogPath())
	return nil
}

// AgentTokenDir is the manager's flag --agent-token-dir: where the agents in this
// lab's workload clusters find their tokens. A manager of another lab that is to point
// them elsewhere needs the same.
func (l *Lab) AgentTokenDir() string { return filepath.Join(agentTokensDir(l.Dir), "{namespace}") }

func (m *Manager) runs() bool {
	if m.process == nil {
		return false
	}
	select {
	case <-m.process.Exited():
		return false
	default:
		return true
	}
}

// Running says whether the process is alive.
func (m *Manager) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs()
}

// Stop asks the manager to end and waits for it. It does nothing where it does not run.
func (m *Manager) Stop() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	return m.process.Stop()
}

// Kill ends the manager as a crash does.
func (m *Manager) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	return m.process.Kill()
}

// Restart stops the manager and starts it anew.
func (m *Manager) Restart(ctx context.Context) error {
	if err := m.Stop(); err != nil {
		return err
	}
	return m.Start(ctx)
}

// LogPath is the file with the log of all runs.
func (m *Manager) LogPath() string { return filepath.Join(m.dir, "manager.log") }

// Log returns the log of all runs.
func (m *Manager) Log() (string, error) {
	content, err := os.ReadFile(m.LogPath())
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(content), err
}

// races fails where the race detector found something in any run.
func (m *Manager) races() error {
	log, err := m.Log()
	if err != nil {
		return err
	}
	if _, race, found := strings.Cut(log, "WARNING: DATA RACE"); found {
		return fmt.Errorf("data race in %s: %s", m.name, race[:min(len(race), 4000)])
	}
	return nil
}

// Metrics reads the manager's metrics, by name.
func (m *Manager) Metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	m.mu.Lock()
	url := m.metricsURL
	m.mu.Unlock()
	content, err := get(ctx, http.DefaultClient, url)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(content))
}

// managerPath is the lab's own copy: that of a later build does not replace it.
func (l *Lab) managerPath() string { return filepath.Join(l.Dir, "bin", "manager") }

// buildManager puts the manager into the lab's folder, once. It is built in the user's
// cache, where the next lab finds it and go build has nothing to do.
func (l *Lab) buildManager(ctx context.Context) error {
	if _, err := os.Stat(l.managerPath()); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.managerPath()), 0o700); err != nil {
		return err
	}
	if l.opts.ManagerBinary != "" {
		return kube.CopyExecutable(l.opts.ManagerBinary, l.managerPath())
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	target := filepath.Join(cache, "capi-fleet", "lab", digest([]byte(l.root))[:12], "manager")
	args := []string{"build"}
	if l.opts.Race {
		target += "-race"
		args = append(args, "-race")
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	unlock, err := kube.LockFile(ctx, target+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := goOutput(ctx, l.root, append(args, "-o", target, "./cmd/manager")...); err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	return kube.CopyExecutable(target, l.managerPath())
}

// freeAddress returns a loopback address that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), listener.Close()
}

// processEnv is the environment of the manager, of Fleet's controllers and of agents:
// extra, and of the caller's what every program needs. Proxies and credentials of the
// caller must not reach them.
func processEnv(extra map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GORACE"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range extra {
		env = append(env, name+"="+value)
	}
	return env
}

func get(ctx context.Context, c *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, response.Status)
	}
	return string(content), err
}
