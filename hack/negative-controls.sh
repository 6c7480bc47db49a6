#!/usr/bin/env bash
# Shows that the demo can fail. Builds of it with one part of the product
# disabled must fail in the step that needs this part, for the reason that this
# part prevents; the build with nothing disabled must pass.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bound=45s

# demo TAG: builds and plays; the output is in $out/TAG.
demo() {
	go build -tags "$1" -o "$out/demo" ./hack/demo
	"$out/demo" -bound "$bound" -log "$out/$1.log" >"$out/$1" 2>&1
}

# must_fail TAG STEP REASON
must_fail() {
	local tag=$1 step=$2 reason=$3 start=$SECONDS
	if demo "$tag"; then
		echo "$tag: the demo passes although it must not; its output:" >&2
		cat "$out/$tag" >&2
		exit 1
	fi
	if ! grep -Eq "FAILED in step $step: .*$reason" "$out/$tag"; then
		echo "$tag: the demo doesn't fail in step $step because of \"$reason\"; its output and the end of its log:" >&2
		cat "$out/$tag" >&2
		tail -n 50 "$out/$tag.log" >&2
		exit 1
	fi
	echo "ok   $tag: fails in step $step ($((SECONDS - start)) s)"
	grep -Eo "FAILED in step $step: .*" "$out/$tag" | sed 's/^/       /'
}

start=$SECONDS
if ! demo none; then
	echo "nothing disabled: the demo fails; its output and the end of its log:" >&2
	cat "$out/none" >&2
	tail -n 50 "$out/none.log" >&2
	exit 1
fi
echo "ok   nothing disabled: passes ($((SECONDS - start)) s)"

# The leave call of rdma_cm.
must_fail fault_noleave pod-end "in the fabric node-1 is still a member"
# The agent's read of the group past its cache, before a first join.
must_fail fault_noliveget stale-cache "a group that is gone was joined"
# The controller's wait for the nodes before it lets a group go.
must_fail fault_nofinalizerwait group-deletion "the group is gone from the API while the fabric has members"
# The agent's joining again, once a subnet manager has thrown its members out.
must_fail fault_norejoin failover "the pod was told that it has joined"
