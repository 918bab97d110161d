#!/bin/bash
# A connection is cut over while TCP is full, because its reader stops again and again: whoever
# waits for room then, in whatever way, gets it when the reader goes on.
. "$(dirname "$0")/lib.sh"
P=$B/apps/pattern

job() {
	local how port client n
	policy 'earn_bytes 2M' 'earn_rounds 1000000'
	for how in block poll oneshot edge edge edge short; do
		free_port port
		server "$P" listen -w $how -d up -n 60000000 "$port"
		wait_port "$port"
		start client "$TMP/client.log" "$P" connect -w $how -d up -n 60000000 127.0.0.1 \
			"$port"
		client=$PID
		for ((n = 0; n < 40; n++)); do
			kill -STOP "$SRV" && sleep 0.03 && kill -CONT "$SRV" && sleep 0.005 || break
		done 2>/dev/null
		finish "$client" 20 || fail "client $how: $(cat "$TMP/client.log")"
		finish "$SRV" 20 || fail "server $how: $(cat "$TMP/server.log")"
		{ echo "$how"; cat "$TMP/client.log" "$TMP/server.log"; } >>"$OUT"
	done
}
MODES=bare${SHIM:+ both}
for_modes job 1000000
