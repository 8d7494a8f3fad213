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

package env

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AgentImage is the image in Fleet's configuration. Nothing pulls it here.
const AgentImage = "rancher/fleet-agent:v0.15.0"

// object is one of what config/ renders to.
type object = unstructured.Unstructured

// InstallClusterAPI installs the CRDs of Cluster API, where Options.NoClusterAPI left
// them out, and the controllers that Options.ClusterAPI asks for. It returns once the CRDs
// are served and the webhooks answer.
func (l *Lab) InstallClusterAPI(ctx context.Context) error {
	if l.opts.ClusterAPI != ClusterAPINone {
		return l.startProviders(ctx)
	}
	moduleDir, err := goOutput(ctx, l.root, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	crds, err := clusterAPICRDs(moduleDir)
	if err != nil {
		return err
	}
	return l.installCRDs(ctx, crds)
}

// InstallFleet installs the CRDs of Fleet, where Options.NoFleet left them out, and
// returns once they are served.
func (l *Lab) InstallFleet(ctx context.Context) error {
	crds, err := fleetCRDs(l.opts.FleetCRDs)
	if err != nil {
		return err
	}
	return l.installCRDs(ctx, crds)
}

// install puts on the management cluster what an administrator does.
func (l *Lab) install(ctx context.Context, config []*object) error {
	var crds []*apiextensionsv1.CustomResourceDefinition
	var rest []*object
	for _, o := range config {
		switch o.GetKind() {
		case "CustomResourceDefinition":
			crd, err := toCRD(o)
			if err != nil {
				return err
			}
			crds = append(crds, crd)
		case "Deployment":
			// The manager runs as a process.
		case "Namespace":
			if err := l.apply(ctx, o); err != nil {
				return err
			}
		default:
			rest = append(rest, o)
		}
	}
	if err := l.installCRDs(ctx, crds); err != nil {
		return err
	}
	if !l.opts.NoClusterAPI {
		if err := l.InstallClusterAPI(ctx); err != nil {
			return err
		}
	}
	if !l.opts.NoFleet {
		if err := l.InstallFleet(ctx); err != nil {
			return err
		}
	}
	for _, o := range rest {
		if err := l.apply(ctx, o); err != nil {
			return err
		}
	}
	return l.configureFleet(ctx)
}

func (l *Lab) apply(ctx context.Context, o *object) error {
	if err := l.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// installCRDs creates crds and waits until all of them are served.
func (l *Lab) installCRDs(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) error {
	for _, crd := range crds {
		if err := l.Client.Create(ctx, crd, fieldOwner); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		if err := l.waitServed(ctx, crd); err != nil {
			return fmt.Errorf("waiting for CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

// waitServed waits until the kind can be listed: the condition Established comes a
// moment earlier. A list that meets the old storage of a CRD whose names were just accepted
// hangs until the server gives it up, so it is tried again soon.
func (l *Lab) waitServed(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	version := crd.Spec.Versions[0]
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			version = crd.Spec.Versions[i]
		}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.APIVersion = crd.Spec.Group + "/" + version.Name
	list.Kind = crd.Spec.Names.Kind + "List"
	var last error
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		last = l.Client.List(attempt, list, client.Limit(1))
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// configureFleet makes what Fleet's chart makes and we read.
func (l *Lab) configureFleet(ctx context.Context) error {
	settings := map[string]any{
		"agentImage":           AgentImage,
		"agentCheckinInterval": l.opts.CheckinInterval.String(),
		"apiServerURL":         l.management.URL(),
		"apiServerCA":          base64.StdEncoding.EncodeToString(l.management.CA().CertificatePEM()),
	}
	if l.opts.FleetController != "" {
		// Without these, which are the chart's, Fleet imports no cluster.
		settings["agentTLSMode"] = "system-store"
		settings["garbageCollectionInterval"] = "15m"
	}
	config, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	for _, name := range []string{fleetNamespace, ManagerNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := l.Client.Create(ctx, namespace, fieldOwner); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "fleet-controller"},
		Data:       map[string]string{"config": string(config)},
	}
	if err := l.Client.Create(ctx, configMap, fieldOwner); err != nil {
		return fmt.Errorf("creating Fleet's configuration: %w", err)
	}
	return nil
}

// Render returns the objects that a kustomization of the project's source makes. dir is
// its folder below the source.
func Render(ctx context.Context, dir string) ([]*unstructured.Unstructured, error) {
	root, err := sourceRoot()
	if err != nil {
		return nil, err
	}
	return renderConfig(ctx, root, dir)
}

// renderConfig builds the kustomization in dir, with kubectl where there is one, else
// with the kustomize that the project pins.
func renderConfig(ctx context.Context, root, dir string) ([]*object, error) {
	var output string
	var err error
	if kubectl, lookErr := exec.LookPath("kubectl"); lookErr == nil {
		output, err = commandOutput(ctx, root, kubectl, "kustomize", dir)
	} else {
		output, err = goOutput(ctx, root, "tool", "-modfile="+filepath.Join("hack", "tools", "go.mod"), "kustomize", "build", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", dir, err)
	}
	return parse([]byte(output))
}

// parse reads the YAML documents of content.
func parse(content []byte) ([]*object, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var objects []*object
	for {
		o := &object{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// sourceRoot is the folder of the project's source: it is around this file.
func sourceRoot() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", errors.New("the lab needs the project's source and was built without its path")
	}
	root := filepath.Join(filepath.Dir(file), "..", "..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return "", fmt.Errorf("the lab needs the project's source: %w", err)
	}
	return root, nil
}

func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	return commandOutput(ctx, dir, "go", args...)
}

func commandOutput(ctx context.Context, dir, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	command.WaitDelay = 5 * time.Second // for what it started itself
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(output)), nil
}

func restConfig(kubeconfig []byte) (*rest.Config, error) {
	return clientcmd.RESTConfigFromKubeConfig(kubeconfig)
}

// poll calls condition until it is true or fails.
func poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, condition)
}
