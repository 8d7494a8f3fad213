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

package token

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// Trial tries tokens against the management cluster.
type Trial struct {
	config *rest.Config
	client *http.Client
}

// NewTrial returns a Trial that goes where config does, without its credentials.
func NewTrial(config *rest.Config) (*Trial, error) {
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.GroupVersion = &fleet.GroupVersion
	anonymous.APIPath = "/apis"
	anonymous.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	// A trial belongs to a push, whose own requests the manager limits.
	anonymous.QPS = -1
	client, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("making a client for trials of tokens: %w", err)
	}
	return &Trial{config: anonymous, client: client}, nil
}

// Try does with the token what an agent does first: it lists the BundleDeployments in
// its cluster namespace. The error is the API server's, wrapped: unauthorized where it
// does not accept the token, forbidden where the account lacks the right, which it does
// for a moment after that was given.
func (t *Trial) Try(ctx context.Context, token, namespace string) error {
	client, err := rest.RESTClientForConfigAndClient(t.config, t.client)
	if err != nil {
		return fmt.Errorf("trying a token: %w", err)
	}
	err = client.Get().Namespace(namespace).Resource("bundledeployments").Param("limit", "1").
		// As an agent does: what the API server has in memory. To be sure that there is nothing
		// newer, it would wait up to 100 ms.
		Param("resourceVersion", "0").
		// Whether is all that matters, so no more than metadata is asked for.
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json").
		SetHeader("Authorization", "Bearer "+token).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("trying a token in namespace %s: %w", namespace, err)
	}
	return nil
}
