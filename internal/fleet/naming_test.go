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
	"regexp"
	"strings"
	"testing"
)

func TestClusterNamespaceIsTheNameThatFleetGives(t *testing.T) {
	for _, tc := range []struct{ namespace, name, want string }{
		{"fleet-local", "local", "cluster-fleet-local-local-1a3d67d0a899"},
		{"fleet-default", "foo", "cluster-fleet-default-foo-323c0d367acd"},
		{"fleet-default", "my-cluster", "cluster-fleet-default-my-cluster-147c8d034230"},
		{"clusters", "edge-001", "cluster-clusters-edge-001-2a820d10f5d1"},
		{"fleet-default", strings.Repeat("a", 63), "cluster-fleet-default-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-a794f"},
		{"fleet-default", strings.Repeat("b", 34) + "-tail", "cluster-fleet-default-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-888d26"},
		{"team-a", strings.Repeat("c", 200), "cluster-team-a-cccccccccccccccccccccccccccccccccccccccccc-c5701"},
	} {
		if got := ClusterNamespace(tc.namespace, tc.name); got != tc.want {
			t.Errorf("ClusterNamespace(%q, %q) = %q, want %q", tc.namespace, tc.name, got, tc.want)
		}
	}
}

func TestFallbackClusterNamespaceTellsApartNamesThatCollide(t *testing.T) {
	const namespace, a, b = "edge-retail-production-eu", "store-emea-germany-berlin-00395", "store-emea-germany-berlin-00459"
	if ClusterNamespace(namespace, a) != ClusterNamespace(namespace, b) {
		t.Error("the pair no longer collides under Fleet's rule, so the test proves nothing")
	}
	if FallbackClusterNamespace(namespace, a) == FallbackClusterNamespace(namespace, b) {
		t.Error("the fallback names are the same")
	}
	if got := FallbackClusterNamespace(namespace, a); !regexp.MustCompile("^cluster-[0-9a-f]{32}$").MatchString(got) {
		t.Errorf("unexpected form of the fallback name %q", got)
	}
}

func TestClusterNameIsADNSLabel(t *testing.T) {
	label := regexp.MustCompile("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
	seen := map[string]string{}
	for _, name := range []string{
		"edge-001", "edge.001", "edge-.001", "1.2.3", "a", "a.b", "a-b", "a..b",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a.", 100) + "b", "a.-b",
	} {
		got := ClusterName(name)
		if len(got) > 63 || !label.MatchString(got) {
			t.Errorf("ClusterName(%q) = %q is not a DNS label", name, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q have the same name %q", name, other, got)
		}
		seen[got] = name
		if label.MatchString(name) && len(name) <= 63 && got != name {
			t.Errorf("ClusterName(%q) = %q, want it unchanged", name, got)
		}
	}
}

func TestNamesOfFleetClustersAmongThoseOfOtherNamespacesNeverMeet(t *testing.T) {
	label := regexp.MustCompile("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
	seen := map[string]string{}
	for _, key := range [][2]string{
		{"a", "b-c"}, {"a-b", "c"}, {"a", "b.c"}, {"a", "b"}, {"b", "a"},
		{strings.Repeat("n", 63), "x"}, {strings.Repeat("n", 63), "y"},
		{"a", strings.Repeat("x", 253)}, {"a", strings.Repeat("x", 252) + "y"},
	} {
		name := NamespacedClusterName(key[0], key[1])
		if len(name) > 63 || !label.MatchString(name) {
			t.Errorf("NamespacedClusterName(%v) = %q is not a DNS label", key, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%v and %s have the same name %q", key, other, name)
		}
		seen[name] = strings.Join(key[:], "/")
	}
	if got := NamespacedClusterName("team-a", "edge-1"); !strings.HasPrefix(got, "team-a-edge-1-") {
		t.Errorf("the names are not in %q", got)
	}
	if squatter := ClusterName("team-a-edge-1"); squatter == NamespacedClusterName("team-a", "edge-1") {
		t.Errorf("a Cluster in the workspace can have the name %q", squatter)
	}
}

func TestValuesOfLabelsAreValidAndTellLongNamesApart(t *testing.T) {
	value := regexp.MustCompile("^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
	long := strings.Repeat("c", 45) + "." + strings.Repeat("d", 60)
	for _, name := range []string{"edge", strings.Repeat("a", 63), long, long + "e"} {
		if got := LabelValue(name); len(got) > 63 || !value.MatchString(got) {
			t.Errorf("LabelValue(%q) = %q is not valid", name, got)
		}
	}
	if got := LabelValue(strings.Repeat("a", 63)); got != strings.Repeat("a", 63) {
		t.Errorf("a name that fits became %q", got)
	}
	if LabelValue(long) == LabelValue(long+"e") {
		t.Error("two names have the same value")
	}
}

func TestNamesOfGroupsAreThoseOfTheEarlierProvider(t *testing.T) {
	for _, tc := range []struct{ namespace, classNamespace, class, want string }{
		{"team-a", "team-a", "edge", "edge"},
		{"team-a", "classes", "edge", "edge.classes"},
		{"team-a", "classes", strings.Repeat("a", 245), strings.Repeat("a", 245) + ".classes"},
	} {
		if got := ClassGroupName(tc.namespace, tc.classNamespace, tc.class); got != tc.want {
			t.Errorf("ClassGroupName(%q, %q, %q) = %q, want %q", tc.namespace, tc.classNamespace, tc.class, got, tc.want)
		}
	}
	long := strings.Repeat("a", 250)
	a, b := ClassGroupName("team-a", "classes", long), ClassGroupName("team-a", "classes", long+"b")
	if len(a) > 253 || a == b || !strings.HasSuffix(a, ".classes") {
		t.Errorf("unexpected names %q and %q", a, b)
	}
}

func TestTheNameOfAGroupTellsWhetherItIsOfAClass(t *testing.T) {
	for _, class := range []string{"edge", strings.Repeat("c", 63), strings.Repeat("c", 100), strings.Repeat("c", 250)} {
		name := strings.TrimSuffix(ClassGroupName("team-a", "classes", class), ".classes")
		if !IsLabelValue(LabelValue(class), name) {
			t.Errorf("%s is not of %s", name, class)
		}
		for _, other := range []string{"", "edge-2", class[:3], strings.Repeat("d", 100)} {
			if IsLabelValue(LabelValue(other), name) || IsLabelValue(LabelValue(class), other) {
				t.Errorf("%s is taken for %s", other, class)
			}
		}
	}
}

func TestReleasesHaveTheNamesThatTheAgentGives(t *testing.T) {
	digits := strings.Repeat("1234567890", 5)
	for _, tc := range []struct {
		bundle  string
		options BundleDeploymentOptions
		want    string
	}{
		{bundle: "app", want: "default/app"},
		{bundle: "app", options: BundleDeploymentOptions{DefaultNamespace: "shop"}, want: "shop/app"},
		{bundle: "app", options: BundleDeploymentOptions{DefaultNamespace: "shop", TargetNamespace: "db"}, want: "db/app"},
		{bundle: "app", options: BundleDeploymentOptions{Helm: &HelmOptions{}}, want: "default/app"},
		{bundle: "app", options: BundleDeploymentOptions{Helm: &HelmOptions{ReleaseName: "postgres"}}, want: "default/postgres"},
		{bundle: digits + "123", want: "default/" + digits + "123"},
		{bundle: digits + "123a", want: "default/12345678901234567890123456789012345678901234567-fdba4"},
		{bundle: digits[:46] + "-1234567", want: "default/1234567890123456789012345678901234567890123456-d0bce"},
		{bundle: "bundle.name.example.com", want: "default/bundle-name-example-com-645ef821"},
		{bundle: "a--b", want: "default/a-b"},
	} {
		deployment := &BundleDeployment{Spec: BundleDeploymentSpec{Options: tc.options}}
		deployment.Name = tc.bundle
		if got := ReleaseOf(deployment).String(); got != tc.want {
			t.Errorf("ReleaseOf(%q, %+v) = %q, want %q", tc.bundle, tc.options, got, tc.want)
		}
	}
}
