#!/bin/bash
# A peer is killed with bytes on the fast path, and somebody who knows nothing of that holds its
# socket: a reset, of which whoever reads hears as of TCP's.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
MODES=both
on_path() { collect && ((FAST > 1000000)); }

for ((i = 0; i < 3; i++)); do
	begin_mode both
	STAT=$TMP/stat.$i
	mkdir -p -m 700 "$STAT"
	policy 'earn_bytes 0' 'earn_rounds 0' 'overflow 10s'	# a full ring stays full
	free_port port
	server "$B/apps/leftbehind" server "$port"
	wait_port "$port"
	start client "$TMP/client.log" "$B/apps/leftbehind" client "$port" "$TMP/stop.$i"
	CLIENT=$PID
	within 10 on_path || fail "nothing is on the fast path: $REASONS"
	touch "$TMP/stop.$i"
	finish "$SRV" 15 || fail "the server: $(cat "$TMP/server.log" "$TMP/client.log")"
	wait "$CLIENT"
	(($? == 137)) || fail "the client: $(cat "$TMP/client.log")"
	grep -q 'reset by peer' "$TMP/server.log" || fail "no reset: $(cat "$TMP/server.log")"
	say "$FAST bytes on a fast path"
done
exit 0
