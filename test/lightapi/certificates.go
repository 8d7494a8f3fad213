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

package lightapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// authority is a certificate authority with the one serving certificate, for
// 127.0.0.1, that it signed.
type authority struct {
	certificate *x509.Certificate
	pem         []byte
	serving     tls.Certificate
	// One key for all certificates is enough to tell one Server from another, and
	// halves the cost of hundreds.
	key *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	a := &authority{key: key}
	template := newTemplate("lightapi-ca")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	a.certificate = template
	der, err := a.sign(template)
	if err != nil {
		return nil, err
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	a.pem = encodePEM("CERTIFICATE", der)

	template = newTemplate("lightapi")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	if der, err = a.sign(template); err != nil {
		return nil, err
	}
	a.serving = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return a, nil
}

func newTemplate(name string) *x509.Certificate {
	from := time.Now().Add(-time.Hour)
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    from,
		NotAfter:     from.Add(365 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func (a *authority) sign(template *x509.Certificate) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return der, nil
}

// clientCertificate returns a certificate for user and its key, as PEM.
func (a *authority) clientCertificate(user string) (certificate, key []byte, err error) {
	template := newTemplate(user)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	certificateDER, err := a.sign(template)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the key of %s: %w", user, err)
	}
	return encodePEM("CERTIFICATE", certificateDER), encodePEM("EC PRIVATE KEY", keyDER), nil
}

// userOf returns the user of the connection's client certificate, empty if there is
// none of this authority.
func (a *authority) userOf(connection *tls.ConnectionState) string {
	if connection == nil || len(connection.PeerCertificates) == 0 {
		return ""
	}
	certificate := connection.PeerCertificates[0]
	if certificate.CheckSignatureFrom(a.certificate) != nil {
		return ""
	}
	return certificate.Subject.CommonName
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
