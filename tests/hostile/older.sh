#!/bin/bash
# Older kernels, by a filter that answers ENOSYS to the newer calls that the library makes: each of
# them, and all together, as Linux 4.18 does. All bytes are right, and the connections reach the
# fast path all the same.
#	older.sh [CALL...]
# TIMEOUT: 600
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "the runtimes make calls of their own"
P=$B/apps/pattern F=$B/hostile/refuse
[[ -x $P && -x $F ]] || fail "not built"
"$F" all true || { (($? == 77)) && skip "no seccomp here"; fail "refuse"; }
! "$F" pidfd_open python3 -S -E -c 'import os; os.pidfd_open(os.getpid())' 2>"$TMP/refused" ||
	fail "a call that is refused works"
grep -q "not implemented" "$TMP/refused" || fail "not ENOSYS: $(<"$TMP/refused")"
mapfile -t calls < <("$F" list)
((${#calls[@]} > 3)) || fail "no newer calls?"

begin_mode both
# dialogue WHICH: two pairs of programs, by waits of two kinds, under the filter
dialogue() {
	local how port c
	policy 'earn_bytes 100K' 'earn_rounds 100000'
	rm -rf "$STAT" && mkdir -m 700 "$STAT"
	for how in block edge; do
		free_port port
		server "$F" "$1" "$P" listen -w $how -d up -n 8000000 "$port"
		wait_port "$port"
		start client "$TMP/client.log" "$F" "$1" "$P" connect -w $how -d up -n 8000000 \
			127.0.0.1 "$port"
		c=$PID
		finish "$c" 30 || fail "$1, client $how: $(<"$TMP/client.log")"
		finish "$SRV" 30 || fail "$1, server $how: $(<"$TMP/server.log")"
	done
	collect
	say "$1: $FAST of $((TX_ALL + RX_ALL)) bytes on a fast path; $REASONS"
	((FAST > 0))
}
(($#)) || set -- "${calls[@]}" all
for call; do
	# They end sooner on a busy machine than the two find each other.
	dialogue "$call" || dialogue "$call" || dialogue "$call" ||
		fail "$call: no fast path without it"
done
