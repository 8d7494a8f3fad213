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

// Package endpoint finds out where agents reach the management cluster, and which
// image and settings Fleet wants its agents to have. The selection controller
// calls it to make the snapshot of a registration.
//
// It reads a few named objects of the management cluster, never lists or watches,
// and never connects to the address that it returns.
package endpoint

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

const (
	// FleetConfigMap is the name of the ConfigMap with Fleet's configuration, in
	// Fleet's namespace.
	FleetConfigMap = "fleet-controller"

	// ClusterInfoNamespace and ClusterInfoConfigMap name the ConfigMap in which a
	// cluster tells its own address to anyone who asks.
	ClusterInfoNamespace = metav1.NamespacePublic
	// ClusterInfoConfigMap is its name.
	ClusterInfoConfigMap = "cluster-info"

	fleetConfigKey = "config"

	// defaultCAKey is the key of a CA where a policy names none.
	defaultCAKey = "ca.crt"
)

var clusterInfo = types.NamespacedName{Namespace: ClusterInfoNamespace, Name: ClusterInfoConfigMap}

// AgentDefaults are settings for agents that hold where Fleet's configuration says
// nothing.
type AgentDefaults struct {
	// Image of the agent. Empty means that there is no default.
	Image string

	// CheckinInterval is the time between two heartbeats. Zero leaves it to the
	// agent.
	CheckinInterval time.Duration

	// Manifests is the version of the manifests that agents are made from, see
	// agent.Manifests. Nothing but this says it.
	Manifests string
}

// Resolver finds addresses and settings. It must not be copied.
type Resolver struct {
	// Reader gets ConfigMaps and Secrets by name. Those of ManagerNamespace must
	// not come from a cache, which would list and watch them.
	Reader client.Reader

	// ManagerNamespace holds the ConfigMaps and Secrets that policies name.
	ManagerNamespace string

	// FleetNamespace holds Fleet's configuration.
	FleetNamespace string

	// Defaults hold where Fleet's configuration says nothing.
	Defaults AgentDefaults

	// SystemRoots are the certificates that agents are taken to trust by
	// themselves. Nil means those of the manager's own system.
	SystemRoots *x509.CertPool

	// parsed is Fleet's configuration as it was last read. Each Cluster asks for it.
	parsed atomic.Pointer[parsedSettings]
}

// parsedSettings are what a text says, or why it cannot be read.
type parsedSettings struct {
	text     string
	settings fleetSettings
	err      error
}

// Error says why an address or a setting cannot be had, and what to do. Whatever
// it does not concern is still resolved.
type Error struct {
	// Reason is a reason of a condition: ManagementClusterUnknown, CAUnavailable,
	// ServerInvalid or AgentImageUnknown.
	Reason string

	// Message is for people. It repeats nothing of what was read.
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Resolve returns what the agents of a policy are made from. The address of the
// management cluster is that of the policy or, where it names none, of Fleet's
// configuration, else of the ConfigMap cluster-info in kube-public. Settings are those
// of the policy, then of Fleet's configuration, then the defaults.
//
// Image is empty where no source names one; ImageUnknown has the words for that.
//
// An error that is an *Error needs someone to change something. The rest of the
// AgentSpec is filled in then; what the error concerns is left empty. Where that is
// the additional CA, so is the address: an agent must not start without it. With any
// other error an object could not be read and nothing is known: try again.
func (r *Resolver) Resolve(ctx context.Context, policy fleetv1.FleetRegistrationPolicySpec) (fleetv1.AgentSpec, error) {
	source := policy.ManagementCluster
	settings, settingsErr := r.settings(ctx)
	if settingsErr != nil && !isError(settingsErr) {
		return fleetv1.AgentSpec{}, settingsErr
	}
	agent := settings.agent(policy.Agent, r.Defaults)
	if settingsErr != nil {
		// The image that Fleet wants is in there, so no default takes its place.
		agent.Image = ""
	}

	var err error
	switch {
	case source.Server != "" || source.CA != (fleetv1.CASource{}):
		agent.ManagementCluster, err = r.fromPolicy(ctx, source)
		if err == nil {
			err = withReason(settingsErr, fleetv1.AgentImageUnknownReason)
		}
	case settingsErr != nil:
		// A typing error must not send agents to the next source's address.
		err = withReason(settingsErr, fleetv1.ManagementClusterUnknownReason)
	case settings.server != "":
		agent.ManagementCluster, err = r.fromFleet(settings)
	default:
		agent.ManagementCluster, err = r.fromClusterInfo(ctx, settings.tlsMode)
	}
	if err != nil && !isError(err) {
		return fleetv1.AgentSpec{}, err
	}
	ca, caErr := r.additionalCA(ctx, policy.Agent)
	switch {
	case caErr != nil && !isError(caErr):
		return fleetv1.AgentSpec{}, caErr
	case caErr != nil:
		agent.ManagementCluster = fleetv1.ManagementClusterEndpoint{}
		err = cmp.Or(err, caErr)
	}
	agent.AdditionalCAData = ca
	return agent, err
}

// FleetServer returns the address in Fleet's configuration, which Fleet needs to register
// clusters by itself. The error is an *Error where it has none, or not a valid one.
func (r *Resolver) FleetServer(ctx context.Context) (string, error) {
	settings, err := r.settings(ctx)
	if err != nil {
		return "", err
	}
	if settings.server == "" {
		return "", &Error{
			Reason:  fleetv1.ManagementClusterUnknownReason,
			Message: fmt.Sprintf("Key %q of ConfigMap %s has no apiServerURL, without which Fleet registers no cluster: set it with Fleet's chart", fleetConfigKey, r.fleetConfig()),
		}
	}
	endpoint, err := r.fromFleet(settings)
	return endpoint.Server, err
}

// ImageUnknown returns the error for an AgentSpec without an image.
func (r *Resolver) ImageUnknown() *Error {
	return &Error{
		Reason: fleetv1.AgentImageUnknownReason,
		Message: fmt.Sprintf("No source names the image of Fleet's agent: set agentImage in key %q of ConfigMap %s, or the manager's flag --agent-image",
			fleetConfigKey, r.fleetConfig()),
	}
}

// fromPolicy returns the address that a policy names. Its CA is always pinned.
func (r *Resolver) fromPolicy(ctx context.Context, source fleetv1.ManagementClusterSource) (fleetv1.ManagementClusterEndpoint, error) {
	none := fleetv1.ManagementClusterEndpoint{}
	if err := ValidateServer(source.Server); err != nil {
		return none, &Error{
			Reason:  fleetv1.ServerInvalidReason,
			Message: fmt.Sprintf("The policy's spec.managementCluster.server is not valid: %v", err),
		}
	}
	endpoint := fleetv1.ManagementClusterEndpoint{Server: source.Server}
	if source.CA == (fleetv1.CASource{}) {
		return endpoint, nil
	}
	certificates, err := r.readCA(ctx, source.CA, "spec.managementCluster.ca")
	if err != nil {
		return none, err
	}
	endpoint.CertificateAuthorityData = certificates
	return endpoint, nil
}

// caFromConfigMap returns the value of a key, and words for where it is from.
func (r *Resolver) caFromConfigMap(ctx context.Context, ref fleetv1.KeyReference) (bundle []byte, from string, err error) {
	name := types.NamespacedName{Namespace: r.ManagerNamespace, Name: ref.Name}
	configMap := &corev1.ConfigMap{}
	if found, err := r.get(ctx, "ConfigMap", name, configMap); err != nil {
		return nil, "", err
	} else if !found {
		return nil, "", caUnavailable("ConfigMap %s, which the policy names for the CA, is not there", name)
	}
	key := keyOf(ref)
	if text, found := configMap.Data[key]; found {
		bundle = []byte(text)
	} else if bundle, found = configMap.BinaryData[key]; !found {
		return nil, "", caUnavailable("ConfigMap %s, which the policy names for the CA, has no key %q", name, key)
	}
	return bundle, fmt.Sprintf("Key %q of ConfigMap %s", key, name), nil
}

// caFromSecret returns the value of a key, and words for where it is from.
func (r *Resolver) caFromSecret(ctx context.Context, ref fleetv1.KeyReference) (bundle []byte, from string, err error) {
	name := types.NamespacedName{Namespace: r.ManagerNamespace, Name: ref.Name}
	secret := &corev1.Secret{}
	if found, err := r.get(ctx, "Secret", name, secret); err != nil {
		return nil, "", err
	} else if !found {
		return nil, "", caUnavailable("Secret %s, which the policy names for the CA, is not there", name)
	}
	key := keyOf(ref)
	bundle, found := secret.Data[key]
	if !found {
		return nil, "", caUnavailable("Secret %s, which the policy names for the CA, has no key %q", name, key)
	}
	return bundle, fmt.Sprintf("Key %q of Secret %s", key, name), nil
}

func keyOf(ref fleetv1.KeyReference) string {
	if ref.Key == "" {
		return defaultCAKey
	}
	return ref.Key
}

// fromFleet returns the address in Fleet's configuration.
func (r *Resolver) fromFleet(settings fleetSettings) (fleetv1.ManagementClusterEndpoint, error) {
	none := fleetv1.ManagementClusterEndpoint{}
	if err := ValidateServer(settings.server); err != nil {
		return none, &Error{
			Reason:  fleetv1.ServerInvalidReason,
			Message: fmt.Sprintf("apiServerURL in key %q of ConfigMap %s is not valid: %v", fleetConfigKey, r.fleetConfig(), err),
		}
	}
	if settings.caErr != nil {
		return none, caUnavailable("apiServerCA in key %q of ConfigMap %s %v", fleetConfigKey, r.fleetConfig(), settings.caErr)
	}
	return fleetv1.ManagementClusterEndpoint{
		Server: settings.server, CertificateAuthorityData: settings.ca,
	}, nil
}

// fromClusterInfo returns the address that the management cluster tells of itself.
func (r *Resolver) fromClusterInfo(ctx context.Context, tlsMode string) (fleetv1.ManagementClusterEndpoint, error) {
	none := fleetv1.ManagementClusterEndpoint{}
	configMap := &corev1.ConfigMap{}
	found, err := r.get(ctx, "ConfigMap", clusterInfo, configMap)
	if err != nil {
		return none, err
	}
	why := "is not there"
	if found {
		endpoint, err := parseClusterInfo(configMap.Data["kubeconfig"])
		if err == nil {
			endpoint.CertificateAuthorityData = r.pinned(endpoint.CertificateAuthorityData, tlsMode)
			return endpoint, nil
		}
		why = err.Error()
	}
	return none, &Error{
		Reason: fleetv1.ManagementClusterUnknownReason,
		Message: fmt.Sprintf("No source says where agents find the management cluster: set spec.managementCluster of a policy, or apiServerURL and apiServerCA in key %q of ConfigMap %s (ConfigMap %s %s)",
			fleetConfigKey, r.fleetConfig(), clusterInfo, why),
	}
}

// pinned returns the CA for agents to hold on to. In Fleet's mode "system-store",
// its chart's default, Fleet leaves the CA out when the system vouches for the
// server, which it finds out by connecting. Here the CA itself is asked: it is left
// out only if the system's certificates include or have signed all of it. A private
// CA always stays, or no agent could connect.
func (r *Resolver) pinned(ca []byte, tlsMode string) []byte {
	if tlsMode != tlsModeSystemStore || len(ca) == 0 {
		return ca
	}
	roots := r.SystemRoots
	if roots == nil {
		var err error
		if roots, err = x509.SystemCertPool(); err != nil {
			return ca
		}
	}
	if trustedBy(roots, ca) {
		return nil
	}
	return ca
}

// settings reads Fleet's configuration. It is empty where there is none.
func (r *Resolver) settings(ctx context.Context) (fleetSettings, error) {
	configMap := &corev1.ConfigMap{}
	found, err := r.get(ctx, "ConfigMap", r.fleetConfig(), configMap)
	if err != nil || !found {
		return fleetSettings{}, err
	}
	parsed := r.parse(ctx, configMap.Data[fleetConfigKey])
	if parsed.err != nil {
		return fleetSettings{}, &Error{Message: fmt.Sprintf("Key %q of ConfigMap %s %v", fleetConfigKey, r.fleetConfig(), parsed.err)}
	}
	return parsed.settings, nil
}

// parse reads a text that is another one than before, and logs which of its fields are
// ignored.
func (r *Resolver) parse(ctx context.Context, text string) *parsedSettings {
	if parsed := r.parsed.Load(); parsed != nil && parsed.text == text {
		return parsed
	}
	parsed := &parsedSettings{text: text}
	parsed.settings, parsed.err = parseFleetSettings(text)
	parsed.settings.ca = r.pinned(parsed.settings.ca, parsed.settings.tlsMode)
	previous := r.parsed.Swap(parsed)
	if ignored := parsed.settings.ignored; len(ignored) > 0 && (previous == nil || previous.text != text) {
		ctrl.LoggerFrom(ctx).Info("Ignoring fields of Fleet's configuration that have no usable value",
			"ConfigMap", r.fleetConfig().String(), "fields", strings.Join(ignored, ", "))
	}
	return parsed
}

func (r *Resolver) fleetConfig() types.NamespacedName {
	return types.NamespacedName{Namespace: r.FleetNamespace, Name: FleetConfigMap}
}

// get reads an object. It says false where the object is not there.
func (r *Resolver) get(ctx context.Context, kind string, name types.NamespacedName, obj client.Object) (bool, error) {
	err := r.Reader.Get(ctx, name, obj)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	return true, nil
}
