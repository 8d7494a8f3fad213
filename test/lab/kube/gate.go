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
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Gate is an address in front of an API server at which connections are refused until it is
// opened, as at that of a load balancer which has nothing behind it yet.
type Gate struct {
	port *port

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
	group    sync.WaitGroup
}

// NewGate returns a gate that is closed.
func NewGate() (*Gate, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	return &Gate{port: port, open: map[net.Conn]bool{}}, nil
}

// Address is host and port of the gate.
func (g *Gate) Address() string { return g.port.address() }

// Port is that of the address.
func (g *Gate) Port() int { return g.port.number }

// Open lets connections through to another address, of host and port.
func (g *Gate) Open(ctx context.Context, to string) error {
	share := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(socket uintptr) {
			err = unix.SetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}), err)
	}}
	listener, err := share.Listen(ctx, "tcp", g.Address())
	if err != nil {
		return fmt.Errorf("opening a gate: %w", err)
	}
	g.mu.Lock()
	g.listener = listener
	g.mu.Unlock()
	g.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.group.Go(func() { g.relay(conn, to) })
		}
	})
	return nil
}

// relay goes on until either side ends.
func (g *Gate) relay(conn net.Conn, to string) {
	behind, err := net.Dial("tcp", to)
	if err != nil {
		_ = conn.Close()
		return
	}
	g.mu.Lock()
	g.open[conn], g.open[behind] = true, true
	closed := g.listener == nil
	g.mu.Unlock()
	end := sync.OnceFunc(func() {
		_, _ = conn.Close(), behind.Close()
		g.mu.Lock()
		delete(g.open, conn)
		delete(g.open, behind)
		g.mu.Unlock()
	})
	if closed {
		end()
	}
	g.group.Go(func() {
		_, _ = io.Copy(behind, conn)
		end()
	})
	_, _ = io.Copy(conn, behind)
	end()
}

// Close ends all connections and gives the port back.
func (g *Gate) Close() error {
	g.mu.Lock()
	var err error
	if g.listener != nil {
		err = g.listener.Close()
		g.listener = nil
	}
	for conn := range g.open {
		_ = conn.Close()
	}
	g.mu.Unlock()
	g.group.Wait()
	g.port.release()
	return err
}
