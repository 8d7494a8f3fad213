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

package agent

import (
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func hostedMinimal() Input {
	in := minimal()
	in.Agent.Placement = fleetv1.PlacementManagement
	return in
}

// hostedEverything has every setting that a hosted agent can have.
func hostedEverything() Input {
	in := everything()
	in.Agent.Placement = fleetv1.PlacementManagement
	in.Agent.Proxy = fleetv1.ProxySettings{}
	return in
}

func someHosting() Hosting {
	return Hosting{
		Namespace:    "capi-fleet-system",
		Registration: types.NamespacedName{Namespace: "team-a", Name: "edge-1"},
		AccountUID:   "0a4f9f0e-3c1f-4a9b-8a51-3f3f1d2b7c11",
		Workload: WorkloadCluster{
			Server: "https://edge-1.example.com:6443", ServerName: "kubernetes", CAData: []byte("-----BEGIN CERTIFICATE-----\nCCCC\n-----END CERTIFICATE-----\n"),
		},
	}
}

func someDestinations() []Destination {
	return []Destination{
		{Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")}, Port: 6443},
		{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, Port: 443},
		{Addresses: []netip.Addr{netip.MustParseAddr("::ffff:203.0.113.7"), netip.MustParseAddr("192.0.2.20")}, Port: 6443},
	}
}

// writtenHosted returns all that is written for a hosted agent: in the workload cluster
// first, then on the management cluster.
func writtenHosted(in Input) []client.Object {
	return append(Objects(in, Revision(in)), Secret(in, ""),
		HostedNetworkPolicy(in, someHosting(), someDestinations()),
		HostedSecret(in, someHosting(), testToken),
		HostedDeployment(in, someHosting()),
	)
}

func TestAHostedAgentReadsInTheWorkloadClusterAndRunsNothingThere(t *testing.T) {
	g := NewWithT(t)
	var kinds []string
	for _, obj := range Objects(hostedEverything(), Revision(hostedEverything())) {
		kinds = append(kinds, obj.GetObjectKind().GroupVersionKind().Kind)
	}
	g.Expect(kinds).To(Equal([]string{"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ServiceAccount", "ConfigMap"}))
	g.Expect(Secret(hostedEverything(), "").Data).To(HaveKeyWithValue(tokenKey, BeEmpty()))
}

// Whatever the pod can read, the owner of the workload cluster can have it send to a host
// of their choice.
func TestThePodOfAHostedAgentHasItsOwnFilesAndNoOthers(t *testing.T) {
	g := NewWithT(t)
	in := hostedEverything()
	pod := HostedDeployment(in, someHosting()).Spec.Template.Spec
	g.Expect(pod.ServiceAccountName).To(Equal(in.ClusterNamespace))
	g.Expect(pod.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
	g.Expect(pod.HostNetwork).To(BeFalse())
	g.Expect(pod.Containers).To(HaveLen(1))
	g.Expect(pod.InitContainers).To(BeEmpty())
	for _, volume := range pod.Volumes {
		switch source := volume.VolumeSource; {
		case source.EmptyDir != nil:
		case source.Secret != nil:
			g.Expect(source.Secret.SecretName).To(Equal(HostedSecret(in, someHosting(), "").Name))
		case source.Projected != nil:
			g.Expect(source.Projected.Sources).To(HaveLen(1))
			g.Expect(source.Projected.Sources[0].ServiceAccountToken).To(HaveField("Audience", ""))
		default:
			t.Errorf("volume %s is of a kind that is not expected", volume.Name)
		}
	}
	for _, v := range pod.Containers[0].Env {
		g.Expect(v.ValueFrom).To(BeNil(), v.Name)
	}
	g.Expect(pod.Containers[0].EnvFrom).To(BeEmpty())
}

func TestAHostedAgentReadsItsTokensFromFilesThatAreRenewed(t *testing.T) {
	g := NewWithT(t)
	in := hostedMinimal()
	mounts := map[string]string{}
	for _, mount := range HostedDeployment(in, someHosting()).Spec.Template.Spec.Containers[0].VolumeMounts {
		g.Expect(mount.SubPath).To(BeEmpty(), "the kubelet renews no file that is mounted alone")
		mounts[mount.Name] = mount.MountPath
	}

	upstream, err := clientcmd.Load(Secret(in, "").Data[kubeconfigKey])
	g.Expect(err).NotTo(HaveOccurred())
	user := upstream.AuthInfos[upstream.Contexts[upstream.CurrentContext].AuthInfo]
	g.Expect([]string{user.Token, user.TokenFile}).To(Equal([]string{"", mounts[tokenVolume] + "/" + tokenKey}))

	g.Expect(TokenDirOf(HostedDeployment(in, someHosting()))).To(Equal(mounts[tokenVolume]))

	downstream, err := clientcmd.Load(HostedSecret(in, someHosting(), testToken).Data[workloadKey])
	g.Expect(err).NotTo(HaveOccurred())
	user = downstream.AuthInfos[downstream.Contexts[downstream.CurrentContext].AuthInfo]
	g.Expect([]string{user.Token, user.TokenFile}).To(Equal([]string{testToken, mounts[workloadVolume] + "/" + tokenKey}))
}

func TestANewPodIsNeededForAnotherAddressOrAccountAndForNoToken(t *testing.T) {
	g := NewWithT(t)
	in := hostedMinimal()
	template := func(change func(*Hosting)) corev1.PodTemplateSpec {
		hosting := someHosting()
		change(&hosting)
		return HostedDeployment(in, hosting).Spec.Template
	}
	same := template(func(*Hosting) {})
	g.Expect(template(func(*Hosting) {})).To(Equal(same))
	for name, change := range map[string]func(*Hosting){
		"server":      func(h *Hosting) { h.Workload.Server = "https://other" },
		"CA":          func(h *Hosting) { h.Workload.CAData = nil },
		"server name": func(h *Hosting) { h.Workload.ServerName = "" },
		"insecure":    func(h *Hosting) { h.Workload.InsecureTLS = true },
		"account":     func(h *Hosting) { h.AccountUID = "other" },
	} {
		g.Expect(template(change)).NotTo(Equal(same), name)
	}
}

func TestEveryPlacementIsARevisionOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Revision(hostedMinimal())).NotTo(Equal(Revision(minimal())))
	g.Expect(HostedDeployment(hostedMinimal(), someHosting()).Annotations).To(HaveKeyWithValue(fleetv1.RevisionAnnotation, Revision(hostedMinimal())))
}

func TestANetworkPolicyIsTheSameForTheSameAddressesInAnyOrder(t *testing.T) {
	g := NewWithT(t)
	policy := func(destinations ...Destination) any {
		return HostedNetworkPolicy(hostedMinimal(), someHosting(), destinations)
	}
	all := someDestinations()
	g.Expect(policy(all[2], all[1], all[0])).To(Equal(policy(all...)))
	g.Expect(policy(all[0], all[1])).NotTo(Equal(policy(all...)))
}

// A rule without peers allows all.
func TestADestinationWithoutAddressesOpensNothing(t *testing.T) {
	g := NewWithT(t)
	rules := HostedNetworkPolicy(hostedMinimal(), someHosting(), []Destination{{Port: 6443}}).Spec.Egress
	g.Expect(rules).To(HaveLen(1), "DNS")
	g.Expect(rules[0].To).NotTo(BeEmpty())
}

func TestALeaseIsFreeOnceItWasGivenUpOrIsNotRenewed(t *testing.T) {
	held := func(change func(*coordinationv1.LeaseSpec)) *coordinationv1.Lease {
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("pod-1"), LeaseDurationSeconds: new(int32(30))}}
		if change != nil {
			change(&lease.Spec)
		}
		return lease
	}
	for name, tt := range map[string]struct {
		lease *coordinationv1.Lease
		same  time.Duration
		free  bool
	}{
		"none":              {nil, 0, true},
		"just seen":         {held(nil), 0, false},
		"nearly over":       {held(nil), 30 * time.Second, false},
		"over":              {held(nil), 31 * time.Second, true},
		"given up":          {held(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = new("") }), 0, true},
		"never held":        {held(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = nil }), 0, true},
		"of no duration":    {held(func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = nil }), time.Second, true},
		"of a negative one": {held(func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = new(int32(-1)) }), 0, false},
		"of years":          {held(func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = new(int32(1 << 30)) }), 6 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(LeaseFree(tt.lease, tt.same)).To(Equal(tt.free))
		})
	}
}
