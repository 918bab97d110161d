#!/bin/bash
# sysroot.sh DIR: Debian's headers and libraries for 64-bit ARM, unpacked in DIR, once; nothing of
# them is run to install them. SUITE: bookworm.
S=$1
[[ ! -e $S/usr/include/check.h ]] || exit 0
rm -rf "$S"
packages=libc6-dev,libjson-c-dev,libibverbs-dev,librdmacm-dev,libunwind-dev,libncurses-dev
packages+=,systemtap-sdt-dev,check,libgcc-s1,nettle-dev
log=$(mktemp)
trap 'rm -f "$log"' EXIT
mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$packages" \
	"${SUITE:-bookworm}" "$S" >"$log" 2>&1 || { tail -n 3 "$log"; exit 1; }
# What a link names by its whole path is not this machine's.
for l in "$S"/usr/lib/aarch64-linux-gnu/*.so; do
	to=$(readlink "$l") && [[ $to == /* ]] && ln -sf "../../..$to" "$l"
done
exit 0
