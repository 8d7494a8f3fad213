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

// Package targeting decides what is on a Fleet Cluster for Fleet to select and template
// by: labels, annotations and values, and in which groups it is. What was gathered goes
// in, what should be there or a patch for what is there comes out. It has no client.
//
// Who owns a Cluster may be hostile to others whose bundles are in the same management
// cluster. So nothing that they write gets on a Fleet Cluster outside their namespace
// unless a policy lists it, and nothing at all that another tool would take for a mark of
// its own.
package targeting

import (
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// reservedDomains hold the keys of Fleet, Rancher and Cluster API, and those by which
// other tools know what is theirs, and might prune it: Helm, Argo CD, Flux, kapp and
// kubectl. The domains below them are meant as well.
var reservedDomains = []string{
	"cattle.io", "x-k8s.io", "helm.sh", "argoproj.io", "fluxcd.io", "kapp.k14s.io",
	"kubectl.kubernetes.io", "applyset.kubernetes.io",
}

// reservedKeys are the others: marks of Helm and Argo CD, and labels that only we set.
var reservedKeys = []string{
	"app.kubernetes.io/managed-by", "app.kubernetes.io/instance",
	fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel,
}

// Reserved tells whether a label or an annotation of that key is never copied.
func Reserved(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	return slices.Contains(reservedKeys, key) || prefixed && slices.ContainsFunc(reservedDomains, func(reserved string) bool {
		return domain == reserved || strings.HasSuffix(domain, "."+reserved)
	})
}

// copied returns those of the labels or annotations that the patterns let through.
func copied(all map[string]string, include, exclude []fleetv1.KeyPattern) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if !Reserved(key) && matchesAny(include, key) && !matchesAny(exclude, key) {
			kept[key] = value
		}
	}
	return kept
}

func matchesAny(patterns []fleetv1.KeyPattern, key string) bool {
	return slices.ContainsFunc(patterns, func(pattern fleetv1.KeyPattern) bool { return matches(string(pattern), key) })
}

// matches tells whether a key is what a pattern says, in which * is any characters.
func matches(pattern, key string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == key
	}
	key, ok := strings.CutPrefix(key, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(key, part)
		if !found {
			return false
		}
		key = after
	}
	return strings.HasSuffix(key, parts[last])
}

// labelPatterns returns what is copied of the labels.
func labelPatterns(labels fleetv1.LabelPropagation, sameNamespace bool) []fleetv1.KeyPattern {
	if sameNamespace && len(labels.Include) == 0 {
		return []fleetv1.KeyPattern{"*"}
	}
	return listed(labels.Include, sameNamespace)
}

// listed returns which of the patterns count. On a Fleet Cluster outside the namespace of
// its Cluster those are the keys that are listed, whatever the policy was when it was made.
func listed(include []fleetv1.KeyPattern, sameNamespace bool) []fleetv1.KeyPattern {
	if sameNamespace {
		return include
	}
	return slices.DeleteFunc(slices.Clone(include), func(pattern fleetv1.KeyPattern) bool {
		return strings.Contains(string(pattern), "*")
	})
}

// labels returns the labels of the Fleet Cluster, with those of its ClusterClass where
// it may have them. It tells whether those to copy are left out, being too large.
func labels(settings fleetv1.TargetingSettings, cluster *clusterv1.Cluster, fleetNamespace string, withClass bool) (all map[string]string, tooLarge bool) {
	sameNamespace := fleetNamespace == cluster.Namespace
	include := labelPatterns(settings.Labels, sameNamespace)
	all = copied(cluster.Labels, include, settings.Labels.Exclude)
	if tooLarge = TooLarge(all); tooLarge {
		clear(all)
	}
	for key, value := range settings.Labels.Static {
		if !Reserved(key) {
			all[key] = string(value)
		}
	}
	if name, namespace, ok := classOf(cluster); ok && withClass {
		for key, value := range map[string]string{fleetv1.ClassNameLabel: fleet.LabelValue(name), fleetv1.ClassNamespaceLabel: namespace} {
			if sameNamespace || slices.Contains(include, fleetv1.KeyPattern(key)) {
				all[key] = value
			}
		}
	}
	if settings.Shard != "" {
		all[fleet.ShardRefLabel] = string(settings.Shard)
	}
	if name := displayName(settings.DisplayName, cluster, sameNamespace); name != "" {
		all[fleet.ClusterDisplayNameLabel] = name
	}
	return all, tooLarge
}

// displayName returns the name that Rancher shows. Bundles can be for a name, so outside
// the Cluster's namespace it always says which one that is.
func displayName(format fleetv1.NameFormat, cluster *clusterv1.Cluster, sameNamespace bool) string {
	switch {
	case format == "":
		return ""
	case format == fleetv1.FormatName && sameNamespace:
		return fleet.LabelValue(cluster.Name)
	}
	return fleet.LabelValue(cluster.Namespace + "." + cluster.Name)
}

// How much of labels and annotations is copied, in bytes of keys and values and of the keys
// again in the record. The API server takes 256 KiB of annotations for all of an object,
// and the record is one.
const (
	labelLimit      = 64 << 10
	annotationLimit = 128 << 10
)

// size returns what a label or an annotation adds to an object.
func size(key, value string) int { return len(key) + len(value) + len(key) + len(`"",`) }

// TooLarge tells whether labels are more than is copied.
func TooLarge(labels map[string]string) bool {
	sum := 0
	for key, value := range labels {
		sum += size(key, value)
	}
	return sum > labelLimit
}

// annotations returns the annotations of the Fleet Cluster, and the keys of those that
// are too large together.
func annotations(settings fleetv1.AnnotationPropagation, cluster *clusterv1.Cluster, sameNamespace bool) (all map[string]string, left []string) {
	all = copied(cluster.Annotations, listed(settings.Include, sameNamespace), settings.Exclude)
	for key, value := range settings.Static {
		if !Reserved(key) {
			all[key] = string(value)
		}
	}
	sum := 0
	for _, key := range sortedKeys(all) {
		if sum += size(key, all[key]); sum > annotationLimit {
			delete(all, key)
			left = append(left, key)
		}
	}
	return all, left
}
