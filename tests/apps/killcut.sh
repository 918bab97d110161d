#!/bin/bash
# Peers are killed at any moment of rewinds and cuts, which come all the time: whoever reads gets
# bytes, the end or a reset, and never an error of sending.
#	killcut.sh [PEERS]
# TIMEOUT: 120
PEERS=${1:-500}
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}

job() {
	local port
	policy 'force_cut_every 1ms' 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	server "$B/apps/killcut" server "$port"
	wait_port "$port"
	client timeout 100 "$B/apps/killcut" client "$port" "$PEERS" 2>"$TMP/client.log" ||
		fail "client, status $?: $(cat "$TMP/client.log" "$TMP/server.log")"
	gone "$SRV" && fail "the server has ended: $(cat "$TMP/server.log")"
	stop "$SRV"
	echo right >"$OUT"
}
for_modes job 100000
