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

package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// standIn is the host that client-go knows instead of the server's. It makes a
// label of each host that it talks to, for ever, and writes it into errors.
const standIn = "workload-cluster"

var (
	scheme = newScheme()
	mapper = newMapper()
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme,
		authenticationv1.AddToScheme,
		coordinationv1.AddToScheme,
		corev1.AddToScheme,
		networkingv1.AddToScheme,
		rbacv1.AddToScheme,
		schedulingv1.AddToScheme,
		metav1.AddMetaToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// newMapper knows the resources that we use, so that no request is spent on asking
// the server for them.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Namespace", "Node"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"ConfigMap", "Pod", "Secret", "ServiceAccount"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
		mapper.Add(rbacv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), meta.RESTScopeNamespace)
	mapper.Add(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), meta.RESTScopeRoot)
	return mapper
}

// Client talks to one workload cluster: without a cache, over one connection as a
// rule, and only about the kinds that newMapper lists. The caller closes it.
//
// Errors of its methods are an *Error, or a StatusError of
// k8s.io/apimachinery/pkg/api/errors without the server's text.
// Classify finds the reason in both.
type Client struct {
	client.Client

	// InsecureTLS says that the kubeconfig turns off the check of the server's
	// certificate.
	InsecureTLS bool

	// Server is the https URL of the API server, CAData the PEM bundle that signs its
	// certificate and ServerName the name in that, as far as the kubeconfig says.
	Server     string
	CAData     []byte
	ServerName string

	close func()
}

// Connect returns a client for the workload cluster of the kubeconfig. It sends
// nothing yet: the first request makes the connection. The error is an *Error; the
// reasons KubeconfigEmpty and KubeconfigInvalid, and KubeconfigExecRefused and the
// like, are final until the kubeconfig changes.
func (d *Dialer) Connect(kubeconfig []byte) (*Client, error) {
	access, refused := readKubeconfig(kubeconfig)
	if refused != nil {
		return nil, refused
	}
	tlsConfig, err := rest.TLSConfigFor(access.config)
	if err != nil {
		return nil, kubeconfigInvalid("has certificates or a key that cannot be used", err)
	}

	// Client-go would take its transport from a cache that it shares between all
	// clients, with a proxy from the environment and connections that stay. So this is
	// our own, and client-go only adds the headers that carry the credentials. It
	// speaks HTTP/1.1 alone: requests come one after the other, HTTP/2 gives a hostile
	// server more to play with, and its client loses the alert of a server that
	// refuses a client certificate.
	connections := &connections{dial: d.dial}
	base := &http.Transport{
		DialContext:            connections.dialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    d.dialTimeout(),
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxResponseHeaderSize,
		IdleConnTimeout:        time.Minute,
	}
	credentials := &rest.Config{
		Username:    access.config.Username,
		Password:    access.config.Password,
		BearerToken: access.config.BearerToken,
		UserAgent:   d.UserAgent,
	}
	if credentials.UserAgent == "" {
		credentials.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	authenticated, err := rest.HTTPWrappersForConfig(credentials,
		newTransport(base, access.server, d.requestTimeout(), scheme))
	if err != nil {
		return nil, kubeconfigInvalid("has both a token and a password", err)
	}

	c, err := client.New(&rest.Config{
		Host: "https://" + standIn,
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: runtime.ContentTypeJSON,
			ContentType:        runtime.ContentTypeJSON,
		},
		QPS:            -1,
		WarningHandler: rest.NoWarnings{},
	}, client.Options{
		HTTPClient: &http.Client{Transport: authenticated},
		Scheme:     scheme,
		Mapper:     mapper,
	})
	if err != nil {
		return nil, Classify(fmt.Errorf("building the client: %w", err))
	}
	return &Client{
		Client:      c,
		InsecureTLS: access.config.Insecure,
		Server:      access.server.String(),
		CAData:      access.config.CAData,
		ServerName:  access.config.ServerName,
		close: func() {
			base.CloseIdleConnections()
			connections.close()
		},
	}, nil
}

// Close closes the client's connections. Requests fail from then on.
func (c *Client) Close() { c.close() }

// uidForm is what every UID that an API server makes looks like, and more.
var uidForm = regexp.MustCompile(`^[0-9A-Za-z-]{0,63}$`)

// SystemNamespaceUID returns the UID of the namespace kube-system, by which
// workload clusters are told apart. It is empty if the server does not say. The
// error has the reason NotKubernetes if the answer is anything but that namespace.
func (c *Client) SystemNamespaceUID(ctx context.Context) (types.UID, error) {
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return "", notKubernetes("has no namespace kube-system")
	case err != nil:
		return "", Classify(err)
	case namespace.Name != metav1.NamespaceSystem, !uidForm.MatchString(string(namespace.UID)):
		// The decoder leaves the object empty if the answer is of another kind.
		return "", notKubernetes("is not an answer of a Kubernetes API server")
	}
	return namespace.UID, nil
}

// RequestToken asks for a token of a service account. The API server may grant a shorter
// life than was asked for.
func (c *Client) RequestToken(ctx context.Context, key client.ObjectKey, lifetime time.Duration) (authenticationv1.TokenRequestStatus, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(lifetime / time.Second)),
	}}
	err := c.SubResource("token").Create(unlogged(ctx), account, request)
	return request.Status, unwrapped(err)
}

// The methods below are those of the embedded client, with two changes. Client-go
// logs bodies, which hold credentials, at high verbosity to the logger in the
// context; there is none. And net/http wraps our errors into its own. Requests
// for subresources do without both.

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return unwrapped(c.Client.Get(unlogged(ctx), key, obj, opts...))
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return unwrapped(c.Client.List(unlogged(ctx), list, opts...))
}

// Apply implements client.Writer, but for obj: of that only the kind is left. What has
// become of the object is not read, since for a push it would be most of the work.
func (c *Client) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return unwrapped(c.Client.Apply(unlogged(ctx), obj, opts...))
}

// Create implements client.Writer.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return unwrapped(c.Client.Create(unlogged(ctx), obj, opts...))
}

// Delete implements client.Writer.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return unwrapped(c.Client.Delete(unlogged(ctx), obj, opts...))
}

// Update implements client.Writer.
func (c *Client) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return unwrapped(c.Client.Update(unlogged(ctx), obj, opts...))
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return unwrapped(c.Client.Patch(unlogged(ctx), obj, patch, opts...))
}

// DeleteAllOf implements client.Writer.
func (c *Client) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return unwrapped(c.Client.DeleteAllOf(unlogged(ctx), obj, opts...))
}

func unlogged(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

func unwrapped(err error) error {
	if classified := (*Error)(nil); errors.As(err, &classified) {
		return classified
	}
	return err
}
