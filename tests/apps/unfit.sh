#!/bin/bash
# Files that do not fit, in LD_PRELOAD: what docs/limits.md says of them. The linker says that it
# ignores what it cannot open or what is for another machine, and the program runs; it starts none
# where the file wants a newer glibc, another library or a function that nobody has. By "$LIB" each
# program looks in the directory of its own libraries.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
T=$TMP/files
mkdir -p "$T/other"
cp "$SHIM" "$T/machine.so"
printf '\xb7\0' | dd of="$T/machine.so" bs=1 seek=18 conv=notrunc status=none	# AArch64
cp "$SHIM" "$T/class.so"
printf '\1' | dd of="$T/class.so" bs=1 seek=4 conv=notrunc status=none	# 32 bits
cp "$SHIM" "$T/unreadable.so"
chmod 000 "$T/unreadable.so"
head -c 4096 /dev/urandom >"$T/garbage.so"
build() { cc -shared -fPIC -nostdlib -x c -o "$@" - -x none "${MORE[@]}" || fail "cc"; }
MORE=("-Wl,-soname,libc.so.6" "-Wl,--version-script=$T/map")
echo 'GLIBC_9.99 { thing; };' >"$T/map"
echo 'void thing(void) { }' | build "$T/other/libc.so.6"
MORE=("$T/other/libc.so.6")
echo 'void thing(void); void user(void) { thing(); }' | build "$T/newer.so"
MORE=("-Wl,-soname,libnowhere.so")
echo 'void thing(void) { }' | build "$T/other/libnowhere.so"
MORE=("$T/other/libnowhere.so")
echo 'void thing(void); void user(void) { thing(); }' | build "$T/needs.so"
MORE=("-Wl,-z,now")
echo 'void thing(void); void user(void) { thing(); }' | build "$T/symbol.so"
chmod -R go+rX "$T"
chmod 000 "$T/unreadable.so"
as=()
((EUID)) || as=(setpriv --reuid=1001 --regid=1001 --clear-groups)
chmod 755 "$TMP"

# one NAME STATUS TEXT: what `true` ends with, and says
one() {
	local rc
	"${as[@]}" env LD_PRELOAD="$T/$1.so" /bin/true >"$TMP/said" 2>&1
	rc=$?
	((rc == $2)) || fail "$1: status $rc, not $2: $(<"$TMP/said")"
	grep -q "$3" "$TMP/said" || fail "$1: says $(<"$TMP/said")"
}
one absent 0 'ignored'
one unreadable 0 'ignored'
one garbage 0 'invalid ELF header.*ignored'
one machine 0 'ignored'
one class 0 'wrong ELF class.*ignored'
one newer 1 'GLIBC_9.99.* not found'
one needs 127 'libnowhere.so'
one symbol 127 'undefined symbol: thing'

for d in lib lib64 lib/x86_64-linux-gnu; do	# whichever of them $LIB is here
	mkdir -p "$T/$d"
	cp "$SHIM" "$T/$d/librdmashim.so"
done
LD_PRELOAD="$T/\$LIB/librdmashim.so" cat /proc/self/maps >"$TMP/maps" 2>"$TMP/said"
grep -q "$T/lib.*/librdmashim.so" "$TMP/maps" || fail "by \$LIB: $(<"$TMP/said")"
exit 0
