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
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Defaults of a Dialer.
const (
	defaultDialTimeout    = 5 * time.Second
	defaultRequestTimeout = 10 * time.Second
)

// DeniedRanges are the addresses that must not be connected to. Nil and empty deny
// nothing.
type DeniedRanges []netip.Prefix

// ParseDeniedRanges reads ranges in CIDR notation, separated by commas; blanks
// around them are ignored. The empty string denies nothing.
func ParseDeniedRanges(s string) (DeniedRanges, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var ranges DeniedRanges
	for field := range strings.SplitSeq(s, ",") {
		field = strings.TrimSpace(field)
		prefix, err := netip.ParsePrefix(field)
		if err != nil {
			return nil, fmt.Errorf("%q is not a range such as 10.0.0.0/8", field)
		}
		// Addresses are compared unmapped, so a mapped range would match nothing.
		if addr := prefix.Addr(); addr.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
		}
		ranges = append(ranges, prefix.Masked())
	}
	return ranges, nil
}

// contains says whether addr lies in one of the ranges, in whatever form it is
// written: mapped into IPv6, with a zone, or as the unspecified address, by which
// the system means itself.
func (d DeniedRanges) contains(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	loopback := addr
	if addr.IsUnspecified() {
		loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if addr.Is6() {
			loopback = netip.IPv6Loopback()
		}
	}
	for _, prefix := range d {
		if prefix.Contains(addr) || prefix.Contains(loopback) {
			return true
		}
	}
	return false
}

// Dialer reaches workload clusters. The zero value is ready to use and denies no
// address. It can be used by several goroutines at once.
type Dialer struct {
	// Denied are the addresses that are never connected to.
	Denied DeniedRanges

	// DialTimeout bounds finding the address and connecting, and once more the TLS
	// handshake. Zero means 5 s.
	DialTimeout time.Duration

	// RequestTimeout bounds one request, from the dial to the end of the answer. Zero
	// means 10 s.
	RequestTimeout time.Duration

	// UserAgent is sent with each request. Empty means client-go's default.
	UserAgent string

	// resolver finds addresses; nil means the system's.
	resolver *net.Resolver
}

// Probe says whether something accepts TCP connections at host, a name or an IP
// address without brackets, and port. Nothing is sent. The error is an *Error of
// reason ConnectionFailed or AddressDenied.
func (d *Dialer) Probe(ctx context.Context, host string, port int32) error {
	if host == "" {
		// An empty host would mean this machine.
		return connectionFailed("the server has no address")
	}
	conn, err := d.dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return dialError(ctx, err)
	}
	// Nothing was written, so there is nothing that a failing Close could lose.
	_ = conn.Close()
	return nil
}

// Resolve returns the addresses of a host, a name or an IP address without brackets,
// leaving out those that are denied. The error is an *Error of reason ConnectionFailed or
// AddressDenied; there is one where no address is left.
func (d *Dialer) Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout())
	defer cancel()
	resolver := cmp.Or(d.resolver, net.DefaultResolver)
	addresses, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	addresses = slices.DeleteFunc(addresses, d.Denied.contains)
	if len(addresses) == 0 {
		return nil, addressDenied()
	}
	return addresses, nil
}

// dialError is the *Error for err, which came up before there was a connection.
func dialError(ctx context.Context, err error) *Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return canceled()
	}
	if classified := classifyNetwork(err); classified != nil {
		return classified
	}
	return connectionFailed("no connection came about")
}

func (d *Dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:  d.dialTimeout(),
		Resolver: d.resolver,
		// Control runs for each address that a name resolves to, right before
		// connecting to it. So a name cannot resolve to one address when it is checked
		// and to another when it is dialled.
		Control: func(_, address string, _ syscall.RawConn) error { return d.allowed(address) },
	}
	return dialer.DialContext(ctx, network, address)
}

// allowed returns an *Error if the address, an IP address with a port, is denied.
func (d *Dialer) allowed(address string) error {
	if len(d.Denied) == 0 {
		return nil
	}
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || d.Denied.contains(parsed.Addr()) {
		return addressDenied()
	}
	return nil
}

func (d *Dialer) dialTimeout() time.Duration { return cmp.Or(d.DialTimeout, defaultDialTimeout) }

func (d *Dialer) requestTimeout() time.Duration {
	return cmp.Or(d.RequestTimeout, defaultRequestTimeout)
}

// connections are the open connections of one client. http.Transport closes only
// those that it knows to be idle, which leaves out one whose dial or TLS handshake
// ends after its request was given up.
type connections struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	open   map[*connection]struct{}
}

// connection takes itself out of its connections when it is closed.
type connection struct {
	net.Conn
	owner *connections
}

func (c *connection) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

func (c *connections) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	if c.open == nil {
		c.open = map[*connection]struct{}{}
	}
	tracked := &connection{Conn: conn, owner: c}
	c.open[tracked] = struct{}{}
	return tracked, nil
}

// close closes all connections, and each one that a dial still brings.
func (c *connections) close() {
	c.mu.Lock()
	c.closed = true
	open := c.open
	c.open = nil
	c.mu.Unlock()
	for conn := range open {
		_ = conn.Conn.Close()
	}
}
