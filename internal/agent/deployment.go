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

package agent

import (
	"maps"
	"path"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

const (
	// agentUser is the user and group of the agent's image.
	agentUser = 1000

	// probePort is where the agent serves /healthz, while its manager runs.
	probePort = 8081

	tokenVolume = "token"

	// On the network of a node others may have the agent's ports, and everybody who
	// reaches the node would reach them.
	hostAddress     = "127.0.0.1"
	hostMetricsPort = 18480
	hostProbePort   = 18481

	caVolume = "ca"
	caDir    = "/etc/capi-fleet/ca"

	// systemCADirs are the folders in which Go programs look for certificates unless
	// SSL_CERT_DIR names others (crypto/x509, certDirectories).
	systemCADirs = "/etc/ssl/certs:/etc/pki/tls/certs"

	// alwaysDirect is what no proxy is asked for. The kubelet puts the address of the
	// workload cluster's own API server into it.
	alwaysDirect = "$(KUBERNETES_SERVICE_HOST),.svc,.cluster.local"
)

// deployment returns the agent's Deployment, without its revision. The token has
// no part in it: a new one must not restart the agent.
func deployment(in Input) *appsv1.Deployment {
	podLabels := PodLabels()
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: ours(in, Namespace, Name),
		Spec: appsv1.DeploymentSpec{
			// One is enough: a second would stand by behind the lease, where the
			// liveness probe finds nothing and kills it.
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: podLabels},
			Strategy: strategy(in.Agent),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      podLabels,
					Annotations: map[string]string{podRevisionAnnotation: podRevision(in)},
				},
				Spec: podSpec(in),
			},
		},
	}
}

// onHost tells whether the agent is in the network of its node.
func onHost(settings fleetv1.AgentSpec) bool {
	return settings.Network == fleetv1.NetworkHost || settings.Preset == fleetv1.PresetBootstrap
}

// strategy ends the old pod first where the new one needs its ports.
func strategy(settings fleetv1.AgentSpec) appsv1.DeploymentStrategy {
	if onHost(settings) {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	return appsv1.DeploymentStrategy{}
}

func podSpec(in Input) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: Name,
		HostNetwork:        onHost(in.Agent),
		DNSPolicy:          dnsPolicy(in.Agent),
		PriorityClassName:  in.Agent.PriorityClassName,
		ImagePullSecrets:   pullSecretReferences(in),
		NodeSelector:       nodeSelector(in.Agent),
		Tolerations:        tolerations(in.Agent),
		Affinity:           in.Agent.Affinity.DeepCopy(),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      new(int64(agentUser)),
			RunAsGroup:     new(int64(agentUser)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{container(in)},
		Volumes:    volumes(in),
	}
}

// dnsPolicy makes a pod on the network of its node use the cluster's DNS all the same.
// Before there is a CNI there is none, only that of the node.
func dnsPolicy(settings fleetv1.AgentSpec) corev1.DNSPolicy {
	switch {
	case settings.Preset == fleetv1.PresetBootstrap:
		return corev1.DNSDefault
	case onHost(settings):
		return corev1.DNSClusterFirstWithHostNet
	}
	return ""
}

func nodeSelector(settings fleetv1.AgentSpec) map[string]string {
	selector := map[string]string{}
	for key, value := range settings.NodeSelector {
		selector[key] = string(value)
	}
	selector[corev1.LabelOSStable] = "linux"
	return selector
}

func tolerations(settings fleetv1.AgentSpec) []corev1.Toleration {
	all := []corev1.Toleration{
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Operator: corev1.TolerationOpEqual, Value: "true", Effect: corev1.TaintEffectNoSchedule},
		{Key: "cattle.io/os", Operator: corev1.TolerationOpEqual, Value: "linux", Effect: corev1.TaintEffectNoSchedule},
	}
	if settings.Preset == fleetv1.PresetBootstrap {
		all = append(all,
			corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
			corev1.Toleration{Key: "node.cluster.x-k8s.io/uninitialized", Operator: corev1.TolerationOpExists},
		)
	}
	return append(all, settings.Tolerations...)
}

func volumes(in Input) []corev1.Volume {
	all := []corev1.Volume{
		emptyDir("kube"),
		emptyDir("tmp"),
		secretVolume(tokenVolume, Name, tokenKey),
	}
	if len(in.Agent.AdditionalCAData) == 0 {
		return all
	}
	return append(all, corev1.Volume{
		Name: caVolume,
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: Name},
			Items:                []corev1.KeyToPath{{Key: additionalCAKey, Path: additionalCAKey}},
			DefaultMode:          new(int32(0o444)),
		}},
	})
}

// secretVolume has a file for each of those keys of a Secret.
func secretVolume(volume, secret string, keys ...string) corev1.Volume {
	// Files of a Secret belong to root, and the agent is not root.
	source := &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(int32(0o444))}
	for _, key := range keys {
		source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
	}
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: source}}
}

func container(in Input) corev1.Container {
	return corev1.Container{
		Name:            Name,
		Image:           in.Agent.Image,
		ImagePullPolicy: corev1.PullPolicy(in.Agent.ImagePullPolicy),
		Command:         []string{"fleetagent"},
		Env:             environment(in),
		Resources:       resources(in.Agent),
		VolumeMounts:    volumeMounts(in),
		LivenessProbe:   livenessProbe(in.Agent),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Privileged:               new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

func resources(settings fleetv1.AgentSpec) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: maps.Clone(settings.Resources.Requests),
		Limits:   maps.Clone(settings.Resources.Limits),
	}
}

func volumeMounts(in Input) []corev1.VolumeMount {
	all := []corev1.VolumeMount{
		{Name: "kube", MountPath: "/.kube"},
		{Name: "tmp", MountPath: "/tmp"},
		// The whole volume and no sub-path: only then the kubelet renews the file.
		{Name: tokenVolume, MountPath: tokenDir(in), ReadOnly: true},
	}
	if len(in.Agent.AdditionalCAData) > 0 {
		all = append(all, corev1.VolumeMount{Name: caVolume, MountPath: caDir, ReadOnly: true})
	}
	return all
}

func environment(in Input) []corev1.EnvVar {
	checkin := ""
	if d := in.Agent.CheckinInterval.Duration; d > 0 {
		checkin = d.String()
	}
	env := []corev1.EnvVar{
		{Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
		// Empty: the agent is in its default namespace and minds the whole cluster.
		{Name: "AGENT_SCOPE", Value: ""},
		{Name: "CHECKIN_INTERVAL", Value: checkin},
		// The agent refuses to start without these three.
		{Name: "CATTLE_ELECTION_LEASE_DURATION", Value: "30s"},
		{Name: "CATTLE_ELECTION_RETRY_PERIOD", Value: "10s"},
		{Name: "CATTLE_ELECTION_RENEW_DEADLINE", Value: "25s"},
	}
	if n := in.Agent.Workers.BundleDeployment; n > 0 {
		env = append(env, corev1.EnvVar{Name: "BUNDLEDEPLOYMENT_RECONCILER_WORKERS", Value: strconv.Itoa(int(n))})
	}
	if n := in.Agent.Workers.Drift; n > 0 {
		env = append(env, corev1.EnvVar{Name: "DRIFT_RECONCILER_WORKERS", Value: strconv.Itoa(int(n))})
	}
	if onHost(in.Agent) {
		env = append(env,
			corev1.EnvVar{Name: "FLEET_AGENT_METRICS_BIND_ADDRESS", Value: hostAddress + ":" + strconv.Itoa(hostMetricsPort)},
			corev1.EnvVar{Name: "FLEET_AGENT_PROBE_BIND_ADDRESS", Value: hostAddress + ":" + strconv.Itoa(hostProbePort)})
	}
	if len(in.Agent.AdditionalCAData) > 0 {
		env = append(env, corev1.EnvVar{Name: "SSL_CERT_DIR", Value: systemCADirs + ":" + caDir})
	}
	for _, v := range in.Agent.Env {
		env = append(env, corev1.EnvVar{Name: v.Name, Value: literal(v.Value)})
	}
	// The last, for their references to the variables before them.
	return append(env, proxyEnvironment(in.Agent.Proxy)...)
}

func proxyEnvironment(proxy fleetv1.ProxySettings) []corev1.EnvVar {
	if proxy == (fleetv1.ProxySettings{}) {
		return nil
	}
	var env []corev1.EnvVar
	if proxy.HTTPProxy != "" {
		env = append(env, corev1.EnvVar{Name: "HTTP_PROXY", Value: literal(proxy.HTTPProxy)})
	}
	if proxy.HTTPSProxy != "" {
		env = append(env, corev1.EnvVar{Name: "HTTPS_PROXY", Value: literal(proxy.HTTPSProxy)})
	}
	direct := alwaysDirect
	if proxy.NoProxy != "" {
		direct += "," + literal(proxy.NoProxy)
	}
	return append(env, corev1.EnvVar{Name: "NO_PROXY", Value: direct})
}

// literal returns a value that the kubelet makes into exactly value: it takes $(NAME)
// for a reference to a variable, and $$ for a dollar.
func literal(value string) string { return strings.ReplaceAll(value, "$", "$$") }

// livenessProbe heals an agent that holds its lease and does nothing: it serves no
// /healthz. Nor does one that waits for a management cluster which is not to be
// reached, and that one must go on trying once a minute. So the probe gives it
// eleven minutes: the kubelet forgets the restarts of a container that ran for ten,
// and the agent is never held back for having waited.
func livenessProbe(settings fleetv1.AgentSpec) *corev1.Probe {
	get := &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(probePort)}
	if onHost(settings) {
		get.Host, get.Port = hostAddress, intstr.FromInt32(hostProbePort)
	}
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: get},
		InitialDelaySeconds: 60,
		PeriodSeconds:       30,
		TimeoutSeconds:      5,
		FailureThreshold:    20,
	}
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// tokenDir returns the folder of the token file in the agent's pod.
func tokenDir(in Input) string {
	if in.TokenDir == "" {
		return DefaultTokenDir
	}
	return path.Clean(in.TokenDir)
}
