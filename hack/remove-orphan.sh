#!/usr/bin/env bash
# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# Removes an orphan: a Fleet Cluster of capi-fleet whose registration is gone, with the
# agent's account and rights. Needs kubectl, with an admin's rights on the management
# cluster. See docs/operations/orphans.md.
set -euo pipefail

prefix=fleet.addons.cluster.x-k8s.io
silence=3600
check_agent=yes
ask=yes

usage() {
	cat <<END
Usage: $(basename "$0") [options] NAMESPACE NAME

Removes the Fleet Cluster NAME in NAMESPACE, which must have the label
$prefix/orphan, and the account and the rights of its agent.

An agent that is still connected sees its bundles go with the Fleet Cluster, and
uninstalls what they deployed. So this fails while the agent reports.

Options:
  --silent-for SECONDS  how long the agent must have been silent (default $silence)
  --skip-agent-check    remove it although the agent may be connected
  --yes                 do not ask
  --help                show this
END
}

fail() {
	echo "$*" >&2
	exit 1
}

while [[ ${1:-} == -* ]]; do
	case $1 in
	--silent-for)
		[[ ${2:-} =~ ^[0-9]{1,9}$ ]] || fail "--silent-for needs a number of seconds"
		silence=$((10#$2))
		shift
		;;
	--skip-agent-check) check_agent=no ;;
	--yes) ask=no ;;
	--help)
		usage
		exit
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
	shift
done
if (($# != 2)); then
	usage >&2
	exit 2
fi
namespace=$1
name=$2

# field prints a field of an object; nothing where either is missing.
field() {
	local path=$1
	shift
	kubectl get --ignore-not-found "$@" --output "jsonpath={$path}"
}

fleet_cluster=(clusters.fleet.cattle.io "$name" --namespace "$namespace")
escaped=${prefix//./\\.}
id_path=".metadata.annotations.$escaped/registration-id"

# check fails unless the Fleet Cluster is an orphan of ours that can be removed.
check() {
	local label value owner
	value=$(field .metadata.name "${fleet_cluster[@]}")
	[[ -n $value ]] || fail "There is no Fleet Cluster $namespace/$name."
	id=$(field "$id_path" "${fleet_cluster[@]}")
	label=$(field '.metadata.labels.fleet\.cattle\.io/cluster-management' "${fleet_cluster[@]}")
	[[ $label == capi-fleet && -n $id ]] || fail "Fleet Cluster $namespace/$name is not of capi-fleet."
	label=$(field ".metadata.labels.$escaped/orphan" "${fleet_cluster[@]}")
	[[ $label == true ]] || fail "Fleet Cluster $namespace/$name has no label $prefix/orphan=true: it has a registration, or the manager has not looked yet."
	# It can be in another namespace than its Fleet Cluster.
	value=$(kubectl get "fleetregistrations.$prefix" --all-namespaces --output \
		"jsonpath={range .items[?(@.spec.registrationID==\"$id\")]}{.metadata.namespace}/{.metadata.name}{end}")
	[[ -z $value ]] || fail "Fleet Cluster $namespace/$name belongs to FleetRegistration $value."

	# Fleet deletes whatever namespace is named there.
	cluster_namespace=$(field .status.namespace "${fleet_cluster[@]}")
	if [[ -n $cluster_namespace ]]; then
		value=$(field .metadata.name namespace "$cluster_namespace")
		owner=$(field "$id_path" namespace "$cluster_namespace")
		[[ -z $value || $owner == "$id" ]] || fail "Fleet Cluster $namespace/$name names namespace $cluster_namespace, which is not its own. Fleet would delete that."
	fi
	[[ $check_agent == no ]] || check_agent
}

# check_agent fails unless the agent has been silent for long enough.
check_agent() {
	local seen limit
	seen=$(field .status.agent.lastSeen "${fleet_cluster[@]}")
	[[ -n $seen ]] || return 0
	# The first form is GNU's, the second BSD's.
	limit=$(($(date +%s) - silence))
	limit=$(date -u -d "@$limit" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -r "$limit" +%Y-%m-%dT%H:%M:%SZ)
	if [[ ! $seen =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$ || $seen > $limit ]]; then
		fail "The agent of Fleet Cluster $namespace/$name reported at $seen, which is not $silence seconds ago or more.
It would uninstall everything that Fleet deployed there. Stop it first: see docs/operations/orphans.md.
If this does no harm, use --skip-agent-check."
	fi
}

# ours prints namespace and name of the objects of a kind that bear the registration's
# ID and the name of its cluster namespace.
ours() {
	[[ -n $cluster_namespace ]] || return 0
	kubectl get "$@" --field-selector "metadata.name=$cluster_namespace" --output \
		"jsonpath={range .items[?(@$id_path==\"$id\")]}{.metadata.namespace}{\" \"}{.metadata.name}{\"\\n\"}{end}"
}

# each runs a function, with the kind and an object's namespace and name, for all that
# ours printed.
each() {
	local where object
	while read -r where object; do
		[[ -z $object ]] || "$1" "$2" "$where" "$object"
	done <<<"$3"
}
show() { echo "  $1 $2/$3"; }
delete() { kubectl delete "$1" "$3" --namespace "$2" --ignore-not-found; }

check
# The manager may run in a namespace of another name, so all are looked at.
deployments=$(ours deployments.apps --all-namespaces)
policies=$(ours networkpolicies.networking.k8s.io --all-namespaces)
secrets=$(ours secrets --all-namespaces)
accounts=$(ours serviceaccounts --all-namespaces)
bindings=$(ours rolebindings --namespace "$namespace")
roles=$(ours roles --namespace "$namespace")

echo "This will be removed:"
each show Deployment "$deployments"
each show NetworkPolicy "$policies"
each show Secret "$secrets"
each show ServiceAccount "$accounts"
each show RoleBinding "$bindings"
each show Role "$roles"
echo "  Fleet Cluster $namespace/$name"
if [[ -n $cluster_namespace ]]; then
	bundles=$(kubectl get bundledeployments.fleet.cattle.io --namespace "$cluster_namespace" --output name | wc -l)
	echo "  namespace $cluster_namespace with $((bundles)) BundleDeployments, by Fleet"
fi
if [[ $check_agent == no ]]; then
	echo "An agent that is connected to it uninstalls what these deployed."
fi
if [[ $ask == yes ]]; then
	read -r -p "Remove it? [y/N] " answer || true
	[[ ${answer:-} == [yY] ]] || fail "Nothing was removed."
	check # Time has passed.
fi

each delete deployment "$deployments"
each delete networkpolicy "$policies"
each delete secret "$secrets"
each delete serviceaccount "$accounts"
each delete rolebinding "$bindings"
each delete role "$roles"
kubectl delete "${fleet_cluster[@]}" --ignore-not-found
