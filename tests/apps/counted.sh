#!/bin/bash
# What poll() shows as readable is counted by FIONREAD and TCP_INQ, in the middle of rewinds, too,
# while bytes from before the cut are under way.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 1ms'
MODES=${MODES/ client server/}
job() {
	local port
	free_port port
	server "$B/apps/counted" server "$port"
	wait_port "$port"
	client timeout 60 "$B/apps/counted" client "$port" 300 >"$OUT" || fail "status $?"
	stop "$SRV"
	cat "$OUT"
}
for_modes job 100000
