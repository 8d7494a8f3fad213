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

package fleet

import (
	"cmp"
	"crypto/md5" //nolint:gosec // Fleet names releases by it; nothing is kept safe with it.
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// maxNameLength is the longest DNS label.
const maxNameLength = 63

// ClusterNamespace returns the name that Fleet gives to the cluster namespace of
// the Cluster name in namespace (Fleet 0.13 to 0.16, agentmanagement's import and
// cluster controllers). From 64 characters on it keeps few hash digits, and two
// Clusters can have the same.
func ClusterNamespace(namespace, name string) string {
	return SafeConcatName("cluster", namespace, name, keyHash(namespace+"::"+name))
}

// FallbackClusterNamespace returns the name of the cluster namespace where the
// one of ClusterNamespace is taken by someone else.
func FallbackClusterNamespace(namespace, name string) string {
	return "cluster-" + hexSHA256(namespace + "::" + name)[:32]
}

// ClusterName returns the name of the Fleet Cluster for a CAPI Cluster: the same
// name where it is a DNS label, else the name made into one, with a hash of it,
// since Fleet builds the name of a namespace from it.
func ClusterName(cluster string) string {
	if len(cluster) <= maxNameLength && dnsLabel.MatchString(cluster) {
		return cluster
	}
	return hashedLabel(cluster, cluster)
}

// NamespacedClusterName returns the name of the Fleet Cluster for a CAPI Cluster where it
// is among those of other namespaces: a DNS label made of both names, always with a hash,
// since a and b-c would make the same as a-b and c.
func NamespacedClusterName(namespace, cluster string) string {
	return hashedLabel(namespace+"-"+cluster, namespace+"/"+cluster)
}

// hashDigits is the length of a hash in names.
const hashDigits = 16

// hashedLabel makes a DNS label of a name, with a hash of what identifies it.
func hashedLabel(name, identity string) string {
	label := strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if keep := maxNameLength - 1 - hashDigits; len(label) > keep {
		label = strings.TrimRight(label[:keep], "-")
	}
	return label + "-" + hexSHA256(identity)[:hashDigits]
}

// LabelValue returns the value of a label for the name of an object: the name itself, or
// where it is too long its beginning and a hash of it.
func LabelValue(name string) string {
	if len(name) <= maxNameLength {
		return name
	}
	return strings.TrimRight(name[:maxNameLength-1-hashDigits], "-.") + "-" + hexSHA256(name)[:hashDigits]
}

// IsLabelValue tells whether value is LabelValue(name). Of a name that ClassGroupName cut it
// compares the hash.
func IsLabelValue(value, name string) bool {
	if value == LabelValue(name) {
		return true
	}
	hash := len(value) - hashDigits - 1
	return hash > 0 && len(name) > maxNameLength && strings.HasPrefix(name, value[:hash]) && strings.HasSuffix(name, value[hash:])
}

// ClassGroupName returns the name of the ClusterGroup for a ClusterClass, in the namespace
// of the class or in another one, as the provider that came before this one named it.
func ClassGroupName(namespace, classNamespace, class string) string {
	if namespace == classNamespace {
		return class
	}
	const maxObjectName = 253
	name := class + "." + classNamespace
	if len(name) <= maxObjectName {
		return name
	}
	tail := "-" + hexSHA256(class)[:hashDigits] + "." + classNamespace
	return strings.TrimRight(class[:maxObjectName-len(tail)], "-.") + tail
}

// defaultReleaseNamespace is where the agent puts a release of no other namespace.
const defaultReleaseNamespace = "default"

// ReleaseOf returns the Helm release that the agent makes of a BundleDeployment. It
// uninstalls every other release that says to be of that BundleDeployment (Fleet 0.13 to
// 0.16, the agent's cleanup).
func ReleaseOf(deployment *BundleDeployment) types.NamespacedName {
	options := deployment.Spec.Options
	release := types.NamespacedName{
		Namespace: cmp.Or(options.TargetNamespace, options.DefaultNamespace, defaultReleaseNamespace),
	}
	if options.Helm != nil {
		release.Name = options.Helm.ReleaseName
	}
	release.Name = cmp.Or(release.Name, releaseName(deployment.Name))
	return release
}

// maxReleaseName is the longest name of a release.
const maxReleaseName = 53

// releaseName follows Fleet's names.HelmReleaseName for the names of objects: the same
// name where it is short and a DNS label without doubled hyphens, else one made of it.
func releaseName(name string) string {
	release := name
	if strings.Contains(name, ".") {
		release += "-" + hexMD5(name)[:8]
	}
	release = strings.Trim(notInRelease.ReplaceAllString(release, "-"), "-")
	if len(release) <= maxReleaseName {
		return release
	}
	const digits = 5
	return strings.TrimSuffix(release[:maxReleaseName-1-digits], "-") + "-" + hexMD5(release)[:digits]
}

func hexMD5(s string) string {
	sum := md5.Sum([]byte(s)) //nolint:gosec // See the import.
	return hex.EncodeToString(sum[:])
}

var (
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	notInLabel = regexp.MustCompile(`[^-a-z0-9]`)
	// notInRelease also finds hyphens, so that there is one where there were several.
	notInRelease = regexp.MustCompile(`[^a-z0-9]+`)
)

// SafeConcatName joins parts with hyphens and cuts what is too long for a DNS
// label, putting hash digits in its place. It follows rancher/wrangler's function
// of that name, which Fleet builds its names with.
func SafeConcatName(parts ...string) string {
	full := strings.Join(parts, "-")
	if len(full) <= maxNameLength {
		return full
	}
	digest := hexSHA256(full)
	// The character before the hyphen must not be a hyphen or a dot itself.
	if c := full[56]; 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
		return full[:57] + "-" + digest[:5]
	}
	return full[:56] + "-" + digest[:6]
}

// keyHash follows Fleet's names.KeyHash.
func keyHash(s string) string {
	if len(s) > 100 {
		s = s[:100]
	}
	return hexSHA256(s)[:12]
}

func hexSHA256(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
