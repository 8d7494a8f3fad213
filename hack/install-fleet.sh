#!/usr/bin/env bash
# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs Fleet by its Helm charts into a cluster of kind, the name of which is the
# argument. kubectl must be set up for it.
set -euo pipefail

if [[ $# -ne 1 ]]; then
	echo "Usage: install-fleet.sh NAME-OF-THE-KIND-CLUSTER" >&2
	exit 2
fi
readonly node=$1-control-plane
readonly charts=https://rancher.github.io/fleet-helm-charts/
readonly version=0.15.0

# Agents in other containers find the API server at the node's address.
address=$(docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}}' "$node")
authority=$(mktemp)
trap 'rm -f "$authority"' EXIT
kubectl get configmap kube-root-ca.crt --namespace default --output=jsonpath='{.data.ca\.crt}' >"$authority"

helm upgrade --install fleet-crd fleet-crd --repo "$charts" --version "$version" \
	--namespace cattle-fleet-system --create-namespace --wait
helm upgrade --install fleet fleet --repo "$charts" --version "$version" \
	--namespace cattle-fleet-system --wait \
	--set apiServerURL="https://$address:6443" --set-file apiServerCA="$authority"
