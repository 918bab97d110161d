#!/bin/bash
# A listener that removes connections from its epoll instance and hands them over to threads, who
# add them again or close them: no event may come of one that was removed. What a real server of
# that kind is: Apache's event MPM.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"

job() {
	local port
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	server "$B/apps/handover" serve "$port"
	wait_port "$port"
	client timeout 40 "$B/apps/handover" ask "$port" 3 2>"$TMP/client.log" ||
		fail "client, status $?: $(cat "$TMP/client.log" "$TMP/server.log")"
	gone "$SRV" && fail "the server has ended: $(cat "$TMP/server.log")"
	say "$(cat "$TMP/client.log")"
	echo right >"$OUT"
	stop "$SRV"
}
for_modes job 100000
