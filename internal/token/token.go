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

// Package token issues the agents' credentials and says when they are to be
// renewed. The registration controller calls it. It keeps no token and logs none.
package token

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultLifetime is the life that is asked for. The API server may grant less.
const defaultLifetime = 72 * time.Hour

// Token is a bearer token of a service account.
type Token struct {
	Value   string
	Issued  time.Time
	Expires time.Time
}

// Issuer asks the management cluster for tokens of service accounts in one
// namespace.
type Issuer struct {
	Client    client.Client
	Clock     clock.PassiveClock
	Namespace string
	// MaxLifetime is the longest life that is asked for. Zero sets no limit.
	MaxLifetime time.Duration
}

// Subject returns the name that the API server knows the service account name by.
func (i *Issuer) Subject(name string) string {
	return serviceaccount.MakeUsername(i.Namespace, name)
}

// Lifetime returns the life to ask for where lifetime is wanted. Zero means 72 h; more
// than MaxLifetime means that.
func (i *Issuer) Lifetime(lifetime time.Duration) time.Duration {
	if lifetime == 0 {
		lifetime = defaultLifetime
	}
	if i.MaxLifetime > 0 {
		lifetime = min(lifetime, i.MaxLifetime)
	}
	return lifetime
}

// Issue returns a new token of the service account name. A lifetime of zero means
// 72 h; more than MaxLifetime means that. The token's expiry is what the API server
// granted, which may be sooner. Errors are the API server's, wrapped.
func (i *Issuer) Issue(ctx context.Context, name string, lifetime time.Duration) (Token, error) {
	lifetime = i.Lifetime(lifetime)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(lifetime / time.Second)),
	}}
	issued := i.Clock.Now()
	if err := i.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return Token{}, fmt.Errorf("requesting a token of service account %s/%s: %w", i.Namespace, name, err)
	}
	return Token{Value: request.Status.Token, Issued: issued, Expires: request.Status.ExpirationTimestamp.Time}, nil
}

// RenewTime returns when a token is to be renewed: after a third to a half of its
// life, so that more than a day remains of the default life if the manager is
// away then. The seed spreads tokens that were issued together; the same seed
// always gives the same time. It is a minute after the issue at the earliest.
func RenewTime(issued, expires time.Time, seed string) time.Time {
	life := expires.Sub(issued)
	// A clock that is far ahead of the API server's makes lives of less than nothing.
	return issued.Add(max(time.Minute, life/3+time.Duration(Spread(seed)*float64(life/6))))
}

// Spread returns a number from 0 up to 1, always the same for the same seed, by which
// what would happen at the same time is spread.
func Spread(seed string) float64 {
	sum := sha256.Sum256([]byte(seed))
	return float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32)
}
