#!/usr/bin/env bash
# Regenerates and lints, and fails when the checkout then differs from what is
# committed.
set -euo pipefail
cd "$(dirname "$0")/.."
hack/generate.sh
hack/lint.sh
git diff --exit-code || {
	echo "verify.sh: the files above differ from what is committed: run 'make generate' and commit them" >&2
	exit 1
}
untracked=$(git ls-files --others --exclude-standard -- api config docs/reference)
[ -z "$untracked" ] || { echo "verify.sh: not committed: $untracked" >&2; exit 1; }
