#!/usr/bin/env bash
# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# Fails if a Go file does not begin with the licence header. Only build
# constraints may stand before it.
set -euo pipefail
cd "$(dirname "$0")/.."

header=$(<hack/boilerplate.go.txt)
lines=$(wc -l <hack/boilerplate.go.txt)
failed=0
while read -r file; do
	begin=$(sed -e '/^\/\/go:build /d' -e '/./,$!d' "$file" | sed -n "1,${lines}p")
	if [[ $begin != "$header" ]]; then
		echo "$file does not begin with hack/boilerplate.go.txt." >&2
		failed=1
	fi
done < <(find . -name '*.go' -not -path './.*' | sort)
exit "$failed"
