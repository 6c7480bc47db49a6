#!/usr/bin/env bash
# Lints everything with golangci-lint, and api/ with kube-api-linter as well.
# The suites of the real kernel, behind a build tag, are linted too.
set -euo pipefail
cd "$(dirname "$0")/.."
lint=$(hack/tools/build.sh golangci-lint-kube-api-linter)/golangci-lint-kube-api-linter
unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	echo "lint.sh: not formatted, run gofmt -w on:" >&2
	echo "$unformatted" >&2
	exit 1
fi
"$lint" run --allow-parallel-runners --config .golangci.yml
"$lint" run --allow-parallel-runners --config .golangci-kal.yml ./api/...
