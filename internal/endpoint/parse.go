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

package endpoint

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

// Bounds of the API's fields. Base64 makes 64 KiB of the largest CA.
const (
	maxServerLength = 512
	maxImageLength  = 512
	maxCALength     = 48 << 10
	maxWorkers      = 1000
	minInterval     = time.Second
)

var (
	hostName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\.?$`)
	imageName = regexp.MustCompile(`^[A-Za-z0-9\[][-A-Za-z0-9._:/@\[\]]*$`)
)

// ValidateServer says what is wrong with the URL of an API server. The words fit
// behind a colon and do not repeat it: there may be a password in it.
func ValidateServer(server string) error {
	if len(server) > maxServerLength {
		return errors.New("it is longer than 512 characters")
	}
	if strings.ContainsAny(server, "?#@") {
		return errors.New("it must not have a user, query or fragment")
	}
	for _, c := range server {
		if c <= ' ' || c > '~' {
			return errors.New("it has a blank or a character that a URL cannot have")
		}
	}
	if !strings.HasPrefix(server, "https://") {
		return errors.New("it must begin with https://")
	}
	parsed, err := url.Parse(server)
	if err != nil {
		return errors.New("it is not a URL")
	}
	host := parsed.Hostname()
	if strings.HasPrefix(parsed.Host, "[") {
		if address, err := netip.ParseAddr(host); err != nil || !address.Is6() || address.Zone() != "" {
			return errors.New("what is in brackets must be an IPv6 address without a zone")
		}
	} else if !hostName.MatchString(host) {
		return errors.New("it has no host, or not a valid one")
	}
	// Go takes a colon without a port for no port.
	if port := parsed.Port(); port != "" || strings.HasSuffix(parsed.Host, ":") {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return errors.New("its port is not a number from 1 to 65535")
		}
	}
	return nil
}

const certificateBlock = "CERTIFICATE"

// ParseCA returns the certificates of a PEM bundle, in their order, and nothing
// else that is in it: what it returns is given to every workload cluster. A bundle
// with a private key or a certificate that cannot be read is refused as a whole.
// The words of an error fit behind the name of the source.
func ParseCA(bundle []byte) ([]byte, error) {
	// The words of the text and not the decoded blocks: a block that does not
	// decode is worth a warning as well.
	if bytes.Contains(bundle, []byte("PRIVATE KEY-----")) {
		return nil, errors.New("holds a private key: leave the certificates alone in it")
	}
	var out bytes.Buffer
	certificates := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, errors.New("holds a certificate that cannot be read")
		}
		certificates++
		out.Write(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: block.Bytes}))
	}
	switch {
	case certificates != bytes.Count(bundle, []byte("-----BEGIN "+certificateBlock+"-----")):
		return nil, errors.New("holds a certificate that cannot be read")
	case certificates == 0:
		return nil, errors.New("holds no certificate in PEM form")
	case out.Len() > maxCALength:
		return nil, errors.New("holds more than 48 KiB of certificates")
	}
	return out.Bytes(), nil
}

// trustedBy says whether roots include or have signed each certificate of a bundle
// that ParseCA returned.
func trustedBy(roots *x509.CertPool, bundle []byte) bool {
	intermediates := x509.NewCertPool()
	intermediates.AppendCertsFromPEM(bundle)
	trusted := false
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return false
		}
		_, err = certificate.Verify(x509.VerifyOptions{
			Roots:         roots,
			Intermediates: intermediates,
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
			// The answer must not change by itself one day and restart all agents.
			CurrentTime: certificate.NotBefore,
		})
		if err != nil {
			return false
		}
		trusted = true
	}
	return trusted
}

// parseClusterInfo returns the address and CA in the kubeconfig of cluster-info,
// which anyone may read and which mostly names neither a user nor a context. The
// words of an error fit behind the name of the ConfigMap.
func parseClusterInfo(kubeconfig string) (fleetv1.ManagementClusterEndpoint, error) {
	none := fleetv1.ManagementClusterEndpoint{}
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return none, errors.New("holds no readable kubeconfig")
	}
	cluster := soleCluster(config)
	if cluster == nil {
		return none, errors.New("names no cluster, or more than one")
	}
	if err := ValidateServer(cluster.Server); err != nil {
		return none, errors.New("names no valid https server")
	}
	// None of these would reach the agent, and without them it could not connect or
	// would trust someone else.
	if cluster.InsecureSkipTLSVerify || cluster.CertificateAuthority != "" || cluster.TLSServerName != "" || cluster.ProxyURL != "" {
		return none, errors.New("asks for more than an address and a CA")
	}
	endpoint := fleetv1.ManagementClusterEndpoint{Server: cluster.Server}
	if len(cluster.CertificateAuthorityData) == 0 {
		return endpoint, nil
	}
	if endpoint.CertificateAuthorityData, err = ParseCA(cluster.CertificateAuthorityData); err != nil {
		return none, errors.New("names no valid CA")
	}
	return endpoint, nil
}

// soleCluster returns the cluster of the current context, else the only one there
// is.
func soleCluster(config *clientcmdapi.Config) *clientcmdapi.Cluster {
	if current := config.Contexts[config.CurrentContext]; current != nil {
		return config.Clusters[current.Cluster]
	}
	if len(config.Clusters) != 1 {
		return nil
	}
	for _, cluster := range config.Clusters {
		return cluster
	}
	return nil
}

// Values of agentTLSMode in Fleet's configuration (Fleet 0.13 to 0.16,
// config.AgentTLSModeStrict and AgentTLSModeSystemStore).
const (
	tlsModeStrict      = "strict"
	tlsModeSystemStore = "system-store"
)

// fleetSettings is what Fleet's configuration says of agents. Empty and zero mean
// that it does not say.
type fleetSettings struct {
	server string
	// ca are the certificates of apiServerCA, caErr why there are none.
	ca      []byte
	caErr   error
	tlsMode string

	registry                  string
	image                     string
	imagePullPolicy           string
	imagePullSecrets          []string
	checkinInterval           time.Duration
	garbageCollectionInterval time.Duration
	workers                   fleetv1.AgentWorkers

	// ignored are the names of fields whose values cannot be used.
	ignored []string
}

// parseFleetSettings reads Fleet's configuration (Fleet 0.13 to 0.16,
// config.Config), which is JSON from Fleet's chart and may be YAML. A field that
// cannot be used is ignored, as Fleet does with some, and named in ignored; but for
// apiServerURL and apiServerCA, which are left for the caller to refuse. The words
// of an error fit behind the name of the source.
func parseFleetSettings(config string) (fleetSettings, error) {
	document, err := yaml.YAMLToJSON([]byte(config))
	if err != nil {
		return fleetSettings{}, errors.New("is not valid JSON: mend it")
	}
	fields := fields{}
	if err := json.Unmarshal(document, &fields.values); err != nil {
		return fleetSettings{}, errors.New("is not a JSON object: mend it")
	}

	var s fleetSettings
	s.server = fields.server("apiServerURL")
	switch ca, broken := fields.base64("apiServerCA"); {
	case broken:
		s.caErr = errors.New("is not base64")
	case len(ca) > 0:
		s.ca, s.caErr = ParseCA(ca)
	}
	s.tlsMode = fields.oneOf("agentTLSMode", tlsModeStrict, tlsModeSystemStore)
	s.registry = strings.TrimRight(fields.image("systemDefaultRegistry"), "/")
	s.image = withRegistry(s.registry, fields.image("agentImage"))
	if len(s.image) > maxImageLength {
		fields.ignore("agentImage")
		s.image = ""
	}
	s.imagePullPolicy = fields.oneOf("agentImagePullPolicy",
		string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever))
	s.imagePullSecrets = fields.pullSecrets("imagePullSecrets")
	s.checkinInterval = fields.duration("agentCheckinInterval")
	s.garbageCollectionInterval = fields.duration("garbageCollectionInterval")
	workers := fields.object("agentWorkers")
	s.workers.BundleDeployment = workers.workers("bundledeployment")
	s.workers.Drift = workers.workers("drift")

	s.ignored = fields.ignored
	for _, name := range workers.ignored {
		s.ignored = append(s.ignored, "agentWorkers."+name)
	}
	return s, nil
}

// withRegistry returns image in registry. Fleet's chart writes the registry into
// the image already.
func withRegistry(registry, image string) string {
	if registry == "" || image == "" || strings.HasPrefix(image, registry+"/") {
		return image
	}
	return registry + "/" + image
}

// fields is a JSON object whose fields are read one by one, so that one bad value
// does not spoil the others. A field that is missing, null or empty is not set.
type fields struct {
	values  map[string]json.RawMessage
	ignored []string
}

func (f *fields) ignore(name string) { f.ignored = append(f.ignored, name) }

// text returns a string, or the digits of a number.
func (f *fields) text(name string) (text string, ok bool) {
	raw, found := f.values[name]
	if !found {
		return "", true
	}
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		return number.String(), true
	}
	return "", false
}

// server returns a text as it is. What is no text is returned as it was written,
// for it is no valid URL either.
func (f *fields) server(name string) string {
	if text, ok := f.text(name); ok {
		return text
	}
	return string(f.values[name])
}

func (f *fields) base64(name string) (data []byte, broken bool) {
	text, ok := f.text(name)
	if !ok || text == "" {
		return nil, !ok
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, true
	}
	return data, false
}

func (f *fields) oneOf(name string, allowed ...string) string {
	text, ok := f.text(name)
	if ok && text == "" {
		return ""
	}
	if !slices.Contains(allowed, text) {
		f.ignore(name)
		return ""
	}
	return text
}

// image returns the name of an image or the beginning of one.
func (f *fields) image(name string) string {
	text, ok := f.text(name)
	if ok && text == "" {
		return ""
	}
	if len(text) > maxImageLength || !imageName.MatchString(text) {
		f.ignore(name)
		return ""
	}
	return text
}

// duration returns a duration of at least a second. Zero is not set.
func (f *fields) duration(name string) time.Duration {
	text, ok := f.text(name)
	if ok && text == "" {
		return 0
	}
	duration, err := time.ParseDuration(text)
	if err != nil || duration != 0 && duration < minInterval {
		f.ignore(name)
		return 0
	}
	return duration
}

// workers returns a number of workers. Zero is not set.
func (f *fields) workers(name string) int32 {
	text, ok := f.text(name)
	if ok && text == "" {
		return 0
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil || number < 0 || number > maxWorkers {
		f.ignore(name)
		return 0
	}
	return int32(number)
}

func (f *fields) object(name string) *fields {
	object := &fields{}
	raw, found := f.values[name]
	if found && json.Unmarshal(raw, &object.values) != nil {
		f.ignore(name)
	}
	return object
}
