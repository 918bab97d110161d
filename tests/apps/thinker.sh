#!/bin/bash
# A server that wants the fast path at once, and a client that takes a second over its third
# request: the client's socket says only from the second request on that the library is there,
# after the server's first look at it. They find each other all the same.
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
cp "$TOP/tests/apps/thinker.py" "$TOP/tests/apps/echo.py" "$TMP"
MODES=both
begin_mode both
free_port port
policy 'earn_bytes 0' 'earn_rounds 0'
server python3 -S "$TMP/thinker.py" server "$port"
wait_port "$port" 40
CONF=$TMP/client.conf
policy
start client "$TMP/client.log" python3 -S "$TMP/thinker.py" client "$port" "$TMP/go" "$TMP/stop"
CLIENT=$PID
are() {
	took=$(python3 -S -E "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" 2 20 "$1") ||
		fail "$took"
}
are "c['tx_path'] == c['rx_path'] == 'tcp'"
sleep 1	# the thinking: ten times as long as a server looks for an end that says nothing
: >"$TMP/go"
are "c['tx_path'] == c['rx_path'] == 'shm'"
: >"$TMP/stop"
finish "$CLIENT" 15 || fail "client: $(cat "$TMP/client.log")"
finish "$SRV" 15 || fail "server: $(cat "$TMP/server.log")"
