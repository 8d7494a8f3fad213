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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	pidSuffix = ".pid"
	// killGrace is how long the kernel may take to end a killed process.
	killGrace = 5 * time.Second
)

// KillLeftovers ends the processes that an earlier run left behind: those that a
// file *.pid anywhere under dir names and whose command line contains dir. The
// second condition spares a stranger that got the number of a dead process. It
// removes the pid files and returns once the processes are gone. A missing dir is
// no error.
//
// It must not be called while the run that owns dir is alive.
func KillLeftovers(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var errs []error
	walkErr := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry.Type().IsRegular() && filepath.Ext(path) == pidSuffix {
			errs = append(errs, killLeftover(path, dir))
		}
		return nil
	})
	return errors.Join(append(errs, walkErr)...)
}

func killLeftover(pidPath, dir string) error {
	content, err := os.ReadFile(pidPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Signals to 0 and below go to groups of processes.
	if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && pid > 1 {
		deadline := time.Now().Add(killGrace)
		for runsUnder(pid, dir) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("ending process %d of %s: %w", pid, pidPath, err)
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d of %s does not end", pid, pidPath)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := os.Remove(pidPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// runsUnder tells whether a live process has dir, or a path under it, on its
// command line. A dead one that nobody has waited for has no command line any more.
func runsUnder(pid int, dir string) bool {
	line := commandLine(pid) + " "
	return strings.Contains(line, dir+string(filepath.Separator)) || strings.Contains(line, dir+" ")
}

// commandLine returns the arguments of a process, separated by spaces, and ""
// where there is no such process.
func commandLine(pid int) string {
	if runtime.GOOS == "linux" {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	line, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(line))
}
