#!/bin/bash
# release.sh BUILD [SUITE...]: one set of binaries for glibc 2.28 and later, made in a root of
# Debian 11 (glibc 2.31), with rdmastat's libraries inside of it. Then what was made is run in the
# roots of the SUITEs (bullseye bookworm trixie sid) and here: unit tests, snippets, the tools, the
# demo. As root. BUILD/release/rdmashim-VERSION-linux-MACHINE.tar.gz has it. (make release)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tests/distro/lib.sh
unset MAKEFLAGS MAKELEVEL LD_PRELOAD
mkdir -p "$1/release" && B=$(cd "$1" && pwd) || exit 1
shift
O=$B/release ROOTS=$B/distro
OLDEST=2.28
log=$O/log

fail() {
	echo "release: $*"
	grep -E -A3 "error:|undefined reference|^FAIL" "$log" | head -n 40
	tail -n 8 "$log"
	exit 1
}
((!EUID)) || fail "a root of another Debian is made and entered by root"
suites=("$@")
(($#)) || suites=(bullseye bookworm trixie sid)

# ---- made in Debian 11
R=$ROOTS/bullseye
make_root "$ROOTS" bullseye "$log" || fail "no root of Debian 11"
copy_tree "$R" || fail "a copy of the tree"
git describe --always --dirty --abbrev=10 >"$R/src/COMMIT" 2>/dev/null
# Debian's libunwind.a is for programs at a fixed address.
static='-no-pie -Wl,-Bstatic -ljson-c -lncursesw -ltinfo -lunwind-ptrace -lunwind-generic'
static+=' -lunwind -llzma -lz -Wl,-Bdynamic -lm -ldl'
check='-Wl,-Bstatic -lcheck -lsubunit -Wl,-Bdynamic -lm -lrt -ldl'
programs=()
for f in tests/unit/test_*.c tests/snippets/{recv,send,poll,epoll,life}.c; do
	f=${f#tests/} && programs+=("build/${f%.c}")
done
within "$R" "touch .built && mkdir -p build && touch build/.deps-check &&
	nice make -j$(nproc) stat_libs='$static' check_libs='$check' all ${programs[*]}" \
	>"$log" 2>&1 || fail "it does not build"
made=("$R"/src/build/{librdmashim.so,rdmastat,rdmarun})

# ---- of no newer libc, and of nothing but libc
for f in "${made[@]}"; do
	newest=$(tests/distro/newest.sh "$f")
	[[ $(printf '%s\n' "$OLDEST" "$newest" | sort -V | tail -n 1) == "$OLDEST" ]] ||
		fail "${f##*/} wants glibc $newest"
	wants=$(objdump -p "$f" | awk '/NEEDED/ { print $2 }' |
		grep -vxE 'lib(c|m|dl|rt|pthread)\.so\.[0-9]|ld-linux.*' | tr '\n' ' ')
	[[ -z $wants ]] || fail "${f##*/} wants $wants"
	echo "${f##*/}: glibc $newest or later"
done

# ---- run
for s in "${suites[@]}"; do
	make_root "$ROOTS" "$s" "$log" || fail "no root of $s"
	r=$ROOTS/$s
	[[ $s == bullseye ]] || { copy_tree "$r" && mkdir -p "$r/src/build" &&
		tar -c -C "$R/src/build" --exclude=./o . | tar -x -C "$r/src/build"; } ||
		fail "a copy for $s"
	within "$r" "tests/distro/inside.sh" >"$log" 2>&1 || fail "in $s"
	echo "run in $s (glibc $(glibc "$r")): $(tail -n 1 "$log")"
done

# ---- packed
D=rdmashim-$(<VERSION)-linux-$(uname -m)
rm -rf "${O:?}/$D"
within "$R" "make -s install DESTDIR=/src/build/packed PREFIX= DATADIR=/share \
	stat_libs='$static'" >"$log" 2>&1 && mv "$R/src/build/packed" "$O/$D" || fail "install"
tools/tar.sh "$O" "$D" "$O/$D.tar.gz" || fail "tar"
rm -rf "${O:?}/$D" "$log"
echo "$O/$D.tar.gz"
