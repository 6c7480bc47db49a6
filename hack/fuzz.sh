#!/usr/bin/env bash
# Runs every fuzz test of the module for the given time each (default 10s). What
# makes one fail is left below its package's testdata/fuzz; commit it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
ran=0
while IFS=: read -r file name; do
	echo "--- $name ($file)"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$(dirname "$file")"
	ran=$((ran + 1))
done < <(git grep -oE "^func Fuzz[A-Za-z0-9_]+" -- "*_test.go" | sed "s/:func /:/")
[ "$ran" -gt 0 ] || { echo "fuzz.sh: no fuzz test was found" >&2; exit 1; }
# The corpora are seeds and past failures, so small ones.
large=$(find . -path '*/testdata/fuzz/*' -type f -size +16k)
[ -z "$large" ] || { echo "fuzz.sh: make these smaller: $large" >&2; exit 1; }
echo "$ran fuzz tests ran for $time each"
