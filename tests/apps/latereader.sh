#!/bin/bash
# A reader that rests again and again, longer than `overflow`, and always comes back: after its
# first rest the sender waits for it, and nearly all goes by the ring. Senders that block, and
# such as poll.
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}

late() {
	local port
	free_port port
	server /usr/bin/python3 "$TOP/tests/apps/latereader.py" server "$port" "$1"
	wait_port "$port"
	client /usr/bin/python3 "$TOP/tests/apps/latereader.py" client "$port" "$1" \
		>"$TMP/client.log" 2>&1 ||
		fail "$(cat "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 15 || fail "server: $(cat "$TMP/server.log")"
	cat "$TMP/client.log" >>"$OUT"
	[[ $MODE == both ]] || return 0
	collect
	say "$1: $TX_FAST of $TX_ALL bytes sent on a fast path, $OVERFLOWS overflows"
	balanced "a late reader, $1"
	((10 * TX_FAST >= 9 * TX_ALL)) || { say "$1: more than a tenth went by TCP"; return 1; }
}

# (The rests of a reader that has no processor when they end are longer than any before.)
job() { best_of 4 late block; best_of 4 late poll; }
for_modes job none
