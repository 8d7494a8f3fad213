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
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// port is a loopback port that belongs to us from now on. Its socket is bound and
// never listens: a connection is refused, the kernel gives the number to nobody
// else, and a server of the same user that sets SO_REUSEPORT may listen on it. So
// no other process can win the port before the server starts, or between two of
// its runs.
type port struct {
	number int
	socket int
}

func reservePort() (*port, error) {
	// The lock keeps a fork from inheriting the socket before it is marked.
	syscall.ForkLock.RLock()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	number, err := bindLoopback(socket)
	if err != nil {
		_ = unix.Close(socket)
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	return &port{number: number, socket: socket}, nil
}

func bindLoopback(socket int) (int, error) {
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	// Port 0: the kernel picks one that nobody has, also not one to share.
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	address, err := unix.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	return address.(*unix.SockaddrInet4).Port, nil
}

func (p *port) address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number))
}

// release gives the port back. Nil and a second call do nothing.
func (p *port) release() {
	if p == nil || p.socket < 0 {
		return
	}
	_ = unix.Close(p.socket)
	p.socket = -1
}
