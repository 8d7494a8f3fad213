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
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
)

// shared are the UIDs of a group and of what lets bundles reach it.
type shared struct{ group, mapping types.UID }

func sharedObjects(g Gomega, t *testing.T, namespace, classNamespace, class string) shared {
	return shared{
		uidOf(g, t, &fleet.ClusterGroup{}, namespace, fleet.ClassGroupName(namespace, classNamespace, class)),
		uidOf(g, t, &fleet.BundleNamespaceMapping{}, classNamespace, namespace),
	}
}

// has tells whether the group and the mapping are there.
func (s shared) has() []bool { return []bool{s.group != "", s.mapping != ""} }

func eventuallyShared(t *testing.T, namespace, classNamespace, class string, groupThere, mappingThere bool) shared {
	t.Helper()
	var objects shared
	NewWithT(t).Eventually(func(g Gomega) {
		objects = sharedObjects(g, t, namespace, classNamespace, class)
		g.Expect(objects.has()).To(Equal([]bool{groupThere, mappingThere}), "the group and the mapping")
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	return objects
}

func leave(t *testing.T, w *env.Workload) {
	t.Helper()
	suite.DeleteCluster(t, lab, w)
	suite.EventuallyGone(t, lab, w)
}

func TestTheGroupOfAClassOfAnotherNamespaceLivesAsLongAsItsClusters(t *testing.T) {
	g := NewWithT(t)
	const namespace, classes = "groups", "group-classes"
	apply(t, newPolicy(t, namespace, `{"groups":"ClusterClass","classNamespaces":["group-classes"]}`))
	makeClass(t, classes, "edge", map[string]string{"line": "edge", "argocd.argoproj.io/instance": "x"})
	makeClass(t, classes, "core", nil)
	before := suite.Inventory(g, t.Context(), lab)
	one := join(t, namespace, "one", namespace, ofClass(classes, "edge"))
	two := join(t, namespace, "two", namespace, ofClass(classes, "edge"))

	made := eventuallyShared(t, namespace, classes, "edge", true, true)
	labels := map[string]string{fleetv1.ClassNameLabel: "edge", fleetv1.ClassNamespaceLabel: classes}
	group := &fleet.ClusterGroup{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "edge." + classes}, group)).To(Succeed())
	g.Expect(group.Spec.Selector).To(Equal(&metav1.LabelSelector{MatchLabels: labels}))
	labels["line"] = "edge"
	g.Expect(group.Labels).To(Equal(labels))
	g.Expect(group.OwnerReferences).To(BeEmpty())
	mapping := &fleet.BundleNamespaceMapping{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: classes, Name: namespace}, mapping)).To(Succeed())
	g.Expect(mapping.BundleSelector).To(Equal(&metav1.LabelSelector{}))
	g.Expect(mapping.NamespaceSelector).To(Equal(&metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}))

	// The labels of the class are kept up to date.
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: "edge"}}
	g.Expect(lab.Client.Patch(t.Context(), class, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"line":null,"row":"1"}}}`)))).To(Succeed())
	delete(labels, "line")
	labels["row"] = "1"
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(group), group)).To(Succeed())
		g.Expect(group.Labels).To(Equal(labels))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())

	// Another class: there first, then the Fleet Cluster moves.
	mark := suite.Mark(t, lab)
	patch(t, two, `{"spec":{"topology":{"classRef":{"name":"core"}}}}`)
	eventuallyShared(t, namespace, classes, "core", true, true)
	eventually(t, two, func(g Gomega, c *fleet.Cluster) {
		g.Expect(c.Labels).To(HaveKeyWithValue(fleetv1.ClassNameLabel, "core"))
	})
	var order []string
	for _, e := range suite.ManagerEvents(t, lab, mark) {
		if e.Code < 300 && e.Group == fleet.GroupVersion.Group && e.Namespace == namespace &&
			slices.Contains([]string{"create", "patch", "delete"}, e.Verb) && e.Subresource == "" {
			order = append(order, e.Verb+" "+e.Resource)
		}
	}
	g.Expect(order).To(Equal([]string{"create clustergroups", "patch clusters"}))

	leave(t, one)
	eventuallyShared(t, namespace, classes, "edge", false, true)
	rest := eventuallyShared(t, namespace, classes, "core", true, true)
	g.Expect(rest.mapping).To(Equal(made.mapping), "the other Cluster needs it")

	// Back, and then one of two of a class leaves.
	patch(t, two, `{"spec":{"topology":{"classRef":{"name":"edge"}}}}`)
	made = eventuallyShared(t, namespace, classes, "edge", true, true)
	g.Expect(made.mapping).To(Equal(rest.mapping))
	three := join(t, namespace, "three", namespace, ofClass(classes, "edge"))
	eventuallyShared(t, namespace, classes, "core", false, true)
	leave(t, two)
	g.Consistently(func(g Gomega) {
		g.Expect(sharedObjects(g, t, namespace, classes, "edge")).To(Equal(made), "one of two Clusters is left")
	}).WithTimeout(5 * time.Second).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(suite.Inventory(g, t.Context(), lab)).To(ContainElements(
		fmt.Sprintf("%T %s/edge.%s", group, namespace, classes), fmt.Sprintf("%T %s/%s", mapping, classes, namespace)))
	leave(t, three)
	eventuallyShared(t, namespace, classes, "edge", false, false)
	g.Eventually(suite.Inventory).WithContext(t.Context()).WithArguments(lab).
		WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(ConsistOf(append(before, "*v1.Namespace /"+namespace)))
}

// Fleet uninstalls at once what nothing brings to a cluster any more.
func TestAClusterThatIsRebasedIsReachedAllTheTime(t *testing.T) {
	g := NewWithT(t)
	const namespace, before, after = "rebased", "rebased-from", "rebased-to"
	apply(t, newPolicy(t, namespace, `{"groups":"ClusterClass","classNamespaces":["rebased-from","rebased-to"]}`))
	makeClass(t, before, "edge", nil)
	makeClass(t, after, "edge", nil)
	w := join(t, namespace, "one", namespace, ofClass(before, "edge"))
	eventuallyShared(t, namespace, before, "edge", true, true)
	seen := follow(t, &fleet.ClusterGroupList{}, &fleet.BundleNamespaceMappingList{}, &fleet.ClusterList{})

	patch(t, w, `{"spec":{"topology":{"classRef":{"namespace":"rebased-to"}}}}`)
	eventuallyShared(t, namespace, after, "edge", true, true)
	eventuallyShared(t, namespace, before, "edge", false, false)

	var steps []string
	g.Eventually(func(g Gomega) {
		steps = nil
		class := before
		for _, event := range seen() {
			obj := event.Object.(client.Object)
			key := client.ObjectKeyFromObject(obj)
			cluster, ok := obj.(*fleet.Cluster)
			switch {
			case ok && key.Namespace == namespace && cluster.Labels[fleetv1.ClassNamespaceLabel] != class:
				class = cluster.Labels[fleetv1.ClassNamespaceLabel]
				steps = append(steps, "in "+class)
			case !ok && event.Type != watch.Modified && (key.Namespace == namespace || key.Name == namespace):
				steps = append(steps, fmt.Sprintf("%s %s", event.Type, key))
			}
		}
		g.Expect(steps).To(HaveLen(5))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(steps[:2]).To(ConsistOf("ADDED rebased/edge.rebased-to", "ADDED rebased-to/rebased"))
	g.Expect(steps[2]).To(Equal("in rebased-to"))
	g.Expect(steps[3:]).To(ConsistOf("DELETED rebased/edge.rebased-from", "DELETED rebased-from/rebased"))
	leave(t, w)
	eventuallyShared(t, namespace, after, "edge", false, false)
}

func TestAClassOfALongNameHasAGroupByTheHashOfIt(t *testing.T) {
	g := NewWithT(t)
	const namespace, classes = "long-class", "long-classes"
	name := strings.Repeat("a-long-name-", 10) + "edge"
	apply(t, newPolicy(t, namespace, `{"groups":"ClusterClass","classNamespaces":["long-classes"]}`))
	makeClass(t, classes, name, map[string]string{"line": "edge"})
	w := join(t, namespace, "one", namespace, ofClass(classes, name))
	suite.EventuallyCondition(t, lab, w, fleetv1.TargetedCondition, metav1.ConditionTrue, fleetv1.TargetedReason)
	eventuallyShared(t, namespace, classes, name, true, true)
	group := &fleet.ClusterGroup{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name + "." + classes}, group)).To(Succeed())
	g.Expect(group.Labels).To(HaveKeyWithValue("line", "edge"))
	selector, err := metav1.LabelSelectorAsSelector(group.Spec.Selector)
	g.Expect(err).NotTo(HaveOccurred())
	members := &fleet.ClusterList{}
	g.Expect(lab.Client.List(t.Context(), members, client.MatchingLabelsSelector{Selector: selector})).To(Succeed())
	g.Expect(members.Items).To(ConsistOf(HaveField("ObjectMeta.UID", fleetClusterOf(g, t, w).UID)))

	leave(t, w)
	eventuallyShared(t, namespace, classes, name, false, false)
}

// The labels of a ClusterClass are written by whoever may write the class.
func TestTheLabelsOfAClassReachNothingThatThePolicyDoesNotList(t *testing.T) {
	g := NewWithT(t)
	const tenant, workspace, classes = "class-tenant", "class-workspace", "class-platform"
	labels := map[string]string{"env": "prod"}
	makeNamespace(t, workspace)
	makeClass(t, classes, "edge", labels)
	makeClass(t, tenant, "own", labels)
	makeClass(t, workspace, "core", labels)
	apply(t, newPolicy(t, tenant, `{"workspace":"class-workspace","nameFormat":"NamespaceName","groups":"ClusterClass","classNamespaces":["class-platform"],
		"labels":{"include":["clusterclass-name.fleet.addons.cluster.x-k8s.io","clusterclass-namespace.fleet.addons.cluster.x-k8s.io"]}}`))
	for name, selector := range map[string]map[string]string{
		"by-label": labels, "of-platform": {fleetv1.ClassNamespaceLabel: classes, fleetv1.ClassNameLabel: "edge"},
		"of-tenant": {fleetv1.ClassNamespaceLabel: tenant}, "of-workspace": {fleetv1.ClassNamespaceLabel: workspace},
	} {
		g.Expect(lab.Client.Create(t.Context(), suite.Bundle(workspace, name, fleet.BundleTarget{ClusterSelector: &metav1.LabelSelector{MatchLabels: selector}}))).To(Succeed())
	}
	bundles := func(w *env.Workload) []string {
		deployments := &fleet.BundleDeploymentList{}
		g.Expect(lab.Client.List(t.Context(), deployments, client.InNamespace(fleetClusterOf(g, t, w).Status.Namespace))).To(Succeed())
		var names []string
		for i := range deployments.Items {
			names = append(names, deployments.Items[i].Name)
		}
		return names
	}

	listed := join(t, tenant, "listed", tenant, ofClass(classes, "edge"))
	suite.EventuallyCondition(t, lab, listed, fleetv1.TargetedCondition, metav1.ConditionTrue, fleetv1.TargetedReason)
	suite.EventuallyDeployed(t, listed, "of-platform")
	two := map[string]string{fleetv1.ClassNameLabel: "edge", fleetv1.ClassNamespaceLabel: classes}
	eventuallyShared(t, workspace, classes, "edge", true, true)
	group := &fleet.ClusterGroup{}
	g.Expect(lab.Client.Get(t.Context(), client.ObjectKey{Namespace: workspace, Name: "edge." + classes}, group)).To(Succeed())
	g.Expect(group.Labels).To(Equal(two), "none of the class")
	g.Expect(bundles(listed)).To(ConsistOf("of-platform"))

	for name, class := range map[string]func(*clusterv1.Cluster){"own": ofClass("", "own"), "theirs": ofClass(workspace, "core")} {
		w := join(t, tenant, name, tenant, class)
		suite.EventuallyCondition(t, lab, w, fleetv1.TargetedCondition, metav1.ConditionFalse, fleetv1.ClassNamespaceNotListedReason)
		g.Expect(fleetClusterOf(g, t, w).Labels).To(Equal(map[string]string{fleet.ClusterManagementLabel: "capi-fleet"}))
		g.Expect(bundles(w)).To(BeEmpty())
	}
	g.Expect(sharedObjects(g, t, workspace, tenant, "own")).To(BeZero())
	g.Expect(sharedObjects(g, t, workspace, workspace, "core")).To(BeZero())

	// What the class gets later goes nowhere either.
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: "edge"}}
	g.Expect(lab.Client.Patch(t.Context(), class, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"prod"}}}`)))).To(Succeed())
	g.Consistently(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(group), group)).To(Succeed())
		g.Expect(group.Labels).To(Equal(two))
		g.Expect(fleetClusterOf(g, t, listed).Labels).NotTo(Or(HaveKey("tier"), HaveKey("env")))
	}).WithTimeout(3 * time.Second).WithPolling(suite.Poll).Should(Succeed())
}

func TestTheGroupOfAClassOfTheSameNamespaceNeedsNoMapping(t *testing.T) {
	g := NewWithT(t)
	const namespace = "own-class"
	apply(t, newPolicy(t, namespace, `{"groups":"ClusterClass"}`))
	makeClass(t, namespace, "edge", map[string]string{"line": "edge"})
	w := join(t, namespace, "one", namespace, ofClass("", "edge"))
	made := eventuallyShared(t, namespace, namespace, "edge", true, false)

	// Whoever deletes or changes it gets it back.
	group := &fleet.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge"}}
	g.Expect(lab.Client.Patch(t.Context(), group, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"line":null,"theirs":"x"}},"spec":{"selector":{"matchLabels":{"more":"x"}}}}`)))).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(lab.Client.Get(t.Context(), client.ObjectKeyFromObject(group), group)).To(Succeed())
		g.Expect(group.Labels).To(And(HaveKeyWithValue("line", "edge"), HaveKeyWithValue("theirs", "x")))
		g.Expect(group.Spec.Selector.MatchLabels).To(Equal(map[string]string{fleetv1.ClassNameLabel: "edge", fleetv1.ClassNamespaceLabel: namespace}))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(lab.Client.Delete(t.Context(), group)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(sharedObjects(g, t, namespace, namespace, "edge").group).NotTo(Or(BeEmpty(), Equal(made.group)))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())

	// A policy that makes no groups any more takes none away: what reached the cluster
	// through it would be uninstalled.
	apply(t, newPolicy(t, namespace, `{"groups":"None"}`))
	g.Eventually(func(g Gomega) {
		g.Expect(registrationOf(g, t, w).Spec.Targeting.Groups).To(Equal(fleetv1.GroupsNone))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(sharedObjects(g, t, namespace, namespace, "edge").group).NotTo(BeEmpty())
	leave(t, w)
	eventuallyShared(t, namespace, namespace, "edge", false, false)
}

func TestAClassOfANamespaceThatNoPolicyListsHasNoEffect(t *testing.T) {
	g := NewWithT(t)
	const namespace, secret = "class-thief", "secret-classes"
	apply(t, newPolicy(t, namespace, `{"groups":"ClusterClass","classNamespaces":["other-classes"]}`))
	makeClass(t, secret, "edge", nil)
	w := join(t, namespace, "thief", namespace, ofClass(secret, "edge"))
	reg := suite.EventuallyCondition(t, lab, w, fleetv1.TargetedCondition, metav1.ConditionFalse, fleetv1.ClassNamespaceNotListedReason)
	g.Expect(reg.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring(secret))))
	g.Expect(fleetClusterOf(g, t, w).Labels).NotTo(Or(HaveKey(fleetv1.ClassNameLabel), HaveKey(fleetv1.ClassNamespaceLabel)),
		"another policy's group may be for them")
	// A change that the class controller acts on comes after all that it knew before.
	makeClass(t, namespace, "own", nil)
	join(t, namespace, "honest", namespace, ofClass("", "own"))
	eventuallyShared(t, namespace, namespace, "own", true, false)
	g.Expect(sharedObjects(g, t, namespace, secret, "edge")).To(BeZero())
}

// A tenant who may do everything with Clusters of its own namespace tries each way to the
// bundles of a workspace that it shares with others.
func TestNoTenantReachesBundlesOfOthers(t *testing.T) {
	g := NewWithT(t)
	const tenant, workspace = "tenant", "workspace"
	makeNamespace(t, workspace)
	makeClass(t, tenant, "prod", nil)
	apply(t, newPolicy(t, tenant, `{"workspace":"workspace","nameFormat":"NamespaceName","displayName":"NamespaceName",
		"labels":{"include":["site"],"static":{"tier":"tenant"}}, "annotations":{"include":["contact"]}, "values":[{"name":"region","value":"eu"}]}`))
	selecting := func(labels map[string]string) fleet.BundleTarget {
		return fleet.BundleTarget{ClusterSelector: &metav1.LabelSelector{MatchLabels: labels}}
	}
	for name, target := range map[string]fleet.BundleTarget{
		"by-site":  selecting(map[string]string{"site": "7"}), // This the policy lists.
		"by-label": selecting(map[string]string{"env": "prod"}),
		"by-tier":  selecting(map[string]string{"tier": "prod"}),
		"by-class": selecting(map[string]string{fleetv1.ClassNameLabel: "prod"}),
		"by-name":  {ClusterName: "prod"},
		"by-shown": selecting(map[string]string{fleet.ClusterDisplayNameLabel: "prod"}),
	} {
		bundle := suite.Bundle(workspace, name, target)
		g.Expect(lab.Client.Create(t.Context(), bundle)).To(Succeed())
	}
	w := join(t, tenant, "prod", tenant, func(c *clusterv1.Cluster) {
		ofClass("", "prod")(c)
		maps.Copy(c.Labels, map[string]string{
			"site": "7", "env": "prod", "tier": "prod", fleet.ClusterDisplayNameLabel: "prod",
			fleetv1.ClassNameLabel: "prod", fleetv1.ClassNamespaceLabel: workspace,
			"fleet.cattle.io/shard-ref": "theirs",
		})
		c.Annotations = map[string]string{
			"fleet.addons.cluster.x-k8s.io/workspace": "other", "fleet.cattle.io/cluster-namespace": "other",
			fleetv1.RegistrationIDAnnotation: "stolen", "region": "us", "contact": "listed",
		}
		c.Spec.Topology.Variables = []clusterv1.ClusterVariable{{Name: "region"}}
		c.Spec.Topology.Variables[0].Value.Raw = []byte(`"us"`)
	})

	cluster := fleetClusterOf(g, t, w)
	g.Expect(client.ObjectKeyFromObject(cluster)).To(Equal(client.ObjectKey{Namespace: workspace, Name: fleet.NamespacedClusterName(tenant, "prod")}))
	g.Expect(cluster.Labels).To(Equal(map[string]string{
		"site": "7", "tier": "tenant", fleet.ClusterManagementLabel: "capi-fleet", fleet.ClusterDisplayNameLabel: "tenant.prod",
	}))
	g.Expect(cluster.Annotations).To(HaveLen(4), "ours and the one that the policy lists: %v", cluster.Annotations)
	g.Expect(cluster.Annotations).To(HaveKeyWithValue("contact", "listed"))
	g.Expect(cluster.Annotations).NotTo(HaveKeyWithValue(fleetv1.RegistrationIDAnnotation, "stolen"))
	g.Expect(cluster.Spec.TemplateValues).To(HaveLen(1))
	g.Expect(string(cluster.Spec.TemplateValues["region"].Raw)).To(Equal(`"eu"`))

	suite.EventuallyDeployed(t, w, "by-site")
	deployments := &fleet.BundleDeploymentList{}
	g.Expect(lab.Client.List(t.Context(), deployments, client.InNamespace(cluster.Status.Namespace))).To(Succeed())
	g.Expect(deployments.Items).To(ConsistOf(HaveField("ObjectMeta.Name", "by-site")))

	// The registration is in the tenant's namespace, but what it says is not the tenant's.
	rights := metav1.ObjectMeta{Namespace: tenant, Name: "tenant"}
	g.Expect(lab.Client.Create(t.Context(), &rbacv1.Role{ObjectMeta: rights, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll},
	}}})).To(Succeed())
	g.Expect(lab.Client.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: rights,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	})).To(Succeed())
	user, err := lab.As("tenant")
	g.Expect(err).NotTo(HaveOccurred())
	for _, spec := range []string{
		`{"spec":{"targeting":{"labels":{"include":["site","env"]}}}}`, `{"spec":{"targeting":null}}`,
		`{"spec":{"targeting":{"groups":"ClusterClass","classNamespaces":["workspace"]}}}`,
	} {
		err := user.Patch(t.Context(), registrationOf(g, t, w), client.RawPatch(types.MergePatchType, []byte(spec)))
		g.Expect(err).To(Satisfy(apierrors.IsForbidden), "%s", spec)
	}

	// A policy that changes keeps the Fleet Cluster where it is, and opens nothing there.
	apply(t, newPolicy(t, tenant, `{"displayName":"Name","annotations":{"include":["contact","*"]}}`))
	reg := suite.EventuallyCondition(t, lab, w, fleetv1.TargetedCondition, metav1.ConditionFalse, fleetv1.FleetClusterImmutableReason)
	g.Expect(reg.Spec.FleetCluster.Namespace).To(Equal(workspace))
	eventually(t, w, func(g Gomega, c *fleet.Cluster) {
		g.Expect(c.Labels).To(Equal(map[string]string{fleet.ClusterManagementLabel: "capi-fleet", fleet.ClusterDisplayNameLabel: "tenant.prod"}))
		g.Expect(c.Annotations).To(And(HaveKeyWithValue("contact", "listed"), Not(HaveKey("region"))), "templates of the bundles there see them")
	})
	leave(t, w)
	g.Expect(uidOf(g, t, &fleet.Cluster{}, workspace, cluster.Name)).To(BeEmpty(), "it ends in its workspace as well")
}

func TestAWorkspaceThatIsMissingIsWaitedFor(t *testing.T) {
	apply(t, newPolicy(t, "lost", `{"workspace":"lost-workspace","nameFormat":"NamespaceName","labels":{"include":["site"]}}`))
	w := suite.AddCluster(t, lab, "edge", env.ClusterOptions{Namespace: "lost", Labels: map[string]string{"policy": "lost"}, NoKubelet: true, StartLater: true})
	suite.EventuallyCondition(t, lab, w, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.WorkspaceMissingReason)
}
