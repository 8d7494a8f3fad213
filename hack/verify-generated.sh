#!/usr/bin/env bash
# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# Generates all generated files in place and fails with a diff if that changed
# one. It compares with the files as they were and not with git, so that work
# which is not committed yet can be checked as well.
set -euo pipefail
cd "$(dirname "$0")/.."

before=$(mktemp -d)
after=$(mktemp -d)
trap 'rm -rf "$before" "$after"' EXIT

snapshot() {
	find api internal controllers config/crd/bases config/rbac/role.yaml docs/reference \
		\( -name 'zz_generated*' -o -path 'config/*' -o -path 'docs/*' \) -type f -exec cp --parents -t "$1" {} +
}

snapshot "$before"
"${MAKE:-make}" --no-print-directory generate
snapshot "$after"

if ! diff -ruN "$before" "$after"; then
	echo "Generated files were stale: commit what 'make generate' wrote." >&2
	exit 1
fi
