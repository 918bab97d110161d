# lib.sh - roots of other Debians, made and entered by root; sourced. Those of DIR stay there.
# shellcheck shell=bash

# What builds the tree and its unit tests, what these and the demo run. nettle-dev: the library's
# own package has a version in its name.
ROOT_PACKAGES='gcc,make,pkg-config,libc6-dev,libibverbs-dev,librdmacm-dev,libjson-c-dev,'
ROOT_PACKAGES+='libncurses-dev,libunwind-dev,liblzma-dev,zlib1g-dev,systemtap-sdt-dev,check,'
ROOT_PACKAGES+='libsubunit-dev,procps,python3,iproute2,git,redis-server,redis-tools,nettle-dev'

# make_root DIR SUITE LOG: DIR/SUITE, unless it is there.
make_root() {
	local r=$1/$2
	[[ ! -e $r.made ]] || return 0
	rm -rf "$r" && mkdir -p "$1" || return 1
	mmdebstrap --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
		 --include="$ROOT_PACKAGES" "$2" "$r" >"$3" 2>&1 &&
		touch "$r.made"
}

# copy_tree ROOT: this tree, at /src there; what was built there before stays, for make to judge.
copy_tree() {
	mkdir -p "$1/src" && find "$1/src" -mindepth 1 -maxdepth 1 ! -name build \
		-exec rm -rf {} + &&
		tar -c --exclude=./build --exclude=./.git . | tar -x -C "$1/src"
}

# within ROOT COMMAND: in the root's /src, with processes of its own, which all end with it, and
# this machine's devices.
within() {
	R=$1 unshare -mpf --kill-child --propagation private bash -c '
		mount -t proc proc "$R/proc" && mount -t sysfs -o ro sys "$R/sys" &&
		mount --rbind /dev "$R/dev" && mount -t tmpfs tmp "$R/tmp" &&
		mount -t tmpfs run "$R/run" &&
		exec chroot "$R" /bin/bash -c "cd /src && $1"' bash "$2"
}

# glibc ROOT: its version there.
glibc() { within "$1" 'ldd --version' | sed -n '1s/.* //p'; }
