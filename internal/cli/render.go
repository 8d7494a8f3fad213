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
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
	"github.com/capi-fleet/capi-fleet/config"
	"github.com/capi-fleet/capi-fleet/internal/agent"
	"github.com/capi-fleet/capi-fleet/internal/endpoint"
	"github.com/capi-fleet/capi-fleet/internal/fleet"
	"github.com/capi-fleet/capi-fleet/internal/targeting"
	"github.com/capi-fleet/capi-fleet/internal/upstream"
)

// The clusters that render makes objects for.
const (
	forManagement = "management"
	forWorkload   = "workload"
)

// maxTokenSize bounds a token file, in bytes.
const maxTokenSize = 64 << 10

type renderOptions struct {
	*app
	target                           string
	managerNamespace, fleetNamespace string
	registrationID                   string
	server, caFile, image            string
	tokenFile                        string
	offline                          bool
}

// rendering is what the manifests are made from.
type rendering struct {
	upstream.Registration
	// cluster is the key that the caller knows the Cluster by.
	cluster          client.ObjectKey
	managerNamespace string
	// clientID is that of a Fleet Cluster that is there, empty where there is none.
	clientID     string
	namespaceUID types.UID
	agent        fleetv1.AgentSpec
}

func newRenderCommand(a *app) *cobra.Command {
	o := &renderOptions{app: a}
	command := &cobra.Command{
		Use:   "render CLUSTER --for management|workload",
		Short: "Print a registration's manifests, to be applied with kubectl",
		Long: `Print the objects of a registration as YAML, for clusters that the manager cannot reach and
for management clusters without capi-fleet or without Cluster API. They are the objects that
the manager makes. Nothing is changed on any cluster.

--for management prints those of the management cluster, and in comments what to do next.
--for workload prints those of the workload cluster; it needs a token of the agent's account.

What no flag says is read from the management cluster: the registration or the Fleet Cluster,
else Fleet's configuration. With --offline no cluster is asked.

Do not apply this where an agent of another registration runs, nor where Fleet deployed
bundles that the Fleet Cluster does not have: an agent that starts uninstalls those.`,
		Example: `  clusterctl fleet render edge-1 --namespace team-a --for management > management.yaml
  clusterctl fleet render edge-1 --namespace team-a --for workload --token-file token > workload.yaml`,
		Args:              exactly("CLUSTER"),
		ValidArgsFunction: a.completeClusters,
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.complete(args[0]); err != nil {
				return err
			}
			return o.run(command.Context(), args[0])
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.target, "for", "", "cluster to which the objects go: management or workload (required)")
	addManagerNamespace(command, &o.managerNamespace)
	addFleetNamespace(command, &o.fleetNamespace)
	flags.StringVar(&o.registrationID, "registration-id", "", "ID that marks the objects, the same for both clusters (default: that of the registration or the Fleet Cluster; without one --for management makes it up)")
	flags.StringVar(&o.server, "agent-server", "", "https URL at which the agent finds the management cluster (default: that of the registration, else as in Fleet's configuration)")
	flags.StringVar(&o.caFile, "agent-ca-file", "", "file with the CA certificates of --agent-server, PEM (default: the agent trusts what its system trusts)")
	flags.StringVar(&o.image, "agent-image", "", "image of the agent (default: that of the registration, else as in Fleet's configuration)")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with the token of the agent's account, - for standard input (required with --for workload)")
	flags.BoolVar(&o.offline, "offline", false, "read nothing from the management cluster; flags say what else is needed")
	_ = command.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{forManagement, forWorkload}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (o *renderOptions) complete(name string) error {
	workload := o.target == forWorkload
	switch {
	case o.target != forManagement && !workload:
		return usagef("--for must be management or workload")
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return usagef("%q is not the name of a Cluster", name)
	case o.registrationID != "" && !upstream.ValidID(o.registrationID):
		return usagef("--registration-id must be 52 characters, each a letter or a digit, as --for management prints it")
	case o.caFile != "" && o.server == "":
		return usagef("--agent-ca-file goes with --agent-server")
	case workload && o.tokenFile == "":
		return usagef("--token-file is missing: make the token with kubectl create token, as --for management says")
	case !workload && o.tokenFile != "":
		return usagef("--token-file goes with --for workload")
	case o.offline && workload && (o.server == "" || o.image == "" || o.registrationID == ""):
		return usagef("--offline --for workload needs --agent-server, --agent-image and --registration-id")
	}
	if o.server == "" {
		return nil
	}
	if err := endpoint.ValidateServer(o.server); err != nil {
		return usagef("--agent-server: %v", err)
	}
	return nil
}

func (o *renderOptions) run(ctx context.Context, name string) error {
	key, err := o.clusterKey(name)
	if err != nil {
		return err
	}
	var c client.Client
	if !o.offline {
		if c, err = o.client(); err != nil {
			return err
		}
	}
	return o.render(ctx, c, key)
}

// render prints the objects of the Cluster key, by what the management cluster knows unless
// the client is nil.
func (o *renderOptions) render(ctx context.Context, c client.Client, key client.ObjectKey) error {
	in := &rendering{cluster: key, managerNamespace: o.managerNamespace, Registration: upstream.Registration{
		FleetCluster: types.NamespacedName{Namespace: key.Namespace, Name: fleet.ClusterName(key.Name)},
	}}
	if c != nil {
		if err := o.look(ctx, c, in); err != nil {
			return err
		}
	}
	if err := o.override(in); err != nil {
		return err
	}
	if err := in.checkNames(); err != nil {
		return err
	}
	if o.target == forManagement {
		return o.printManagement(in)
	}
	return o.printWorkload(in)
}

// look fills in what the management cluster knows.
func (o *renderOptions) look(ctx context.Context, c client.Client, in *rendering) error {
	cluster, reg := &clusterv1.Cluster{}, &fleetv1.FleetRegistration{}
	// Neither Cluster API nor capi-fleet need be there.
	hasCluster, err := get(ctx, c, in.cluster, cluster)
	if ignoreNoMatch(err) != nil {
		return err
	}
	switch found, err := get(ctx, c, in.cluster, reg); {
	case ignoreNoMatch(err) != nil:
		return err
	case found:
		in.ID, in.FleetCluster, in.Namespace, in.agent = reg.Spec.RegistrationID, types.NamespacedName(reg.Spec.FleetCluster), reg.Status.Namespace, reg.Spec.Agent
	}
	if hasCluster {
		in.ClusterUID = cluster.UID
		in.Target, _ = targeting.Resolve(reg.Spec.Targeting, cluster, in.FleetCluster.Namespace)
		if err := lookAtClass(ctx, c, in); err != nil {
			return err
		}
	}
	if err := lookAtFleetCluster(ctx, c, in); err != nil {
		return err
	}
	if err := lookAtNamespace(ctx, c, in); err != nil {
		return err
	}
	if o.target == forManagement || in.agent.Image != "" && in.agent.ManagementCluster.Server != "" || o.server != "" && o.image != "" {
		return nil
	}
	resolver := &endpoint.Resolver{Reader: c, ManagerNamespace: o.managerNamespace, FleetNamespace: o.fleetNamespace}
	in.agent, err = resolver.Resolve(ctx, fleetv1.FleetRegistrationPolicySpec{})
	if unusable := (*endpoint.Error)(nil); errors.As(err, &unusable) {
		return nil // Flags can still say it.
	}
	return err
}

// lookAtClass keeps the Fleet Cluster out of a group that cannot be had.
func lookAtClass(ctx context.Context, c client.Client, in *rendering) error {
	if in.Target.Class == nil {
		return nil
	}
	err := (&upstream.Writer{Cache: c}).LookClass(ctx, *in.Target.Class)
	if refusal := (*upstream.Refusal)(nil); errors.As(err, &refusal) {
		in.Target = in.Target.StayOut()
		return nil
	}
	return err
}

// lookAtFleetCluster takes over what an earlier apply made.
func lookAtFleetCluster(ctx context.Context, c client.Client, in *rendering) error {
	cluster := &fleet.Cluster{}
	found, err := get(ctx, c, in.FleetCluster, cluster)
	if ignoreNoMatch(err) != nil || !found {
		return ignoreNoMatch(err)
	}
	id := cluster.Annotations[fleetv1.RegistrationIDAnnotation]
	if cluster.Labels[fleet.ClusterManagementLabel] != upstream.ManagementLabelValue || id == "" || in.ID != "" && in.ID != id {
		return fmt.Errorf("the Fleet Cluster %s is there and not this registration's: see docs/concepts/adoption.md", in.FleetCluster)
	}
	in.ID, in.clientID, in.Target = id, cluster.Spec.ClientID, in.Target.On(cluster)
	if in.Namespace == "" {
		in.Namespace = cluster.Status.Namespace
	}
	return nil
}

// lookAtNamespace finds the cluster namespace, or a name that is free for it.
func lookAtNamespace(ctx context.Context, c client.Client, in *rendering) error {
	names := in.NamespaceNames()
	for _, name := range names {
		namespace := &corev1.Namespace{}
		found, err := get(ctx, c, client.ObjectKey{Name: name}, namespace)
		if err != nil {
			return err
		}
		if !found || in.OwnsNamespace(namespace) {
			in.Namespace, in.namespaceUID = name, namespace.UID
			return nil
		}
	}
	return fmt.Errorf("no name is free for the cluster namespace of Fleet Cluster %s: %v are there and not its own", in.FleetCluster, names)
}

// override fills in what the flags say, and then the defaults.
func (o *renderOptions) override(in *rendering) error {
	switch {
	case o.registrationID != "" && in.ID != "" && in.ID != o.registrationID:
		return usagef("--registration-id is not that of the registration, %s", in.ID)
	case o.registrationID != "":
		in.ID = o.registrationID
	case in.ID == "" && o.target == forWorkload:
		return fmt.Errorf("there is no registration and no Fleet Cluster %s: apply the objects of the management cluster first, or use --registration-id", in.FleetCluster)
	case in.ID == "":
		in.ID = upstream.NewID()
	}
	if in.Namespace == "" {
		in.Namespace = fleet.ClusterNamespace(in.FleetCluster.Namespace, in.FleetCluster.Name)
	}
	if o.image != "" {
		in.agent.Image = o.image
	}
	if o.server != "" {
		in.agent.ManagementCluster = fleetv1.ManagementClusterEndpoint{Server: o.server}
	}
	if o.caFile != "" {
		ca, err := os.ReadFile(o.caFile)
		if err != nil {
			return err
		}
		if ca, err = endpoint.ParseCA(ca); err != nil {
			return usagef("--agent-ca-file: %s %v", o.caFile, err)
		}
		in.agent.ManagementCluster.CertificateAuthorityData = ca
	}
	return nil
}

// checkNames refuses what is no name: commands are printed that people run, and whoever can
// write a Fleet Cluster chose some of what is in them.
func (in *rendering) checkNames() error {
	invalid := func(what, name string) error {
		return fmt.Errorf("%s of Fleet Cluster %q is %q, which is not from capi-fleet: look who wrote it", what, in.FleetCluster, name)
	}
	switch {
	case len(validation.IsDNS1123Label(in.cluster.Namespace)) > 0:
		return usagef("--namespace: %q is not the name of a namespace", in.cluster.Namespace)
	case len(validation.IsDNS1123Label(in.FleetCluster.Namespace)) > 0:
		return invalid("the namespace", in.FleetCluster.Namespace)
	case len(validation.IsDNS1123Subdomain(in.FleetCluster.Name)) > 0:
		return invalid("the name", in.FleetCluster.Name)
	case !upstream.IsClusterNamespace(in.Namespace):
		return invalid("the cluster namespace", in.Namespace)
	case !upstream.ValidID(in.ID):
		return invalid("the registration ID", in.ID)
	}
	return nil
}

func (o *renderOptions) printManagement(in *rendering) error {
	fmt.Fprintf(o.Out, `# The objects of %[1]s on the management cluster. With an admin's rights there:
#
# 1. kubectl apply --server-side --filename THIS_FILE
# 2. kubectl patch clusters.fleet.cattle.io %[2]s --namespace %[3]s --subresource=status --type=merge --patch='{"status":{"namespace":"%[4]s"}}'
# 3. kubectl create token %[4]s --namespace %[5]s --duration=72h > token
# 4. %[6]s > workload.yaml
#
# and then with an admin's rights on the workload cluster: kubectl apply --server-side --filename workload.yaml
# When three quarters of the token's life are over, do 3, 4 and the last again. The agent is not restarted.
`, in.FleetCluster, in.FleetCluster.Name, in.FleetCluster.Namespace, in.Namespace, in.managerNamespace, o.workloadCommand(in))
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in.managerNamespace}},
	}
	if in.FleetCluster.Namespace != in.managerNamespace {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in.FleetCluster.Namespace}})
	}
	shared, err := sharedObjects(in.managerNamespace)
	if err != nil {
		return err
	}
	objects = append(objects, shared...)
	return printManifests(o.Out, append(objects, in.Objects(in.managerNamespace, in.clientID)...))
}

// sharedObjects returns what the agents of all clusters share, for a management cluster
// on which capi-fleet is not installed: their roles, and the admission policy that holds
// them to their heartbeat.
func sharedObjects(managerNamespace string) ([]client.Object, error) {
	objects := upstream.SharedObjects(managerNamespace)
	policy, err := agentStatusPolicy()
	return append(objects, policy...), err
}

// agentStatusPolicy returns the admission policy that holds agents to their heartbeat, and
// its binding, as they are installed.
func agentStatusPolicy() ([]client.Object, error) {
	var objects []client.Object
	decoder := utilyaml.NewYAMLToJSONDecoder(bytes.NewReader(config.AgentStatusPolicy))
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("reading the admission policy for agents: %w", err)
		}
		objects = append(objects, object)
	}
}

// workloadCommand returns the command that prints the objects of the workload cluster.
func (o *renderOptions) workloadCommand(in *rendering) string {
	command := fmt.Sprintf("%s render %s --namespace %s --for workload --registration-id %s", programName, in.cluster.Name, in.cluster.Namespace, in.ID)
	if o.managerNamespace != defaultManagerNamespace {
		command += " --manager-namespace " + o.managerNamespace
	}
	if o.fleetNamespace != fleet.DefaultAgentNamespace {
		command += " --fleet-namespace " + o.fleetNamespace
	}
	return command + " --token-file token"
}

func (o *renderOptions) printWorkload(in *rendering) error {
	switch {
	case in.agent.Hosted():
		return errors.New("the agent of this registration runs on the management cluster: the manager puts it there, and nothing is to be applied by hand")
	case in.agent.ManagementCluster.Server == "":
		return errors.New("nothing says where the agent finds the management cluster: use --agent-server")
	case in.agent.Image == "":
		return errors.New("nothing names the agent's image: use --agent-image")
	case len(in.agent.ImagePullSecrets) > 0:
		warnf(o.ErrOut, "The agent's pull secrets are not among the objects: %s.", strings.Join(agent.PullSecretNames(agent.Input{Agent: in.agent}), ", "))
	}
	token, err := o.token()
	if err != nil {
		return err
	}
	input := agent.Input{
		RegistrationID:      in.ID,
		FleetCluster:        in.FleetCluster,
		ClusterNamespace:    in.Namespace,
		ClusterNamespaceUID: in.namespaceUID,
		Agent:               in.agent,
	}
	objects := agent.Objects(input, agent.Revision(input))
	last := len(objects) - 1
	fmt.Fprintf(o.Out, "# The objects of %s on the workload cluster. This holds a credential.\n", in.FleetCluster)
	return printManifests(o.Out, append(objects[:last:last], agent.Secret(input, token), objects[last]))
}

// token reads the token.
func (o *renderOptions) token() (string, error) {
	in := o.In
	if o.tokenFile != "-" {
		file, err := os.Open(o.tokenFile)
		if err != nil {
			return "", err
		}
		defer file.Close() //nolint:errcheck // It was only read.
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, maxTokenSize))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" || len(strings.Fields(token)) != 1 {
		return "", usagef("--token-file holds no token")
	}
	return token, nil
}

// printManifests prints objects as YAML documents.
func printManifests(out io.Writer, objects []client.Object) error {
	for _, obj := range objects {
		content, err := toUnstructured(obj)
		if err != nil {
			return err
		}
		text, err := yaml.Marshal(content.Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

// toUnstructured returns an object of the management cluster with its kind.
func toUnstructured(obj client.Object) (*unstructured.Unstructured, error) {
	kind, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return agent.ToUnstructured(obj)
}
