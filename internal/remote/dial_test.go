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

package remote

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func ranges(t *testing.T, s string) DeniedRanges {
	t.Helper()
	denied, err := ParseDeniedRanges(s)
	if err != nil {
		t.Fatal(err)
	}
	return denied
}

func TestParseDeniedRangesRefusesWhatIsNotARange(t *testing.T) {
	for _, s := range []string{"127.0.0.1", "127.0.0.0/33", "127.0.0.0/8,", ",", "localhost", "fe80::%eth0/10"} {
		if denied, err := ParseDeniedRanges(s); err == nil {
			t.Errorf("%q was read as %v", s, denied)
		}
	}
}

func TestEmptyDeniedRangesDenyNothing(t *testing.T) {
	for _, s := range []string{"", " "} {
		if denied := ranges(t, s); len(denied) != 0 {
			t.Errorf("%q was read as %v", s, denied)
		}
	}
	if (DeniedRanges)(nil).contains(netip.MustParseAddr("127.0.0.1")) {
		t.Error("an address is denied although there are no ranges")
	}
}

func TestDeniedRangesHoldInEveryFormOfAnAddress(t *testing.T) {
	const defaults = "127.0.0.0/8, ::1/128,169.254.0.0/16,fe80::/10"
	for _, tc := range []struct {
		denied, address string
		want            bool
	}{
		{defaults, "127.0.0.1", true},
		{defaults, "127.255.0.9", true},
		{defaults, "::ffff:127.0.0.1", true},
		{defaults, "::1", true},
		{defaults, "0.0.0.0", true},
		{defaults, "::ffff:0.0.0.0", true},
		{defaults, "::", true},
		{defaults, "169.254.169.254", true},
		{defaults, "::ffff:169.254.169.254", true},
		{defaults, "fe80::1", true},
		{defaults, "fe80::1%eth0", true},
		{defaults, "10.0.0.1", false},
		{defaults, "2001:db8::1", false},
		{defaults, "::ffff:10.0.0.1", false},
		{"::ffff:10.0.0.0/104", "10.1.2.3", true},
		{"10.9.9.9/8", "10.1.2.3", true},
		{"0.0.0.0/0", "2001:db8::1", false},
	} {
		if got := ranges(t, tc.denied).contains(netip.MustParseAddr(tc.address)); got != tc.want {
			t.Errorf("%s in %s: got %t, want %t", tc.address, tc.denied, got, tc.want)
		}
	}
}

// listener accepts TCP connections and gives them to the test.
func listener(t *testing.T) (port int32, accepted <-chan net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conns := make(chan net.Conn, 16)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns <- conn
		}
	}()
	return int32(l.Addr().(*net.TCPAddr).Port), conns
}

// serverURL is the address of a server as a kubeconfig has it.
func serverURL(host string, port int32) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// closedPort is one where nothing listens.
func closedPort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func TestProbeConnectsAndCloses(t *testing.T) {
	port, accepted := listener(t)
	if err := dialer().Probe(t.Context(), "127.0.0.1", port); err != nil {
		t.Fatal(err)
	}
	conn := <-accepted
	defer func() { _ = conn.Close() }()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("got %d bytes and error %v, want a closed connection", n, err)
	}
}

func TestProbeSaysWhyNothingAnswers(t *testing.T) {
	d := dialer()
	d.resolver = (&nameServer{}).resolver(t)
	for name, tc := range map[string]struct {
		host string
		port int32
	}{
		"refused":      {"127.0.0.1", closedPort(t)},
		"no host":      {"", 6443},
		"no such host": {canary + ".example", 6443},
		"no such port": {"127.0.0.1", 70000},
	} {
		t.Run(name, func(t *testing.T) {
			expectReason(t, d.Probe(t.Context(), tc.host, tc.port), fleetv1.ConnectionFailedReason)
		})
	}
}

func TestProbeEndsInTimeAndWithItsContext(t *testing.T) {
	d := dialer()
	d.DialTimeout = 50 * time.Millisecond
	// Nothing answers the resolver, so the dial cannot end by itself.
	d.resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	expectReason(t, d.Probe(t.Context(), "workload.example", 6443), fleetv1.ConnectionFailedReason)

	d.DialTimeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expectReason(t, d.Probe(ctx, "workload.example", 6443), fleetv1.InternalErrorReason)
}

func TestDeniedAddressIsNotDialled(t *testing.T) {
	port, accepted := listener(t)
	d := dialer()
	d.Denied = ranges(t, "127.0.0.0/8,::1/128")
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1", "::ffff:7f00:1", "0.0.0.0", "::", "::1", "localhost"} {
		t.Run(host, func(t *testing.T) {
			expectReason(t, d.Probe(t.Context(), host, port), fleetv1.AddressDeniedReason)
			data := kubeconfig(t, nil, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = serverURL(host, port) })
			_, err := connect(t, d, data).SystemNamespaceUID(t.Context())
			expectReason(t, err, fleetv1.AddressDeniedReason)
		})
	}
	select {
	case <-accepted:
		t.Error("a connection was made")
	default:
	}
}

func TestNameThatResolvesToADeniedAddressOnlyLaterIsDenied(t *testing.T) {
	s := server(t, reply(200, jsonType, systemNamespace))
	names := &nameServer{}
	d := dialer()
	d.Denied = ranges(t, "127.0.0.2/32")
	d.resolver = names.resolver(t)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	data := kubeconfig(t, s, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.Server, c.TLSServerName = "https://workload.example:"+port, "example.com"
	})

	names.set([4]byte{127, 0, 0, 1})
	if _, err := connect(t, d, data).SystemNamespaceUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := connect(t, d, data)
	names.set([4]byte{127, 0, 0, 2})
	_, err = c.SystemNamespaceUID(t.Context())
	expectReason(t, err, fleetv1.AddressDeniedReason)
}
