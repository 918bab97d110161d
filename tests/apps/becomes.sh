#!/bin/bash
# A program that becomes a daemon, or whose parent ends, goes on with its connection.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"

job() {
	local port how
	policy 'earn_bytes 0' 'earn_rounds 0'
	for how in daemon twice exit later; do
		free_port port
		server python3 "$TOP/tests/apps/asyncio-echo.py" server "$port"
		wait_port "$port"
		rm -f "$TMP/went"
		client "$B/apps/becomes" "$port" $how "$TMP/went" || fail "$how: status $?"
		within 25 test -s "$TMP/went" || fail "$how: it did not go on"
		cat "$TMP/went" >>"$OUT"
		stop "$SRV"
	done
	cat "$OUT"
}
for_modes job 10000
