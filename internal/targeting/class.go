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

package targeting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// Class is a ClusterClass as it is used by the Fleet Clusters of a namespace.
type Class struct {
	// Namespace is that of the Fleet Clusters.
	Namespace string
	// ClassNamespace and Name are those of the ClusterClass.
	ClassNamespace, Name string
	// Shared says that Clusters of other namespaces are among them. Then the labels of the
	// ClusterClass are nothing to select the group by: who owns a Cluster may have written
	// them, and would choose among the bundles of the namespace.
	Shared bool
}

// classOf returns the ClusterClass that a Cluster uses. What a Cluster says need not be
// so: nothing keeps it from naming the class of someone else.
func classOf(cluster *clusterv1.Cluster) (name, namespace string, ok bool) {
	ref := cluster.Spec.Topology.ClassRef
	return ref.Name, cmp.Or(ref.Namespace, cluster.Namespace), ref.Name != ""
}

// ClassOf returns the ClusterClass whose group the Fleet Cluster of a Cluster is in, nil
// where it has none. It returns a problem where the Cluster uses a class of a namespace
// that its policy does not list.
func ClassOf(settings fleetv1.TargetingSettings, cluster *clusterv1.Cluster, namespace string) (*Class, *Problem) {
	name, classNamespace, ok := classOf(cluster)
	if !ok || settings.Groups != fleetv1.GroupsClusterClass {
		return nil, nil
	}
	own := cluster.Namespace == namespace && classNamespace == namespace
	if !own && !slices.Contains(settings.ClassNamespaces, classNamespace) {
		return nil, &Problem{fleetv1.ClassNamespaceNotListedReason,
			fmt.Sprintf("The ClusterClass of the Cluster is in namespace %s, which the policy does not list in classNamespaces: the Fleet Cluster does not get the labels of that class, and is in no group by it", classNamespace)}
	}
	return &Class{Namespace: namespace, ClassNamespace: classNamespace, Name: name, Shared: cluster.Namespace != namespace}, nil
}

// classKeys are those of the labels of a ClusterClass.
var classKeys = []string{fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel}

// ClassKey returns what tells the ClusterClass of a Cluster from others, as in Class.ID,
// empty where it has none.
func ClassKey(cluster *clusterv1.Cluster) string {
	name, namespace, ok := classOf(cluster)
	if !ok {
		return ""
	}
	return classKey(namespace, fleet.LabelValue(name))
}

// LabelledClass returns the same from labels that were made for it.
func LabelledClass(labels map[string]string) string {
	name, namespace := labels[fleetv1.ClassNameLabel], labels[fleetv1.ClassNamespaceLabel]
	if name == "" || namespace == "" {
		return ""
	}
	return classKey(namespace, name)
}

func classKey(namespace, name string) string { return namespace + "/" + name }

// SplitClass returns the values of the labels that an ID of a class stands for.
func SplitClass(id string) (namespace, name string) {
	namespace, name, _ = strings.Cut(id, "/")
	return namespace, name
}

// ID tells the ClusterClass from others: its namespace and the value of its label.
func (c Class) ID() string { return classKey(c.ClassNamespace, fleet.LabelValue(c.Name)) }

// Labels are those by which the Fleet Clusters of the class are selected.
func (c Class) Labels() map[string]string {
	return map[string]string{
		fleetv1.ClassNameLabel:      fleet.LabelValue(c.Name),
		fleetv1.ClassNamespaceLabel: c.ClassNamespace,
	}
}

// GroupLabels are the labels of the group: those of the ClusterClass, where it is not
// shared, and the two that say which it is.
func (c Class) GroupLabels(ofClass map[string]string) map[string]string {
	if c.Shared {
		return c.Labels()
	}
	return merged(copied(ofClass, []fleetv1.KeyPattern{"*"}, nil), c.Labels())
}
