#!/usr/bin/env bash
# Prints the folder of the kernel that the VM boots: boot/vmlinuz-VERSION and
# lib/modules/VERSION in it. Debian's own (what linux-image-amd64 depends on;
# the cloud flavour has no Soft-RoCE) is fetched once and unpacked into the
# cache folder; nothing is installed, no root is needed, and later runs need no
# network. KERNEL=suite:NAME fetches another suite's, KERNEL=DIR picks a tree.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
die() { echo "hack/vm: $*" >&2; exit 1; }

# check DIR: is it a kernel tree, with its modules' index?
check() {
	local images=("$1"/boot/vmlinuz-*)
	[ -e "${images[0]}" ] || die "no boot/vmlinuz-* in $1; KERNEL is to name a folder as dpkg -x of a linux-image package makes it"
	[ ${#images[@]} -eq 1 ] || die "more than one boot/vmlinuz-* in $1; KERNEL is to name a folder with one kernel"
	local version=${images[0]##*/vmlinuz-}
	[ -d "$1/lib/modules/$version" ] || die "no lib/modules/$version in $1; KERNEL is to name a folder with the kernel's modules too"
	[ -e "$1/lib/modules/$version/modules.dep.bin" ] || depmod -b "$1" "$version" ||
		die "no modules.dep in $1/lib/modules/$version and it can't be written: run depmod -b $1 $version"
}

# lists SUITE DIR: apt's lists of another suite of Debian, apart from the
# machine's own, from where that gets Debian.
lists() {
	local site keys=
	site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' | head -1)
	[ -n "$site" ] || die "apt knows no Debian to fetch the suite $1 from: set KERNEL to a kernel tree"
	[ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ] || keys="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
	mkdir -p "$2/lists/partial"
	echo "deb $keys$site $1 main" >"$2/sources.list"
	apt+=(-o "Dir::Etc::SourceList=$2/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$2/lists" -o "Dir::Cache=$2")
	apt-get "${apt[@]}" -qq update >&2 || die "no suite $1 at $site"
}

# fetch CACHE SUITE: the newest kernel into CACHE, "" of the machine's own suites.
fetch() {
	local cache=$1 package new
	[ "$(uname -m)" = x86_64 ] || die "only amd64 kernels are fetched; set KERNEL to a kernel tree"
	command -v apt-get >/dev/null || die "no Debian to fetch a kernel with (apt-get); set KERNEL to a kernel tree"
	new=$(mktemp -d "$cache/.linux.XXXXXX")
	trap "rm -rf '$new'" EXIT
	apt=(-o APT::Sandbox::User=root)
	[ -z "$2" ] || lists "$2" "$new"
	package=$(apt-cache "${apt[@]}" depends --no-recommends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -1)
	[ -n "$package" ] || die "apt knows no linux-image-amd64: run apt-get update, or set KERNEL to a kernel tree"
	echo "fetching $package, once (kept in $cache) ..." >&2
	(cd "$new" && apt-get -qq "${apt[@]}" download "$package" >&2) ||
		die "apt-get download $package failed: run apt-get update, or set KERNEL to a kernel tree"
	dpkg -x "$new"/*.deb "$new/tree"
	# Later Debian unpacks modules below /usr.
	[ -d "$new/tree/lib/modules" ] || ln -s usr/lib "$new/tree/lib"
	chmod 755 "$new/tree"
	tree=$cache/linux-${package#linux-image-}
	check "$new/tree"
	mv -T "$new/tree" "$tree" 2>/dev/null || [ -d "$tree" ] # another run may have been first
}

suite=
case ${KERNEL:-} in
'') cache=$("$here/../cache-dir.sh") ;;
suite:*)
	suite=${KERNEL#suite:}
	[[ $suite =~ ^[a-z][a-z-]*$ ]] || die "KERNEL=$KERNEL: no name of a suite"
	cache=$("$here/../cache-dir.sh")/$suite
	;;
*)
	tree=$(cd "$KERNEL" && pwd) || die "KERNEL=$KERNEL is not a folder"
	check "$tree"
	echo "$tree"
	exit
	;;
esac
mkdir -p "$cache"
tree=$(find "$cache" -maxdepth 1 -name 'linux-*' | sort -V | tail -1)
[ -n "$tree" ] || fetch "$cache" "$suite"
check "$tree"
echo "$tree"
