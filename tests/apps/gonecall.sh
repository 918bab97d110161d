#!/bin/bash
# A thread that is cancelled inside recv() or write(), or leaves from a signal handler there, is
# not counted as one that is inside for ever: the connection is upgraded as any other.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
mkfifo "$TMP/fifo"
exec 9<>"$TMP/fifo"
for what in recv send exit; do
	begin_mode both
	start shim "$TMP/$what.out" sh -c "exec \"$B/apps/gonecall\" $what <\"$TMP/fifo\""
	within 10 grep -q port "$TMP/$what.out" || fail "$what: it does not start"
	port=$(awk '/^port/ { print $2 }' "$TMP/$what.out")
	took=$(python3 "$TOP/tests/apps/live.py" "$B/rdmastat" "$STAT" "$port" 2 10 \
		"c['tx_path'] == c['rx_path'] == 'shm'") || fail "$what: not on a fast path: $took"
	echo go >&9
	finish "$PID" 20 || fail "$what: status $?: $(cat "$TMP/$what.out")"
	grep -q '^done' "$TMP/$what.out" || fail "$what: ended early"
	say "$what: on a fast path after it"
done
