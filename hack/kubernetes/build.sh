#!/usr/bin/env bash
# Builds Kubernetes programs (and etcd) from Go modules into the cache folder,
# once per version, and prints the folder. What is there already is not built
# again.
#
#   build.sh etcd kube-apiserver kubectl
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^[[:space:]]*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$here/go.mod" | head -1)
[ -n "$version" ] || { echo "build.sh: no k8s.io/kubernetes version in $here/go.mod" >&2; exit 1; }
out=$("$here/../cache-dir.sh")/kubernetes-$version
mkdir -p "$out"
minor=${version#v1.}; minor=${minor%%.*}
v=k8s.io/component-base/version
ldflags="-s -w -X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=$minor -X $v.gitTreeState=clean"
for name in "$@"; do
	[ -x "$out/$name" ] && continue
	case $name in
	etcd) package=go.etcd.io/etcd/server/v3 ;;
	*) package=k8s.io/kubernetes/cmd/$name ;;
	esac
	echo "building $name $version, once (kept in $out) ..." >&2
	start=$(date +%s)
	(cd "$here" && CGO_ENABLED=0 go build -trimpath -ldflags "$ldflags" -o "$out/.$name.$$" "$package")
	mv "$out/.$name.$$" "$out/$name"
	echo "built $name in $(($(date +%s) - start)) s" >&2
done
echo "$out"
