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
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func jwt(claims string) string {
	return "head." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
}

func TestATokenTellsWhoseItIsAndUntilWhen(t *testing.T) {
	g := NewWithT(t)
	claims, ok := Read(jwt(`{"aud":["a"],"exp":1800003600,"iat":1800000000,"sub":"system:serviceaccount:ns:name",
		"kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"name","uid":"some-uid"}}}`))
	g.Expect(ok).To(BeTrue())
	g.Expect(claims).To(Equal(Claims{
		Subject: "system:serviceaccount:ns:name", AccountUID: "some-uid",
		Issued: time.Unix(1_800_000_000, 0), Expires: time.Unix(1_800_003_600, 0),
	}))
}

func TestWhatIsNoTokenIsNotRead(t *testing.T) {
	for name, value := range map[string]string{
		"empty":             "",
		"with a new line":   jwt(`{"sub":"a","iat":1,"exp":2}`) + "\n",
		"two parts":         "a.b",
		"four parts":        jwt(`{"iat":1,"exp":2}`) + ".more",
		"not base64":        "a.!!!.c",
		"not JSON":          jwt("hello"),
		"times of a string": jwt(`{"iat":"1","exp":"2"}`),
		"no end":            jwt(`{"sub":"a","iat":1}`),
		"ends before":       jwt(`{"sub":"a","iat":3,"exp":2}`),
		"no beginning":      jwt(`{"sub":"a","exp":2}`),
		"too long":          jwt(`{"iat":1,"exp":2,"x":"` + strings.Repeat("x", maxSize) + `"}`),
	} {
		_, ok := Read(value)
		NewWithT(t).Expect(ok).To(BeFalse(), name)
	}
}

func TestATokenIsBelievedToLastAsLongAsWasAskedFor(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, tt := range map[string]struct {
		issued, expires, want time.Duration // since now
		ok                    bool
	}{
		"as asked for":             {0, time.Hour, time.Hour, true},
		"less":                     {0, 10 * time.Minute, 10 * time.Minute, true},
		"clocks differ a little":   {4 * time.Minute, 64 * time.Minute, 64 * time.Minute, true},
		"more":                     {0, 1000 * time.Hour, time.Hour + skew, true},
		"more, a while ago":        {-30 * time.Minute, 1000 * time.Hour, 30*time.Minute + skew, true},
		"more, long ago":           {-10 * time.Hour, 1000 * time.Hour, -9*time.Hour + skew, false},
		"ends now":                 {-time.Hour, 0, 0, false},
		"begins later than clocks": {6 * time.Minute, time.Hour, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, ok := Claims{Issued: now.Add(tt.issued), Expires: now.Add(tt.expires)}.Bounded(now, time.Hour)
			g.Expect(ok).To(Equal(tt.ok))
			g.Expect(got).To(Equal(Claims{Issued: now.Add(tt.issued), Expires: now.Add(tt.want)}))
		})
	}
}

func FuzzReadOfWhateverAWorkloadClusterHolds(f *testing.F) {
	f.Add(jwt(`{"iat":1,"exp":2,"kubernetes.io":{"serviceaccount":null}}`))
	f.Fuzz(func(t *testing.T, value string) {
		if claims, ok := Read(value); ok && !claims.Expires.After(claims.Issued) {
			t.Errorf("%q ends before it begins", value)
		}
	})
}
