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

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

const (
	socketName = "control.sock"

	// longestSocket is the longest path of a socket that every system takes.
	longestSocket = 100
)

// errNoLab means that no lab runs in the folder.
var errNoLab = errors.New("no lab is running there")

// cluster is what the verbs add and remove.
type cluster struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Register  bool   `json:"register"`
}

func (c *cluster) validate() error {
	if problems := validation.IsDNS1123Subdomain(c.Name); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a cluster", c.Name)
	}
	if problems := validation.IsDNS1123Label(c.Namespace); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a namespace", c.Namespace)
	}
	return nil
}

// operations are what a running lab does for the other verbs.
type operations interface {
	add(ctx context.Context, c cluster) error
	remove(ctx context.Context, key client.ObjectKey) error
	status(ctx context.Context) ([]env.ClusterStatus, error)
}

// labOperations are those of a real lab.
type labOperations struct{ lab *env.Lab }

func (o labOperations) add(ctx context.Context, c cluster) error {
	_, err := o.lab.AddCluster(ctx, c.Name, env.ClusterOptions{Namespace: c.Namespace, Register: c.Register})
	return err
}

func (o labOperations) remove(ctx context.Context, key client.ObjectKey) error {
	w := o.lab.Workload(key)
	if w == nil {
		return fmt.Errorf("there is no cluster %s; --namespace names another namespace", key)
	}
	return o.lab.RemoveCluster(ctx, w)
}

func (o labOperations) status(ctx context.Context) ([]env.ClusterStatus, error) {
	return o.lab.Status(ctx)
}

// control serves the operations on a socket in the lab's folder, which only its owner
// can open.
type control struct {
	server *http.Server
	path   string
	// down is closed when somebody asks the lab to end.
	down chan struct{}
	once sync.Once
}

func serveControl(dir string, operations operations) (*control, error) {
	c := &control{path: filepath.Join(dir, socketName), down: make(chan struct{})}
	if err := checkSocketPath(c.path); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", c.path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(c.path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	c.server = &http.Server{Handler: c.handler(operations), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = c.server.Serve(listener) }() // ends with close
	return c, nil
}

func checkSocketPath(path string) error {
	if len(path) > longestSocket {
		return fmt.Errorf("--dir is too long for a socket: %s has more than %d characters", path, longestSocket)
	}
	return nil
}

// close ends the requests that are being served, too.
func (c *control) close() error { return c.server.Close() }

func (c *control) handler(operations operations) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /clusters", func(w http.ResponseWriter, r *http.Request) {
		var wanted cluster
		err := json.NewDecoder(r.Body).Decode(&wanted)
		if err == nil {
			err = wanted.validate()
		}
		if err == nil {
			err = operations.add(r.Context(), wanted)
		}
		answer(w, struct{}{}, err)
	})
	mux.HandleFunc("DELETE /clusters/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		key := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
		answer(w, struct{}{}, operations.remove(r.Context(), key))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		statuses, err := operations.status(r.Context())
		answer(w, statuses, err)
	})
	mux.HandleFunc("POST /down", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, struct{}{}, nil)
		// What comes next ends this very connection.
		_ = http.NewResponseController(w).Flush()
		c.once.Do(func() { close(c.down) })
	})
	return mux
}

// answer sends content, or the error as text.
func answer(w http.ResponseWriter, content any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content) // the other side has gone away
}

// controlClient asks the lab in a folder.
type controlClient struct{ path string }

func newControlClient(dir string) (*controlClient, error) {
	dir, err := absolute(dir)
	if err != nil {
		return nil, err
	}
	return &controlClient{path: filepath.Join(dir, socketName)}, nil
}

// do sends a request and decodes what comes back into result. It fails with errNoLab
// where nobody listens.
func (c *controlClient) do(ctx context.Context, method, path string, body, result any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, strings.NewReader(string(content)))
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", c.path)
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%s: %w", filepath.Dir(c.path), errNoLab)
		}
		return connection, err
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if errors.Is(err, errNoLab) {
		return fmt.Errorf("%s: %w", filepath.Dir(c.path), errNoLab) // without the URL
	}
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		message, err := io.ReadAll(response.Body)
		return errors.Join(err, errors.New(strings.TrimSpace(string(message))))
	}
	return json.NewDecoder(response.Body).Decode(result)
}
