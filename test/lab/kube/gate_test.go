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
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAGateRefusesUntilItIsOpenAndEndsWhatWentThrough(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "there") }))
	defer server.Close()
	gate, err := NewGate()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = net.Dial("tcp", gate.Address())
	g.Expect(err).To(MatchError(syscall.ECONNREFUSED))

	g.Expect(gate.Open(t.Context(), server.Listener.Addr().String())).To(Succeed())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+gate.Address(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	answer, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close() //nolint:errcheck // nothing is left to read
	g.Expect(io.ReadAll(answer.Body)).To(BeEquivalentTo("there"))

	conn, err := net.Dial("tcp", gate.Address())
	g.Expect(err).NotTo(HaveOccurred())
	defer conn.Close() //nolint:errcheck // it is closed by then
	g.Expect(gate.Close()).To(Succeed())
	_, err = conn.Read(make([]byte, 1))
	g.Expect(err).To(HaveOccurred())
	_, err = net.Dial("tcp", gate.Address())
	g.Expect(err).To(MatchError(syscall.ECONNREFUSED))
}
