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
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// Version is the Kubernetes release that is built. hack/kubernetes/go.mod
	// requires the same.
	Version = "v1.36.3"

	// downloadSeries is what setup-envtest is asked for: it has not every release.
	downloadSeries = "1.36.x"
	// downloadTimeout bounds a download. A build takes longer than that.
	downloadTimeout = 2 * time.Minute

	etcdName = "etcd"
)

// assetPackages are the Go packages that the binaries are built from.
var assetPackages = map[string]string{
	etcdName:              "go.etcd.io/etcd/server/v3",
	apiServerName:         "k8s.io/kubernetes/cmd/kube-apiserver",
	controllerManagerName: "k8s.io/kubernetes/cmd/kube-controller-manager",
}

// Assets are the paths of the binaries.
type Assets struct {
	Etcd                  string
	KubeAPIServer         string
	KubeControllerManager string
}

// FindAssets returns binaries that exist: those of the folder KUBEBUILDER_ASSETS
// where it is set and has at least etcd and kube-apiserver, and the rest from a
// cache in the user's cache folder. What the cache lacks is downloaded with
// setup-envtest, else built from source, which takes some minutes the first time
// and says so on log. Several programs may call it at once.
func FindAssets(ctx context.Context, log io.Writer) (Assets, error) {
	cacheRoot, err := os.UserCacheDir()
	if err != nil {
		return Assets{}, fmt.Errorf("finding a cache for the binaries: %w", err)
	}
	finder := assetFinder{
		given:    os.Getenv("KUBEBUILDER_ASSETS"),
		cache:    filepath.Join(cacheRoot, "capi-fleet", "kubernetes", Version),
		log:      log,
		download: downloadAssets,
		build:    buildAssets,
	}
	return finder.find(ctx)
}

// assetFinder holds the places to look in, in their order.
type assetFinder struct {
	given string // a folder, or ""
	cache string // a folder that need not exist
	log   io.Writer

	// download returns a folder with some of the binaries.
	download func(ctx context.Context) (dir string, err error)
	// build puts the named binaries into dir.
	build func(ctx context.Context, dir string, names []string) error
}

func (f *assetFinder) find(ctx context.Context) (Assets, error) {
	assets := Assets{
		Etcd:                  filepath.Join(f.cache, etcdName),
		KubeAPIServer:         filepath.Join(f.cache, apiServerName),
		KubeControllerManager: filepath.Join(f.cache, controllerManagerName),
	}
	wanted := []string{etcdName, apiServerName, controllerManagerName}
	if f.given != "" {
		if missing := missingIn(f.given, []string{etcdName, apiServerName}); len(missing) > 0 {
			fmt.Fprintf(f.log, "KUBEBUILDER_ASSETS=%s has no %s: looking elsewhere\n", f.given, strings.Join(missing, ", "))
		} else {
			assets.Etcd = filepath.Join(f.given, etcdName)
			assets.KubeAPIServer = filepath.Join(f.given, apiServerName)
			// Archives made for tests have no kube-controller-manager.
			wanted = missingIn(f.given, []string{controllerManagerName})
			if len(wanted) == 0 {
				assets.KubeControllerManager = filepath.Join(f.given, controllerManagerName)
			}
		}
	}
	if len(missingIn(f.cache, wanted)) == 0 {
		return assets, nil
	}
	if err := f.fillCache(ctx, wanted); err != nil {
		return Assets{}, fmt.Errorf("providing Kubernetes binaries in %s: %w", f.cache, err)
	}
	return assets, nil
}

// fillCache puts what is missing into the cache. Each binary gets its name only
// when it is complete, so a reader needs no lock.
func (f *assetFinder) fillCache(ctx context.Context, wanted []string) error {
	if err := os.MkdirAll(f.cache, 0o755); err != nil {
		return err
	}
	unlock, err := LockFile(ctx, f.cache+".lock")
	if err != nil {
		return err
	}
	defer unlock()

	missing := missingIn(f.cache, wanted) // another program may have been quicker
	if len(missing) == 0 {
		return nil
	}
	staging, err := os.MkdirTemp(filepath.Dir(f.cache), filepath.Base(f.cache)+".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging) //nolint:errcheck // a folder left over harms nobody

	if slices.Contains(missing, apiServerName) || slices.Contains(missing, etcdName) {
		f.tryDownload(ctx, staging, missing)
	}
	if toBuild := missingIn(staging, missing); len(toBuild) > 0 {
		fmt.Fprintf(f.log, "building %s %s from source: takes some minutes, once\n", strings.Join(toBuild, ", "), filepath.Base(f.cache))
		if err := f.build(ctx, staging, toBuild); err != nil {
			return err
		}
	}
	for _, name := range missing {
		if err := os.Rename(filepath.Join(staging, name), filepath.Join(f.cache, name)); err != nil {
			return err
		}
	}
	return nil
}

// tryDownload copies what a download has into staging. There need not be a network,
// so a failure says nothing: the build follows.
func (f *assetFinder) tryDownload(ctx context.Context, staging string, names []string) {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	dir, err := f.download(ctx)
	if err != nil {
		return
	}
	for _, name := range names {
		target := filepath.Join(staging, name)
		if err := CopyExecutable(filepath.Join(dir, name), target); err != nil {
			_ = os.Remove(target)
		}
	}
}

// missingIn returns those of names that are no executable file in dir.
func missingIn(dir string, names []string) []string {
	var missing []string
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

func downloadAssets(ctx context.Context) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	output, err := runGo(ctx, root, "tool", "-modfile="+filepath.Join("hack", "tools", "go.mod"),
		"setup-envtest", "use", downloadSeries, "-p", "path")
	return strings.TrimSpace(output), err
}

func buildAssets(ctx context.Context, dir string, names []string) error {
	var packages []string
	for _, name := range names {
		packages = append(packages, assetPackages[name])
	}
	if err := buildIn(ctx, filepath.Join("hack", "kubernetes"), dir+string(filepath.Separator), versionFlag, packages...); err != nil {
		return err
	}
	if !slices.Contains(names, etcdName) {
		return nil
	}
	// go build names a binary after the last element of its package's path.
	return os.Rename(filepath.Join(dir, "server"), filepath.Join(dir, etcdName))
}

// versionFlag tells a binary of Kubernetes its version: Cluster API refuses servers that
// do not know theirs.
const versionFlag = "-X k8s.io/component-base/version.gitVersion=" + Version

// buildIn builds packages that a module of this repository requires. output is a file for
// one package, or a folder that ends in a separator.
func buildIn(ctx context.Context, module, output, linkerFlags string, packages ...string) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w " + linkerFlags, "-o", output}, packages...)
	_, err = runGo(ctx, filepath.Join(root, module), args...)
	return err
}

// runGo runs the go command in dir and returns what it prints. The command and all
// that it starts end with the context.
func runGo(ctx context.Context, dir string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	// The binaries run here, whatever the caller builds for, and come from exactly
	// the modules that are pinned.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	command.Stdout, command.Stderr = &stdout, &stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 5 * time.Second
	if err := command.Run(); err != nil {
		message := stderr.String()
		return "", fmt.Errorf("go %s in %s: %w: %s", strings.Join(args, " "), dir, err, message[max(0, len(message)-logTailBytes):])
	}
	return stdout.String(), nil
}

// repositoryRoot is the folder of this project's source: the one that this file
// was compiled in, else one around the current folder, as for a program that was
// built without paths.
func repositoryRoot() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if root, found := rootAround(filepath.Dir(file)); found {
			return root, nil
		}
	}
	current, err := os.Getwd()
	if err != nil {
		return "", err
	}
	root, found := rootAround(current)
	if !found {
		return "", fmt.Errorf("the source of this project is not around %s", current)
	}
	return root, nil
}

func rootAround(dir string) (string, bool) {
	for {
		if _, err := os.Stat(filepath.Join(dir, "hack", "kubernetes", "go.mod")); err == nil {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}
