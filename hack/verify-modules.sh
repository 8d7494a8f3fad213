#!/usr/bin/env bash
# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# Fails with a diff if go.mod or go.sum of any module here is not tidy.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
while read -r file; do
	dir=$(dirname "$file")
	if ! go -C "$dir" mod tidy -diff; then
		echo "Module in $dir is not tidy: run 'go mod tidy' there." >&2
		failed=1
	fi
done < <(find . -name go.mod -not -path './.*' | sort)
exit "$failed"
