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
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const patience = 10 * time.Second

// widgets are a resource that nobody told the server of.
var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func newServer(t *testing.T, options Options) *Server {
	t.Helper()
	server, err := New(options)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Close)
	return server
}

// controllerClient finds kinds by discovery, as most tests will.
func controllerClient(t *testing.T, server *Server) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(server.Config(), client.Options{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func clientset(t *testing.T, server *Server) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(server.Config())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func widgetClient(t *testing.T, server *Server) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(server.Config())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c.Resource(widgets).Namespace("default")
}

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": name, "namespace": "default"},
		"spec":       spec,
	}}
}
