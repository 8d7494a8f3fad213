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

package endpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Bounds of imagePullSecrets in the API.
const (
	maxPullSecrets      = 8
	maxPullSecretLength = 230
)

// agent returns the settings of a policy, filled up with Fleet's and then with the
// defaults. The management cluster and the additional CA are not among them.
func (s fleetSettings) agent(policy fleetv1.AgentSettings, defaults AgentDefaults) fleetv1.AgentSpec {
	policy = *policy.DeepCopy()
	agent := fleetv1.AgentSpec{
		Manifests:                 defaults.Manifests,
		Image:                     s.imageFor(policy, defaults),
		ImagePullPolicy:           cmp.Or(policy.ImagePullPolicy, s.imagePullPolicy),
		ImagePullSecrets:          policy.ImagePullSecrets,
		Env:                       policy.Env,
		Proxy:                     policy.Proxy,
		Resources:                 policy.Resources,
		NodeSelector:              policy.NodeSelector,
		Tolerations:               policy.Tolerations,
		Affinity:                  policy.Affinity,
		PriorityClassName:         policy.PriorityClassName,
		CheckinInterval:           policy.CheckinInterval,
		GarbageCollectionInterval: policy.GarbageCollectionInterval,
	}
	if len(agent.ImagePullSecrets) == 0 {
		agent.ImagePullSecrets = slices.Clone(s.imagePullSecrets)
	}
	agent.CheckinInterval.Duration = cmp.Or(agent.CheckinInterval.Duration, s.checkinInterval, defaults.CheckinInterval)
	agent.GarbageCollectionInterval.Duration = cmp.Or(agent.GarbageCollectionInterval.Duration, s.garbageCollectionInterval)
	agent.Workers.BundleDeployment = cmp.Or(policy.Workers.BundleDeployment, s.workers.BundleDeployment)
	agent.Workers.Drift = cmp.Or(policy.Workers.Drift, s.workers.Drift)
	// To name what is the default changes no agent, so it must not look like a change.
	if policy.Preset != fleetv1.PresetStandard {
		agent.Preset = policy.Preset
	}
	if policy.Network != fleetv1.NetworkPod && agent.Preset != fleetv1.PresetBootstrap {
		agent.Network = policy.Network
	}
	if policy.Placement != fleetv1.PlacementWorkload {
		agent.Placement = policy.Placement
	}
	return agent
}

// imageFor returns the agent's image, with a registry before it. It is empty where no
// source names one, or it does not fit into the API.
func (s fleetSettings) imageFor(policy fleetv1.AgentSettings, defaults AgentDefaults) string {
	image := cmp.Or(policy.Image, s.image, defaults.Image)
	registry := cmp.Or(policy.Registry, s.registry)
	if image == s.image && policy.Registry != "" {
		// Fleet's chart has put Fleet's own registry before it, which the policy's replaces.
		image = strings.TrimPrefix(image, s.registry+"/")
	}
	if !namesRegistry(image) {
		image = withRegistry(registry, image)
	}
	if len(image) > maxImageLength {
		return ""
	}
	return image
}

// namesRegistry tells whether the first part of an image's name is a host, as
// container runtimes tell it.
func namesRegistry(image string) bool {
	host, _, found := strings.Cut(image, "/")
	return found && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// additionalCA returns the certificates that a policy wants agents to trust, nil where
// it names none.
func (r *Resolver) additionalCA(ctx context.Context, policy fleetv1.AgentSettings) ([]byte, error) {
	if policy.AdditionalCA == (fleetv1.CASource{}) {
		return nil, nil
	}
	return r.readCA(ctx, policy.AdditionalCA, "spec.agent.additionalCA")
}

// readCA returns the certificates of a source that a policy names in a field.
func (r *Resolver) readCA(ctx context.Context, ca fleetv1.CASource, field string) ([]byte, error) {
	var bundle []byte
	var from string
	var err error
	switch {
	case ca.Inline != "" && ca.ConfigMap == (fleetv1.KeyReference{}) && ca.Secret == (fleetv1.KeyReference{}):
		bundle, from = []byte(ca.Inline), fmt.Sprintf("The policy's %s.inline", field)
	case ca.Inline == "" && ca.ConfigMap.Name != "" && ca.Secret == (fleetv1.KeyReference{}):
		bundle, from, err = r.caFromConfigMap(ctx, ca.ConfigMap)
	case ca.Inline == "" && ca.ConfigMap == (fleetv1.KeyReference{}) && ca.Secret.Name != "":
		bundle, from, err = r.caFromSecret(ctx, ca.Secret)
	default:
		err = caUnavailable("The policy's %s must name exactly one source", field)
	}
	if err != nil {
		return nil, err
	}
	certificates, err := ParseCA(bundle)
	if err != nil {
		return nil, caUnavailable("%s %v", from, err)
	}
	return certificates, nil
}

// pullSecrets returns the names of a list of references to Secrets. A list that has
// any other, or too many, is ignored.
func (f *fields) pullSecrets(name string) []string {
	var references []struct{ Name string }
	raw, found := f.values[name]
	if !found {
		return nil
	}
	if err := json.Unmarshal(raw, &references); err != nil || len(references) > maxPullSecrets {
		f.ignore(name)
		return nil
	}
	var names []string
	for _, reference := range references {
		if len(reference.Name) > maxPullSecretLength || len(validation.IsDNS1123Subdomain(reference.Name)) > 0 {
			f.ignore(name)
			return nil
		}
		if !slices.Contains(names, reference.Name) {
			names = append(names, reference.Name)
		}
	}
	return names
}
