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
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// target is what the path of a request points at.
type target struct {
	schema.GroupVersionResource
	verb        string
	namespace   string // empty for a resource of the cluster, or all namespaces
	name        string // empty for the collection
	subresource string
}

var requestInfos = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// parseTarget returns false for a path that is not one of a resource.
func parseTarget(r *http.Request) (target, bool) {
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest || info.Resource == "" || len(info.Parts) > 3 {
		return target{}, false
	}
	t := target{
		GroupVersionResource: schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
		verb:                 info.Verb,
		namespace:            info.Namespace,
		subresource:          info.Subresource,
	}
	// The info's own name can also come from a field selector.
	if len(info.Parts) > 1 {
		t.name = info.Parts[1]
	}
	if t.GroupResource() == namespaces {
		t.namespace = ""
	}
	return t, true
}

// Resources that a server treats in a way of its own.
var (
	namespaces = schema.GroupResource{Resource: "namespaces"}
	secrets    = schema.GroupResource{Resource: "secrets"}
)

// served is a resource that the catalogue knows.
type served struct {
	kind       string
	namespaced bool
}

// catalogue knows kinds and scopes of resources.
type catalogue struct {
	unserved sets.Set[schema.GroupResource]
	known    map[schema.GroupVersionResource]served

	mu      sync.Mutex
	learned map[schema.GroupResource]string // kinds that clients used
}

func newCatalogue(options Options) *catalogue {
	c := &catalogue{
		unserved: sets.New(options.Unserved...),
		known:    builtIn(),
		learned:  map[schema.GroupResource]string{},
	}
	if len(options.Resources) > 0 {
		c.known = maps.Clone(c.known)
	}
	for _, r := range options.Resources {
		gvr := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}
		c.known[gvr] = served{kind: r.Kind, namespaced: r.Namespaced}
	}
	return c
}

// serves says whether requests for t find anything to talk to.
func (c *catalogue) serves(t target) bool {
	if c.unserved.Has(t.GroupResource()) {
		return false
	}
	known, found := c.known[t.GroupVersionResource]
	if !found {
		return true
	}
	// Only lists of namespaced resources go across the namespaces. (A POST without
	// the namespace is told so by create.)
	return known.namespaced == (t.namespace != "") || known.namespaced && t.name == ""
}

// learn notes the kind of what a client sent.
func (c *catalogue) learn(resource schema.GroupResource, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learned[resource] = kind
}

// kind returns the kind of resource: known, learned or guessed.
func (c *catalogue) kind(resource schema.GroupVersionResource) string {
	if known, found := c.known[resource]; found {
		return known.kind
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind, found := c.learned[resource.GroupResource()]; found {
		return kind
	}
	singular := strings.TrimSuffix(resource.Resource, "s")
	return strings.ToUpper(singular[:1]) + singular[1:]
}

// groupVersions returns what discovery lists, sorted.
func (c *catalogue) groupVersions() []schema.GroupVersion {
	found := sets.New[schema.GroupVersion]()
	for resource := range c.known {
		if !c.unserved.Has(resource.GroupResource()) {
			found.Insert(resource.GroupVersion())
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupVersion) int {
		return strings.Compare(a.String(), b.String())
	})
}

// resourcesOf returns what discovery lists for a group and version, sorted by name.
func (c *catalogue) resourcesOf(gv schema.GroupVersion) []metav1.APIResource {
	verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	var out []metav1.APIResource
	for resource, known := range c.known {
		if resource.GroupVersion() != gv || c.unserved.Has(resource.GroupResource()) {
			continue
		}
		out = append(out, metav1.APIResource{
			Name: resource.Resource, SingularName: strings.ToLower(known.kind), Kind: known.kind,
			Namespaced: known.namespaced, Verbs: verbs,
		})
	}
	slices.SortFunc(out, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// builtIn returns the resources that client-go has types of.
var builtIn = sync.OnceValue(func() map[schema.GroupVersionResource]served {
	object := reflect.TypeFor[metav1.Object]()
	out := map[schema.GroupVersionResource]served{}
	for gvk, goType := range scheme.Scheme.AllKnownTypes() {
		listed := scheme.Scheme.Recognizes(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if !listed || !reflect.PointerTo(goType).Implements(object) {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		if gvk.Kind == "Endpoints" {
			resource.Resource = "endpoints"
		}
		out[resource] = served{kind: gvk.Kind, namespaced: !clusterScoped.Has(gvk.Kind)}
	}
	return out
})

// clusterScoped are the built-in kinds that belong to no namespace.
var clusterScoped = sets.New(
	"APIService", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding", "ClusterTrustBundle",
	"CSIDriver", "CSINode", "ComponentStatus", "DeviceClass", "DeviceTaintRule", "FlowSchema", "IPAddress",
	"IngressClass", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
	"Namespace", "Node", "PersistentVolume", "PriorityClass", "PriorityLevelConfiguration", "ResourceSlice",
	"RuntimeClass", "ServiceCIDR", "StorageClass", "StorageVersion", "StorageVersionMigration",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
	"VolumeAttachment", "VolumeAttributesClass",
)
