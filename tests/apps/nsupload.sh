#!/bin/bash
# Between network namespaces: an end that only reads is found, all the same, and every byte is
# right; also if it says a word meanwhile, or forks.
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../hostile/netns.bash"
. "$(dirname "$0")/../hostile/across.bash"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow"
networks_for "$(dirname "$0")/nsupload.py"

# upload HOW SIZE PAUSE SECONDS
upload() {
	begin_mode "$1-$2"
	across 'earn_share off'
	serves shim python3 "$TMP/nsupload.py" server "$port" "$1"
	run_with shim nsenter -t "$N_A" -n python3 "$TMP/nsupload.py" client 10.96.0.1 23081 \
		"${@:2}" >"$TMP/client.log" 2>&1 || fail "client: $(cat "$TMP/client.log")"
	finish "$server" 15 || fail "server: $(cat "$TMP/server.log")"
	cmp "$TMP/client.log" "$TMP/server.log" ||
		fail "$(cat "$TMP/client.log" "$TMP/server.log")"
	collect
	say "$FAST of $TX_ALL+$RX_ALL bytes on a fast path, on TCP because: $REASONS"
	[[ $1 == fork ]] || ((FAST * 2 > TX_ALL + RX_ALL)) || fail "not upgraded"
	[[ -z $(ls -A "$DIR") ]] || fail "left in the directory: $(ls -A "$DIR")"
}
upload silent 65536 0 2
upload silent 16384 0.0005 3
upload silent 1000 0.001 3
upload late 1000 0.001 3
upload fork 1000 0.001 3
exit 0
