#!/bin/bash
# build.sh BUILD: an RPM of BUILD/dist's tar, in BUILD/rpm. Elsewhere than on a system with RPM the
# packages that it wants are not looked for, and lib64 is said here. (make rpm)
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit 1
unset MAKEFLAGS MAKELEVEL LD_PRELOAD
top=$(cd "$1" && pwd)/rpm
rm -rf "$top" && mkdir -p "$top"/{SOURCES,SPECS,BUILD,RPMS,SRPMS} || exit 1
version=$(<VERSION)
cp "$1/dist/rdmashim-$version.tar.gz" "$top/SOURCES/" || exit 1
cp tools/packaging/rpm/rdmashim.spec "$top/SPECS/" || exit 1
with=(--define "_topdir $top" --define "own_version $version" --define "_dbpath $top/db")
command -v dnf zypper >/dev/null ||
	with+=(--nodeps --define '_prefix /usr' --define '_libdir /usr/lib64'
		--define '_bindir /usr/bin' --define '_datadir /usr/share')
rpmbuild -bb "${with[@]}" "$top/SPECS/rdmashim.spec" >"$top/log" 2>&1 || {
	tail -n 20 "$top/log"
	exit 1
}
find "$top/RPMS" -name '*.rpm'
