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
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

func TestWrongUsageIsOneLine(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"sideways"},
		{"up", "extra"},
		{"up", "--clusters", "-1"},
		{"up", "--clusters", "many"},
		{"up", "--fleet-agent", "/does/not/exist"},
		{"up", "--capi", "sideways"},
		{"up", "--bare", "--placement", "management"},
		{"up", "--dir", ""},
		{"up", "--dir", "/" + strings.Repeat("long", 40)},
		{"add"},
		{"add", "Not_A_Name"},
		{"add", "edge", "--namespace", "a.b"},
		{"remove", "one", "two"},
		{"status", "--output", "yaml"},
		{"down", "--force"},
		{"tools", "helm"},
		{"demo", "--fleet-controller", "/does/not/exist"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			g := NewWithT(t)
			output, err := runVerb(t, args...)
			g.Expect(err).To(HaveOccurred())
			g.Expect(output).To(BeEmpty())
			g.Expect(err.Error()).NotTo(ContainSubstring("\n"))
		})
	}
}

// Nothing but the lab itself looks at this value.
func TestUpTellsTheLabWhatOfClusterAPIRuns(t *testing.T) {
	g := NewWithT(t)
	_, err := runVerb(t, "up", "--capi", "sideways")
	g.Expect(err).To(MatchError(`"sideways" is no way to run Cluster API: want "core" or "in-memory"`))
}

func TestVerbsReachTheRunningLab(t *testing.T) {
	g := NewWithT(t)
	dir := shortDir(t)
	fake := &fakeOperations{clusters: map[client.ObjectKey]bool{}}
	control, err := serveControl(dir, fake)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = control.close() })

	_, err = runVerb(t, "add", "edge", "--dir", dir)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = runVerb(t, "add", "plain", "--no-label", "-n", "team", "--dir", dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fake.clusters).To(Equal(map[client.ObjectKey]bool{
		{Namespace: "default", Name: "edge"}: true, {Namespace: "team", Name: "plain"}: false,
	}))
	_, err = runVerb(t, "add", "edge", "--dir", dir)
	g.Expect(err).To(MatchError("there already"))

	output, err := runVerb(t, "status", "--dir", dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(output).To(ContainSubstring("team/plain"))
	output, err = runVerb(t, "status", "-o", "json", "--dir", dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(output).To(ContainSubstring(`"name": "plain"`))

	_, err = runVerb(t, "remove", "plain", "-n", "team", "--dir", dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fake.clusters).To(HaveLen(1))

	g.Expect(control.down).NotTo(BeClosed())
	_, err = runVerb(t, "down", "--dir", dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(control.down).Should(BeClosed())
}

func TestOnlyTheOwnerReachesTheLab(t *testing.T) {
	g := NewWithT(t)
	dir := shortDir(t)
	control, err := serveControl(dir, &fakeOperations{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = control.close() })
	info, err := os.Stat(filepath.Join(dir, socketName))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
}

func TestVerbsSayWhereNoLabRuns(t *testing.T) {
	for _, args := range [][]string{{"add", "edge"}, {"remove", "edge"}, {"status"}} {
		g := NewWithT(t)
		dir := shortDir(t)
		_, err := runVerb(t, append(args, "--dir", dir)...)
		g.Expect(err).To(MatchError(errNoLab))
		g.Expect(err.Error()).To(Equal(dir + ": no lab is running there"))
	}
}

func TestDownIsHappyWithoutALab(t *testing.T) {
	g := NewWithT(t)
	_, err := runVerb(t, "down", "--dir", shortDir(t))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = runVerb(t, "down", "--dir", filepath.Join(shortDir(t), "missing"))
	g.Expect(err).NotTo(HaveOccurred())
}

func TestFiguresShowBothClusters(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	var out bytes.Buffer
	g.Expect(printFigures(&out, []env.ClusterStatus{
		{
			Name: "edge-1", Label: "true", Ready: "True", Usage: env.Usage{Writes: 11, Objects: 7},
			Times: map[env.Step]time.Time{env.APIAnswers: now, env.CredentialInPlace: now.Add(500 * time.Millisecond)},
		},
		{Name: "edge-2"},
	})).To(Succeed())
	fields := map[string][]string{}
	for line := range strings.Lines(out.String()) {
		words := strings.Split(line, "   ")
		var cells []string
		for _, word := range words {
			if word = strings.TrimSpace(word); word != "" {
				cells = append(cells, word)
			}
		}
		fields[cells[0]] = cells[1:]
	}
	g.Expect(fields).To(HaveKeyWithValue("in Fleet", []string{"yes", "no"}))
	g.Expect(fields).To(HaveKeyWithValue("API server answers to credential in place", []string{"0.50 s", "-"}))
	g.Expect(fields).To(HaveKeyWithValue("API server answers to registered", []string{"-", "-"}))
	g.Expect(fields).To(HaveKeyWithValue("writes on the management cluster", []string{"11", "0"}))
}

func TestStepsAreDoneOnceWhenAllAreTaken(t *testing.T) {
	g := NewWithT(t)
	done := 0
	s := newSteps(func() { done++ }, env.Registered, env.BundleDeployed)
	s.take(env.BundleDeployed)
	s.take(env.BundleDeployed)
	s.take(env.Selected)
	g.Expect(done).To(BeZero())
	s.take(env.Registered)
	s.take(env.Registered)
	g.Expect(done).To(Equal(1))
}

// runVerb runs the command and returns what it prints.
func runVerb(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := newCommand()
	command.SetArgs(args)
	command.SetOut(&out)
	command.SetErr(&out)
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// shortDir is a folder whose path is short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// fakeOperations stand in for a lab. The value says whether the cluster has the label.
type fakeOperations struct{ clusters map[client.ObjectKey]bool }

func (f *fakeOperations) add(_ context.Context, c cluster) error {
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.Name}
	if _, found := f.clusters[key]; found {
		return errors.New("there already")
	}
	f.clusters[key] = c.Register
	return nil
}

func (f *fakeOperations) remove(_ context.Context, key client.ObjectKey) error {
	delete(f.clusters, key)
	return nil
}

func (f *fakeOperations) status(context.Context) ([]env.ClusterStatus, error) {
	var statuses []env.ClusterStatus
	for key := range f.clusters {
		statuses = append(statuses, env.ClusterStatus{Namespace: key.Namespace, Name: key.Name})
	}
	return statuses, nil
}
