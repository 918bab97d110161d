#!/bin/bash
# Round trips and streams of blocking sockets, every byte verified at both ends.
# TIMEOUT: 180
. "$(dirname "$0")/lib.sh"

job() {
	local port
	free_port port
	server "$B/bench/sockbench" -s "$port"
	wait_port "$port"
	client "$B/bench/sockbench" -c 127.0.0.1 "$port" -q -v >"$TMP/client.log" ||
		fail "client: $(cat "$TMP/client.log")"
	finish "$SRV" 10 || fail "server: $(cat "$TMP/server.log")"
	sed "s/^/${NAME}[$MODE]:   /" "$TMP/client.log"
	grep -qx 'bad_blocks 0 blocks' "$TMP/client.log" || fail "bad blocks"
	cut -d' ' -f1 "$TMP/client.log" >"$OUT"
}
for_modes job 10000000
