#!/bin/bash
# An allocator whose first block asks for files and sockets, before any constructor has run: the
# library finds libc's functions without allocating, or both would wait for each other for ever.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the sanitizers' runtimes have allocators of their own"
policy "earn_bytes 0" "earn_rounds 0"
SRC=$TOP/tests/apps/early
cc -O1 -w -fno-builtin -fPIC -shared -D_GNU_SOURCE -o "$TMP/liballocator.so" "$SRC/allocator.c" &&
	cc -O1 -D_GNU_SOURCE -o "$TMP/program" "$SRC/program.c" &&
	cc -O1 -D_GNU_SOURCE -o "$TMP/linked" "$SRC/program.c" -Wl,--no-as-needed -L"$TMP" \
		-lallocator -Wl,-rpath,"$TMP" || fail "cc"
timeout 20 "$TMP/linked" >"$TMP/bare.log" 2>&1 || fail "without the library: status $?"

begin_mode both
# one WHAT PROGRAM PRELOAD...
one() {
	local what=$1 program=$2
	shift 2
	shim_env
	env "${SHIM_ENV[@]}" LD_PRELOAD="$*" timeout 20 "$program" fast >"$TMP/$what.log" 2>&1 \
		3>&- ||
		fail "$what: status $?: $(<"$TMP/$what.log")"
	collect
	say "$what: $FAST bytes on a fast path"
}
one before "$TMP/program" "$TMP/liballocator.so:$SHIM"
one after "$TMP/program" "$SHIM:$TMP/liballocator.so"
one linked "$TMP/linked" "$SHIM"
jemalloc=$(ldconfig -p | awk '/libjemalloc.so.2 .*x86-64/ { print $NF; exit }')
[[ -z $jemalloc ]] || one jemalloc "$TMP/program" "$SHIM:$jemalloc"
