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
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAProcessDiesWithAParentThatIsKilled(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	parent, child := startParent(t, dir)
	g.Expect(runsUnder(child, dir)).To(BeTrue())

	g.Expect(parent.Process.Kill()).To(Succeed())
	g.Expect(parent.Wait()).NotTo(Succeed())
	g.Eventually(func() bool { return runsUnder(child, dir) }).Should(BeFalse())
}

// startParent runs a program that has started a process of its own, and returns
// the program and the id of that process.
func startParent(t *testing.T, dir string) (*exec.Cmd, int) {
	t.Helper()
	g := NewWithT(t)
	parent := exec.Command(os.Args[0], "--", dir)
	parent.Env = append(os.Environ(), roleVariable+"=parent")
	stdin, err := parent.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = stdin.Close() })
	stdout, err := parent.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parent.Start()).To(Succeed())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	g.Expect(err).NotTo(HaveOccurred(), line)
	return parent, pid
}
