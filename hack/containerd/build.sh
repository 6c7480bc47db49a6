#!/usr/bin/env bash
# Builds containerd, its runc shim, ctr and the CNI plugins of the real-kernel
# tests from Go modules into the cache folder, once per version, and prints
# the folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^[[:space:]]*github.com\/containerd\/containerd\/v2 \(v[0-9.]*\).*/\1/p' "$here/go.mod" | head -1)
[ -n "$version" ] || { echo "build.sh: no containerd version in $here/go.mod" >&2; exit 1; }
out=$("$here/../cache-dir.sh")/containerd-$version
mkdir -p "$out"
for package in \
	github.com/containerd/containerd/v2/cmd/containerd \
	github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 \
	github.com/containerd/containerd/v2/cmd/ctr \
	github.com/containernetworking/plugins/plugins/main/macvlan \
	github.com/containernetworking/plugins/plugins/main/loopback \
	github.com/containernetworking/plugins/plugins/ipam/host-local; do
	name=${package##*/}
	[ -x "$out/$name" ] && continue
	echo "building $name, once (kept in $out) ..." >&2
	start=$(date +%s)
	(cd "$here" && CGO_ENABLED=0 go build -trimpath -tags "no_btrfs no_zfs no_devmapper" \
		-ldflags "-s -w" -o "$out/.$name.$$" "$package")
	mv "$out/.$name.$$" "$out/$name"
	echo "built $name in $(($(date +%s) - start)) s" >&2
done
echo "$out"
