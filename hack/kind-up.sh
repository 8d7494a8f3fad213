#!/usr/bin/env bash
# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes a management cluster with kind, for work on capi-fleet: Cluster API with its
# Docker provider, and Fleet. capi-fleet itself comes from "tilt up". See
# docs/development/tilt.md.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly name=${KIND_CLUSTER:-capi-fleet}
readonly cluster_api=v1.14.2

for tool in docker kind kubectl helm clusterctl; do
	command -v "$tool" >/dev/null || {
		echo "Error: $tool is not installed." >&2
		exit 1
	}
done

if ! kind get clusters | grep -qx "$name"; then
	# The Docker provider makes its machines through the socket.
	kind create cluster --name "$name" --config - <<-END
		kind: Cluster
		apiVersion: kind.x-k8s.io/v1alpha4
		nodes:
		- role: control-plane
		  extraMounts:
		  - {hostPath: /var/run/docker.sock, containerPath: /var/run/docker.sock}
	END
fi
kubectl config use-context "kind-$name"
if ! kubectl get namespace capi-system >/dev/null 2>&1; then
	CLUSTER_TOPOLOGY=true clusterctl init --wait-providers \
		--core "cluster-api:$cluster_api" --bootstrap "kubeadm:$cluster_api" \
		--control-plane "kubeadm:$cluster_api" --infrastructure "docker:$cluster_api"
fi
hack/install-fleet.sh "$name"
echo "Ready. Now run: tilt up"
