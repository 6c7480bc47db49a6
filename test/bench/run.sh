#!/usr/bin/env bash
# Measures in the virtual machine of hack/vm and prints a table; bench.json,
# logs and the machine's console are left in the folder OUT.
#
#   test/bench/run.sh OUT [FLAGS...]      flags: see test/bench/main.go
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: run.sh OUT [FLAGS...]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$1"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$root"

KUBEBUILDER_ASSETS=$(hack/kubernetes/build.sh etcd kube-apiserver kubectl)
export KUBEBUILDER_ASSETS
mkdir -p "$out/programs"
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$out/programs/" ./cmd/agent ./cmd/controller ./test/bench
for program in loop many; do
	gcc -O2 -Wall -Wextra -o "$out/programs/$program" "test/bench/reference/$program.c" -lrdmacm -libverbs
done

VM_OUT=$out/machine VM_MEMORY=${VM_MEMORY:-6G} VM_TIMEOUT=${VM_TIMEOUT:-1500} \
	hack/vm/run "$out/programs/bench" -root "$root" -out "$out/machine" \
	-reference "$out/programs" -programs "$out/programs" \
	-host-spin "$("$out/programs/bench" -spin)ns" "$@"
mv "$out/machine/bench.json" "$out/bench.json"
