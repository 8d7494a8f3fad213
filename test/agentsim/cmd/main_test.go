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
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

func TestTheReportIsKeptInTheFile(t *testing.T) {
	g := NewWithT(t)
	server, err := lightapi.New(lightapi.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(kubeconfig, server.Kubeconfig(), 0o600)).To(Succeed())
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("NAMESPACE", "agents")
	t.Setenv("CHECKIN_INTERVAL", "1m")
	dir := t.TempDir()
	file := filepath.Join(dir, "report.json")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, file) }()
	g.Eventually(func(g Gomega) {
		content, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		var report agentsim.Report
		g.Expect(json.Unmarshal(content, &report)).To(Succeed())
		g.Expect(report.State).To(Equal(agentsim.Connecting))
		g.Expect(report.Message).To(ContainSubstring("Secret agents/fleet-agent"))
	}, 10*time.Second).Should(Succeed())
	cancel()
	g.Expect(<-ended).To(Succeed())
	entries, err := os.ReadDir(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(HaveLen(1), "nothing else is left behind")
}

func TestAWrongIntervalIsAnError(t *testing.T) {
	g := NewWithT(t)
	server, err := lightapi.New(lightapi.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(kubeconfig, server.Kubeconfig(), 0o600)).To(Succeed())
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("CHECKIN_INTERVAL", "often")
	g.Expect(run(t.Context(), "")).To(MatchError(ContainSubstring("CHECKIN_INTERVAL")))
}
