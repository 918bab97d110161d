#!/bin/bash
# Other Debians: in a root of each SUITE (bullseye bookworm trixie sid) the tree is built by its
# own compiler, of which a warning is an error, and its unit tests, a fixed set of snippets, the
# tools and the demo are run there. As root. (make check-distro T="SUITE...")
#	check.sh BUILD [SUITE...]	the roots stay in BUILD/distro
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/distro/lib.sh
unset MAKEFLAGS MAKELEVEL LD_PRELOAD
mkdir -p "$1/distro" && ROOTS=$(cd "$1/distro" && pwd) || exit 1
shift
((!EUID)) || { echo "check-distro: a root is made and entered by root"; exit 1; }
suites=("$@")
(($#)) || suites=(bullseye bookworm trixie sid)
programs=()
for f in tests/unit/test_*.c tests/snippets/{recv,send,poll,epoll,life}.c; do
	f=${f#tests/} && programs+=("build/${f%.c}")
done

# one SUITE: a line about it, or why not
one() {
	local log=$ROOTS/$1.log r=$ROOTS/$1
	make_root "$ROOTS" "$1" "$log" || { echo "$1: no root: $(tail -n 1 "$log")"; return 1; }
	copy_tree "$r" && rm -rf "$r/src/build" || return 1
	if ! within "$r" "mkdir build && touch build/.deps-check &&
		nice make -j$(nproc) all ${programs[*]}" >"$log" 2>&1; then
		echo "$1: it does not build: $(grep -E -m3 'error:|undefined' "$log")"
		return 1
	fi
	if ! within "$r" tests/distro/inside.sh >"$log" 2>&1; then
		echo "$1: $(grep -E '^FAIL|^[0-9]+ passed' "$log")"
		return 1
	fi
	echo "$1: glibc $(glibc "$r"), gcc $(within "$r" 'gcc -dumpfullversion'):" \
		"$(tail -n 1 "$log")"
}
rc=0
for s in "${suites[@]}"; do one "$s" || rc=1; done
exit $rc
