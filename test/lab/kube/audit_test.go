//go:build unix

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

package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const auditLines = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/serviceaccounts/b/token","verb":"create","user":{"username":"system:serviceaccount:x:y","groups":["system:authenticated"]},"userAgent":"manager/v1","objectRef":{"resource":"serviceaccounts","namespace":"a","name":"b","apiVersion":"v1","subresource":"token"},"responseStatus":{"metadata":{},"code":201},"stageTimestamp":"2026-01-02T03:04:05.000006Z","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by RoleBinding \"m\""}}
{"stage":"ResponseComplete","requestURI":"/version?capi-fleet-mark=ABC","verb":"get","user":{"username":"kubernetes-admin"}}
{"stage":"ResponseComplete","requestURI":"/apis/fleet.cattle.io/v1alpha1/namespaces/n/clusters/c/status","verb":"patch","user":{"username":"kubernetes-admin"},"impersonatedUser":{"username":"jane","groups":["g"]},"objectRef":{"resource":"clusters","namespace":"n","name":"c","apiGroup":"fleet.cattle.io","subresource":"status"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":""}}
{"stage":"ResponseComplete","requestURI":"/api/v1/nam`

func TestAuditEventsAreReadUpToTheLastWholeLine(t *testing.T) {
	g := NewWithT(t)
	events, err := ParseAudit(strings.NewReader(auditLines))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(events).To(Equal([]Event{{
		User: "system:serviceaccount:x:y", Groups: []string{"system:authenticated"},
		Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "a", Name: "b",
		Code: 201, Stage: "ResponseComplete", RequestURI: "/api/v1/namespaces/a/serviceaccounts/b/token",
		UserAgent: "manager/v1", AuthorizationReason: `RBAC: allowed by RoleBinding "m"`,
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}, {
		User: "jane", Groups: []string{"g"},
		Verb: "patch", Group: "fleet.cattle.io", Resource: "clusters", Subresource: "status", Namespace: "n", Name: "c",
		Code: 403, Stage: "ResponseComplete", RequestURI: "/apis/fleet.cattle.io/v1alpha1/namespaces/n/clusters/c/status",
	}}))
}

func TestAWholeLineThatIsNoEventIsAnError(t *testing.T) {
	g := NewWithT(t)
	_, err := ParseAudit(strings.NewReader("{}\nhalf\n"))
	g.Expect(err).To(MatchError(ContainSubstring("line 2")))
}

func TestWritesAreRequestsThatChangeSomething(t *testing.T) {
	for _, test := range []struct {
		verb, group, resource, subresource string
		want                               bool
	}{
		{"create", "", "serviceaccounts", "", true},
		{"create", "", "serviceaccounts", "token", true},
		{"update", "apps", "deployments", "", true},
		{"patch", "fleet.cattle.io", "clusters", "status", true},
		{"delete", "rbac.authorization.k8s.io", "rolebindings", "", true},
		{"deletecollection", "", "secrets", "", true},
		{"patch", "fleet.addons.cluster.x-k8s.io", "fleetregistrations", "status", true},
		{"patch", "fleet.addons.cluster.x-k8s.io", "fleetregistrationpolicies", "", true},
		{"patch", "fleet.addons.cluster.x-k8s.io", "fleetregistrationpolicies", "status", false},
		{"get", "", "secrets", "", false},
		{"list", "", "secrets", "", false},
		{"watch", "", "secrets", "", false},
		{"create", "", "events", "", false},
		{"patch", "events.k8s.io", "events", "", false},
		{"update", "coordination.k8s.io", "leases", "", false},
		{"create", "authentication.k8s.io", "tokenreviews", "", false},
		{"create", "authentication.k8s.io", "selfsubjectreviews", "", false},
		{"create", "authorization.k8s.io", "subjectaccessreviews", "", false},
		{"create", "authorization.k8s.io", "selfsubjectaccessreviews", "", false},
		{"post", "", "", "", false},
	} {
		t.Run(test.verb+" "+test.group+"/"+test.resource+"/"+test.subresource, func(t *testing.T) {
			g := NewWithT(t)
			event := Event{Verb: test.verb, Group: test.group, Resource: test.resource, Subresource: test.subresource}
			g.Expect(Writes([]Event{event})).To(HaveLen(map[bool]int{true: 1}[test.want]))
		})
	}
}

func TestEventsAreSelectedByUser(t *testing.T) {
	g := NewWithT(t)
	events := []Event{{User: "a", Name: "1"}, {User: "b"}, {User: "a", Name: "2"}}
	g.Expect(By("a", events)).To(Equal([]Event{events[0], events[2]}))
}

// What a request did can be seen before the API server has answered it, so whoever saw
// it and then marked the log does not mean it.
func TestARequestThatCameBeforeAMarkAndIsAnsweredAfterItIsNotSinceThen(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "audit.log")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	write := func(uri string, received time.Time) {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = fmt.Fprintf(file, "{\"stage\":\"ResponseComplete\",\"requestURI\":%q,\"requestReceivedTimestamp\":%q}\n", uri, received.Format(time.RFC3339Nano))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(file.Close()).To(Succeed())
	}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { write(r.RequestURI, at) }))
	defer server.Close()
	log := &AuditLog{path: path, url: server.URL, client: server.Client()}
	write("/before", at.Add(-time.Minute))

	mark, err := log.Mark(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	write("/in-flight", at.Add(-time.Millisecond))
	write("/after", at.Add(time.Millisecond))

	events, err := log.Since(ctx, mark)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(events).To(HaveExactElements(HaveField("RequestURI", "/after")))
	events, err = log.Since(ctx, Mark{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(events).To(HaveLen(3))

	first, next, err := log.Next(ctx, Mark{})
	g.Expect(err).NotTo(HaveOccurred())
	write("/in-flight-again", at.Add(-time.Millisecond))
	second, _, err := log.Next(ctx, next)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first).To(HaveLen(3))
	g.Expect(second).To(HaveExactElements(HaveField("RequestURI", "/in-flight-again")), "those who follow the log miss none")
}
