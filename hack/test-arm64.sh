#!/usr/bin/env bash
# The tests of rdma/ as arm64 runs them: the layout of the kernel's structs
# first of all, and everything against the simulated kernel. On another
# architecture QEMU's user emulation runs them.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOARCH=arm64 CGO_ENABLED=0

# What takes system calls that the emulation doesn't pass on (namespace ioctls,
# NETLINK_USERSOCK, multicast by interface index), or starts itself as a program.
untranslated=(
	TestIGMPOfThisMachine
	TestMainNoticesLeaks
	TestOpenNetNSRefusesOtherFiles
	TestOwnNamespaceByPath
	TestWatchEndsWithItsError
	TestWatchListensToItsSenderAlone
	TestWatchOfAClosedNamespace
	TestWatchOverflow
	TestWatchTellsOnceUntilReceivedFrom
)
for test in "${untranslated[@]}"; do
	git grep -q "^func $test(" -- 'rdma/*_test.go' || { echo "test-arm64.sh: there is no $test" >&2; exit 1; }
done

run=()
if [ "$(uname -m)" != aarch64 ]; then
	emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || {
		echo "test-arm64.sh: no QEMU for arm64 programs: apt-get install --no-install-recommends qemu-user-static" >&2
		exit 1
	}
	run=(-exec "$emulator" -skip "^($(IFS='|'; echo "${untranslated[*]}"))\$")
fi
go vet -tags realkernel ./rdma/...
go test -count=1 "${run[@]}" ./rdma/...
