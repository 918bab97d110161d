#!/bin/bash
# Between network namespaces, and PID namespaces: a peer that has closed its half, lives on and does
# not read before the connection goes back to TCP is not taken for one that ends. All bytes arrive,
# both ways, and there is no reset.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../hostile/netns.bash"
. "$(dirname "$0")/../hostile/across.bash"
networks_for "$(dirname "$0")/nshalf.py"
apart=(unshare --pid --fork --mount-proc)
for how in 'overflow 10ms' 'overflow 500ms'; do
	begin_mode "${how// /-}"
	across 'earn_share off' "$how"
	serves shim "${apart[@]}" python3 "$TMP/nshalf.py" server "$port"
	run_with shim nsenter -t "$N_A" -n "${apart[@]}" python3 "$TMP/nshalf.py" client \
		10.96.0.1 23081 >"$TMP/client.log" 2>&1 || fail "client: $(cat "$TMP/client.log")"
	finish "$server" 15 || fail "server: $(cat "$TMP/server.log")"
	mapfile -t right < <(sed -n 's/^right //p' "$TMP/client.log")
	grep -qx "read ${right[0]}" "$TMP/server.log" || fail "server: $(cat "$TMP/server.log")"
	for line in "answer ${right[1]}" 'error 0'; do
		grep -qx "$line" "$TMP/client.log" || fail "client: $(cat "$TMP/client.log")"
	done
	collect
	say "$FAST bytes on a fast path, on TCP because: $REASONS"
	((FAST > 5000)) || fail "not upgraded"
done
exit 0
