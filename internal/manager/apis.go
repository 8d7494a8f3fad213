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

package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
)

// apiPollInterval is the time between two looks for APIs that are missing. A fifth
// of it is added at random.
const apiPollInterval = 10 * time.Second

// pollJitter is the share of an interval that is added at random.
const pollJitter = 0.2

// requiredAPI is one kind of resource that the controllers cannot do without.
type requiredAPI struct {
	resource schema.GroupVersionResource

	// from says what installs it.
	from string

	// older is a version of the same resource that is too old. Where it is served,
	// the product is there and has to be upgraded. Empty means that none is known.
	older string
}

var requiredAPIs = []requiredAPI{
	{clusterv1.GroupVersion.WithResource("clusters"), "Cluster API 1.11 or newer", "v1beta1"},
	{fleet.GroupVersion.WithResource("clusters"), "Rancher Fleet", ""},
	{fleetv1.GroupVersion.WithResource("fleetregistrations"), "the CRDs of capi-fleet", ""},
	{fleetv1.GroupVersion.WithResource("fleetregistrationpolicies"), "the CRDs of capi-fleet", ""},
}

// resourceLister is the part of the discovery client that the wait needs. Every
// user with a login may ask discovery, so it takes no rights on CRDs.
type resourceLister interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// apiWaiter runs on the leader. It waits until all required APIs are served and
// then calls setup, once. It says in the log what is missing when that changes, not
// at every look.
type apiWaiter struct {
	discovery resourceLister
	interval  time.Duration
	clock     clock.Clock
	setup     func(context.Context) error
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *apiWaiter) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns the error of setup, or nil when the
// context ends before.
func (w *apiWaiter) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("setup")
	var said []string
	failed := false
	for {
		missing, err := w.missing()
		switch {
		case err != nil:
			if !failed {
				log.Error(err, "Failed to ask which APIs the management cluster serves, trying again", "interval", w.interval)
			}
			failed = true
		case len(missing) == 0:
			if said != nil {
				log.Info("All APIs are served now, starting the controllers")
			}
			return w.setup(ctx)
		default:
			if !slices.Equal(missing, said) {
				log.Info("Waiting for APIs that the management cluster does not serve", "missing", missing)
			}
			said, failed = missing, false
		}

		select {
		case <-ctx.Done():
			return nil
		case <-w.clock.After(wait.Jitter(w.interval, pollJitter)):
		}
	}
}

// missing describes the required APIs that are not served. Nil means that nothing
// is missing.
func (w *apiWaiter) missing() ([]string, error) {
	served := servedResources{discovery: w.discovery, resources: map[schema.GroupVersion][]string{}}
	var missing []string
	for _, api := range requiredAPIs {
		ok, err := served.has(api.resource)
		if err != nil {
			return nil, err
		}
		if ok {
			continue
		}
		needs := "needs " + api.from
		if api.older != "" {
			outdated, err := served.has(api.resource.GroupResource().WithVersion(api.older))
			if err != nil {
				return nil, err
			}
			if outdated {
				needs += ", the installed one serves only " + api.older
			}
		}
		missing = append(missing, fmt.Sprintf("%s/%s (%s)", api.resource.GroupResource(), api.resource.Version, needs))
	}
	return missing, nil
}

// servedResources asks for every group and version at most once.
type servedResources struct {
	discovery resourceLister
	resources map[schema.GroupVersion][]string
}

func (s servedResources) has(resource schema.GroupVersionResource) (bool, error) {
	gv := resource.GroupVersion()
	names, known := s.resources[gv]
	if !known {
		list, err := s.discovery.ServerResourcesForGroupVersion(gv.String())
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("asking for the resources of %s: %w", gv, err)
		}
		if err == nil {
			for i := range list.APIResources {
				names = append(names, list.APIResources[i].Name)
			}
		}
		s.resources[gv] = names
	}
	return slices.Contains(names, resource.Resource), nil
}
