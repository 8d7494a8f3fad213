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
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// others is the CPU, in seconds, of what runs beside the manager.
type others struct {
	// server is that of the management cluster's API server and etcd.
	server float64
	// harness is that of this program: workload APIs, heartbeats, the bare client.
	harness float64
}

// ticks is how many of its ticks Linux counts in a second for programs (USER_HZ), on all
// that Go runs on.
const ticks = 100

// others returns what has been used since the start.
func (l *light) others() (others, error) {
	var o others
	for _, name := range []string{"management/kube-apiserver.pid", "etcd/etcd.pid"} {
		seconds, err := processCPU(filepath.Join(l.Dir, name))
		if err != nil {
			return o, err
		}
		o.server += seconds
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return o, err
	}
	o.harness = (time.Duration(own.Utime.Nano()) + time.Duration(own.Stime.Nano())).Seconds()
	return o, nil
}

// processCPU returns the seconds that the process of a pid file has used.
func processCPU(pidFile string) (float64, error) {
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, err
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat"))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may have anything in it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const user, system = 11, 12 // behind the name: fields 14 and 15 of proc(5)
	if len(fields) <= system {
		return 0, fmt.Errorf("%s: %d fields", pidFile, len(fields))
	}
	var sum float64
	for _, field := range []int{user, system} {
		used, err := strconv.ParseFloat(fields[field], 64)
		if err != nil {
			return 0, err
		}
		sum += used / ticks
	}
	return sum, nil
}
