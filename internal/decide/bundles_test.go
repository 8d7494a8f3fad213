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

package decide

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

func TestMissingBundles(t *testing.T) {
	release := func(bundle, namespace, name string) Release {
		return Release{types.NamespacedName{Namespace: namespace, Name: name}, bundle}
	}
	app := release("app", "default", "app")
	for _, tt := range []struct {
		name     string
		releases []Release
		present  []fleet.BundleDeployment
		want     []string
	}{
		{name: "nothing there"},
		{name: "all there", releases: []Release{app, release("b", "default", "b")}, present: []fleet.BundleDeployment{deployed("b"), deployed("app"), deployed("c")}},
		{name: "none there", releases: []Release{release("b", "default", "b"), app}, want: []string{"app", "b"}},
		{name: "one missing, twice", releases: []Release{release("b", "x", "b"), app, release("b", "y", "b")}, present: []fleet.BundleDeployment{deployed("app")}, want: []string{"b"}},
		{name: "names are compared as a whole", releases: []Release{app}, present: []fleet.BundleDeployment{deployed("app-1"), deployed("ap")}, want: []string{"app"}},
		{name: "one that is going", releases: []Release{app}, present: []fleet.BundleDeployment{deployed("app", going)}, want: []string{"app"}},
		{name: "one that has nothing to deploy yet", releases: []Release{app}, present: []fleet.BundleDeployment{deployed("app", nothingYet)}, want: []string{"app"}},
		{name: "one that was paused later", releases: []Release{app}, present: []fleet.BundleDeployment{deployed("app", paused)}},
		{name: "in its namespace", releases: []Release{release("app", "shop", "app")}, present: []fleet.BundleDeployment{deployed("app", into("shop"))}},
		{name: "in another namespace", releases: []Release{release("app", "db", "app")}, present: []fleet.BundleDeployment{deployed("app", into("shop"))}, want: []string{"app"}},
		{name: "under its name", releases: []Release{release("app", "default", "web")}, present: []fleet.BundleDeployment{deployed("app", as("web"))}},
		{name: "under another name", releases: []Release{app}, present: []fleet.BundleDeployment{deployed("app", as("web"))}, want: []string{"app"}},
		{name: "the release of another bundle", releases: []Release{app}, present: []fleet.BundleDeployment{deployed("web", as("app"))}, want: []string{"app"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(MissingBundles(tt.releases, tt.present)).To(Equal(tt.want))
		})
	}
}

func deployed(name string, edits ...func(*fleet.BundleDeployment)) fleet.BundleDeployment {
	deployment := fleet.BundleDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       fleet.BundleDeploymentSpec{DeploymentID: "content:options"},
	}
	for _, edit := range edits {
		edit(&deployment)
	}
	return deployment
}

func going(deployment *fleet.BundleDeployment) {
	deployment.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func nothingYet(deployment *fleet.BundleDeployment) {
	deployment.Spec.StagedDeploymentID, deployment.Spec.DeploymentID = deployment.Spec.DeploymentID, ""
}

func paused(deployment *fleet.BundleDeployment) { deployment.Spec.Paused = true }

func into(namespace string) func(*fleet.BundleDeployment) {
	return func(deployment *fleet.BundleDeployment) { deployment.Spec.Options.TargetNamespace = namespace }
}

func as(release string) func(*fleet.BundleDeployment) {
	return func(deployment *fleet.BundleDeployment) {
		deployment.Spec.Options.Helm = &fleet.HelmOptions{ReleaseName: release}
	}
}
