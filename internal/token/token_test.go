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

package token

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func issuer(grant func(obj client.Object, request *authenticationv1.TokenRequest) error) *Issuer {
	return &Issuer{
		Clock:     testclock.NewFakePassiveClock(now),
		Namespace: "manager",
		Client: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			SubResourceCreate: func(_ context.Context, _ client.Client, name string, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
				if name != "token" {
					return fmt.Errorf("unexpected subresource %q", name)
				}
				return grant(obj, sub.(*authenticationv1.TokenRequest))
			},
		}).Build(),
	}
}

func TestIssueReportsTheExpiryThatTheServerGranted(t *testing.T) {
	g := NewWithT(t)
	i := issuer(func(obj client.Object, request *authenticationv1.TokenRequest) error {
		g.Expect(obj.GetNamespace()).To(Equal("manager"))
		g.Expect(obj.GetName()).To(Equal("cluster-a"))
		g.Expect(*request.Spec.ExpirationSeconds).To(BeEquivalentTo(72 * 60 * 60))
		request.Status = authenticationv1.TokenRequestStatus{Token: "t", ExpirationTimestamp: metav1.NewTime(now.Add(time.Hour))}
		return nil
	})
	got, err := i.Issue(t.Context(), "cluster-a", 0)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(Token{Value: "t", Issued: now, Expires: now.Add(time.Hour)}))
}

func TestIssueAsksForTheLifetimeThatItIsTold(t *testing.T) {
	g := NewWithT(t)
	i := issuer(func(_ client.Object, request *authenticationv1.TokenRequest) error {
		g.Expect(*request.Spec.ExpirationSeconds).To(BeEquivalentTo(600))
		return nil
	})
	_, err := i.Issue(t.Context(), "cluster-a", 10*time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestIssueNeverAsksForMoreThanTheLimit(t *testing.T) {
	for lifetime, want := range map[time.Duration]time.Duration{0: time.Hour, 2 * time.Hour: time.Hour, 30 * time.Minute: 30 * time.Minute} {
		g := NewWithT(t)
		i := issuer(func(_ client.Object, request *authenticationv1.TokenRequest) error {
			g.Expect(*request.Spec.ExpirationSeconds).To(BeEquivalentTo(want / time.Second))
			return nil
		})
		i.MaxLifetime = time.Hour
		_, err := i.Issue(t.Context(), "cluster-a", lifetime)
		g.Expect(err).NotTo(HaveOccurred())
	}
}

func TestIssueWrapsTheServersError(t *testing.T) {
	g := NewWithT(t)
	refused := errors.New("refused")
	_, err := issuer(func(client.Object, *authenticationv1.TokenRequest) error { return refused }).Issue(t.Context(), "cluster-a", 0)
	g.Expect(err).To(MatchError(refused))
}

func TestRenewTimeLiesBetweenAThirdAndAHalfAndIsSpread(t *testing.T) {
	g := NewWithT(t)
	const life = 72 * time.Hour
	var early, late int
	for n := range 300 {
		at := RenewTime(now, now.Add(life), fmt.Sprint(n))
		g.Expect(at).To(BeTemporally(">=", now.Add(life/3)))
		g.Expect(at).To(BeTemporally("<=", now.Add(life/2)))
		if at.Before(now.Add(life * 5 / 12)) {
			early++
		} else {
			late++
		}
	}
	g.Expect(early).To(BeNumerically(">", 100))
	g.Expect(late).To(BeNumerically(">", 100))
	g.Expect(RenewTime(now, now.Add(life), "a")).To(Equal(RenewTime(now, now.Add(life), "a")))
}

func TestRenewTimeOfATokenThatSeemsExpiredFromTheStartIsNotAtOnce(t *testing.T) {
	NewWithT(t).Expect(RenewTime(now, now.Add(-time.Hour), "a")).To(Equal(now.Add(time.Minute)))
}
