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
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/types"
)

// maxSize is the longest token that is looked at, in bytes. Those of service accounts
// have about a thousand.
const maxSize = 16 << 10

// skew is how far the clock of an API server may be from ours.
const skew = 5 * time.Minute

// Claims is what a service account's token says of itself. Nobody has checked it: it
// comes from a workload cluster.
type Claims struct {
	// Subject is the name that the API server knows the service account by.
	Subject string
	// AccountUID is the UID of the service account. The token ends with it.
	AccountUID types.UID
	// Issued and Expires are the token's times, with a precision of a second.
	Issued, Expires time.Time
}

// Read returns what a token says of itself; false means that it is no token of a
// service account with an end (Kubernetes, TokenRequest).
func Read(token string) (Claims, bool) {
	parts := strings.Split(token, ".")
	if len(token) > maxSize || len(parts) != 3 || strings.ContainsFunc(token, unicode.IsSpace) {
		return Claims{}, false
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Claims{}, false
	}
	var claims struct {
		Subject    string `json:"sub"`
		Issued     int64  `json:"iat"`
		Expires    int64  `json:"exp"`
		Kubernetes struct {
			ServiceAccount struct {
				UID types.UID `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(content, &claims); err != nil || claims.Issued <= 0 || claims.Expires <= claims.Issued {
		return Claims{}, false
	}
	return Claims{
		Subject:    claims.Subject,
		AccountUID: claims.Kubernetes.ServiceAccount.UID,
		Issued:     time.Unix(claims.Issued, 0),
		Expires:    time.Unix(claims.Expires, 0),
	}, true
}

// Bounded returns the claims with an end that is no later than a token of that lifetime can
// have: who issued it may say anything, to put off its renewal for ever. False means that by
// these claims it is of no use at the time now: it has ended, or begins in the future.
func (c Claims) Bounded(now time.Time, lifetime time.Duration) (Claims, bool) {
	if latest := c.Issued.Add(lifetime + skew); c.Expires.After(latest) {
		c.Expires = latest
	}
	return c, c.Expires.After(now) && !c.Issued.After(now.Add(skew))
}
