#!/usr/bin/env bash
# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes registered clusters ready for the removal of capi-fleet. Run it without
# arguments for how, and see docs/operations/uninstall.md for the whole way.
set -euo pipefail
umask 077

usage() {
	cat <<-'END'
		Usage: prepare-uninstall.sh --mode token|fleet [flags] [NAMESPACE/NAME...]

		Makes clusters ready for the removal of capi-fleet: those of the named
		FleetRegistrations, else of all. Agents and what they deployed keep running.
		kubectl must be set up for an admin of the management cluster.

		  --mode token             leave each agent a token that does not end
		  --mode fleet             let Fleet itself register the clusters anew
		  --namespace NAME         capi-fleet's namespace (capi-fleet-system)
		  --fleet-namespace NAME   Fleet's namespace (cattle-fleet-system)
		  --dry-run                look at everything, write nothing
		  --yes                    do not ask

		Exit code: 0 all is done, 1 clusters were left as they are, 2 nothing was begun.
	END
}

# Names of what is left on the management cluster. They must not begin with
# capi-fleet's namespace: clusterctl takes such objects away.
readonly left=capi-fleet-left

readonly group=fleet.addons.cluster.x-k8s.io
readonly finalizer=$group/registration
readonly management_label=fleet.cattle.io/cluster-management
readonly agent_namespace=cattle-fleet-system
readonly agent_name=fleet-agent
readonly deployment=capi-fleet-manager

mode=
manager_namespace=capi-fleet-system
fleet_namespace=cattle-fleet-system
dry_run=false
confirmed=false
selected=()

# ------------------------------------------------------------------- shorthands

die() {
	echo "Error: $*" >&2
	exit 2
}

# refuse leaves the cluster at hand as it is. It runs in the cluster's subshell.
refuse() {
	echo "$registration: NOT DONE: $*" >&2
	exit 1
}

# management runs kubectl on the management cluster.
management() { kubectl --request-timeout=30s "$@"; }

apply() { management apply --server-side --force-conflicts --field-manager=prepare-uninstall --filename=- >/dev/null; }

# workload runs kubectl on the workload cluster at hand.
workload() { kubectl --kubeconfig="$dir/workload" --cache-dir="$dir/cache" --request-timeout=10s "$@"; }

# as_agent runs kubectl on the management cluster with the agent's new token.
as_agent() { kubectl --kubeconfig="$dir/agent" --cache-dir="$dir/agent-cache" --request-timeout=10s "$@"; }

# eventually runs a command every half second until it succeeds, for 30 seconds.
eventually() {
	local try
	for try in {1..60}; do
		if "$@"; then
			return
		fi
		[[ $try == 60 ]] || sleep 0.5
	done
	return 1
}

# base64 of what is on standard input, in one line.
encode() { base64 | tr -d '\n'; }

# printable makes one harmless line of what a workload cluster may have sent.
printable() { tr -c '[:print:]' ' ' | cut -c 1-200; }

# -------------------------------------------------------------- before the first

parse_arguments() {
	while [[ $# -gt 0 ]]; do
		case $1 in
		--mode | --namespace | --fleet-namespace)
			[[ $# -ge 2 ]] || die "$1 needs a value"
			case $1 in
			--mode) mode=$2 ;;
			--namespace) manager_namespace=$2 ;;
			--fleet-namespace) fleet_namespace=$2 ;;
			esac
			shift 2
			;;
		--dry-run) dry_run=true && shift ;;
		--yes) confirmed=true && shift ;;
		--help | -h) usage && exit ;;
		-*) die "unknown flag $1" ;;
		*/*) selected+=("$1") && shift ;;
		*) die "$1 is not NAMESPACE/NAME of a FleetRegistration" ;;
		esac
	done
	case $mode in
	token | fleet) ;;
	*)
		usage >&2
		exit 2
		;;
	esac
}

check_tools() {
	local tool
	for tool in kubectl base64 mktemp tr cut grep; do
		command -v "$tool" >/dev/null || die "$tool is not installed"
	done
	management get --raw=/version >/dev/null || die "kubectl does not reach the management cluster"
	management get "crd/fleetregistrations.$group" --output=name >/dev/null ||
		die "this is not a management cluster with capi-fleet"
}

# check_fleet makes sure that Fleet can register clusters by itself.
check_fleet() {
	local config
	config=$(management get configmap fleet-controller --namespace="$fleet_namespace" --output=jsonpath='{.data.config}') ||
		die "Fleet's configuration cannot be read in namespace $fleet_namespace"
	grep -Eq '"apiServerURL"[[:space:]]*:[[:space:]]*"[^"]+"' <<<"$config" ||
		die "Fleet's configuration lacks apiServerURL, without which Fleet registers no cluster: set it with Fleet's chart"
}

list_registrations() {
	if [[ ${#selected[@]} -gt 0 ]]; then
		printf '%s\n' "${selected[@]}"
	else
		management get "fleetregistrations.$group" --all-namespaces \
			--output=jsonpath='{range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}'
	fi
}

confirm() {
	local answer
	[[ $confirmed == false ]] || return 0
	[[ -t 0 ]] || die "there is no terminal to ask on: use --yes"
	read -r -p "$1 [y/N] " answer
	[[ $answer == [yY] ]] || die "stopped"
}

# stop_manager ends the manager, which would put everything back.
stop_manager() {
	local replicas
	replicas=$(management get deployment "$deployment" --namespace="$manager_namespace" --ignore-not-found --output=jsonpath='{.spec.replicas}') ||
		die "Deployment $manager_namespace/$deployment cannot be read"
	if [[ -z $replicas ]]; then
		echo "Warning: there is no Deployment $manager_namespace/$deployment. Make sure that no manager of capi-fleet runs." >&2
		[[ $dry_run == true ]] || confirm "Does none run?"
		return
	fi
	if [[ $dry_run == true ]]; then
		echo "Would keep Deployment $manager_namespace/$deployment at 0 replicas."
		return
	fi
	if [[ $replicas != 0 ]]; then
		management scale deployment "$deployment" --namespace="$manager_namespace" --replicas=0 >/dev/null ||
			die "Deployment $manager_namespace/$deployment cannot be scaled"
		echo "Scaled Deployment $manager_namespace/$deployment to 0."
	fi
	eventually manager_is_gone || die "the pods of Deployment $manager_namespace/$deployment do not end"
}

manager_is_gone() {
	local pods
	pods=$(management get pods --namespace="$manager_namespace" --selector=control-plane=capi-fleet-manager --output=name) && [[ -z $pods ]]
}

# keep_shared copies what all agents need: their ClusterRoles, and the admission
# policy that holds them to their heartbeat.
keep_shared() {
	keep clusterrole rbac.authorization.k8s.io/v1 ClusterRole agent rules
	keep clusterrole rbac.authorization.k8s.io/v1 ClusterRole agent-contents rules
	keep validatingadmissionpolicy admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy agent-status spec
	apply <<-END || die "ValidatingAdmissionPolicyBinding $left-agent-status cannot be made"
		apiVersion: admissionregistration.k8s.io/v1
		kind: ValidatingAdmissionPolicyBinding
		metadata:
		  name: $left-agent-status
		spec:
		  policyName: $left-agent-status
		  validationActions: ["Deny"]
	END
	stays ClusterRole "$left-agent"
	stays ClusterRole "$left-agent-contents"
	stays ValidatingAdmissionPolicy "$left-agent-status"
	stays ValidatingAdmissionPolicyBinding "$left-agent-status"
}

# keep copies one field of a shipped object, which is all of it. When the shipped
# one is gone already, the copy of an earlier run will do.
keep() {
	local resource=$1 api_version=$2 kind=$3 name=$4 field=$5 content
	content=$(management get "$resource" "capi-fleet-system-$name" --ignore-not-found --output=jsonpath="{.$field}") ||
		die "$kind capi-fleet-system-$name cannot be read"
	if [[ -z $content ]]; then
		management get "$resource" "$left-$name" --output=name >/dev/null || die "there is no $kind capi-fleet-system-$name"
		return
	fi
	apply <<<"{\"apiVersion\":\"$api_version\",\"kind\":\"$kind\",\"metadata\":{\"name\":\"$left-$name\"},\"$field\":$content}" || die "$kind $left-$name cannot be made"
}

# ------------------------------------------------------------------ each cluster

# hand_over does all for one registration, in a subshell. The variables that it sets
# are those of the cluster at hand.
hand_over() {
	namespace=${registration%%/*}
	name=${registration#*/}
	dir=$(mktemp -d "$scratch/XXXXXX") || refuse "no temporary folder"
	read_registration
	read_fleet_cluster
	if [[ $mode == fleet && $fleet_cluster_manager != capi-fleet ]]; then
		[[ -n $fleet_cluster_kubeconfig ]] ||
			refuse "Fleet Cluster $fleet_cluster_namespace/$fleet_cluster_name was taken from capi-fleet, but names no kubeconfig that Fleet could use"
		release
		echo "$registration: is Fleet's already"
		return
	fi
	[[ $fleet_cluster_manager == capi-fleet ]] ||
		refuse "Fleet Cluster $fleet_cluster_namespace/$fleet_cluster_name was taken from capi-fleet (label $management_label)"
	connect
	read_agent_secret
	if [[ $dry_run == true ]]; then
		echo "$registration: would be handed over"
		return
	fi
	case $mode in
	token)
		grant
		try_token
		push_token
		;;
	fleet)
		give_to_fleet
		;;
	esac
	release
	report
}

read_registration() {
	local fields deletion placement
	fields=$(management get "fleetregistrations.$group" "$name" --namespace="$namespace" --output=jsonpath='{.metadata.deletionTimestamp}
{.spec.registrationID}
{.spec.fleetCluster.namespace}
{.spec.fleetCluster.name}
{.status.namespace}
{.status.namespaceUID}
{.spec.agent.placement}{.status.agent.placement}
.') || refuse "the FleetRegistration cannot be read"
	{
		read -r deletion
		read -r id
		read -r fleet_cluster_namespace
		read -r fleet_cluster_name
		read -r cluster_namespace
		read -r cluster_namespace_uid
		read -r placement
	} <<<"$fields"
	[[ $placement != *Management* ]] ||
		refuse "its agent runs on the management cluster: let capi-fleet put it into the workload cluster first (spec.agent.placement of the policy)"
	[[ -z $deletion ]] || refuse "the FleetRegistration is being deleted: let capi-fleet finish that first"
	[[ -n $cluster_namespace && -n $cluster_namespace_uid ]] || refuse "it was never registered"
}

read_fleet_cluster() {
	local fields owner live_uid
	fields=$(management get clusters.fleet.cattle.io "$fleet_cluster_name" --namespace="$fleet_cluster_namespace" --output=jsonpath='{.metadata.uid}
{.metadata.annotations.fleet\.addons\.cluster\.x-k8s\.io/registration-id}
{.metadata.labels.fleet\.cattle\.io/cluster-management}
{.spec.kubeConfigSecret}
{.status.agentDeployedGeneration}
.') || refuse "Fleet Cluster $fleet_cluster_namespace/$fleet_cluster_name cannot be read"
	{
		read -r fleet_cluster_uid
		read -r owner
		read -r fleet_cluster_manager
		read -r fleet_cluster_kubeconfig
		read -r fleet_cluster_generation
	} <<<"$fields"
	[[ $owner == "$id" ]] || refuse "Fleet Cluster $fleet_cluster_namespace/$fleet_cluster_name is not this registration's"
	live_uid=$(management get namespace "$cluster_namespace" --output=jsonpath='{.metadata.uid}') ||
		refuse "namespace $cluster_namespace cannot be read"
	[[ $live_uid == "$cluster_namespace_uid" ]] || refuse "namespace $cluster_namespace was made anew: let capi-fleet put that right first"
}

# connect writes the kubeconfig of the workload cluster down. It belongs to the
# owner of the Cluster, and kubectl would run programs and read files that it names,
# some builds of it even for "config view". So it is first read as any other object.
connect() {
	local secret=$name-kubeconfig content suspect server answer
	content=$(management get secret "$secret" --namespace="$namespace" --output=jsonpath='{.data.value}') ||
		refuse "Secret $namespace/$secret cannot be read"
	base64 -d <<<"$content" >"$dir/raw" && read_as_object "$dir/raw" json >"$dir/given" && [[ -s $dir/given ]] ||
		refuse "Secret $namespace/$secret holds no kubeconfig"
	suspect=$(read_as_object "$dir/given" jsonpath='{.users[*].user.exec}{.users[*].user.auth-provider}{.users[*].user.tokenFile}
{.users[*].user.client-certificate}{.users[*].user.client-key}{.clusters[*].cluster.certificate-authority}{.clusters[*].cluster.proxy-url}
{.users[*].user.as}{.users[*].user.as-uid}{.users[*].user.as-groups}{.users[*].user.as-user-extra}') ||
		refuse "Secret $namespace/$secret holds no kubeconfig"
	[[ -z ${suspect//[[:space:]]/} ]] ||
		refuse "the kubeconfig in Secret $namespace/$secret names a program, a file, a proxy or a user to act as"
	kubectl config view --kubeconfig="$dir/given" --raw --minify >"$dir/workload" 2>/dev/null ||
		refuse "the kubeconfig in Secret $namespace/$secret has no context"
	server=$(read_as_object "$dir/workload" jsonpath='{.clusters[0].cluster.server}')
	[[ $server == https://* ]] || refuse "the kubeconfig in Secret $namespace/$secret has no https address"
	answer=$(workload get --raw=/version 2>&1) ||
		refuse "the workload cluster cannot be reached with Secret $namespace/$secret: $(printable <<<"$answer")"
}

# read_as_object prints a file that is the kubeconfig of nobody yet.
read_as_object() {
	kubectl patch --local --filename="$1" --type=merge --patch='{}' --output="$2" 2>/dev/null
}

# read_agent_secret reads what the agent has, and makes sure that it is this
# registration's.
read_agent_secret() {
	local fields owner pointed_at token_data
	fields=$(workload get secret "$agent_name" --namespace="$agent_namespace" --output=jsonpath='{.metadata.annotations.fleet\.addons\.cluster\.x-k8s\.io/registration-id}
{.metadata.annotations.fleet\.addons\.cluster\.x-k8s\.io/namespace-uid}
{.metadata.resourceVersion}
{.data.token}
{.data.kubeconfig}
.' 2>/dev/null) || refuse "the workload cluster has no Secret $agent_namespace/$agent_name, so no agent"
	{
		read -r owner
		read -r pointed_at
		read -r secret_version
		read -r token_data
		read -r agent_kubeconfig
	} <<<"$fields"
	[[ $owner == "$id" ]] || refuse "the agent in the workload cluster is not this registration's"
	# In a namespace that was made anew bundles may be missing, and an agent that could
	# see it would uninstall them.
	[[ $pointed_at == "$cluster_namespace_uid" ]] ||
		refuse "the agent has not been given the present namespace $cluster_namespace yet: let capi-fleet put that right first"
	old_token=$(base64 -d <<<"$token_data") && agent_kubeconfig=$(base64 -d <<<"$agent_kubeconfig") &&
		[[ $secret_version =~ ^[A-Za-z0-9-]+$ && $old_token =~ ^[A-Za-z0-9._-]+$ && $agent_kubeconfig == *"$old_token"* ]] ||
		refuse "Secret $agent_namespace/$agent_name in the workload cluster is not as capi-fleet made it"
}

# grant makes an account for the agent with the rights that it has now, and a token.
# All of it ends with the Fleet Cluster, as nobody is there any more to clean up:
# the account is in the cluster namespace, and the rest is owned by that namespace or
# by the Fleet Cluster. So none of it goes with the manager's namespace either.
grant() {
	apply <<-END || refuse "the agent's account and rights cannot be made"
		apiVersion: v1
		kind: List
		items:
		- apiVersion: v1
		  kind: ServiceAccount
		  metadata:
		    # The admission policy knows agents by names that begin with "cluster-".
		    name: $cluster_namespace
		    namespace: $cluster_namespace
		  automountServiceAccountToken: false
		- apiVersion: v1
		  kind: Secret
		  type: kubernetes.io/service-account-token
		  metadata:
		    name: $left-token
		    namespace: $cluster_namespace
		    annotations:
		      kubernetes.io/service-account.name: $cluster_namespace
		- apiVersion: rbac.authorization.k8s.io/v1
		  kind: RoleBinding
		  metadata:
		    name: $left-agent
		    namespace: $cluster_namespace
		  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $left-agent}
		  subjects: &account
		  - {kind: ServiceAccount, namespace: $cluster_namespace, name: $cluster_namespace}
		- apiVersion: rbac.authorization.k8s.io/v1
		  kind: ClusterRoleBinding
		  metadata:
		    name: $left-$cluster_namespace
		    ownerReferences:
		    - {apiVersion: v1, kind: Namespace, name: $cluster_namespace, uid: $cluster_namespace_uid}
		  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $left-agent-contents}
		  subjects: *account
		- apiVersion: rbac.authorization.k8s.io/v1
		  kind: Role
		  metadata: &status
		    name: $left-$cluster_namespace
		    namespace: $fleet_cluster_namespace
		    ownerReferences:
		    - {apiVersion: fleet.cattle.io/v1alpha1, kind: Cluster, name: $fleet_cluster_name, uid: $fleet_cluster_uid}
		  rules:
		  - {apiGroups: [fleet.cattle.io], resources: [clusters/status], resourceNames: [$fleet_cluster_name], verbs: [patch]}
		- apiVersion: rbac.authorization.k8s.io/v1
		  kind: RoleBinding
		  metadata: *status
		  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: $left-$cluster_namespace}
		  subjects: *account
	END
	eventually read_token || refuse "Secret $cluster_namespace/$left-token is not given a token"
}

read_token() {
	new_token=$(management get secret "$left-token" --namespace="$cluster_namespace" --output=jsonpath='{.data.token}' | base64 -d) &&
		[[ -n $new_token ]]
}

# try_token does with the new token what the agent will do.
try_token() {
	local cluster
	cluster=$(kubectl config view --minify --flatten --raw --output=jsonpath='{.clusters[0].cluster}') && [[ -n $cluster ]] ||
		refuse "kubectl has no kubeconfig from which the new token could be tried"
	cat >"$dir/agent" <<-END
		{"apiVersion":"v1","kind":"Config","current-context":"agent",
		"clusters":[{"name":"agent","cluster":$cluster}],
		"users":[{"name":"agent","user":{"token":"$new_token"}}],
		"contexts":[{"name":"agent","context":{"cluster":"agent","user":"agent"}}]}
	END
	eventually token_works || refuse "the management cluster does not accept the new token"
}

token_works() {
	as_agent get --raw="/apis/fleet.cattle.io/v1alpha1/namespaces/$cluster_namespace/bundledeployments?limit=1" >/dev/null 2>&1 &&
		as_agent auth can-i get contents.fleet.cattle.io/any --quiet 2>/dev/null &&
		as_agent auth can-i patch "clusters.fleet.cattle.io/$fleet_cluster_name" --subresource=status \
			--namespace="$fleet_cluster_namespace" --quiet 2>/dev/null
}

# push_token gives the agent the new token, both as the file that it reads again
# and again and in its kubeconfig. Nothing else changes, so it needs no restart.
push_token() {
	[[ $new_token != "$old_token" ]] || return 0
	# Neither token has a character that means something here.
	agent_kubeconfig=${agent_kubeconfig//$old_token/$new_token}
	cat >"$dir/patch" <<-END
		{"metadata":{"resourceVersion":"$secret_version"},
		"data":{"token":"$(printf %s "$new_token" | encode)","kubeconfig":"$(printf '%s\n' "$agent_kubeconfig" | encode)"}}
	END
	workload patch secret "$agent_name" --namespace="$agent_namespace" --type=merge --patch-file="$dir/patch" >/dev/null 2>&1 ||
		refuse "the token cannot be written to Secret $agent_namespace/$agent_name in the workload cluster"
}

# give_to_fleet tells Fleet how to reach the workload cluster, and then takes the
# label off that keeps Fleet from registering it. Another label takes its place:
# Fleet fills in no templates for a cluster without labels.
give_to_fleet() {
	local spec="\"kubeConfigSecret\":\"$name-kubeconfig\""
	if [[ $namespace != "$fleet_cluster_namespace" ]]; then
		spec+=",\"kubeConfigSecretNamespace\":\"$namespace\""
	fi
	# Where Fleet has registered the cluster once, it does so again only for a new
	# generation.
	if [[ -n $fleet_cluster_generation ]]; then
		spec+=",\"redeployAgentGeneration\":$((fleet_cluster_generation + 1))"
	fi
	patch_fleet_cluster "{\"spec\":{$spec}}"
	patch_fleet_cluster "{\"metadata\":{\"labels\":{\"$group/handed-over\":\"true\",\"$management_label\":null}}}"
}

patch_fleet_cluster() {
	management patch clusters.fleet.cattle.io "$fleet_cluster_name" --namespace="$fleet_cluster_namespace" \
		--type=merge --patch="$1" >/dev/null ||
		refuse "Fleet Cluster $fleet_cluster_namespace/$fleet_cluster_name cannot be changed"
}

# release takes our finalizer off, so that the registration can go without the
# manager, and nothing with it.
release() {
	local found index=0 present
	[[ $dry_run == false ]] || return 0
	present=$(management get "fleetregistrations.$group" "$name" --namespace="$namespace" --output=jsonpath='{.metadata.finalizers[*]}') ||
		refuse "the FleetRegistration cannot be read"
	for found in $present; do
		if [[ $found == "$finalizer" ]]; then
			management patch "fleetregistrations.$group" "$name" --namespace="$namespace" --type=json --patch="[
				{\"op\":\"test\",\"path\":\"/metadata/finalizers/$index\",\"value\":\"$finalizer\"},
				{\"op\":\"remove\",\"path\":\"/metadata/finalizers/$index\"}]" >/dev/null ||
				refuse "the finalizer cannot be taken off"
			return
		fi
		index=$((index + 1))
	done
}

report() {
	local until
	case $mode in
	token)
		echo "$registration: its agent has a token that does not end"
		until="until the agent uses its new token"
		stays ServiceAccount "$cluster_namespace/$cluster_namespace"
		stays Secret "$cluster_namespace/$left-token"
		stays RoleBinding "$cluster_namespace/$left-agent"
		stays ClusterRoleBinding "$left-$cluster_namespace"
		stays Role "$fleet_cluster_namespace/$left-$cluster_namespace"
		stays RoleBinding "$fleet_cluster_namespace/$left-$cluster_namespace"
		;;
	fleet)
		echo "$registration: Fleet registers it anew"
		until="until Fleet's own agent reports"
		;;
	esac
	stays "Fleet Cluster" "$fleet_cluster_namespace/$fleet_cluster_name"
	stays Namespace "$cluster_namespace"
	stays Cluster "$registration" "with its condition FleetRegistered"
	stays FleetRegistration "$registration" "until its CRD goes"
	stays ServiceAccount "$manager_namespace/$cluster_namespace" "needed $until"
	stays RoleBinding "$cluster_namespace/capi-fleet-agent" "needed $until"
	stays Role "$fleet_cluster_namespace/$cluster_namespace" "needed $until"
	stays RoleBinding "$fleet_cluster_namespace/$cluster_namespace" "needed $until"
}

stays() { echo "  stays: $1 $2${3:+ ($3)}"; }

# ------------------------------------------------------------------------- main

parse_arguments "$@"
check_tools
[[ $mode != fleet ]] || check_fleet
registrations=$(list_registrations) || die "FleetRegistrations cannot be listed"
if [[ -z $registrations ]]; then
	echo "There is no FleetRegistration: nothing is to be done."
	exit
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if [[ $dry_run == false ]]; then
	confirm "Stop capi-fleet in context $(kubectl config current-context) and hand over $(wc -w <<<"$registrations") clusters?"
fi
stop_manager
if [[ $mode == token && $dry_run == false ]]; then
	keep_shared
fi

failed=0
for registration in $registrations; do
	(hand_over) || failed=$((failed + 1))
done

if [[ $failed -gt 0 ]]; then
	echo "$failed of $(wc -w <<<"$registrations") clusters were left as they are. See above, and run this again." >&2
	exit 1
fi
if [[ $dry_run == false ]]; then
	echo "Wait until the agents use their new credential before you remove capi-fleet: see docs/operations/uninstall.md."
fi
