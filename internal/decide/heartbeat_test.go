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
)

func TestAHeartbeatIsHeardWhenItsTimeGoesOnWhateverTheAgentsClock(t *testing.T) {
	for name, clock := range map[string]time.Duration{"right": 0, "a day behind": -24 * time.Hour, "a day ahead": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := FirstHeartbeat(time.Time{}, epoch, 0, false)
			g.Expect(h.Heard).To(BeZero())
			for i := range 10 {
				now := epoch.Add(time.Duration(i) * 15 * time.Minute)
				h = h.Next(now.Add(clock), now)
				g.Expect(h).To(And(HaveField("Seen", now.Add(clock)), HaveField("Heard", now)))
				g.Expect(h.Next(now.Add(clock), now.Add(time.Minute))).To(Equal(h), "the same again is none")
			}
		})
	}
}

func TestATimeThatStepsBackIsNoHeartbeatAndTheNextOneIs(t *testing.T) {
	g := NewWithT(t)
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
	h := FirstHeartbeat(time.Time{}, epoch, 0, false).Next(at(15), at(15))
	for _, back := range []time.Time{at(0), {}} {
		h = h.Next(back, at(16))
		g.Expect(h).To(And(HaveField("Seen", at(15)), HaveField("Heard", at(15))))
	}
	h = h.Next(at(30), at(30))
	g.Expect(h.Heard).To(Equal(at(30)))

	// The agent's clock is set back by a day.
	h = h.Next(at(45-24*60), at(45))
	g.Expect(h.Heard).To(Equal(at(30)))
	h = h.Next(at(60-24*60), at(60))
	g.Expect(h).To(And(HaveField("Seen", at(60-24*60)), HaveField("Heard", at(60))))
}

func TestAnAgentOfWhichNothingIsRememberedHasTimeForOneMoreHeartbeat(t *testing.T) {
	now := epoch.Add(24 * time.Hour)
	for name, tt := range map[string]struct {
		ago     time.Duration
		checkin time.Duration
		silent  bool
		// left is the time until it counts as silent.
		left time.Duration
	}{
		"just now":                             {ago: 0, left: 45 * time.Minute},
		"a moment ago":                         {ago: 20 * time.Minute, left: 25 * time.Minute},
		"a while ago":                          {ago: 40 * time.Minute, left: 17 * time.Minute},
		"long ago, or its clock is behind":     {ago: 10 * time.Hour, left: 17 * time.Minute},
		"in the future":                        {ago: -10 * time.Hour, left: 45 * time.Minute},
		"long ago, by a short interval":        {ago: 10 * time.Hour, checkin: time.Second, left: 2*time.Minute + time.Second},
		"a while ago, and was silent":          {ago: 40 * time.Minute, silent: true, left: 5 * time.Minute},
		"long ago, and was silent":             {ago: 10 * time.Hour, silent: true, left: 45*time.Minute - 10*time.Hour},
		"in the future, and was silent before": {ago: -10 * time.Hour, silent: true, left: 45 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := FirstHeartbeat(now.Add(-tt.ago), now, tt.checkin, tt.silent)
			g.Expect(h.Seen).To(Equal(now.Add(-tt.ago)))
			g.Expect(h.Heard.Add(SilenceLimit(tt.checkin)).Sub(now)).To(Equal(tt.left))
		})
	}
}
