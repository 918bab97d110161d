#!/bin/bash
# Connections that have moved 1 MB each and then rest give the memory of their rings back after
# `ring_idle`, and are upgraded still: what they carry then is right, too.
#	idlerings.sh [CONNECTIONS [IDLE]]	500, 1s
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
N=${1:-500} IDLE=${2:-1s}
MODES=both
ulimit -n "$(ulimit -Hn)" 2>/dev/null
(($(ulimit -n) >= N + N / 4 + 200)) || skip "only $(ulimit -n) file descriptors"

pss() {
	awk '/^Pss:/ { sum += $2 } END { print sum }' "/proc/$SRV/smaps_rollup" \
		"/proc/$CLIENT/smaps_rollup"
}
told() { grep -q "$1" "$TMP/client.log"; }
rounds() {
	total=$((total + $1))
	echo "$1" >"$TMP/fifo"
	within 100 told "done $total" ||
		fail "$total rounds: $(cat "$TMP/client.log" "$TMP/server.log")"
}
at_most() { (($(pss) <= $1)); }
on_shm() {
	took=$(python3 "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" $((2 * N)) "$1" \
		"c['tx_path'] == c['rx_path'] == 'shm'")
}

begin_mode both
policy "ring_idle $IDLE" 'earn_rounds 1' 'log_level 2'
total=0
free_port port
mkfifo "$TMP/fifo"
server "$B/apps/idlerings" server "$port"
wait_port "$port"
start client "$TMP/client.log" "$B/apps/idlerings" client "$port" "$N" 64 "$TMP/fifo"
CLIENT=$PID
within 60 told connected || fail "not connected: $(cat "$TMP/client.log")"
rounds 3
before=$(pss)
rounds 8
on_shm 10 || fail "$took"
full=$(pss)
((full >= N * 400)) || fail "the rings have only $full KiB (Pss), so there is nothing to give back"
# 20 KiB for each connection, counters, cursors and all, and what two processes have anyway
since=$SECONDS
within 60 at_most $((N * 20 + 12000)) || fail "of $full KiB (Pss) they still have $(pss)"
say "$N connections: $before KiB (Pss of both ends) after 3 rounds, $full after 11," \
	"$(pss) when $((SECONDS - since)) s idle"
on_shm 5 || fail "after the rest: $took"
rounds 2
on_shm 5 || fail "used again: $took"
echo quit >"$TMP/fifo"
finish "$CLIENT" 20 || fail "client: $(cat "$TMP/client.log")"
stop "$SRV"
