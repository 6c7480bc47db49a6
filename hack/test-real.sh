#!/usr/bin/env bash
# Everything that needs real parts: the simulated subnet manager's answers
# compared with OpenSM's, what hack/vm promises, the suite of rdma/ on a real
# kernel in the virtual machine, compared with what its simulation ran, then the
# whole path under a real Kubernetes. Ends with one line per scenario, and fails
# unless each one of the checked-in lists ran and passed. Results and logs are
# left in the folder OUT.
#
#   hack/test-real.sh OUT
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: test-real.sh OUT" >&2; exit 2; }
cd "$(dirname "$0")/.."
rm -rf "$1"
mkdir -p "$1/rdma"
out=$(cd "$1" && pwd)
status=0

echo "--- the simulated subnet manager and OpenSM"
test/opensm/run.sh "$out/opensm" || status=1

echo "--- the virtual machine is what the suites take it for"
CGO_ENABLED=0 go test -count=1 -tags realkernel ./hack/vm || status=1

echo "--- rdma/ on a real kernel"
export RECEIVER=$out/receiver RDMAMC=$out/rdmamc
gcc -O2 -Wall -Wextra -o "$RECEIVER" test/receiver/receiver.c -libverbs
CGO_ENABLED=0 go build -trimpath -o "$RDMAMC" ./cmd/rdmamc
CGO_ENABLED=0 go test -c -tags realkernel -o "$out/rdma.test" ./rdma/realkernel
(cd rdma/realkernel &&
	VM_OUT=$out/rdma VM_TIMEOUT=${VM_TIMEOUT:-900} CONFORMANCE_OUT=$out/rdma/conformance.txt \
		../../hack/vm/run "$out/rdma.test" -test.v=test2json -test.timeout=14m) |
	tee >(tr -d '\026' >&2) | go tool test2json -t -p realkernel >"$out/rdma.json" || status=1

echo "--- the same scenarios on the simulated kernel"
CONFORMANCE_OUT=$out/simulated.txt CGO_ENABLED=0 go test -count=1 -run Conformance ./rdma/rdmatest || status=1
go run ./hack/conformance -only hack/conformance/only.txt "$out/simulated.txt" "$out/rdma/conformance.txt" || status=1

echo "--- the whole path under a real Kubernetes"
test/e2e/run.sh "$out/e2e" || status=1

echo "--- scenarios"
cat rdma/realkernel/scenarios.txt test/e2e/scenarios.txt test/opensm/scenarios.txt >"$out/scenarios.txt"
go run ./hack/report -list "$out/scenarios.txt" "$out/rdma.json" "$out/e2e/results.json" "$out/opensm/results.json" || status=1
exit $status
