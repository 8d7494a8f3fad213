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

package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

var documentKind = regexp.MustCompile(`(?m)^kind: (\w+)$`)

// kinds returns the kinds of a stream in their order.
func kinds(stream string) []string {
	var found []string
	for _, match := range documentKind.FindAllStringSubmatch(stream, -1) {
		found = append(found, match[1])
	}
	return found
}

func TestRenderNeedsNoClusterAtAll(t *testing.T) {
	g := NewWithT(t)
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123"
	common := []string{"render", "edge-1", "--namespace", "team-a", "--offline", "--registration-id", id}
	code, management, errOut := run(t, append(common, "--for", "management")...)
	g.Expect(code).To(Equal(ExitOK), errOut)
	g.Expect(kinds(management)).To(Equal([]string{
		"Namespace", "Namespace", "ClusterRole", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"Cluster", "Namespace", "ServiceAccount", "Role", "RoleBinding", "RoleBinding",
	}))
	g.Expect(management).To(ContainSubstring("fleet.cattle.io/cluster-management: capi-fleet"))
	g.Expect(strings.Count(management, "registration-id: "+id)).To(Equal(6))
	g.Expect(management).NotTo(ContainSubstring("\nstatus:"))
	g.Expect(management).To(MatchRegexp(`clientID: [A-Z0-9]{26,}\n`))
	_, again, _ := run(t, append(common, "--for", "management")...)
	g.Expect(again).NotTo(Equal(management), "two Fleet Clusters have the same clientID")

	token := filepath.Join(t.TempDir(), "token")
	g.Expect(os.WriteFile(token, []byte("header.body.signature\n"), 0o600)).To(Succeed())
	code, workload, errOut := run(t, append(common, "--for", "workload", "--agent-server", "https://mgmt.example.com", "--agent-image", "rancher/fleet-agent:v0.14.2", "--token-file", token)...)
	g.Expect(code).To(Equal(ExitOK), errOut)
	found := kinds(workload)
	g.Expect(found[len(found)-2:]).To(Equal([]string{"Secret", "Deployment"}), "an agent that starts before its Secret is there has no address")
	g.Expect(workload).To(ContainSubstring("registration-id: " + id))
	g.Expect(management + workload).NotTo(MatchRegexp(`(?m): null$`))
}

func TestRenderMakesAnIDThatAManagerWouldTakeOver(t *testing.T) {
	g := NewWithT(t)
	_, management, errOut := run(t, "render", "edge-1", "--namespace", "team-a", "--offline", "--for", "management")
	ids := regexp.MustCompile(`registration-id: (\S+)`).FindStringSubmatch(management)
	g.Expect(ids).To(HaveLen(2), errOut)
	g.Expect(upstream.ValidID(ids[1])).To(BeTrue(), ids[1])
}

func TestRenderRefusesACAFileWithAPrivateKey(t *testing.T) {
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	file := filepath.Join(t.TempDir(), "ca.crt")
	line := []string{"render", "edge-1", "--offline", "--for", "management", "--agent-server", "https://mgmt.example.com", "--agent-ca-file", file}

	g.Expect(os.WriteFile(file, bundle, 0o600)).To(Succeed())
	code, _, errOut := run(t, line...)
	g.Expect(code).To(Equal(ExitOK), errOut)
	bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	g.Expect(os.WriteFile(file, bundle, 0o600)).To(Succeed())
	expectOneLineOfHelp(t, line...)
}
