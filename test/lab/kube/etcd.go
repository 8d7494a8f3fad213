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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// startTimeout bounds the start of one process on a busy machine.
const startTimeout = 3 * time.Minute

// Etcd is the one store under all API servers. It does not wait for the disk, so
// it survives a crash of its own but not one of the machine.
type Etcd struct {
	dir     string
	binary  string
	client  *port
	peer    *port
	process *Process
}

// StartEtcd starts etcd with everything it writes under dir, which it makes where
// it is missing, and waits until it answers. Close ends it.
func StartEtcd(ctx context.Context, dir string, assets Assets) (*Etcd, error) {
	dir, err := makeDir(dir)
	if err != nil {
		return nil, err
	}
	etcd := &Etcd{dir: dir, binary: assets.Etcd}
	if etcd.client, err = reservePort(); err != nil {
		return nil, err
	}
	if etcd.peer, err = reservePort(); err != nil {
		etcd.client.release()
		return nil, err
	}
	if err := etcd.start(ctx); err != nil {
		return nil, errors.Join(err, etcd.Close())
	}
	return etcd, nil
}

// URL is where etcd serves clients.
func (e *Etcd) URL() string { return "http://" + e.client.address() }

// Close ends etcd and gives its ports back. Every API server on it must have
// stopped before. It may be called again.
func (e *Etcd) Close() error {
	defer e.client.release()
	defer e.peer.release()
	if e.process == nil {
		return nil
	}
	return e.process.Stop()
}

func (e *Etcd) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	peerURL := "http://" + e.peer.address()
	process, err := StartProcess(ProcessSpec{
		Name: "etcd",
		Dir:  e.dir,
		Path: e.binary,
		Env:  processEnv(),
		Args: []string{
			"--name=lab",
			"--data-dir=" + filepath.Join(e.dir, "data"),
			"--listen-client-urls=" + e.URL(),
			"--advertise-client-urls=" + e.URL(),
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=lab=" + peerURL,
			"--socket-reuse-port=true",
			"--unsafe-no-fsync=true",
			"--log-level=warn",
		},
	})
	if err != nil {
		return err
	}
	e.process = process
	return process.WaitReady(ctx, func(ctx context.Context) error {
		return getOK(ctx, http.DefaultClient, e.URL()+"/health")
	})
}

// get returns the value of a key, by etcd's gateway to HTTP.
func (e *Etcd) get(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL()+"/v3/kv/range", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	var found struct {
		Values []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return nil, fmt.Errorf("%s answers %s: %w", request.URL, response.Status, err)
	}
	if len(found.Values) == 0 {
		return nil, fmt.Errorf("etcd has no %s", key)
	}
	return found.Values[0].Value, nil
}

// getOK gets a URL and fails unless the answer is 200.
func getOK(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// makeDir makes a folder that only its owner may enter and returns its absolute path.
func makeDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o700)
}
