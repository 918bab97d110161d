#!/bin/bash
# gRPC, C core under Python: HTTP/2 frames by its own edge-triggered event engine with many
# threads, one connection for all calls.
. "$(dirname "$0")/lib.sh"
PAIR=(/usr/bin/python3 "$TOP/tests/apps/grpc-pair.py")
/usr/bin/python3 -c 'import grpc' 2>/dev/null || skip "no python3-grpcio"

job() {
	local port
	free_port port
	server "${PAIR[@]}" server "$port"
	wait_port "$port"
	client timeout 100 "${PAIR[@]}" client "$port" >>"$OUT" 2>"$TMP/client.log" ||
		fail "client: $(tail -n 5 "$TMP/client.log")"
	stop "$SRV"
}
for_modes job 1000000
