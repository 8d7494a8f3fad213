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
	"crypto/tls"
	"crypto/x509"
	"testing"

	. "github.com/onsi/gomega"
)

func TestCertificatesAreGoodForWhatTheyAreIssuedFor(t *testing.T) {
	g := NewWithT(t)
	ca, err := NewCA("lab-ca")
	g.Expect(err).NotTo(HaveOccurred())
	other, err := NewCA("lab-ca")
	g.Expect(err).NotTo(HaveOccurred())

	certificate, key, err := ca.ServingCertificate("api.example.com", "192.0.2.1")
	g.Expect(err).NotTo(HaveOccurred())
	serving := parsePair(g, certificate, key)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "api.example.com", "192.0.2.1"} {
		_, err := serving.Verify(x509.VerifyOptions{Roots: pool(ca), DNSName: name})
		g.Expect(err).NotTo(HaveOccurred(), name)
	}
	_, err = serving.Verify(x509.VerifyOptions{Roots: pool(ca), DNSName: "example.com"})
	g.Expect(err).To(HaveOccurred())
	_, err = serving.Verify(x509.VerifyOptions{Roots: pool(other), DNSName: "localhost"})
	g.Expect(err).To(HaveOccurred(), "an authority of the same name with another key")

	certificate, key, err = ca.ClientCertificate("jane", "readers", "writers")
	g.Expect(err).NotTo(HaveOccurred())
	client := parsePair(g, certificate, key)
	g.Expect(client.Subject.CommonName).To(Equal("jane"))
	g.Expect(client.Subject.Organization).To(ConsistOf("readers", "writers"))
	forClients := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	_, err = client.Verify(x509.VerifyOptions{Roots: pool(ca), KeyUsages: forClients})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = serving.Verify(x509.VerifyOptions{Roots: pool(ca), KeyUsages: forClients})
	g.Expect(err).To(HaveOccurred(), "a server is no client")
}

func parsePair(g *WithT, certificate, key []byte) *x509.Certificate {
	pair, err := tls.X509KeyPair(certificate, key)
	g.Expect(err).NotTo(HaveOccurred())
	return pair.Leaf
}

func pool(ca *CA) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.CertificatePEM())
	return pool
}
