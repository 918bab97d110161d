#!/bin/bash
# A server starts programs that inherit its connections, so that these must be on TCP first. A peer
# of another user, who is let in, never answers: hostile/peer promised-fallback.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -x $B/hostile/peer ]] || fail "no $B/hostile/peer"
((EUID == 0)) || skip "not root: no other user can be had"
MODE=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0' 'peer_users 31337'
free_port port
export VICTIM_SPAWNS=1
start shim "$TMP/echo.log" "$B/hostile/victim" echo "$port"
echo_pid=$PID
wait_port "$port"
timeout 50 "$B/hostile/peer" call "$port" "$echo_pid" promised-fallback 3>&- ||
	fail "programs start late"
kill -TERM "$echo_pid"
within 10 gone "$echo_pid" || fail "the victim does not end"
wait "$echo_pid" || fail "the victim: $(tail -n 5 "$TMP/echo.log")"
