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

package registration

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// release returns a release as Helm stores it.
func release(t *testing.T, annotations map[string]string, padding int) []byte {
	t.Helper()
	content, err := json.Marshal(map[string]any{
		"name":     "app",
		"info":     map[string]any{"status": "deployed"},
		"chart":    map[string]any{"metadata": map[string]any{"name": "app", "annotations": annotations}, "values": map[string]any{"a": 1}},
		"manifest": strings.Repeat("x", padding),
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return stored(t, content)
}

func stored(t *testing.T, content []byte) []byte {
	t.Helper()
	g := NewWithT(t)
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = writer.Write(content)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(writer.Close()).To(Succeed())
	return []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))
}

func bundle(id, agentNamespace string) map[string]string {
	return map[string]string{"fleet.cattle.io/bundle-id": id, "fleet.cattle.io/agent-namespace": agentNamespace}
}

func TestFleetBundle(t *testing.T) {
	good := release(t, bundle("app", "cattle-fleet-system"), 1000)
	packed, err := base64.StdEncoding.DecodeString(string(good))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	plain := []byte(base64.StdEncoding.EncodeToString([]byte(`{"chart":{"metadata":{"annotations":{"fleet.cattle.io/bundle-id":"app","fleet.cattle.io/agent-namespace":"cattle-fleet-system"}}}}`)))
	for _, tt := range []struct {
		name    string
		encoded []byte
		want    string
	}{
		{"a release of Fleet", good, "app"},
		{"a release of Fleet that is not compressed", plain, "app"},
		{"a large release of Fleet", release(t, bundle("app", "cattle-fleet-system"), 2<<20), "app"},
		{"someone's own release", release(t, nil, 0), ""},
		{"a release of an agent elsewhere", release(t, bundle("app", "other"), 0), ""},
		{"the agent itself", release(t, bundle("fleet-agent-edge-1", "cattle-fleet-system"), 0), ""},
		{"nothing", nil, ""},
		{"not base64", []byte("%%%"), ""},
		{"not compressed and not JSON", []byte(base64.StdEncoding.EncodeToString([]byte("junk"))), ""},
		{"cut off", []byte(base64.StdEncoding.EncodeToString(packed[:len(packed)/2])), ""},
		{"a header and nothing else", []byte(base64.StdEncoding.EncodeToString(packed[:3])), ""},
		{"not JSON", stored(t, []byte("junk")), ""},
		{"another shape", stored(t, []byte(`{"chart":[1]}`)), ""},
		{"null", stored(t, []byte(`null`)), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := fleetBundle(tt.encoded)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tt.want))
		})
	}
}

// Helm reads such a release, and so does the agent, which might uninstall it.
func TestAReleaseThatUnpacksToTooMuchStopsThePush(t *testing.T) {
	g := NewWithT(t)
	bomb := release(t, bundle("app", "cattle-fleet-system"), maxReleaseSize)
	g.Expect(len(bomb)).To(BeNumerically("<", 1<<20), "it is small while packed")

	_, err := fleetBundle(bomb)

	var refused *refusal
	g.Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
	g.Expect(refused.reason).To(Equal(fleetv1.WaitingForBundlesReason))
}

func TestAReleaseWaitsWhileEnoughOthersAreUnpacked(t *testing.T) {
	g := NewWithT(t)
	encoded := release(t, bundle("app", "cattle-fleet-system"), 0)
	for range maxUnpacking {
		unpacking <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := fleetBundleInTurn(ctx, encoded)
	g.Expect(err).To(MatchError(context.Canceled), "it gives up with its context")

	got := make(chan string)
	go func() {
		bundle, _ := fleetBundleInTurn(t.Context(), encoded)
		got <- bundle
	}()
	g.Consistently(got, "50ms").ShouldNot(Receive())
	<-unpacking
	g.Eventually(got).Should(Receive(Equal("app")))
	for range maxUnpacking - 1 {
		<-unpacking
	}
	g.Expect(unpacking).To(BeEmpty(), "a turn ends")
}

func FuzzFleetBundle(f *testing.F) {
	f.Add([]byte("H4sIAAAA"))
	f.Add([]byte("e30="))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		bundle, err := fleetBundle(encoded)
		if err != nil && bundle != "" || strings.HasPrefix(bundle, "fleet-agent") {
			t.Errorf("got %q, %v", bundle, err)
		}
	})
}
