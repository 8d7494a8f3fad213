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

package manager

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	logsv1 "k8s.io/component-base/logs/api/v1"

	"github.com/capi-fleet/capi-fleet/internal/remote"
)

func TestFlagsHaveTheDefaultsOfClusterAPI(t *testing.T) {
	g := NewWithT(t)
	t.Setenv(podNamespaceEnv, "")

	opts, _, err := ParseFlags(nil)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(opts.leaderElect).To(BeFalse())
	g.Expect(opts.leaderElectLeaseDuration).To(Equal(15 * time.Second))
	g.Expect(opts.leaderElectRenewDeadline).To(Equal(10 * time.Second))
	g.Expect(opts.leaderElectRetryPeriod).To(Equal(2 * time.Second))
	g.Expect(opts.kubeAPIQPS).To(BeEquivalentTo(100))
	g.Expect(opts.kubeAPIBurst).To(Equal(200))
	g.Expect(opts.SyncPeriod).To(Equal(10 * time.Minute))
	g.Expect(opts.healthAddr).To(Equal(":9440"))
	g.Expect(opts.manager.DiagnosticsAddress).To(Equal(":8443"))
	g.Expect(opts.manager.InsecureDiagnostics).To(BeFalse())
	g.Expect(opts.logging.Verbosity).To(BeEquivalentTo(2))
	g.Expect(opts.Namespace).To(BeEmpty())
	g.Expect(opts.WatchFilter).To(BeEmpty())
	g.Expect(opts.FleetNamespace).To(Equal("cattle-fleet-system"))
	g.Expect(opts.ManagerNamespace).To(Equal("capi-fleet-system"))
	g.Expect(opts.BuiltInPolicy).To(BeTrue())
	g.Expect(opts.AgentTokenDir).To(Equal("/var/run/secrets/capi-fleet"))
	g.Expect(opts.DeniedRanges).To(ConsistOf(
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")))
}

func TestManagerNamespaceComesFromThePod(t *testing.T) {
	g := NewWithT(t)
	t.Setenv(podNamespaceEnv, "addons")

	opts, _, err := ParseFlags(nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.ManagerNamespace).To(Equal("addons"))

	opts, _, err = ParseFlags([]string{"--manager-namespace=other"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.ManagerNamespace).To(Equal("other"))
}

func TestFlagsSetOptions(t *testing.T) {
	g := NewWithT(t)

	opts, _, err := ParseFlags([]string{
		"--leader-elect", "--namespace=edge", "--watch_filter=blue", "--v=4", "--logging-format=text",
		"--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics", "--kubeconfig=/nowhere",
		"--built-in-policy=false", "--denied-ranges= 10.1.2.3/8, fd00::/8", "--agent-image=example.org/agent:v1",
		"--agent-checkin-interval=1m", "--agent-token-dir=/tokens/{namespace}",
		"--registration-concurrency=3", "--selection-concurrency=4", "--fleet-namespace=fleet",
	})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(opts.leaderElect).To(BeTrue())
	g.Expect(opts.Namespace).To(Equal("edge"))
	g.Expect(opts.WatchFilter).To(Equal("blue"))
	g.Expect(opts.logging.Verbosity).To(BeEquivalentTo(4))
	g.Expect(opts.manager.DiagnosticsAddress).To(Equal("127.0.0.1:0"))
	g.Expect(opts.manager.InsecureDiagnostics).To(BeTrue())
	g.Expect(opts.BuiltInPolicy).To(BeFalse())
	g.Expect(opts.DeniedRanges).To(Equal(remote.DeniedRanges{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}))
	g.Expect(opts.AgentImage).To(Equal("example.org/agent:v1"))
	g.Expect(opts.AgentCheckinInterval).To(Equal(time.Minute))
	g.Expect(opts.AgentTokenDir).To(Equal("/tokens/{namespace}"))
	g.Expect(opts.RegistrationConcurrency).To(Equal(3))
	g.Expect(opts.SelectionConcurrency).To(Equal(4))
	g.Expect(opts.FleetNamespace).To(Equal("fleet"))
}

func TestLevelsOfLoggingThatShowSecretsAreLowered(t *testing.T) {
	g := NewWithT(t)

	opts, _, err := ParseFlags([]string{"--v=10", "--vmodule=request=9,push=5"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.logging.Verbosity).To(BeEquivalentTo(7))
	g.Expect(opts.logging.VModule).To(ConsistOf(
		logsv1.VModuleItem{FilePattern: "request", Verbosity: 7},
		logsv1.VModuleItem{FilePattern: "push", Verbosity: 5},
	))
}

func TestNoDeniedRangesAllowsAll(t *testing.T) {
	g := NewWithT(t)

	opts, _, err := ParseFlags([]string{"--denied-ranges="})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.DeniedRanges).To(BeEmpty())
}

func TestDeniedRangeOfMappedAddressesIsTheRangeOfIPv4(t *testing.T) {
	g := NewWithT(t)

	opts, _, err := ParseFlags([]string{"--denied-ranges=::ffff:10.0.0.0/104"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.DeniedRanges).To(Equal(remote.DeniedRanges{netip.MustParsePrefix("10.0.0.0/8")}))
}

func TestWrongFlagsAreRefusedInOneLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"unknown flag":          {[]string{"--colour=red"}, []string{"--colour"}},
		"argument":              {[]string{"start"}, []string{`"start"`}},
		"not a duration":        {[]string{"--sync-period=often"}, []string{"--sync-period"}},
		"sync period":           {[]string{"--sync-period=0s"}, []string{"--sync-period"}},
		"namespace":             {[]string{"--namespace=A_b"}, []string{"--namespace", "A_b"}},
		"fleet namespace":       {[]string{"--fleet-namespace="}, []string{"--fleet-namespace"}},
		"manager namespace":     {[]string{"--manager-namespace=a/b"}, []string{"--manager-namespace"}},
		"watch filter":          {[]string{"--watch-filter=a b"}, []string{"--watch-filter"}},
		"qps":                   {[]string{"--kube-api-qps=-1"}, []string{"--kube-api-qps"}},
		"qps not a number":      {[]string{"--kube-api-qps=NaN"}, []string{"--kube-api-qps"}},
		"burst":                 {[]string{"--kube-api-burst=0"}, []string{"--kube-api-burst"}},
		"concurrency":           {[]string{"--registration-concurrency=0"}, []string{"--registration-concurrency"}},
		"selection concurrency": {[]string{"--selection-concurrency=-1"}, []string{"--selection-concurrency"}},
		"check-in interval":     {[]string{"--agent-checkin-interval=-1s"}, []string{"--agent-checkin-interval"}},
		"token lifetime":        {[]string{"--max-token-lifetime=9m"}, []string{"--max-token-lifetime"}},
		"resync":                {[]string{"--workload-resync-interval=-1h"}, []string{"--workload-resync-interval"}},
		"image":                 {[]string{"--agent-image=a b"}, []string{"--agent-image"}},
		"long image":            {[]string{"--agent-image=" + strings.Repeat("a", 513)}, []string{"--agent-image"}},
		"token directory":       {[]string{"--agent-token-dir=tokens"}, []string{"--agent-token-dir"}},
		"ranges":                {[]string{"--denied-ranges=10.0.0.0/8,10.0.0.1"}, []string{"--denied-ranges", `"10.0.0.1"`}},
		"retry period":          {[]string{"--leader-elect-retry-period=0s"}, []string{"--leader-elect-retry-period"}},
		"renew deadline":        {[]string{"--leader-elect-renew-deadline=2s"}, []string{"--leader-elect-renew-deadline"}},
		"lease duration":        {[]string{"--leader-elect-lease-duration=10s"}, []string{"--leader-elect-lease-duration"}},
		"two at once":           {[]string{"--namespace=A", "--kube-api-burst=0"}, []string{"--namespace", "--kube-api-burst"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)

			_, _, err := ParseFlags(tc.args)
			g.Expect(err).To(HaveOccurred())
			g.Expect(err.Error()).NotTo(ContainSubstring("\n"))
			for _, want := range tc.want {
				g.Expect(err.Error()).To(ContainSubstring(want))
			}
		})
	}
}

func TestHelpNamesTheFlagsAndIsNoError(t *testing.T) {
	g := NewWithT(t)
	out := &bytes.Buffer{}

	g.Expect(Run(t.Context(), []string{"--help"}, out)).To(Succeed())
	for _, flag := range []string{
		"--kubeconfig", "--leader-elect", "--watch-filter", "--denied-ranges", "--diagnostics-address",
		"--tls-min-version", "--logging-format", "--profiler-address", "--contention-profiling",
	} {
		g.Expect(out.String()).To(ContainSubstring(flag))
	}
	g.Expect(out.String()).NotTo(ContainSubstring("--test."))
}
