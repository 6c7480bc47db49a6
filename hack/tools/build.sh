#!/usr/bin/env bash
# Builds the pinned tools into the cache folder, once per state of go.mod, and
# prints the folder. Without names: all of them.
#
#   build.sh controller-gen
#
# golangci-lint-kube-api-linter is golangci-lint with kube-api-linter in it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$("$here/../cache-dir.sh")/tools-$(cat "$here/go.mod" "$here/go.sum" | sha256sum | cut -c1-12)
mkdir -p "$out"
[ $# -gt 0 ] || set -- controller-gen golangci-lint-kube-api-linter
for name in "$@"; do
	[ -x "$out/$name" ] && continue
	case $name in
	controller-gen) package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
	golangci-lint-kube-api-linter) package=sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter ;;
	*) echo "build.sh: no tool $name here" >&2; exit 1 ;;
	esac
	echo "building $name, once (kept in $out) ..." >&2
	start=$(date +%s)
	(cd "$here" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$out/.$name.$$" "$package")
	mv "$out/.$name.$$" "$out/$name"
	echo "built $name in $(($(date +%s) - start)) s" >&2
done
echo "$out"
