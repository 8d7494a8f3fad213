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

import "time"

// Heartbeat is what is remembered of an agent's heartbeats. Their times are of the agent's
// clock, which may be wrong, so silence is judged by when they were heard here.
type Heartbeat struct {
	// Seen is the time of the newest one by the agent's clock; zero means none yet.
	Seen time.Time
	// Heard is when it was heard; zero means none yet.
	Heard time.Time

	// read is what the Fleet Cluster said last.
	read time.Time
}

// FirstHeartbeat returns what to make of a time of which nothing is remembered, as after a
// restart of the manager: it may be as old as it says, or the agent's clock is behind. So an
// agent has the time for one more heartbeat until it counts as silent, unless it did so
// before.
func FirstHeartbeat(seen, now time.Time, checkin time.Duration, silent bool) Heartbeat {
	first := Heartbeat{Seen: seen, Heard: seen, read: seen}
	switch latest := now.Add(nextHeartbeat(checkin) - SilenceLimit(checkin)); {
	case seen.IsZero():
	case seen.After(now):
		first.Heard = now
	case seen.Before(latest) && !silent:
		first.Heard = latest
	}
	return first
}

// Next returns what is known once the Fleet Cluster has been read again at the time now. A
// time that went on is a heartbeat. One that stepped back is none: Fleet's controller writes
// the whole status, from what it read a while ago, or the agent's clock was set back, and
// then the next one tells.
func (h Heartbeat) Next(seen, now time.Time) Heartbeat {
	if seen.After(h.read) {
		h.Seen, h.Heard = seen, now
	}
	h.read = seen
	return h
}
