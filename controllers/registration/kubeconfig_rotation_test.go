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
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// joined carries the life to where the agent reports for the first time.
func (l *life) joined(t *testing.T) {
	t.Helper()
	l.reconcile(t)
	l.heartbeat(t)
	l.reconcile(t)
	NewWithT(t).Expect(meta.IsStatusConditionTrue(l.registration(t).Status.Conditions, fleetv1.ReadyCondition)).To(BeTrue())
}

// kubeconfig returns the server's kubeconfig with a change. Nil means none.
func (l *life) kubeconfig(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.Load(l.workload.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	if change != nil {
		change(config.Clusters["workload"], config.AuthInfos["admin"])
	}
	content, err := clientcmd.Write(*config)
	g.Expect(err).NotTo(HaveOccurred())
	return content
}

func (l *life) kubeconfigSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "edge-1-kubeconfig"}}
	NewWithT(t).Expect(l.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	return secret
}

func (l *life) writeKubeconfig(t *testing.T, content []byte) {
	t.Helper()
	secret := l.kubeconfigSecret(t)
	secret.Data["value"] = content
	NewWithT(t).Expect(l.WithWatch.Update(t.Context(), secret)).To(Succeed())
}

// renew lets the token become due and be renewed.
func (l *life) renew(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	tokens := l.tokens
	l.pass(40 * time.Hour)
	l.heartbeat(t)
	_, err := l.reconciler.Reconcile(t.Context(), edge)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.tokens).To(Equal(tokens+1), "conditions: %+v", l.registration(t).Status.Conditions)
}

// newToken has the server take a new token for its admin, and the old one no more.
func newToken(t *testing.T, l *life, name string) {
	t.Helper()
	l.workload.AllowToken(name, name)
	l.writeKubeconfig(t, l.kubeconfig(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) { user.Token = name }))
}

func newClientCertificate(t *testing.T, l *life, name string) {
	t.Helper()
	certificate, key, err := l.workload.ClientCertificate(name)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	l.writeKubeconfig(t, l.kubeconfig(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		*user = clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	}))
}

func newAddress(t *testing.T, l *life, name string) {
	t.Helper()
	NewWithT(t).Expect(l.workload.Move()).To(Succeed())
	newToken(t, l, name)
}

func newAuthority(t *testing.T, l *life, name string) {
	t.Helper()
	NewWithT(t).Expect(l.workload.RenewCA()).To(Succeed())
	newToken(t, l, name)
}

func TestARotatedKubeconfigIsUsedByTheNextVisit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rotate func(t *testing.T, l *life, name string)
	}{
		{"new token", newToken},
		{"new client certificate", newClientCertificate},
		{"new address", newAddress},
		{"new certificate authority", newAuthority},
		{"Secret made anew", func(t *testing.T, l *life, name string) {
			t.Helper()
			g := NewWithT(t)
			secret := l.kubeconfigSecret(t)
			g.Expect(l.WithWatch.Delete(t.Context(), secret)).To(Succeed())
			anew := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, UID: "another"}, Data: secret.Data}
			g.Expect(l.WithWatch.Create(t.Context(), anew)).To(Succeed())
			newToken(t, l, name)
		}},
		{"other keys beside the kubeconfig", func(t *testing.T, l *life, name string) {
			t.Helper()
			secret := l.kubeconfigSecret(t)
			secret.Data["token"], secret.Data["relative"] = []byte("x"), secret.Data["value"]
			NewWithT(t).Expect(l.WithWatch.Update(t.Context(), secret)).To(Succeed())
			newToken(t, l, name)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLife(t)
			l.joined(t)
			reachable := meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.WorkloadReachableCondition)
			for _, name := range []string{"first", "second"} {
				before := len(l.workload.Requests())
				tt.rotate(t, l, name)
				l.renew(t)
				g.Expect(l.workload.Requests()[before:]).To(HaveEach(HaveField("User", name)))
			}
			g.Expect(meta.FindStatusCondition(l.registration(t).Status.Conditions, fleetv1.WorkloadReachableCondition)).
				To(Equal(reachable), "it was true all the time")
			g.Expect(meta.IsStatusConditionTrue(l.registration(t).Status.Conditions, fleetv1.ReadyCondition)).To(BeTrue())
		})
	}
}

// A careful operator lets clients trust both authorities while servers change over.
func TestAKubeconfigMayTrustTheOldAndTheNewAuthority(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.joined(t)
	old := l.workload.CA()
	g.Expect(l.workload.RenewCA()).To(Succeed())
	l.writeKubeconfig(t, l.kubeconfig(t, func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.CertificateAuthorityData = bytes.Join([][]byte{old, l.workload.CA()}, nil)
	}))
	l.renew(t)
	g.Expect(meta.IsStatusConditionTrue(l.registration(t).Status.Conditions, fleetv1.ReadyCondition)).To(BeTrue())
}

func TestManyRotationsLeaveNothingOpen(t *testing.T) {
	g := NewWithT(t)
	l := newLife(t)
	l.joined(t)
	rotations := []func(*testing.T, *life, string){newToken, newClientCertificate, newAddress, newAuthority}
	rotate := func(count int) {
		for i := range count {
			rotations[i%len(rotations)](t, l, "admin")
			l.renew(t)
		}
	}
	open := func() int {
		_, open := l.workload.Connections()
		return open
	}
	rotate(len(rotations))
	g.Eventually(open).Should(BeZero())
	goroutines := runtime.NumGoroutine()

	rotate(manyRotations)

	g.Eventually(open).Should(BeZero())
	g.Eventually(runtime.NumGoroutine).Should(BeNumerically("<=", goroutines+5))
}
