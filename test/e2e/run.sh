#!/usr/bin/env bash
# Plays the scenarios of test/e2e in the virtual machine of hack/vm, and prints
# a line for each. Results, logs of every program and the machine's console are
# left in the folder OUT.
#
#   test/e2e/run.sh OUT [-test.run=TestCluster/NAME]
#
# E2E_TAGS are build tags of the project's programs: with fault_noleave, say,
# scenarios must fail.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: run.sh OUT [TEST FLAGS...]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$1"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$root"

E2E_ROOT=$root
E2E_KUBERNETES=$(hack/kubernetes/build.sh etcd kube-apiserver kubectl kubelet kube-scheduler kube-controller-manager)
E2E_CONTAINERD=$(hack/containerd/build.sh)
E2E_PROGRAMS=$out/programs
export E2E_ROOT E2E_KUBERNETES E2E_CONTAINERD E2E_PROGRAMS
mkdir -p "$E2E_PROGRAMS"
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -tags "${E2E_TAGS:-}" -o "$E2E_PROGRAMS/" ./cmd/...
CGO_ENABLED=0 go test -c -tags realkernel -o "$E2E_PROGRAMS/e2e.test" ./test/e2e
gcc -O2 -Wall -Wextra -static -o "$E2E_PROGRAMS/pod" test/e2e/pod/pod.c
gcc -O2 -Wall -Wextra -o "$E2E_PROGRAMS/receiver" test/receiver/receiver.c -libverbs
for program in mckey bridge rdma runc; do
	command -v $program >/dev/null || {
		echo "run.sh: no $program: apt-get install rdmacm-utils iproute2 ibverbs-providers runc" >&2
		exit 1
	}
done

status=0
VM_OUT=$out/machine VM_MEMORY=${VM_MEMORY:-6G} VM_TIMEOUT=${VM_TIMEOUT:-2400} \
	hack/vm/run "$E2E_PROGRAMS/e2e.test" -test.v=test2json -test.timeout=38m "$@" |
	tee >(sed -u 's,\x16,,g' >&2) | go tool test2json -t -p e2e >"$out/results.json" || status=$?
[ $# -eq 0 ] || exit $status # some scenarios alone
go run ./hack/report -list test/e2e/scenarios.txt "$out/results.json"
exit $status
