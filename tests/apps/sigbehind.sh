#!/bin/bash
# A library behind the library has a sigaction() of its own, which has a lock, and waits for a
# thread that installs a handler meanwhile: nothing hangs, and both handlers are there.
. "$(dirname "$0")/lib.sh"
[[ -z ${SAN-} ]] || skip "a sanitizer's runtime has a sigaction() of its own"
SRC=$TOP/tests/apps/sigbehind.c
cc -O1 -w -fPIC -shared -D_GNU_SOURCE -DBEHIND -o "$TMP/libbehind.so" "$SRC" -pthread -ldl &&
	cc -O1 -D_GNU_SOURCE -o "$TMP/sigbehind" "$SRC" || fail "cc"
job() {
	SHIM_ENV=(LD_PRELOAD="$TMP/libbehind.so")
	if [[ $MODE == both ]]; then
		shim_env
		SHIM_ENV[0]="LD_PRELOAD=$PRELOAD:$TMP/libbehind.so"
	fi
	env "${SHIM_ENV[@]}" timeout -s KILL 30 "$TMP/sigbehind" >"$OUT" 2>"$TMP/log" ||
		fail "status $?: $(cat "$TMP/log")"
}
MODES="bare${SHIM:+ both}" for_modes job none
