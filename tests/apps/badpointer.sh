#!/bin/bash
# Bad pointers in send, recv and the like answer as on the kernel alone, and lose no byte; see
# badpointer.c.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
V=$B/apps/badpointer

begin_mode bare
echo go | "$V" >"$TMP/bare.out" || fail "on the kernel alone: status $?"

begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
mkfifo "$TMP/fifo"
exec 9<>"$TMP/fifo"
start shim "$TMP/both.out" sh -c "exec \"$V\" <\"$TMP/fifo\""
within 10 grep -q port "$TMP/both.out" || fail "it does not start"
port=$(awk '/^port/ { print $2 }' "$TMP/both.out")
took=$(python3 "$TOP/tests/apps/live.py" "$B/rdmastat" "$STAT" "$port" 2 10 \
	"c['tx_path'] == c['rx_path'] == 'shm'") || fail "not on a fast path: $took"
echo go >&9
finish "$PID" 20 || fail "status $?, after: $(tail -n 2 "$TMP/both.out")"
grep -q '^done' "$TMP/both.out" || fail "ended early"
collect
diff <(grep -v ^port "$TMP/bare.out") <(grep -v ^port "$TMP/both.out") ||
	fail "differs from the kernel alone (<)"
say "$(grep -c : "$TMP/both.out") calls, $FAST bytes on a fast path"
((FAST > 10000)) || fail "hardly a byte on a fast path"
