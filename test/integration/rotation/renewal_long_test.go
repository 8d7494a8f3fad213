//go:build long

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

package rotation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	// expiryLeeway is how long an API server goes on to accept a token that has expired.
	expiryLeeway = time.Minute
	// observation is long enough for three renewals, each after at most half of the life.
	observation = 2 * tokenLife
)

func TestAnAgentWithTokensOfTenMinutesIsNeverRefusedAndNeverRestarted(t *testing.T) {
	for name, light := range map[string]*lightapi.Options{"real": nil, "light": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			w := suite.AddCluster(t, lab, name, env.ClusterOptions{Namespace: "renewal-" + name, Register: true, Light: light})
			registration := suite.EventuallyReady(t, lab, w)
			firstEnds := registration.Status.Credential.ExpirationTime.Add(expiryLeeway)
			g.Expect(firstEnds).To(BeTemporally("<", time.Now().Add(tokenLife+2*expiryLeeway)))

			tokens := map[string]bool{}
			longest := time.Duration(0)
			g.Eventually(func(g Gomega) {
				secret := &corev1.Secret{}
				g.Expect(w.Client.Get(t.Context(), suite.AgentKey, secret)).To(Succeed())
				tokens[agent.Token(secret)] = true
				longest = max(longest, time.Since(lastSeen(g, t, w)))
				g.Expect(len(tokens)).To(BeNumerically(">", 3), "three renewals")
				g.Expect(time.Now()).To(BeTemporally(">", firstEnds.Add(expiryLeeway)))
			}).WithTimeout(observation).WithPolling(checkin).Should(Succeed())

			t.Logf("%d tokens, longest silence %s", len(tokens), longest)
			g.Expect(longest).To(BeNumerically("<", 30*checkin))
			g.Expect(w.AgentStarts()).To(HaveLen(1))
			g.Expect(w.AgentReports()).To(ConsistOf(HaveField("Refused", BeEmpty())))
		})
	}
}
