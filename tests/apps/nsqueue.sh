#!/bin/bash
# Between network namespaces: a program that asks for stamps, or for MSG_ZEROCOPY's notices, when
# its connection has long been upgraded gets of them what it gets without the library, and nothing
# else.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../hostile/netns.bash"
. "$(dirname "$0")/../hostile/across.bash"
networks_for "$(dirname "$0")/nsqueue.py"
for way in option message zerocopy; do
	for mode in none shim; do
		begin_mode "$way-$mode"
		across 'earn_share off'
		serves "$mode" python3 "$TMP/nsqueue.py" server "$port"
		run_with "$mode" nsenter -t "$N_A" -n python3 "$TMP/nsqueue.py" client \
			10.96.0.1 23081 "$way" >"$TMP/client.$mode" 2>&1 ||
			fail "client: $(cat "$TMP/client.$mode")"
		finish "$server" 15 || fail "server: $(cat "$TMP/server.log")"
	done
	collect
	say "$(cat "$TMP/client.shim"); $FAST bytes on a fast path, on TCP because: $REASONS"
	cmp "$TMP/client.none" "$TMP/client.shim" || fail "$(cat "$TMP/client.none") without it"
	((FAST > 5000)) || fail "not upgraded"
done
exit 0
