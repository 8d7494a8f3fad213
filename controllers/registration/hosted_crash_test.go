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

package registration

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Only its Deployment is found by the cache.
func TestWhatAManagerThatWasKilledLeftOfAHostedAgentGoesWithTheWayBack(t *testing.T) {
	g := NewWithT(t)
	l := newHosted(t)
	var killed fleetv1.FleetRegistrationStatus
	l.reconciler.Upstream.Client = interceptor.NewClient(l, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if content, err := json.Marshal(obj); err == nil && strings.Contains(string(content), `"kind":"Deployment"`) {
				killed = l.registration(t).Status
				return errors.New("killed")
			}
			return c.Apply(ctx, obj, opts...)
		},
	})
	l.step(t)
	reg := l.registration(t)
	reg.Status = killed
	g.Expect(l.Status().Update(t.Context(), reg)).To(Succeed())
	g.Expect(l.inManagerNamespace(t)).To(Equal(2), "all but the Deployment")

	l.setPlacement(t, "")
	l.pass(time.Minute)
	l.step(t)
	l.expect(t, fleetv1.AgentDeployedCondition, metav1.ConditionTrue, fleetv1.AgentDeployedReason)
	g.Expect(l.inManagerNamespace(t)).To(BeZero())
}
