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
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

func TestATrialDoesWhatAnAgentDoesFirst(t *testing.T) {
	for _, tt := range []struct {
		name    string
		code    int
		matches func(error) bool
	}{
		{"accepted", http.StatusOK, func(err error) bool { return err == nil }},
		{"not accepted", http.StatusUnauthorized, apierrors.IsUnauthorized},
		{"without rights", http.StatusForbidden, apierrors.IsForbidden},
		{"server error", http.StatusInternalServerError, func(err error) bool {
			return err != nil && !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			var got *http.Request
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.code)
				_, _ = w.Write([]byte(`{}`))
			}))
			t.Cleanup(server.Close)
			trial, err := NewTrial(&rest.Config{
				Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
				BearerToken: "of-the-manager", UserAgent: "capi-fleet",
			})
			g.Expect(err).NotTo(HaveOccurred())

			err = trial.Try(t.Context(), "of-the-agent", "cluster-a")

			g.Expect(tt.matches(err)).To(BeTrue(), "%v", err)
			g.Expect(got.Method + " " + got.URL.String()).To(Equal("GET /apis/fleet.cattle.io/v1alpha1/namespaces/cluster-a/bundledeployments?limit=1&resourceVersion=0"))
			g.Expect(got.Header.Values("Authorization")).To(Equal([]string{"Bearer of-the-agent"}))
			if err != nil {
				g.Expect(err.Error()).NotTo(ContainSubstring("of-the-agent"))
			}
		})
	}
}
