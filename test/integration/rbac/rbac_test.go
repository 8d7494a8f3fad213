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

package rbac

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/test/agentsim"
	"github.com/capi-fleet/capi-fleet/test/integration/suite"
	"github.com/capi-fleet/capi-fleet/test/lab/env"
	"github.com/capi-fleet/capi-fleet/test/lab/kube"
	"github.com/capi-fleet/capi-fleet/test/lightapi"
)

const (
	namespace   = "rbac"
	managerRole = "capi-fleet-system-manager"
	finalizer   = "test.cluster.x-k8s.io/infrastructure"

	// contentsClusterRole is bound by contentsBinding.
	contentsClusterRole = "capi-fleet-system-agent-contents"
	contentsBinding     = env.ManagerNamespace + "-agent-contents"
)

// onlyAdmissionReads are the permissions that no request of the manager needs by
// itself: the API server looks at them when it judges another request. Each is
// proven by taking it away.
var onlyAdmissionReads = []permission{
	{managerRole, "", fleetv1.GroupVersion.Group, "fleetregistrationpolicies", "", "update"},
	{managerRole, "", rbacv1.GroupName, "clusterroles", "capi-fleet-system-agent", "bind"},
	{managerRole, "", rbacv1.GroupName, "clusterroles", contentsClusterRole, "bind"},
}

func TestManagerHasTheRightsThatItUsesAndNoOthers(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	diagnostics := freeAddress(g)
	manager, err := lab.NewManager(ctx, "rbac", "--leader-elect",
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
		"--insecure-diagnostics=false", "--diagnostics-address="+diagnostics)
	g.Expect(err).NotTo(HaveOccurred())
	log := &auditLog{log: lab.Management().AuditLog()}
	g.Expect(manager.Start(ctx)).To(Succeed())

	// A Cluster joins, another does so beside a foreign namespace of its name.
	leaving := light(t, "leaving", env.ClusterOptions{Modify: func(c *clusterv1.Cluster) { c.Finalizers = []string{finalizer} }})
	g.Expect(lab.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterNamespace(namespace, "beside")}})).To(Succeed())
	t.Cleanup(func() { release(t, leaving) })
	beside := light(t, "beside", env.ClusterOptions{})
	suite.EventuallyReady(t, lab, leaving)
	suite.EventuallyReady(t, lab, beside)

	tamper(t, beside)
	policiesWithCAs(t)
	wrongLabel(t, log)
	classOfAnotherNamespace(t)
	releasesWithoutBundles(t)
	adoption(t)
	hosted(t)
	scrape(t, diagnostics)
	remove(t, leaving) // Its Cluster is being deleted for a while,
	remove(t, beside)  // and that of this one is gone at once.

	// What was tampered with is put right by the next leader.
	g.Expect(manager.Stop()).To(Succeed())
	binding := contents(g, ctx)
	binding.Subjects[0].Name = "someone-else"
	g.Expect(lab.Client.Update(ctx, binding)).To(Succeed())
	g.Expect(manager.Start(ctx)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(contents(g, ctx).Subjects).To(ConsistOf(HaveField("Name", "system:serviceaccounts:"+env.ManagerNamespace)))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	g.Expect(forbidden(log.next(t))).To(BeEmpty(), "the manager lacks a right")

	permissions, err := grants(ctx, lab.Client)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(permissions).To(ContainElements(onlyAdmissionReads), "or nothing is proven by taking them away")
	for _, p := range onlyAdmissionReads {
		t.Run("without "+p.String(), func(t *testing.T) {
			if p.name == contentsClusterRole {
				withoutTheBindingOfContents(t, manager, log, p)
				return
			}
			withoutJoining(t, log, p)
		})
	}

	g.Expect(permissions).To(ContainElements(hostedCreations))
	for _, p := range hostedCreations {
		t.Run("without "+p.String(), func(t *testing.T) { withoutCreating(t, log, p) })
	}

	for _, p := range unused(permissions, log.all) {
		if !slices.Contains(onlyAdmissionReads, p) && !slices.Contains(hostedCreations, p) {
			t.Errorf("the manager has a right that it does not use: %s", p)
		}
	}
}

// auditLog is what the manager asked the management cluster for.
type auditLog struct {
	log  *kube.AuditLog
	mark kube.Mark
	all  []kube.Event
}

// next returns the requests since the last call.
func (l *auditLog) next(t *testing.T) []kube.Event {
	t.Helper()
	g := NewWithT(t)
	events, mark, err := l.log.Next(t.Context(), l.mark)
	g.Expect(err).NotTo(HaveOccurred())
	l.mark = mark
	events = kube.By(env.ManagerUser, events)
	l.all = append(l.all, events...)
	return events
}

func light(t *testing.T, name string, opts env.ClusterOptions) *env.Workload {
	t.Helper()
	opts.Namespace, opts.Register, opts.Light = namespace, true, &lightapi.Options{}
	return suite.AddCluster(t, lab, name, opts)
}

func contents(g Gomega, ctx context.Context) *rbacv1.ClusterRoleBinding {
	binding := &rbacv1.ClusterRoleBinding{}
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Name: contentsBinding}, binding)).To(Succeed())
	return binding
}

// policiesWithCAs makes the manager read a CA from a ConfigMap and from a Secret.
func policiesWithCAs(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	ca := string(lab.Management().CA().CertificatePEM())
	meta := metav1.ObjectMeta{Namespace: env.ManagerNamespace, Name: "ca"}
	g.Expect(lab.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": ca}})).To(Succeed())
	g.Expect(lab.Client.Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"ca.crt": ca}})).To(Succeed())
	for name, source := range map[string]fleetv1.CASource{
		"from-configmap": {ConfigMap: fleetv1.KeyReference{Name: "ca"}},
		"from-secret":    {Secret: fleetv1.KeyReference{Name: "ca"}},
	} {
		policy := &fleetv1.FleetRegistrationPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: fleetv1.FleetRegistrationPolicySpec{
				ClusterSelector:   &metav1.LabelSelector{MatchLabels: map[string]string{"policy": name}},
				ManagementCluster: fleetv1.ManagementClusterSource{Server: lab.Management().URL(), CA: source},
			},
		}
		g.Expect(lab.Client.Create(ctx, policy)).To(Succeed())
		t.Cleanup(func() { _ = lab.Client.Delete(context.Background(), policy) })
		g.Eventually(func(g Gomega) {
			g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
			g.Expect(policy.Status.Conditions).To(ContainElement(SatisfyAll(
				HaveField("Type", fleetv1.ReadyCondition), HaveField("Status", metav1.ConditionTrue))))
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	}
}

// wrongLabel makes the manager record an Event, and then another like it, which
// becomes a series.
func wrongLabel(t *testing.T, log *auditLog) {
	g := NewWithT(t)
	ctx := t.Context()
	suite.AddCluster(t, lab, "typo", env.ClusterOptions{Namespace: "typo", StartLater: true, NoKubelet: true, Light: &lightapi.Options{}})
	label := "True"
	g.Eventually(func(g Gomega) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, fleetv1.RegisterLabel, label)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "typo"}}
		g.Expect(lab.Client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		label = map[string]string{"True": "false", "false": "True"}[label]
		log.next(t)
		g.Expect(slices.ContainsFunc(log.all, func(e kube.Event) bool {
			return e.Group == "events.k8s.io" && e.Verb == "patch"
		})).To(BeTrue(), "the second Event is not there yet")
	}).WithTimeout(suite.Patience).WithPolling(4 * suite.Poll).Should(Succeed())
	events := &eventsv1.EventList{}
	g.Expect(lab.Client.List(ctx, events, client.InNamespace("typo"))).To(Succeed())
	g.Expect(events.Items).To(ContainElement(HaveField("Reason", fleetv1.LabelInvalidReason)))
}

// setLabel sets the opt-in label of the Cluster, or removes it where value is empty.
func setLabel(g Gomega, ctx context.Context, w *env.Workload, value string) {
	cluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	delete(cluster.Labels, fleetv1.RegisterLabel)
	if value != "" {
		metav1.SetMetaDataLabel(&cluster.ObjectMeta, fleetv1.RegisterLabel, value)
	}
	g.Expect(lab.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// tamper makes the manager put right one object of each kind.
func tamper(t *testing.T, w *env.Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	reg := &fleetv1.FleetRegistration{}
	g.Expect(lab.Client.Get(ctx, w.Key(), reg)).To(Succeed())
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	const wrong = "someone-else"
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"`+wrong+`","`+fleetv1.OrphanLabel+`":"`+wrong+`"}}}`))
	for obj, label := range map[client.Object]string{
		&fleet.Cluster{ObjectMeta: at(w.Namespace, w.Name)}:                                fleetv1.OrphanLabel,
		&corev1.Namespace{ObjectMeta: at("", reg.Status.Namespace)}:                        "app.kubernetes.io/managed-by",
		&corev1.ServiceAccount{ObjectMeta: at(env.ManagerNamespace, reg.Status.Namespace)}: "app.kubernetes.io/managed-by",
		&rbacv1.Role{ObjectMeta: at(w.Namespace, reg.Status.Namespace)}:                    "app.kubernetes.io/managed-by",
		&rbacv1.RoleBinding{ObjectMeta: at(w.Namespace, reg.Status.Namespace)}:             "app.kubernetes.io/managed-by",
	} {
		g.Expect(lab.Client.Patch(ctx, obj, patch)).To(Succeed())
		g.Eventually(func(g Gomega) {
			g.Expect(lab.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
			g.Expect(obj.GetLabels()[label]).NotTo(Equal(wrong), "%T", obj)
		}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	}
}

// classOfAnotherNamespace makes the manager make, mend and delete the group of a
// ClusterClass and what lets bundles reach it.
func classOfAnotherNamespace(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	const classes = "rbac-classes"
	g.Expect(lab.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: classes}})).To(Succeed())
	template := clusterv1.ClusterClassTemplateReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevClusterTemplate", Name: "edge"}
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: "edge"}}
	class.Spec.Infrastructure.TemplateRef, class.Spec.ControlPlane.TemplateRef = template, template
	g.Expect(lab.Client.Create(ctx, class)).To(Succeed())
	policy := &fleetv1.FleetRegistrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "groups"},
		Spec:       fleetv1.FleetRegistrationPolicySpec{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"policy": "groups"}}},
	}
	policy.Spec.FleetCluster.Groups, policy.Spec.FleetCluster.ClassNamespaces = fleetv1.GroupsClusterClass, []string{classes}
	g.Expect(lab.Client.Create(ctx, policy)).To(Succeed())
	t.Cleanup(func() { _ = lab.Client.Delete(context.Background(), policy) })
	w := light(t, "grouped", env.ClusterOptions{Modify: func(c *clusterv1.Cluster) {
		c.Labels["policy"] = "groups"
		c.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Namespace: classes, Name: "edge"}
		c.Spec.Topology.Version = "v1.36.0"
	}})
	group := &fleet.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "edge." + classes}}
	mapping := &fleet.BundleNamespaceMapping{ObjectMeta: metav1.ObjectMeta{Namespace: classes, Name: w.Namespace}}
	eventually := func(check func(g Gomega)) {
		g.Eventually(check).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	}
	get := func(obj client.Object) error { return lab.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj) }
	eventually(func(g Gomega) {
		g.Expect(get(group)).To(Succeed())
		g.Expect(get(mapping)).To(Succeed())
	})
	g.Expect(lab.Client.Patch(ctx, group, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`)))).To(Succeed())
	g.Expect(lab.Client.Patch(ctx, mapping, client.RawPatch(types.MergePatchType, []byte(`{"namespaceSelector":null}`)))).To(Succeed())
	eventually(func(g Gomega) {
		g.Expect(get(group)).To(Succeed())
		g.Expect(group.Labels).NotTo(BeEmpty())
		g.Expect(get(mapping)).To(Succeed())
		g.Expect(mapping.NamespaceSelector).NotTo(BeNil())
	})
	suite.EventuallyReady(t, lab, w)
	remove(t, w)
	eventually(func(g Gomega) {
		g.Expect(get(group)).To(Satisfy(apierrors.IsNotFound))
		g.Expect(get(mapping)).To(Satisfy(apierrors.IsNotFound))
	})
}

// releasesWithoutBundles makes the manager look for BundleDeployments.
func releasesWithoutBundles(t *testing.T) {
	g := NewWithT(t)
	w := suite.AddCluster(t, lab, "restored", env.ClusterOptions{Namespace: namespace, NoKubelet: true, Light: &lightapi.Options{}})
	installed, err := agentsim.ReleaseSecret("shop", agent.Namespace)
	g.Expect(err).NotTo(HaveOccurred())
	installed.Namespace = metav1.NamespaceDefault
	g.Expect(w.Client.Create(t.Context(), installed)).To(Succeed())
	setLabel(g, t.Context(), w, "true")
	suite.EventuallyCondition(t, lab, w, fleetv1.AgentDeployedCondition, metav1.ConditionFalse, fleetv1.WaitingForBundlesReason)
}

// scrape reads the metrics as a monitoring system does: by TLS, with the token of an
// account that may. Without one it is turned away.
func scrape(t *testing.T, address string) {
	g := NewWithT(t)
	ctx := t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "monitoring"}}
	g.Expect(lab.Client.Create(ctx, account)).To(Succeed())
	g.Expect(lab.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "monitoring"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "capi-fleet-system-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
	})).To(Succeed())
	request := &authenticationv1.TokenRequest{}
	g.Expect(lab.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	get := func(token string) (int, string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
		g.Expect(err).NotTo(HaveOccurred())
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := (&http.Client{Transport: transport}).Do(r)
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close() //nolint:errcheck // only read
		body, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		return response.StatusCode, string(body)
	}
	code, _ := get("")
	g.Expect(code).To(Equal(http.StatusUnauthorized))
	g.Eventually(func(g Gomega) {
		code, body := get(request.Status.Token)
		g.Expect(code).To(Equal(http.StatusOK))
		g.Expect(body).To(ContainSubstring(`capi_fleet_registrations{state="ready"}`))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

// remove deletes the Cluster and returns once its registration is gone.
func remove(t *testing.T, w *env.Workload) {
	g := NewWithT(t)
	ctx := t.Context()
	cluster := &clusterv1.Cluster{}
	g.Expect(lab.Client.Get(ctx, w.Key(), cluster)).To(Succeed())
	g.Expect(lab.Client.Delete(ctx, cluster)).To(Succeed())
	g.Eventually(func() error {
		return lab.Client.Get(ctx, w.Key(), &fleetv1.FleetRegistration{})
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Satisfy(apierrors.IsNotFound))
	release(t, w)
}

// release lets go of the Cluster, as an infrastructure provider does at the end.
func release(t *testing.T, w *env.Workload) {
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	err := lab.Client.Patch(context.WithoutCancel(t.Context()), cluster, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
}

// withoutJoining takes the permission away: a Cluster cannot join. Given back, it can.
func withoutJoining(t *testing.T, log *auditLog, p permission) {
	g := NewWithT(t)
	giveBack := takeAway(t, p)
	log.next(t)
	w := light(t, "without-"+p.verb, env.ClusterOptions{})
	g.Eventually(func() []string { return forbidden(log.next(t)) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).ShouldNot(BeEmpty())
	reg := &fleetv1.FleetRegistration{}
	if err := lab.Client.Get(t.Context(), w.Key(), reg); !apierrors.IsNotFound(err) {
		g.Expect(err).NotTo(HaveOccurred())
		suite.EventuallyCondition(t, lab, w, fleetv1.FleetClusterReadyCondition, metav1.ConditionFalse, fleetv1.InternalErrorReason)
	}
	giveBack()
	suite.EventuallyReady(t, lab, w)
	log.next(t)
}

// withoutTheBindingOfContents takes the permission away: a leader cannot make the
// binding for the agents. Given back, the next one can.
func withoutTheBindingOfContents(t *testing.T, manager *env.Manager, log *auditLog, p permission) {
	g := NewWithT(t)
	ctx := t.Context()
	giveBack := takeAway(t, p)
	g.Expect(manager.Stop()).To(Succeed())
	log.next(t)
	g.Expect(lab.Client.Delete(ctx, contents(g, ctx))).To(Succeed())
	g.Expect(manager.Start(ctx)).To(Succeed())
	g.Eventually(func() []string { return forbidden(log.next(t)) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).
		Should(ContainElement(ContainSubstring("clusterrolebindings")))
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Name: contentsBinding}, &rbacv1.ClusterRoleBinding{})).To(Satisfy(apierrors.IsNotFound))

	giveBack()
	g.Expect(manager.Restart(ctx)).To(Succeed())
	g.Eventually(func(g Gomega) { contents(g, ctx) }).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
	log.next(t)
}

// takeAway removes a permission from the manager's ClusterRole and returns once the
// API server acts on it. What it returns puts the role back as it was.
func takeAway(t *testing.T, p permission) (giveBack func()) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	role := &rbacv1.ClusterRole{}
	g.Expect(lab.Client.Get(ctx, client.ObjectKey{Name: p.role}, role)).To(Succeed())
	shipped := role.DeepCopy()
	role.Rules = nil
	for _, rest := range split(p.role, "", shipped.Rules) {
		if rest == p {
			continue
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{rest.group}, Resources: []string{rest.resource}, Verbs: []string{rest.verb}}
		if rest.name != "" {
			rule.ResourceNames = []string{rest.name}
		}
		role.Rules = append(role.Rules, rule)
	}
	g.Expect(lab.Client.Update(ctx, role)).To(Succeed())
	eventuallyAllowed(t, p, false)
	return func() {
		role.Rules = shipped.Rules
		g.Expect(lab.Client.Update(ctx, role)).To(Succeed())
		eventuallyAllowed(t, p, true)
	}
}

func eventuallyAllowed(t *testing.T, p permission, allowed bool) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: env.ManagerUser,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: p.verb, Group: p.group, Resource: p.resource, Name: p.name,
			},
		}}
		g.Expect(lab.Client.Create(t.Context(), review)).To(Succeed())
		g.Expect(review.Status.Allowed).To(Equal(allowed))
	}).WithTimeout(suite.Patience).WithPolling(suite.Poll).Should(Succeed())
}

func freeAddress(g *WithT) string {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close() //nolint:errcheck // it only found a port
	return listener.Addr().String()
}
