#!/bin/bash
# What is counted as sent and received, by path, is what the programs sent and received: also where
# a full ring falls back and its bytes are sent once more, by TCP.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}

# The counts of both ends against the programs' own.
check() {
	local sum
	balanced "$1"
	sum=$(($(awk '{ s += $2 } END { print s }' "$TMP/client.log" "$TMP/server.log")))
	((TX_ALL == sum)) || fail "$1: counted as sent: $TX_ALL, the programs sent $sum"
	sum=$(($(awk '{ s += $4 } END { print s }' "$TMP/client.log" "$TMP/server.log")))
	((RX_ALL == sum)) || fail "$1: counted as received: $RX_ALL, the programs received $sum"
}

run() {
	local what=$1 port
	shift
	policy "$@"
	free_port port
	server /usr/bin/python3 "$TOP/tests/apps/counts.py" server "$port"
	wait_port "$port"
	client timeout 60 /usr/bin/python3 "$TOP/tests/apps/counts.py" client \
		"$port" >"$TMP/client.log" 2>&1 ||
		fail "$what: $(cat "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 20 || fail "$what: $(cat "$TMP/server.log")"
	cat "$TMP/client.log" "$TMP/server.log" >>"$OUT"
	[[ $MODE == both ]] || return 0
	collect
	say "$what: $FAST bytes on a fast path, $CUTS cuts, $REWINDS rewinds, $OVERFLOWS overflows"
	((REWINDS > 0)) || fail "$what: nothing fell back"
	check "$what"
}

job() {
	run "a reader that pauses" 'earn_bytes 0' 'earn_rounds 0'
	run "forced cuts" 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 1ms'
}
for_modes job none
