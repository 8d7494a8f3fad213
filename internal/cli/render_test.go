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
	"bytes"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
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

// rendered returns what render prints for the management cluster where those objects are.
func rendered(t *testing.T, objects ...client.Object) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o := &renderOptions{app: &app{}, target: forManagement, managerNamespace: defaultManagerNamespace, fleetNamespace: fleet.DefaultAgentNamespace}
	o.Out = &out
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	err := o.render(t.Context(), c, client.ObjectKey{Namespace: "team-a", Name: "edge-1"})
	return out.String(), err
}

// shellLines are the lines that docs/operations/by-hand.md hands to a shell.
var shellLines = regexp.MustCompile(`(?m)^# [234]\. .*$`)

func byHand(id, namespace string) *fleet.Cluster {
	cluster := &fleet.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "edge-1",
		Labels:      map[string]string{fleet.ClusterManagementLabel: upstream.ManagementLabelValue},
		Annotations: map[string]string{fleetv1.RegistrationIDAnnotation: id},
	}}
	cluster.Status.Namespace = namespace
	return cluster
}

func TestNobodyPutsCommandsIntoThoseThatRenderPrints(t *testing.T) {
	g := NewWithT(t)
	good, namespace := upstream.NewID(), fleet.ClusterNamespace("team-a", "edge-1")
	_, err := rendered(t, byHand(good, namespace))
	g.Expect(err).NotTo(HaveOccurred())
	for _, hostile := range []string{"x;touch f", "\n# 2. touch f", "$(touch f)", "'; touch f; '", "--kubeconfig=f"} {
		for what, cluster := range map[string]*fleet.Cluster{
			"the ID": byHand(hostile, namespace), "the ID's end": byHand(good+hostile, namespace),
			"the cluster namespace": byHand(good, hostile), "its end": byHand(good, namespace+hostile),
		} {
			out, err := rendered(t, cluster)
			g.Expect(err).To(HaveOccurred(), "%s: %q", what, hostile)
			g.Expect(out).To(BeEmpty(), "%s: %q", what, hostile)
		}
		for name, change := range map[string]func(*fleetv1.FleetRegistration){
			"ID":        func(r *fleetv1.FleetRegistration) { r.Spec.RegistrationID = hostile },
			"namespace": func(r *fleetv1.FleetRegistration) { r.Spec.FleetCluster.Namespace = hostile },
			"name":      func(r *fleetv1.FleetRegistration) { r.Spec.FleetCluster.Name = hostile },
			"status":    func(r *fleetv1.FleetRegistration) { r.Status.Namespace = hostile },
		} {
			registration := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1"}}
			registration.Spec.RegistrationID = good
			registration.Spec.FleetCluster = fleetv1.FleetClusterReference{Namespace: "team-a", Name: "edge-1"}
			change(registration)
			out, err := rendered(t, registration)
			g.Expect(err).To(HaveOccurred(), "%s: %q", name, hostile)
			g.Expect(out).To(BeEmpty(), "%s: %q", name, hostile)
		}
	}
	expectOneLineOfHelp(t, "render", "edge-1", "--offline", "--for", "management", "--namespace", "a;touch f")
	expectOneLineOfHelp(t, "render", "edge-1", "--offline", "--for", "management", "--fleet-namespace", "a;touch f")

	// What is copied from a Cluster is in the objects, where no line begins with it.
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "edge-1", Labels: map[string]string{"env": "prod"},
		Annotations: map[string]string{"note": "\n# 2. touch f\n", "long": strings.Repeat("a b ", 200) + "\n# 3. touch f"},
	}}
	registration := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1"}}
	registration.Spec.RegistrationID = good
	registration.Spec.FleetCluster = fleetv1.FleetClusterReference{Namespace: "team-a", Name: "edge-1"}
	registration.Spec.Targeting.Annotations.Include = []fleetv1.KeyPattern{"*"}
	out, err := rendered(t, cluster, registration)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(ContainSubstring("# 2. touch f"))
	g.Expect(shellLines.FindAllString(out, -1)).To(And(HaveLen(3), HaveEach(Not(ContainSubstring("touch")))))
}

// A group with labels of its own is for Clusters of its own namespace.
func TestRenderKeepsAClusterOutOfTheGroupsThatTheManagerKeepsItOutOf(t *testing.T) {
	g := NewWithT(t)
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "small"}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1", UID: "uid"}}
	cluster.Spec.Topology.ClassRef.Name = class.Name
	registration := &fleetv1.FleetRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1"}}
	registration.Spec.RegistrationID = upstream.NewID()
	registration.Spec.FleetCluster = fleetv1.FleetClusterReference{Namespace: "workspace", Name: "edge-1"}
	registration.Spec.Targeting = fleetv1.TargetingSettings{
		Groups: fleetv1.GroupsClusterClass, ClassNamespaces: []string{"team-a"},
		Labels: fleetv1.LabelPropagation{Include: []fleetv1.KeyPattern{fleetv1.ClassNameLabel, fleetv1.ClassNamespaceLabel}},
	}
	labelled := &fleet.ClusterGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: "workspace", Name: fleet.ClassGroupName("workspace", "team-a", "small"), Labels: map[string]string{"env": "prod"},
	}}
	labelled.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{fleetv1.ClassNameLabel: "small", fleetv1.ClassNamespaceLabel: "team-a"}}

	out, err := rendered(t, class, cluster, registration, labelled)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).NotTo(ContainSubstring(fleetv1.ClassNameLabel))

	// One that is in a group stays there.
	there := byHand(registration.Spec.RegistrationID, "")
	there.Namespace = "workspace"
	there.Labels[fleetv1.ClassNameLabel], there.Labels[fleetv1.ClassNamespaceLabel] = "small", "team-a"
	there.Annotations[fleetv1.PropagatedAnnotation] = `{"labels":["` + fleetv1.ClassNameLabel + `","` + fleetv1.ClassNamespaceLabel + `"]}`
	out, err = rendered(t, class, cluster, registration, labelled, there)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(ContainSubstring("    " + fleetv1.ClassNameLabel + ": small\n"))
}
