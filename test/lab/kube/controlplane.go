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
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	apiServerName         = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
)

// controllers are those of kube-controller-manager that a management cluster
// without nodes needs.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"deployment-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"replicaset-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
}

// auditPolicy logs every request once, when it has been answered; a watch also
// when it begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// ControlPlaneSpec says what PrepareControlPlane makes.
type ControlPlaneSpec struct {
	// Name names the cluster in its kubeconfigs and authority. It has no slash.
	Name string
	// Dir takes everything that the control plane writes. It is made where it is
	// missing, and must not be shared.
	Dir string
	// Assets are the binaries.
	Assets Assets
	// Etcd is the store, and must outlive the control plane. Several share one:
	// each has its own part, also where the names are equal.
	Etcd *Etcd
	// ServingNames are DNS names and IP addresses that the serving certificate is
	// good for, besides those of loopback.
	ServingNames []string
	// ControllerManager runs kube-controller-manager too. Without it nobody makes
	// default service accounts, collects garbage or finishes deleted namespaces, and
	// aggregated ClusterRoles, view, edit and admin among them, stay empty.
	ControllerManager bool
}

// ControlPlane is one cluster without nodes. It is not for use by several
// goroutines at once.
type ControlPlane struct {
	spec   ControlPlaneSpec
	ca     *CA
	prefix string
	admin  []byte
	config *rest.Config
	client *http.Client // of config
	port   *port

	controllerPort *port
	apiServer      *Process
	controllers    *Process
}

// PrepareControlPlane makes all that is known of a cluster before its API server
// runs: the port, which refuses connections until Start, the authority and the
// credentials. Close ends it.
func PrepareControlPlane(spec ControlPlaneSpec) (*ControlPlane, error) {
	if spec.Name == "" || strings.Contains(spec.Name, "/") {
		return nil, fmt.Errorf("control plane name %q: want one without a slash", spec.Name)
	}
	dir, err := makeDir(spec.Dir)
	if err != nil {
		return nil, err
	}
	spec.Dir = dir
	cp := &ControlPlane{spec: spec}
	if err := cp.prepare(); err != nil {
		return nil, fmt.Errorf("preparing control plane %s: %w", spec.Name, errors.Join(err, cp.Close()))
	}
	return cp, nil
}

func (cp *ControlPlane) prepare() error {
	unique := make([]byte, 4)
	if _, err := rand.Read(unique); err != nil {
		return err
	}
	cp.prefix = "/" + cp.spec.Name + "-" + hex.EncodeToString(unique)

	var err error
	if cp.port, err = reservePort(); err != nil {
		return err
	}
	if cp.ca, err = NewCA(cp.spec.Name + "-ca"); err != nil {
		return err
	}
	if cp.admin, err = cp.Kubeconfig("kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	if cp.config, err = clientcmd.RESTConfigFromKubeConfig(cp.admin); err != nil {
		return err
	}
	if cp.client, err = rest.HTTPClientFor(cp.config); err != nil {
		return err
	}
	if err := cp.writeServerFiles(); err != nil {
		return err
	}
	if !cp.spec.ControllerManager {
		return nil
	}
	if cp.controllerPort, err = reservePort(); err != nil {
		return err
	}
	kubeconfig, err := cp.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		return err
	}
	return os.WriteFile(cp.path("controller-manager.kubeconfig"), kubeconfig, 0o600)
}

func (cp *ControlPlane) writeServerFiles() error {
	certificate, key, err := cp.ca.ServingCertificate(append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}, cp.spec.ServingNames...)...)
	if err != nil {
		return err
	}
	accountKey, err := newKey()
	if err != nil {
		return err
	}
	accountKeyPEM, err := encodeKey(accountKey)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt":            cp.ca.CertificatePEM(),
		"serving.crt":       certificate,
		"serving.key":       key,
		"accounts.key":      accountKeyPEM,
		"admin.kubeconfig":  cp.admin,
		"audit-policy.yaml": []byte(auditPolicy),
	} {
		if err := os.WriteFile(cp.path(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (cp *ControlPlane) path(name string) string { return filepath.Join(cp.spec.Dir, name) }

// Name is the name of the cluster.
func (cp *ControlPlane) Name() string { return cp.spec.Name }

// CA is the authority that signed the serving certificate and whose client
// certificates the API server takes.
func (cp *ControlPlane) CA() *CA { return cp.ca }

// URL is where the API server serves. It stays the same over Stop and Start.
func (cp *ControlPlane) URL() string { return "https://" + cp.port.address() }

// Host is the host of URL.
func (cp *ControlPlane) Host() string { return "127.0.0.1" }

// Port is the port of URL.
func (cp *ControlPlane) Port() int { return cp.port.number }

// AdminConfig returns a copy of the configuration of a client that may do everything.
func (cp *ControlPlane) AdminConfig() *rest.Config { return rest.CopyConfig(cp.config) }

// AdminKubeconfig is a kubeconfig whose user may do everything, with a client
// certificate inside.
func (cp *ControlPlane) AdminKubeconfig() []byte { return cp.admin }

// AdminKubeconfigPath is a file with AdminKubeconfig.
func (cp *ControlPlane) AdminKubeconfigPath() string { return cp.path("admin.kubeconfig") }

// Kubeconfig makes a kubeconfig with a new client certificate for any user.
func (cp *ControlPlane) Kubeconfig(user string, groups ...string) ([]byte, error) {
	certificate, key, err := cp.ca.ClientCertificate(user, groups...)
	if err != nil {
		return nil, err
	}
	name := cp.spec.Name
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   cp.URL(),
			CertificateAuthorityData: cp.ca.CertificatePEM(),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {
			ClientCertificateData: certificate,
			ClientKeyData:         key,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	})
}

// Start runs the API server and waits until it is ready and has made its own
// namespaces, and then kube-controller-manager where the spec asks for it. When it
// fails, nothing runs. After Stop it continues with the same data.
func (cp *ControlPlane) Start(ctx context.Context) error {
	if cp.apiServer != nil {
		return fmt.Errorf("control plane %s runs already", cp.spec.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := cp.startAPIServer(ctx)
	if err == nil && cp.spec.ControllerManager {
		err = cp.startControllerManager(ctx)
	}
	if err != nil {
		return fmt.Errorf("starting control plane %s: %w", cp.spec.Name, errors.Join(err, cp.Stop()))
	}
	return nil
}

// Stop ends the processes and keeps the data, the port and the credentials. It
// does nothing where nothing runs.
func (cp *ControlPlane) Stop() error {
	var errs []error
	for _, process := range []**Process{&cp.controllers, &cp.apiServer} {
		if *process == nil {
			continue
		}
		errs = append(errs, (*process).Stop())
		*process = nil
	}
	return errors.Join(errs...)
}

// Close stops the control plane for good and gives its ports back. It may be
// called again.
func (cp *ControlPlane) Close() error {
	err := cp.Stop()
	cp.port.release()
	cp.controllerPort.release()
	return err
}

func (cp *ControlPlane) startAPIServer(ctx context.Context) error {
	process, err := StartProcess(ProcessSpec{
		Name: apiServerName,
		Dir:  cp.spec.Dir,
		Path: cp.spec.Assets.KubeAPIServer,
		Env:  processEnv(),
		Args: []string{
			"--etcd-servers=" + cp.spec.Etcd.URL(),
			"--etcd-prefix=" + cp.prefix,
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(cp.port.number),
			"--permit-port-sharing=true",
			"--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=10.96.0.0/16",
			"--tls-cert-file=" + cp.path("serving.crt"),
			"--tls-private-key-file=" + cp.path("serving.key"),
			"--client-ca-file=" + cp.path("ca.crt"),
			"--authorization-mode=RBAC",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + cp.path("accounts.key"),
			"--service-account-signing-key-file=" + cp.path("accounts.key"),
			"--audit-policy-file=" + cp.path("audit-policy.yaml"),
			"--audit-log-path=" + cp.auditPath(),
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=0", // in one file
			"--max-requests-inflight=400",
			"--max-mutating-requests-inflight=200",
			// Only metrics, which nobody reads here, and they cost etcd at rest.
			"--etcd-count-metric-poll-period=0",
			"--etcd-db-metric-poll-interval=0",
		},
	})
	if err != nil {
		return err
	}
	cp.apiServer = process
	return process.WaitReady(ctx, func(ctx context.Context) error {
		for _, path := range []string{"/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default"} {
			if err := getOK(ctx, cp.client, cp.URL()+path); err != nil {
				return err
			}
		}
		return nil
	})
}

func (cp *ControlPlane) startControllerManager(ctx context.Context) error {
	kubeconfig := cp.path("controller-manager.kubeconfig")
	process, err := StartProcess(ProcessSpec{
		Name: controllerManagerName,
		Dir:  cp.spec.Dir,
		Path: cp.spec.Assets.KubeControllerManager,
		Env:  processEnv(),
		Args: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(cp.controllerPort.number),
			"--permit-port-sharing=true",
			"--tls-cert-file=" + cp.path("serving.crt"),
			"--tls-private-key-file=" + cp.path("serving.key"),
			"--controllers=" + strings.Join(controllers, ","),
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + cp.path("accounts.key"),
			"--root-ca-file=" + cp.path("ca.crt"),
			"--leader-elect=false",
		},
	})
	if err != nil {
		return err
	}
	cp.controllers = process
	// Health is open to everyone, and so needs no client certificate.
	config := rest.AnonymousClientConfig(cp.config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return process.WaitReady(ctx, func(ctx context.Context) error {
		return getOK(ctx, client, "https://"+cp.controllerPort.address()+"/healthz")
	})
}

// Stored returns what etcd has of an object, for one of a CRD JSON in the version that is
// stored. path is the place below the API server's part: <resource>/<namespace>/<name>,
// with the group before for a CRD. It fails where there is none.
func (cp *ControlPlane) Stored(ctx context.Context, path string) ([]byte, error) {
	return cp.spec.Etcd.get(ctx, cp.prefix+"/"+path)
}

func (cp *ControlPlane) auditPath() string { return cp.path("audit.log") }

// AuditLog reads what the API server has been asked.
func (cp *ControlPlane) AuditLog() *AuditLog {
	return &AuditLog{path: cp.auditPath(), url: cp.URL(), client: cp.client}
}
