#!/bin/bash
# Each call that takes a pointer, with each kind of bad one: its error, and the bytes that come
# after it, are as on the kernel alone, and the connection is still fast. Where libc crashes by
# itself the library need not.
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
policy "earn_bytes 0" "earn_rounds 0"

begin_mode bare
timeout 60 "$B/apps/pointers" >"$TMP/bare.out" || fail "on the kernel alone: status $?"
begin_mode both
run_with shim timeout 120 "$B/apps/pointers" fast >"$TMP/both.out" 2>"$TMP/both.log" </dev/null
status=$?
lines() { grep -v ^port "$1" | grep -vFf <(sed -n 's/: crashed.*/:/p' "$TMP/bare.out"); }
diff <(lines "$TMP/bare.out") <(lines "$TMP/both.out") || fail "differs from the kernel alone (<)"
((status == 0)) || fail "status $status: $(<"$TMP/both.log")"
collect
say "$(lines "$TMP/both.out" | wc -l) calls, $FAST bytes on a fast path"
((FAST > 100000)) || fail "hardly a byte on a fast path"
