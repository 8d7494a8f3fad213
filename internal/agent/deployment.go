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
	"path"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// agentUser is the user and group of the agent's image.
	agentUser = 1000

	// probePort is where the agent serves /healthz, while its manager runs.
	probePort = 8081

	tokenVolume = "token"
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

func podSpec(in Input) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: Name,
		NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
		Tolerations: []corev1.Toleration{
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Operator: corev1.TolerationOpEqual, Value: "true", Effect: corev1.TaintEffectNoSchedule},
			{Key: "cattle.io/os", Operator: corev1.TolerationOpEqual, Value: "linux", Effect: corev1.TaintEffectNoSchedule},
		},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      new(int64(agentUser)),
			RunAsGroup:     new(int64(agentUser)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{container(in)},
		Volumes: []corev1.Volume{
			emptyDir("kube"),
			emptyDir("tmp"),
			{
				Name: tokenVolume,
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
					SecretName: Name,
					Items:      []corev1.KeyToPath{{Key: tokenKey, Path: tokenKey}},
					// Files of a Secret belong to root, and the agent is not root.
					DefaultMode: new(int32(0o444)),
				}},
			},
		},
	}
}

func container(in Input) corev1.Container {
	return corev1.Container{
		Name:            Name,
		Image:           in.Agent.Image,
		ImagePullPolicy: corev1.PullPolicy(in.Agent.ImagePullPolicy),
		Command:         []string{"fleetagent"},
		Env:             environment(in),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "kube", MountPath: "/.kube"},
			{Name: "tmp", MountPath: "/tmp"},
			// The whole volume and no sub-path: only then the kubelet renews the file.
			{Name: tokenVolume, MountPath: tokenDir(in), ReadOnly: true},
		},
		LivenessProbe: livenessProbe(),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Privileged:               new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
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
	return env
}

// livenessProbe heals an agent that holds its lease and does nothing: it serves no
// /healthz. Nor does one that waits for a management cluster which is not to be
// reached, and that one must go on trying once a minute. So the probe gives it
// eleven minutes: the kubelet forgets the restarts of a container that ran for ten,
// and the agent is never held back for having waited.
func livenessProbe() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(probePort)},
		},
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
