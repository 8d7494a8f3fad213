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
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopGrace is how long a process may take to end by itself.
	stopGrace = 10 * time.Second
	// logTailBytes is how much of a log goes into an error.
	logTailBytes = 2000
)

// ProcessSpec says what StartProcess runs.
type ProcessSpec struct {
	// Name names the files of the process: <Dir>/<Name>.log and <Dir>/<Name>.pid.
	Name string
	// Dir is an existing folder. The command line must contain it as an absolute
	// path, or KillLeftovers does not take the process for one of ours.
	Dir string
	// Path is the binary.
	Path string
	// Args are its arguments, the binary's own name not among them.
	Args []string
	// Env is the whole environment. Nil is the caller's.
	Env []string
}

// Process is a child process that has been started.
type Process struct {
	spec    ProcessSpec
	command *exec.Cmd
	grace   time.Duration // from the request to end to the kill
	exited  chan struct{}
	err     error // why it exited; set before exited is closed
}

// StartProcess starts a process in a process group of its own, so that a Ctrl-C
// meant for the caller does not reach it. Its output is appended to its log, and
// its pid file lasts until it has exited. On Linux it is killed when the caller
// dies, however that happens.
func StartProcess(spec ProcessSpec) (*Process, error) {
	p := &Process{spec: spec, grace: stopGrace, exited: make(chan struct{})}
	log, err := os.OpenFile(p.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", spec.Name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor

	p.command = exec.Command(spec.Path, spec.Args...)
	p.command.Dir = spec.Dir
	p.command.Env = spec.Env
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = childAttributes()

	if err := startOnLastingThread(p.command); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	pid := strconv.Itoa(p.command.Process.Pid)
	writeErr := os.WriteFile(p.pidPath(), []byte(pid+"\n"), 0o600)
	go p.wait()
	if writeErr != nil {
		return nil, errors.Join(fmt.Errorf("writing the pid file of %s: %w", spec.Name, writeErr), p.Stop())
	}
	return p, nil
}

// LogPath is the file with everything that the process has printed.
func (p *Process) LogPath() string { return filepath.Join(p.spec.Dir, p.spec.Name+".log") }

func (p *Process) pidPath() string { return filepath.Join(p.spec.Dir, p.spec.Name+pidSuffix) }

// Pid is the id of the process, also after it has exited.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Exited is closed once the process has ended, for whatever reason.
func (p *Process) Exited() <-chan struct{} { return p.exited }

func (p *Process) wait() {
	p.err = p.command.Wait()
	_ = os.Remove(p.pidPath()) // a pid file left over is harmless: the command line is checked too
	close(p.exited)
}

// Stop asks the process to end, kills it after ten seconds, and returns once it
// is gone. A process that is gone already is no error.
func (p *Process) Stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(p.grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		return p.Kill()
	}
}

// Kill ends the process at once, as a crash would, and returns once it is gone.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return nil
}

func (p *Process) signal(signal syscall.Signal) error {
	err := p.command.Process.Signal(signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending %s: %w", p.spec.Name, err)
	}
	return nil
}

// WaitReady polls ready until it returns nil. It fails as soon as the process
// exits or the context ends, with the last lines of the log.
func (p *Process) WaitReady(ctx context.Context, ready func(context.Context) error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s exited before it was ready: %w; its log ends with:\n%s", p.spec.Name, p.exitError(), p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w); its log ends with:\n%s", p.spec.Name, ctx.Err(), err, p.logTail())
		case <-ticker.C:
		}
	}
}

func (p *Process) exitError() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

func (p *Process) logTail() string {
	file, err := os.Open(p.LogPath())
	if err != nil {
		return err.Error()
	}
	defer file.Close() //nolint:errcheck // only read
	if _, err := file.Seek(-logTailBytes, io.SeekEnd); err != nil {
		// Shorter than that: all of it.
		_, _ = file.Seek(0, io.SeekStart)
	}
	tail, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(tail))
}

// startOnLastingThread starts commands on one thread that lives as long as the
// program. Linux sends the signal of a parent's death when the thread that
// forked ends, and the Go runtime may end any thread but a locked one.
func startOnLastingThread(command *exec.Cmd) error {
	result := make(chan error)
	startingThread() <- func() { result <- command.Start() }
	return <-result
}

var startingThread = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// processEnv is the environment of the control plane's processes. Proxies and
// ETCD_* settings of the caller must not reach them.
func processEnv() []string {
	var env []string
	for _, entry := range os.Environ() {
		switch name, _, _ := strings.Cut(entry, "="); name {
		case "PATH", "HOME", "TMPDIR":
			env = append(env, entry)
		}
	}
	return env
}
