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

package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
)

// cost counts what the manager did on the management cluster since the mark, when it had
// nothing to do but these registrations.
func (b *bench) cost(ctx context.Context, lab *env.Lab, since kube.Mark, registrations int) error {
	events, err := lab.Management().AuditLog().Since(ctx, since)
	if err != nil {
		return err
	}
	all := requests(events)
	writes := kube.Writes(all)
	objects := created(writes)
	each := func(n int) float64 { return float64(n) / float64(registrations) }
	f := b.figure(2)
	with := fmt.Sprintf("each of %d registrations", registrations)
	f.add(with, "writes", each(len(writes)), "", "≤ 14")
	for _, k := range kinds(writes) {
		f.add(with, "writes: "+k.name, each(k.count), "", "")
	}
	f.add(with, "requests, the writes and Events among them", each(len(all)), "", "")
	for _, k := range kinds(noWrites(all)) {
		f.add(with, "requests that are no writes: "+k.name, each(k.count), "", "")
	}
	f.add(with, "objects left", each(len(objects)), "", "≤ 7")
	for _, k := range kinds(objects) {
		f.add(with, "objects: "+strings.TrimPrefix(k.name, "create "), each(k.count), "", "")
	}
	secrets := count(objects, func(e kube.Event) bool { return e.Resource == "secrets" })
	f.add(with, "objects: Secrets", each(secrets), "", "0")
	return nil
}

// noWrites returns those of the requests that are no writes.
func noWrites(all []kube.Event) []kube.Event {
	return slices.DeleteFunc(slices.Clone(all), func(e kube.Event) bool { return len(kube.Writes([]kube.Event{e})) > 0 })
}

// created returns one event for each object that the writes made and did not take away.
func created(writes []kube.Event) []kube.Event {
	type identity struct{ group, resource, namespace, name string }
	at := map[identity]int{}
	var events []kube.Event
	for _, e := range writes {
		id := identity{e.Group, e.Resource, e.Namespace, e.Name}
		switch {
		case e.Subresource != "" || e.Code >= http.StatusMultipleChoices:
		case e.Code == http.StatusCreated:
			at[id] = len(events)
			events = append(events, e)
		case e.Verb == "delete":
			if i, made := at[id]; made {
				events[i].Resource = ""
			}
		}
	}
	var left []kube.Event
	for _, e := range events {
		if e.Resource != "" {
			left = append(left, e)
		}
	}
	return left
}
