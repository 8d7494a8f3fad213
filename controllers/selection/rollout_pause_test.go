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

package selection

import (
	"testing"

	. "github.com/onsi/gomega"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func TestARolloutThatIsPausedHalfwayEndsWhatChangesAndBeginsNothing(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "v2")
	f.reconcileAll(t)
	begun := f.with(t, "v2")
	g.Expect(begun).To(HaveLen(3))
	f.report(t, begun[0], upToDate)
	f.report(t, begun[1], updating)

	f.change(t, f.policy, func() { f.policy.Spec.Rollout.Paused = true })
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(Equal(begun), "nobody has the place of the one that is done, and nothing is taken back")
	paused, status := f.rolledOut(t)
	g.Expect(paused.Reason).To(Equal(fleetv1.RolloutPausedReason))
	g.Expect(status.Updated).To(HaveValue(BeEquivalentTo(1)))

	f.report(t, begun[1], upToDate)
	f.report(t, begun[2], failed, pullFailed)
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(Equal(begun))
	paused, status = f.rolledOut(t)
	g.Expect(paused.Reason).To(Equal(fleetv1.RolloutPausedReason))
	g.Expect(status.Updated).To(HaveValue(BeEquivalentTo(2)))
	g.Expect(status.Failed).To(HaveValue(BeEquivalentTo(1)))

	f.change(t, f.policy, func() { f.policy.Spec.Rollout.Paused = false })
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(HaveLen(5), "the one that failed keeps its place")
}

func TestAPausedRolloutTakesNoSettingsBackEither(t *testing.T) {
	g := NewWithT(t)
	f := newFleet30(t)
	f.image(t, "v2")
	f.reconcileAll(t)
	begun := f.with(t, "v2")
	for _, name := range begun {
		f.report(t, name, upToDate)
	}
	f.change(t, f.policy, func() { f.policy.Spec.Rollout.Paused = true })
	f.image(t, "v1")
	f.reconcileAll(t)
	g.Expect(f.with(t, "v2")).To(Equal(begun))
}
