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

package lightapi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// address is a TCP port on 127.0.0.1 that stays ours while nothing listens on it:
// the socket is bound, so the system gives the port to nobody else, and
// connections are refused.
type address struct {
	port int
	fd   int
}

// reserve binds port. Port 0 means any that is free.
func reserve(port int) (*address, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	syscall.CloseOnExec(fd)
	a := &address{fd: fd}
	// A port that was just left still has connections in TIME_WAIT, which only a
	// socket that shares can be bound beside. One that does not share is safe from
	// others that ask for this very port, too.
	if port != 0 {
		if err := a.share(); err != nil {
			a.release()
			return nil, err
		}
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		a.release()
		return nil, fmt.Errorf("binding port %d: %w", port, err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		a.release()
		return nil, fmt.Errorf("reading the address of a socket: %w", err)
	}
	a.port = name.(*syscall.SockaddrInet4).Port
	return a, nil
}

// listen begins to accept connections. It uses the reservation up: once the
// listener is closed the port has to be reserved again.
func (a *address) listen() (net.Listener, error) {
	// Connections have this from the listener.
	if err := a.share(); err != nil {
		return nil, err
	}
	const backlog = 128
	if err := syscall.Listen(a.fd, backlog); err != nil {
		return nil, fmt.Errorf("listening on port %d: %w", a.port, err)
	}
	file := os.NewFile(uintptr(a.fd), "listener")
	a.fd = -1
	listener, err := net.FileListener(file)
	// FileListener has its own copy.
	return listener, errors.Join(err, file.Close())
}

func (a *address) share() error {
	if err := syscall.SetsockoptInt(a.fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("setting up a socket: %w", err)
	}
	return nil
}

func (a *address) release() {
	if a.fd >= 0 {
		_ = syscall.Close(a.fd)
		a.fd = -1
	}
}
