#!/bin/bash
# A half-closed connection that is bound to a link only after its shutdown(): the other direction
# is cut over and falls back again and again, and its end is an end, never a reset.
. "$(dirname "$0")/lib.sh"
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 1ms'
MODES=${MODES/ client server/}
job() {
	free_port port
	server "$B/apps/shutfirst" server "$port"
	wait_port "$port"
	client timeout 60 "$B/apps/shutfirst" client "$port" 500 >"$OUT" 2>"$TMP/client.log" ||
		fail "$(cat "$OUT" "$TMP/client.log" | tail -n 5)"
	kill "$SRV"
	wait "$SRV" 2>/dev/null
	true
}
for_modes job
