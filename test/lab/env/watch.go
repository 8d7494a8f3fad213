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

package env

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retryInterval is the pause before a watch or a loop that failed is tried again.
const retryInterval = 200 * time.Millisecond

// follow calls each with every event of a watch on list, beginning with an Added
// event for everything that is there, until ctx ends. It opens the watch again
// whenever it breaks, also where the kind is not served yet. Deletions that happen
// between two watches are not seen.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, each func(watch.Event), opts ...client.ListOption) {
	for ctx.Err() == nil {
		if w, err := c.Watch(ctx, list, opts...); err == nil {
			drain(ctx, w, each)
		}
		pause(ctx, retryInterval)
	}
}

func drain(ctx context.Context, w watch.Interface, each func(watch.Event)) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error {
				return
			}
			each(event)
		}
	}
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// trigger asks a loop for another round. Any number of requests while a round runs
// make one more.
type trigger chan struct{}

func newTrigger() trigger { return make(trigger, 1) }

func (t trigger) fire() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// fired is fire as a callback of follow.
func (t trigger) fired(watch.Event) { t.fire() }

// loop calls round whenever t fires, and again after retryInterval where it failed,
// until ctx ends. Each failure is reported once in a row.
func (t trigger) loop(ctx context.Context, report func(error), round func(context.Context) error) {
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t:
		}
		err := round(ctx)
		if err == nil {
			last = ""
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			report(err)
		}
		pause(ctx, retryInterval)
		t.fire()
	}
}
