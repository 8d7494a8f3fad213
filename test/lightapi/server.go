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
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminUser is the name in the request log of whoever uses Token.
const AdminUser = "admin"

// Options say how a Server differs from a plain one. The zero value will do.
type Options struct {
	// Stopped makes New reserve the address and leave it at that: connections are
	// refused until Start.
	Stopped bool

	// Unserved resources are answered with 404, as by a server that does not know
	// them.
	Unserved []schema.GroupResource

	// Resources are served with these kinds and listed in discovery, next to those
	// that client-go knows. Group, Version, Name, Kind and Namespaced are read.
	// Other resources are served too, as soon as a client uses them, but an empty
	// list of them has a guessed kind.
	Resources []metav1.APIResource

	// InMemory makes the Server as limited as the API server of Cluster API's in-memory
	// provider: it serves few resources and answers others with 500, knows no
	// server-side apply and no JSON patch (415), no subresource and no metadata alone,
	// gives no object a UID, and answers errors with something that is no Status. Unlike
	// that one it answers /version, by which a lab knows that it is there.
	InMemory bool
}

// Request is an entry of the request log.
type Request struct {
	// Time is when the request came in.
	Time time.Time

	Method string
	Path   string
	// Query is the query as it was sent, without the question mark.
	Query       string
	ContentType string
	UserAgent   string

	// User is the user of the client certificate or the token, empty for none or a
	// wrong one.
	User string

	// Code is the status of the answer, 0 as long as there is none.
	Code int
}

// IsWrite says whether the request asks for a change, whatever came of it.
func (r Request) IsWrite() bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// Server is one workload cluster. Its methods may be called from any goroutine.
type Server struct {
	token    string
	uid      types.UID
	inMemory bool

	resources *catalogue
	store     *store

	mu        sync.Mutex
	authority *authority
	port      int
	reserved  *address     // nil while the server answers, and once it is closed
	http      *http.Server // nil while it does not answer
	served    chan struct{}
	closed    bool
	users     map[string]string // by token
	fault     Fault
	requests  []Request
	accepted  int
	open      map[net.Conn]struct{}
}

// New returns a Server that answers already, unless Options.Stopped. The caller
// has to Close it.
func New(options Options) (*Server, error) {
	authority, err := newAuthority()
	if err != nil {
		return nil, err
	}
	reserved, err := reserve(0)
	if err != nil {
		return nil, err
	}
	s := &Server{
		token:     rand.Text(),
		authority: authority,
		port:      reserved.port,
		resources: newCatalogue(options),
		store:     newStore(options.InMemory),
		inMemory:  options.InMemory,
		reserved:  reserved,
		users:     map[string]string{},
		open:      map[net.Conn]struct{}{},
	}
	s.users[s.token] = AdminUser
	s.uid = s.store.makeNamespaces()
	if options.Stopped {
		return s, nil
	}
	if err := s.Start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Start begins to answer at the Server's address. It does nothing if the Server
// answers already.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("the server is closed")
	}
	if s.http != nil {
		return nil
	}
	listener, err := s.reserved.listen()
	if err != nil {
		return err
	}
	s.reserved = nil
	server := &http.Server{
		Handler:   http.HandlerFunc(s.serve),
		ConnState: s.noteConnection,
		// Clients that break off or distrust the certificate are what tests are for.
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.currentAuthority().serving, nil },
			// Like a real one it answers 401 to a certificate that it does not trust.
			ClientAuth: tls.RequestClientCert,
		},
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.ServeTLS(listener, "", "")
	}()
	s.http, s.served = server, served
	return nil
}

// Stop breaks every connection off. From then on connections are refused, until
// Start at the same address with the same objects.
func (s *Server) Stop() error {
	if !s.shutDown() {
		return nil
	}
	_, port := s.Address()
	reserved, err := reserve(port)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved = reserved
	return nil
}

// Move breaks every connection off, gives the address up and answers at another one,
// with the same objects.
func (s *Server) Move() error {
	s.shutDown()
	reserved, err := reserve(0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.reserved != nil {
		s.reserved.release()
	}
	s.reserved, s.port = reserved, reserved.port
	s.mu.Unlock()
	return s.Start()
}

// Close stops the Server for good and gives its address back.
func (s *Server) Close() {
	s.shutDown()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.reserved != nil {
		s.reserved.release()
		s.reserved = nil
	}
}

// shutDown returns false if the server did not answer anyway.
func (s *Server) shutDown() bool {
	s.mu.Lock()
	server, served := s.http, s.served
	s.http = nil
	s.mu.Unlock()
	if server == nil {
		return false
	}
	_ = server.Close()
	<-served
	return true
}

// Address returns host and port.
func (s *Server) Address() (host string, port int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "127.0.0.1", s.port
}

// URL returns the address as https URL, without a path.
func (s *Server) URL() string {
	host, port := s.Address()
	return "https://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// CA returns the certificate authority as PEM.
func (s *Server) CA() []byte {
	return slices.Clone(s.currentAuthority().pem)
}

// RenewCA has the Server show a certificate of a new authority, and trust its client
// certificates only. Connections that are open stay.
func (s *Server) RenewCA() error {
	renewed, err := newAuthority()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authority = renewed
	return nil
}

// ClientCertificate issues a certificate that lets its holder in as user, and its
// key, both as PEM. It is good until RenewCA.
func (s *Server) ClientCertificate(user string) (certificate, key []byte, err error) {
	return s.currentAuthority().clientCertificate(user)
}

func (s *Server) currentAuthority() *authority {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.authority
}

// Token returns the admin's bearer token.
func (s *Server) Token() string {
	return s.token
}

// UID returns the UID of the kube-system Namespace, empty with Options.InMemory.
func (s *Server) UID() types.UID {
	return s.uid
}

// Config returns a client configuration for the admin.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host:            s.URL(),
		BearerToken:     s.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.CA()},
		QPS:             -1,
	}
}

// Kubeconfig returns the kubeconfig of the admin, as a control plane provider
// would put it into its Secret.
func (s *Server) Kubeconfig() []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters["workload"] = &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthorityData: s.CA()}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: s.token}
	config.Contexts["admin"] = &clientcmdapi.Context{Cluster: "workload", AuthInfo: "admin"}
	config.CurrentContext = "admin"
	out, err := clientcmd.Write(*config)
	if err != nil {
		// Strings and bytes alone always encode.
		panic(err)
	}
	return out
}

// AllowToken lets token in as user.
func (s *Server) AllowToken(token, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[token] = user
}

// RevokeToken has requests with token answered by 401.
func (s *Server) RevokeToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, token)
}

// SetFault has every request go through fault first. Nil takes the fault out.
func (s *Server) SetFault(fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Requests returns the request log, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Writes returns those requests of the log that ask for a change.
func (s *Server) Writes() []Request {
	return slices.DeleteFunc(s.Requests(), func(r Request) bool { return !r.IsWrite() })
}

// Connections returns how many TCP connections were ever accepted, and how many of
// them are open now.
func (s *Server) Connections() (accepted, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted, len(s.open)
}

func (s *Server) noteConnection(connection net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.accepted++
		s.open[connection] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.open, connection)
	}
}

// noteRequest adds r to the log. The function that it returns notes the answer.
func (s *Server) noteRequest(r *http.Request, user string) func(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index := len(s.requests)
	s.requests = append(s.requests, Request{
		Time:        time.Now(),
		Method:      r.Method,
		Path:        r.URL.Path,
		Query:       r.URL.RawQuery,
		ContentType: r.Header.Get("Content-Type"),
		UserAgent:   r.UserAgent(),
		User:        user,
	})
	return func(code int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.requests[index].Code == 0 {
			s.requests[index].Code = code
		}
	}
}

// userOf returns the user of the request's client certificate or token, empty if
// there is none.
func (s *Server) userOf(r *http.Request) string {
	if user := s.currentAuthority().userOf(r.TLS); user != "" {
		return user
	}
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[token]
}

type userKey struct{}

// UserOf returns the user that a request came in as, for a Fault that goes by the
// user. It is empty for an unknown token.
func UserOf(r *http.Request) string {
	user, _ := r.Context().Value(userKey{}).(string)
	return user
}

// serve logs the request and gives the fault its chance.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	user := s.userOf(r)
	answer := &answerRecorder{ResponseWriter: w, note: s.noteRequest(r, user)}
	r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil && fault(answer, r) {
		return
	}
	s.answer(answer, r)
}

// answerRecorder notes the status of an answer when it is sent.
type answerRecorder struct {
	http.ResponseWriter
	note func(code int)
}

// WriteHeader implements http.ResponseWriter.
func (a *answerRecorder) WriteHeader(code int) {
	a.note(code)
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answerRecorder) Write(data []byte) (int, error) {
	a.note(http.StatusOK)
	return a.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController flush.
func (a *answerRecorder) Unwrap() http.ResponseWriter {
	return a.ResponseWriter
}
