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
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// roleVariable makes this test binary play another program. Its arguments are
// "--" and the folder of the process.
const roleVariable = "CAPI_FLEET_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "idle":
		waitForEver()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		waitForEver()
	case "failing":
		fmt.Println("the flag is wrong")
		os.Exit(3)
	case "parent":
		child, err := StartProcess(roleSpec("child", "idle", os.Args[2]))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(child.Pid())
		waitForEver()
	}
}

// waitForEver ends with standard input where that is a pipe of the test, so that
// nothing outlives a test that was killed.
func waitForEver() {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	time.Sleep(time.Minute)
}

func roleSpec(name, role, dir string) ProcessSpec {
	return ProcessSpec{Name: name, Dir: dir, Path: os.Args[0], Args: []string{"--", dir}, Env: append(os.Environ(), roleVariable+"="+role)}
}

func TestAStoppedProcessIsGoneWithItsPidFile(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	process, err := StartProcess(roleSpec("one", "idle", dir))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.ReadFile(filepath.Join(dir, "one.pid"))).To(BeEquivalentTo(strconv.Itoa(process.Pid()) + "\n"))
	g.Expect(process.Exited()).NotTo(BeClosed())

	g.Expect(process.Stop()).To(Succeed())
	g.Expect(process.Exited()).To(BeClosed())
	g.Expect(runsUnder(process.Pid(), dir)).To(BeFalse())
	g.Expect(filepath.Join(dir, "one.pid")).NotTo(BeAnExistingFile())
	g.Expect(process.Stop()).To(Succeed(), "a second time")
}

func TestAProcessThatDoesNotEndIsKilled(t *testing.T) {
	g := NewWithT(t)
	process, err := StartProcess(roleSpec("one", "stubborn", t.TempDir()))
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(process.logTail).Should(ContainSubstring("ready"))
	process.grace = 50 * time.Millisecond
	g.Expect(process.Stop()).To(Succeed())
	g.Expect(process.Exited()).To(BeClosed())
	g.Expect(process.exitError()).To(MatchError("signal: killed"))
}

func TestAProcessThatExitsBeforeItIsReadyShowsItsLog(t *testing.T) {
	g := NewWithT(t)
	process, err := StartProcess(roleSpec("one", "failing", t.TempDir()))
	g.Expect(err).NotTo(HaveOccurred())
	err = process.WaitReady(t.Context(), func(context.Context) error { return io.EOF })
	g.Expect(err).To(MatchError(SatisfyAll(ContainSubstring("exit status 3"), ContainSubstring("the flag is wrong"))))
}

func TestWaitingForReadinessEndsWithTheContext(t *testing.T) {
	g := NewWithT(t)
	process, err := StartProcess(roleSpec("one", "idle", t.TempDir()))
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	err = process.WaitReady(ctx, func(context.Context) error { cancel(); return io.EOF })
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(err).To(MatchError(io.EOF))
	g.Expect(process.Kill()).To(Succeed())
}

func TestLeftoversAreEndedAndStrangersSpared(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	dir, neighbour := filepath.Join(root, "lab"), filepath.Join(root, "lab2")
	deep := filepath.Join(dir, "clusters", "one")
	g.Expect(os.MkdirAll(deep, 0o700)).To(Succeed())
	g.Expect(os.MkdirAll(neighbour, 0o700)).To(Succeed())

	start := func(dir string) *Process {
		process, err := StartProcess(roleSpec("some", "stubborn", dir))
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = process.Kill() })
		return process
	}
	leftover, stranger := start(deep), start(neighbour)
	// The number of a process that has died may belong to somebody else by now.
	reused := filepath.Join(dir, "reused.pid")
	g.Expect(os.WriteFile(reused, []byte(strconv.Itoa(stranger.Pid())), 0o600)).To(Succeed())
	broken := filepath.Join(dir, "broken.pid")
	g.Expect(os.WriteFile(broken, []byte("-1"), 0o600)).To(Succeed())

	g.Expect(KillLeftovers(dir)).To(Succeed())
	g.Eventually(leftover.Exited()).Should(BeClosed())
	g.Expect(stranger.Exited()).NotTo(BeClosed())
	g.Expect(runsUnder(stranger.Pid(), neighbour)).To(BeTrue())
	g.Expect(reused).NotTo(BeAnExistingFile())
	g.Expect(broken).NotTo(BeAnExistingFile())

	g.Expect(KillLeftovers(dir)).To(Succeed(), "nothing is left")
	g.Expect(KillLeftovers(filepath.Join(root, "missing"))).To(Succeed())
}
