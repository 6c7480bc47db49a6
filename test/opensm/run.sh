#!/usr/bin/env bash
# Compares the simulated subnet manager's answers with those of OpenSM on a
# subnet that ibsim simulates, all in user space, and prints a line for each
# scenario. Results and the programs' logs are left in the folder OUT.
#
#   test/opensm/run.sh OUT [-test.run=TestOpenSM/NAME]
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: run.sh OUT [TEST FLAGS...]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$1"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$root"

export PATH=$PATH:/usr/sbin
umad2sim=$(find /usr/lib -name libumad2sim.so -print -quit 2>/dev/null || true)
if [ -z "$umad2sim" ] || ! command -v ibsim >/dev/null || ! command -v opensm >/dev/null ||
	[ ! -e /usr/include/infiniband/umad_sa_mcm.h ]; then
	echo "run.sh: apt-get install gcc libc6-dev opensm ibsim-utils libibumad-dev" >&2
	exit 1
fi
gcc -O2 -Wall -Wextra -o "$out/saclient" test/opensm/saclient.c -libumad
CGO_ENABLED=0 go test -c -tags opensm -o "$out/opensm.test" ./rdma/rdmatest/internal/sa/opensm

export OPENSM_CLIENT=$out/saclient OPENSM_OUT=$out OPENSM_UMAD2SIM=$umad2sim
export OPENSM_NET=$root/test/opensm/subnet.net OPENSM_PARTITIONS=$root/test/opensm/partitions.conf
status=0
"$out/opensm.test" -test.v=test2json -test.timeout=5m "$@" |
	tee >(tr -d '\026' >&2) | go tool test2json -t -p opensm >"$out/results.json" || status=$?
rm -rf "$out"/sys-* # of libumad2sim.so in programs that were stopped
[ $# -eq 0 ] || exit $status # some scenarios alone
go run ./hack/report -list test/opensm/scenarios.txt "$out/results.json"
exit $status
