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
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/decide"
)

const (
	// changingIndex finds the registrations of a policy whose agents are changing.
	changingIndex = "changing"

	// turnInterval is how often a Cluster whose turn has not come looks again by itself.
	// As a rule the end of another one's turn brings it back before.
	turnInterval = time.Minute
)

// changingOf is the index: the policy of a registration whose agent is changing.
func changingOf(obj client.Object) []string {
	if reg := obj.(*fleetv1.FleetRegistration); decide.Changing(reg) {
		return []string{reg.Spec.SelectedBy.Policy}
	}
	return nil
}

// turns lets the registrations of a policy take settings that restart their agents, a few
// at a time. What it remembers spares it some waiting and keeps it from counting by a cache
// that is behind; all else is in the objects, so that another manager goes on as well.
type turns struct {
	// mu is held while the agents that are changing are counted and another is added.
	mu sync.Mutex
	// given are registrations with new settings that the cache may not show yet, and their
	// policies.
	given map[types.NamespacedName]string
	// waiting are the registrations of a policy whose turn has not come and whose agents
	// report. The others look by themselves.
	waiting map[string]map[types.NamespacedName]struct{}
	// previous are the settings of before for those that may have to be given back.
	previous map[types.NamespacedName]fleetv1.AgentSpec
}

// takeAgent brings spec.agent of desired in line with what is wanted, if the
// registration may take it now. It tells whether its turn is still to come. The caller
// holds r.turns.mu until desired is written.
func (r *Reconciler) takeAgent(ctx context.Context, reg, desired *fleetv1.FleetRegistration, wanted fleetv1.AgentSpec, selection decide.Selection) (waits bool, err error) {
	t, key := &r.turns, client.ObjectKeyFromObject(reg)
	policy := selection.By.Policy
	t.leave(key)
	if previous, ok := t.previous[key]; ok && decide.Unreached(reg, previous) {
		// What cannot be put in place must not come all at once when the network is back.
		desired.Spec.Agent = previous
		return false, nil
	}
	if equality.Semantic.DeepEqual(reg.Spec.Agent, wanted) {
		if !decide.Changing(reg) {
			delete(t.previous, key)
		}
		return false, nil
	}
	switch decide.TurnOf(reg, wanted) {
	case decide.Later:
		return false, nil
	case decide.InTurn:
		free, err := r.turnIsFree(ctx, reg, wanted, selection)
		if err != nil {
			return false, err
		}
		if !free {
			if decide.Reports(reg) {
				t.join(policy, key)
			}
			return true, nil
		}
		t.remember(key, reg.Spec.Agent)
	case decide.AtOnce:
	}
	desired.Spec.Agent = wanted
	return false, nil
}

// turnIsFree tells whether the registration's agent, one more of the policy, may be changed.
func (r *Reconciler) turnIsFree(ctx context.Context, reg *fleetv1.FleetRegistration, wanted fleetv1.AgentSpec, selection decide.Selection) (bool, error) {
	var rollout fleetv1.RolloutSpec
	if selection.Policy != nil {
		rollout = selection.Policy.Spec.Rollout
	}
	if rollout.Paused {
		return false, nil
	}
	policy := selection.By.Policy
	members, changing := &fleetv1.FleetRegistrationList{}, &fleetv1.FleetRegistrationList{}
	if err := r.Client.List(ctx, members, client.UnsafeDisableDeepCopy, client.MatchingFields{policyIndex: policy}); err != nil {
		return false, fmt.Errorf("listing the registrations of a policy: %w", err)
	}
	if !decide.Reports(reg) && slices.ContainsFunc(members.Items, func(member fleetv1.FleetRegistration) bool {
		return decide.Reports(&member) && decide.Waits(&member, wanted)
	}) {
		return false, nil
	}
	// What the cache does not show yet is counted before what it shows: what turns up in
	// between is counted twice rather than not at all.
	count, err := r.unseen(ctx, policy)
	if err != nil {
		return false, err
	}
	if err := r.Client.List(ctx, changing, client.UnsafeDisableDeepCopy, client.MatchingFields{changingIndex: policy}); err != nil {
		return false, fmt.Errorf("listing the registrations whose agents are changing: %w", err)
	}
	passedOver, err := r.passedOver(ctx, policy)
	if err != nil {
		return false, err
	}
	return count+len(changing.Items)+passedOver < decide.MaxChanging(rollout, len(members.Items)), nil
}

// passedOver counts the registrations that are about to be given their old settings back.
// Until they are, what they have may be put in place after all.
func (r *Reconciler) passedOver(ctx context.Context, policy string) (int, error) {
	count := 0
	for key, previous := range r.turns.previous {
		reg := &fleetv1.FleetRegistration{}
		if err := r.Client.Get(ctx, key, reg); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("reading FleetRegistration %s: %w", key, err)
		}
		if _, unseen := r.turns.given[key]; !unseen && reg.Spec.SelectedBy.Policy == policy && decide.Unreached(reg, previous) {
			count++
		}
	}
	return count, nil
}

// unseen counts the registrations that were given settings of the policy and are older in
// the cache.
func (r *Reconciler) unseen(ctx context.Context, policy string) (int, error) {
	count := 0
	for key, of := range r.turns.given {
		reg := &fleetv1.FleetRegistration{}
		if err := r.Client.Get(ctx, key, reg); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("reading FleetRegistration %s: %w", key, err)
		}
		switch {
		case reg.Name == "" || !r.written.NewerThan(reg, r.Clock.Now()):
			delete(r.turns.given, key)
		case of == policy:
			count++
		}
	}
	return count, nil
}

// give notes that a registration was written with new settings.
func (t *turns) give(reg *fleetv1.FleetRegistration) {
	if t.given == nil {
		t.given = map[types.NamespacedName]string{}
	}
	t.given[client.ObjectKeyFromObject(reg)] = reg.Spec.SelectedBy.Policy
}

func (t *turns) remember(key types.NamespacedName, agent fleetv1.AgentSpec) {
	if t.previous == nil {
		t.previous = map[types.NamespacedName]fleetv1.AgentSpec{}
	}
	t.previous[key] = agent
}

func (t *turns) join(policy string, key types.NamespacedName) {
	if t.waiting == nil {
		t.waiting = map[string]map[types.NamespacedName]struct{}{}
	}
	if t.waiting[policy] == nil {
		t.waiting[policy] = map[types.NamespacedName]struct{}{}
	}
	t.waiting[policy][key] = struct{}{}
}

func (t *turns) leave(key types.NamespacedName) {
	for _, waiting := range t.waiting {
		delete(waiting, key)
	}
}

// next takes the first by name out of those that wait.
func (t *turns) next(policy string) (types.NamespacedName, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting[policy]) == 0 {
		return types.NamespacedName{}, false
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(t.waiting[policy])), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	})
	delete(t.waiting[policy], first)
	return first, true
}

// forget forgets a registration that is gone.
func (t *turns) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(key)
	delete(t.given, key)
	delete(t.previous, key)
}

// passTurn brings back one Cluster that waits whenever a registration of its policy is no
// longer changing.
func (r *Reconciler) passTurn() handler.EventHandler {
	pass := func(policy string, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if next, ok := r.turns.next(policy); ok {
			queue.Add(reconcile.Request{NamespacedName: next})
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			before, after := e.ObjectOld.(*fleetv1.FleetRegistration), e.ObjectNew.(*fleetv1.FleetRegistration)
			moved := before.Spec.SelectedBy.Policy != after.Spec.SelectedBy.Policy
			if decide.Changing(before) && (moved || !decide.Changing(after)) {
				pass(before.Spec.SelectedBy.Policy, queue)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			pass(e.Object.(*fleetv1.FleetRegistration).Spec.SelectedBy.Policy, queue)
		},
	}
}
