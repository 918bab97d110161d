#!/bin/bash
# Python asyncio: an echo server and 500 clients at once, every byte verified.
# TIMEOUT: 180
. "$(dirname "$0")/lib.sh"

job() {
	local port
	free_port port
	server python3 "$TOP/tests/apps/asyncio-echo.py" server "$port"
	wait_port "$port"
	client timeout 100 python3 "$TOP/tests/apps/asyncio-echo.py" client "$port" 500 20 \
		0 >"$OUT" 2>"$TMP/client.log" ||
		fail "clients: $(tail "$TMP/client.log")"
	stop "$SRV"
	grep -v -e KeyboardInterrupt "$TMP/server.log" | grep -i -e error -e traceback &&
		fail "the server saw errors"
	true
}
for_modes job 1000000
