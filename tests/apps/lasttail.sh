#!/bin/bash
# A client that closes after its last answer while the server still sends: whoever reads then
# finds the end, or a reset, as with TCP.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
MODES=${MODES/ client server/}

job() {
	local port
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	server "$B/apps/lasttail" server "$port"
	wait_port "$port"
	client timeout 60 "$B/apps/lasttail" client "$port" 10000 2>"$TMP/client.log" ||
		fail "client, status $?: $(cat "$TMP/client.log" "$TMP/server.log")"
	gone "$SRV" && fail "the server has ended: $(cat "$TMP/server.log")"
	stop "$SRV"
	echo right >"$OUT"
}
for_modes job 100000
