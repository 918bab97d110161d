#!/bin/bash
# Somebody who gets a connection (a child, or one to whom it is passed) begins to send on it, or
# ends it, whose bytes are on the path still, since its peer, of another user and honest, stands
# still for longer than he is waited for.
#	overtakes.sh [HOW...]
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "not root: no other user can be had"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow"
cp "$TOP/tests/hostile/overtakes.py" "$TMP"
chmod 755 "$TMP"

# scene HOW: of overtakes.py
scene() {
	local fast=('earn_bytes 0' 'earn_rounds 0' 'spin 0') server go=$TMP/go.$1
	begin_mode both
	shim_env
	policy "${fast[@]}" 'peer_users 31337'
	printf '%s\n' "${fast[@]}" 'peer_users 0' >"$TMP/theirs.conf"
	mkdir -m 777 "$TMP/theirs.$1"
	free_port port
	start none "$TMP/server.log" setpriv --reuid 31337 --regid 31337 --clear-groups \
		env "${SHIM_ENV[@]}" RDMASHIM_CONF="$TMP/theirs.conf" RDMASHIM_LOG_LEVEL=0 \
		RDMASHIM_STAT_DIR="$TMP/theirs.$1/d" \
		python3 -S -E "$TMP/overtakes.py" server "$port" "$go" "$1"
	server=$PID
	wait_port "$port"
	run_with shim timeout 40 python3 -S -E "$TMP/overtakes.py" client "$port" "$server" \
		"$go" "$1" >"$TMP/client.log" 2>&1 || fail "the client: $(cat "$TMP/client.log")"
	within 10 gone "$server" || fail "the server waits: $(cat "$TMP/server.log")"
	collect
	((FAST > 100000)) || fail "hardly a byte on a fast path"
	grep -qE '^(reset|in order)$' "$TMP/server.log" || fail "$1: $(cat "$TMP/server.log")"
	[[ $1 != becomes ]] || grep -q '^in order$' "$TMP/server.log" ||
		fail "$1: $(cat "$TMP/server.log")"
	say "$1: he has it after $(cat "$TMP/client.log"), $(cat "$TMP/server.log")"
}

(($#)) || set -- sends half looks ends becomes received
for how; do
	scene "$how"
done
exit 0
