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

package selection

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
)

// ofKind returns an object of ours with a spec in JSON.
func ofKind(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal([]byte(spec), &object.Object); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	object.Object = map[string]any{"spec": object.Object}
	object.SetGroupVersionKind(fleetv1.GroupVersion.WithKind(kind))
	object.SetName("validated")
	if kind == "FleetRegistration" {
		object.SetNamespace("default")
	}
	return object
}

func expectInvalid(t *testing.T, err error, field string) {
	t.Helper()
	NewWithT(t).Expect(err).To(Satisfy(apierrors.IsInvalid))
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(field)))
}

func TestTheAPIServerRefusesAPolicyThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	const server, ca = "spec.managementCluster.server", "spec.managementCluster.ca"
	withServer := func(url string) string { return fmt.Sprintf(`{"managementCluster":{"server":%q}}`, url) }
	withCA := func(source string) string {
		return fmt.Sprintf(`{"managementCluster":{"server":"https://example.com","ca":%s}}`, source)
	}
	for name, tt := range map[string]struct{ spec, field string }{
		"valid, empty":                   {`{}`, ""},
		"valid, a server":                {withServer("https://example.com:6443/k8s/clusters/local"), ""},
		"valid, a server by IPv6":        {withServer("https://[2001:db8::1]:6443"), ""},
		"valid, a CA":                    {withCA(`{"secret":{"name":"ca","key":"ca.pem"}}`), ""},
		"valid, a lifetime":              {`{"credentials":{"lifetime":"1h"}}`, ""},
		"a lifetime that is too short":   {`{"credentials":{"lifetime":"59m59s"}}`, "spec.credentials.lifetime"},
		"a lifetime that is too long":    {`{"credentials":{"lifetime":"8760h1s"}}`, "spec.credentials.lifetime"},
		"a lifetime that is no duration": {`{"credentials":{"lifetime":"long"}}`, "spec.credentials.lifetime"},
		"valid, a batch by number":       {`{"rollout":{"maxUnavailable":1,"paused":true}}`, ""},
		"valid, a batch by percentage":   {`{"rollout":{"maxUnavailable":"100%"}}`, ""},
		"no batch":                       {`{"rollout":{"maxUnavailable":0}}`, "spec.rollout.maxUnavailable"},
		"a batch of no clusters":         {`{"rollout":{"maxUnavailable":"0%"}}`, "spec.rollout.maxUnavailable"},
		"a batch of more than all":       {`{"rollout":{"maxUnavailable":"101%"}}`, "spec.rollout.maxUnavailable"},
		"a batch that is no percentage":  {`{"rollout":{"maxUnavailable":"3"}}`, "spec.rollout.maxUnavailable"},
		"a priority that is too high":    {`{"priority":1000001}`, "spec.priority"},
		"a priority that is too low":     {`{"priority":-1000001}`, "spec.priority"},
		"a CA without a server":          {`{"managementCluster":{"ca":{"inline":"x"}}}`, server},
		"a server over http":             {withServer("http://example.com"), server},
		"a server without a scheme":      {withServer("example.com:6443"), server},
		"a server without a host":        {withServer("https:///path"), server},
		"a server with a user":           {withServer("https://user:secret@example.com"), server},
		"a server with a query":          {withServer("https://example.com?a=b"), server},
		"a server with a fragment":       {withServer("https://example.com#a"), server},
		"a server that is too long":      {withServer("https://" + strings.Repeat("a", 512)), server},
		"a CA from nowhere":              {withCA(`{}`), ca},
		"a CA from two places":           {withCA(`{"inline":"x","secret":{"name":"ca"}}`), ca},
		"a CA from another two places":   {withCA(`{"configMap":{"name":"ca"},"secret":{"name":"ca"}}`), ca},
		"an inline CA that is empty":     {withCA(`{"inline":""}`), ca + ".inline"},
		"a CA from a nameless ConfigMap": {withCA(`{"configMap":{"key":"ca.crt"}}`), ca + ".configMap.name"},
		"a CA from a nameless Secret":    {withCA(`{"secret":{"name":""}}`), ca + ".secret.name"},
		"a CA from a key without a name": {withCA(`{"secret":{"name":"ca","key":""}}`), ca + ".secret.key"},
	} {
		t.Run(name, func(t *testing.T) {
			err := lab.Client.Create(t.Context(), ofKind(t, "FleetRegistrationPolicy", tt.spec), client.DryRunAll)
			if tt.field == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			expectInvalid(t, err, tt.field)
		})
	}
}

func TestTheAPIServerRefusesARegistrationThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 52)
	valid := map[string]string{
		"registrationID": fmt.Sprintf("%q", id),
		"fleetCluster":   `{"namespace":"default","name":"edge"}`,
		"selectedBy":     `{"label":"Cluster"}`,
	}
	// with returns a valid spec with one field replaced, or left out where it is
	// empty.
	with := func(field, value string) string {
		var fields []string
		for f, v := range valid {
			if f != field {
				fields = append(fields, fmt.Sprintf("%q:%s", f, v))
			}
		}
		if value != "" {
			fields = append(fields, fmt.Sprintf("%q:%s", field, value))
		}
		return "{" + strings.Join(fields, ",") + "}"
	}
	for name, tt := range map[string]struct{ spec, field string }{
		"valid": {with("agent", `{"image":"agent:v1","imagePullPolicy":"Always","checkinInterval":"15m","workers":{"drift":5},
			"managementCluster":{"server":"https://example.com"}}`), ""},
		"no ID":                         {with("registrationID", ""), "spec.registrationID"},
		"a short ID":                    {with("registrationID", `"abc"`), "spec.registrationID"},
		"a long ID":                     {with("registrationID", fmt.Sprintf("%q", strings.Repeat("a", 65))), "spec.registrationID"},
		"no Fleet Cluster":              {with("fleetCluster", ""), "spec.fleetCluster"},
		"a nameless Fleet Cluster":      {with("fleetCluster", `{"namespace":"default"}`), "spec.fleetCluster.name"},
		"a Fleet Cluster in no place":   {with("fleetCluster", `{"name":"edge"}`), "spec.fleetCluster.namespace"},
		"a long name":                   {with("fleetCluster", fmt.Sprintf(`{"namespace":"default","name":%q}`, strings.Repeat("a", 64))), "spec.fleetCluster.name"},
		"selected by nothing":           {with("selectedBy", ""), "spec.selectedBy"},
		"selected by an unknown label":  {with("selectedBy", `{"label":"Machine"}`), "spec.selectedBy.label"},
		"an empty image":                {with("agent", `{"image":""}`), "spec.agent.image"},
		"an unknown pull policy":        {with("agent", `{"imagePullPolicy":"Sometimes"}`), "spec.agent.imagePullPolicy"},
		"no workers":                    {with("agent", `{"workers":{}}`), "spec.agent.workers"},
		"too few workers":               {with("agent", `{"workers":{"drift":0}}`), "spec.agent.workers.drift"},
		"too many workers":              {with("agent", `{"workers":{"bundleDeployment":1001}}`), "spec.agent.workers.bundleDeployment"},
		"a management cluster nowhere":  {with("agent", `{"managementCluster":{}}`), "spec.agent.managementCluster.server"},
		"a management cluster by http":  {with("agent", `{"managementCluster":{"server":"http://example.com"}}`), "spec.agent.managementCluster.server"},
		"a CA that is no base64 at all": {with("agent", `{"managementCluster":{"server":"https://example.com","certificateAuthorityData":"?"}}`), "spec.agent.managementCluster.certificateAuthorityData"},
	} {
		t.Run(name, func(t *testing.T) {
			err := lab.Client.Create(t.Context(), ofKind(t, "FleetRegistration", tt.spec), client.DryRunAll)
			if tt.field == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			expectInvalid(t, err, tt.field)
		})
	}
}

func TestTheIdentityOfARegistrationDoesNotChange(t *testing.T) {
	t.Parallel()
	w := add(t, plan("immutable", "edge", labelled, noKubelet))[0]
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, "True", fleetv1.AgentDeployedReason)
	for field, patch := range map[string]string{
		"spec.registrationID": fmt.Sprintf(`{"spec":{"registrationID":%q}}`, strings.Repeat("b", 52)),
		"spec.fleetCluster":   `{"spec":{"fleetCluster":{"name":"other"}}}`,
	} {
		t.Run(field, func(t *testing.T) {
			err := lab.Client.Patch(t.Context(), registrationOf(t, w), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
			expectInvalid(t, err, field)
		})
	}
}
