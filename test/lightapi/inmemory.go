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
	"mime"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// inMemoryResources are what the API server of Cluster API's in-memory provider serves
// (Cluster API 1.14, test/infrastructure/inmemory/pkg/server/api, const.go).
var inMemoryResources = sets.New(
	schema.GroupResource{Resource: "configmaps"},
	schema.GroupResource{Resource: "endpoints"},
	schema.GroupResource{Resource: "namespaces"},
	schema.GroupResource{Resource: "nodes"},
	schema.GroupResource{Resource: "pods"},
	schema.GroupResource{Resource: "secrets"},
	schema.GroupResource{Resource: "serviceaccounts"},
	schema.GroupResource{Resource: "services"},
	schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	schema.GroupResource{Group: "apps", Resource: "daemonsets"},
	schema.GroupResource{Group: "apps", Resource: "deployments"},
	schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"},
	schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
	schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
	schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "roles"},
	schema.GroupResource{Group: "storage.k8s.io", Resource: "csidrivers"},
	schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"},
)

// refuseInMemory answers what the in-memory provider's API server would refuse, in
// plain text as it does. It returns false for what that would do.
func refuseInMemory(w http.ResponseWriter, r *http.Request, t target) bool {
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case t.subresource != "":
		http.Error(w, "404: Page Not Found", http.StatusNotFound)
	case t.verb == "deletecollection":
		http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
	case t.verb == "patch" && types.PatchType(mediaType) != types.MergePatchType && types.PatchType(mediaType) != types.StrategicMergePatchType:
		http.Error(w, "415: Unsupported Media Type", http.StatusUnsupportedMediaType)
	case !inMemoryResources.Has(t.GroupResource()):
		http.Error(w, "no APIResourceList defined for "+t.Group, http.StatusInternalServerError)
	default:
		return false
	}
	return true
}
