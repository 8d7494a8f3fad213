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
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var allNames = []string{etcdName, apiServerName, controllerManagerName}

func TestAssetsAreLookedForInOrder(t *testing.T) {
	unavailable := errors.New("no network")
	for _, test := range []struct {
		name                        string
		given, cached, downloadable []string
		downloadErr                 error
		want                        map[string]string // binary: where it was made
		wantDownload                bool
		wantBuilt                   string
	}{
		{
			name:   "a complete given folder is all",
			given:  allNames,
			cached: allNames,
			want:   map[string]string{etcdName: "given", apiServerName: "given", controllerManagerName: "given"},
		},
		{
			name:   "a given folder without kube-controller-manager takes it from the cache",
			given:  []string{etcdName, apiServerName},
			cached: allNames,
			want:   map[string]string{etcdName: "given", apiServerName: "given", controllerManagerName: "cached"},
		},
		{
			name:      "a given folder without kube-controller-manager has it built, and nothing downloaded",
			given:     []string{etcdName, apiServerName},
			want:      map[string]string{etcdName: "given", apiServerName: "given", controllerManagerName: "built"},
			wantBuilt: controllerManagerName,
		},
		{
			name:   "a given folder without kube-apiserver does not count",
			given:  []string{etcdName, controllerManagerName},
			cached: allNames,
			want:   map[string]string{etcdName: "cached", apiServerName: "cached", controllerManagerName: "cached"},
		},
		{
			name:   "the cache comes before a download",
			cached: allNames,
			want:   map[string]string{etcdName: "cached", apiServerName: "cached", controllerManagerName: "cached"},
		},
		{
			name:         "a download comes before a build",
			downloadable: []string{etcdName, apiServerName},
			want:         map[string]string{etcdName: "downloaded", apiServerName: "downloaded", controllerManagerName: "built"},
			wantDownload: true,
			wantBuilt:    controllerManagerName,
		},
		{
			name:         "what is cached already is not replaced",
			cached:       []string{controllerManagerName, etcdName},
			downloadable: []string{etcdName, apiServerName},
			want:         map[string]string{etcdName: "cached", apiServerName: "downloaded", controllerManagerName: "cached"},
			wantDownload: true,
		},
		{
			name:         "without a download all is built",
			downloadErr:  unavailable,
			want:         map[string]string{etcdName: "built", apiServerName: "built", controllerManagerName: "built"},
			wantDownload: true,
			wantBuilt:    "etcd, kube-apiserver, kube-controller-manager",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			var log strings.Builder
			downloaded := false
			finder := assetFinder{
				cache: filepath.Join(t.TempDir(), Version),
				log:   &log,
				download: func(context.Context) (string, error) {
					downloaded = true
					return fakeBinaries(t, t.TempDir(), "downloaded", test.downloadable), test.downloadErr
				},
				build: func(_ context.Context, dir string, names []string) error {
					fakeBinaries(t, dir, "built", names)
					return nil
				},
			}
			if test.given != nil {
				finder.given = fakeBinaries(t, t.TempDir(), "given", test.given)
			}
			if test.cached != nil {
				fakeBinaries(t, finder.cache, "cached", test.cached)
			}

			assets, err := finder.find(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			for name, path := range map[string]string{
				etcdName: assets.Etcd, apiServerName: assets.KubeAPIServer, controllerManagerName: assets.KubeControllerManager,
			} {
				g.Expect(os.ReadFile(path)).To(BeEquivalentTo(test.want[name]), name)
			}
			g.Expect(downloaded).To(Equal(test.wantDownload))
			if test.wantBuilt == "" {
				g.Expect(log.String()).NotTo(ContainSubstring("building"))
			} else {
				g.Expect(log.String()).To(HavePrefix("building " + test.wantBuilt + " " + Version))
			}

			finder.given = ""
			finder.download = func(context.Context) (string, error) { return "", unavailable }
			finder.build = func(_ context.Context, dir string, names []string) error {
				fakeBinaries(t, dir, "built later", names)
				return nil
			}
			again, err := finder.find(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			if test.given == nil {
				g.Expect(again).To(Equal(assets), "the second time all of it comes from the cache")
				g.Expect(os.ReadFile(again.KubeAPIServer)).NotTo(BeEquivalentTo("built later"))
			}
		})
	}
}

func TestAFailedBuildLeavesNothingInTheCache(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("out of disk")
	cache := filepath.Join(t.TempDir(), "cache")
	finder := assetFinder{
		cache:    cache,
		log:      io.Discard,
		download: func(context.Context) (string, error) { return "", errors.New("no network") },
		build: func(_ context.Context, dir string, _ []string) error {
			fakeBinaries(t, dir, "half", []string{etcdName})
			return broken
		},
	}
	_, err := finder.find(t.Context())
	g.Expect(err).To(MatchError(broken))
	g.Expect(os.ReadDir(cache)).To(BeEmpty())
	g.Expect(filepath.Glob(cache + ".new-*")).To(BeEmpty())
}

func TestOneProgramBuildsAtATime(t *testing.T) {
	g := NewWithT(t)
	cache := filepath.Join(t.TempDir(), "cache")
	finder := assetFinder{
		cache:    cache,
		log:      io.Discard,
		download: func(context.Context) (string, error) { return "", errors.New("no network") },
		build: func(_ context.Context, dir string, names []string) error {
			impatient, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := LockFile(impatient, cache+".lock")
			g.Expect(err).To(MatchError(context.Canceled), "another one would wait")
			fakeBinaries(t, dir, "built", names)
			return nil
		},
	}
	_, err := finder.find(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	unlock, err := LockFile(t.Context(), cache+".lock")
	g.Expect(err).NotTo(HaveOccurred())
	unlock()
}

func TestWhatAnotherProgramBuiltMeanwhileIsNotBuiltAgain(t *testing.T) {
	g := NewWithT(t)
	finder := assetFinder{
		cache:    fakeBinaries(t, filepath.Join(t.TempDir(), "cache"), "built by another", allNames),
		log:      io.Discard,
		download: func(context.Context) (string, error) { return "", errors.New("downloaded") },
		build:    func(context.Context, string, []string) error { return errors.New("built again") },
	}
	// As after waiting for the lock: what was missing is there now.
	g.Expect(finder.fillCache(t.Context(), allNames)).To(Succeed())
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := LockFile(t.Context(), path)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = LockFile(ctx, path)
	g.Expect(err).To(MatchError(context.Canceled))
	unlock()
	unlock, err = LockFile(t.Context(), path)
	g.Expect(err).NotTo(HaveOccurred())
	unlock()
}

func TestTheModuleThatIsBuiltRequiresTheVersionOfTheCache(t *testing.T) {
	g := NewWithT(t)
	root, err := repositoryRoot()
	g.Expect(err).NotTo(HaveOccurred())
	module, err := os.ReadFile(filepath.Join(root, "hack", "kubernetes", "go.mod"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(module)).To(ContainSubstring("k8s.io/kubernetes " + Version))
	for _, name := range allNames {
		g.Expect(string(module)).To(ContainSubstring("\t" + assetPackages[name] + "\n"))
	}
}

// fakeBinaries writes executables with the given content and returns dir.
func fakeBinaries(t *testing.T, dir, content string, names []string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Error(err)
		}
	}
	return dir
}
