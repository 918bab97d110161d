#!/bin/bash
# A child begins to send on a connection whose bytes are on the path still, since its peer, of
# another user and honest, stands still for longer than he is waited for.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "not root: no other user can be had"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow"
MODE=both
begin_mode both
fast=('earn_bytes 0' 'earn_rounds 0' 'spin 0')
policy "${fast[@]}" 'peer_users 31337'
printf '%s\n' "${fast[@]}" 'peer_users 0' >"$TMP/theirs.conf"
cp "$TOP/tests/hostile/overtakes.py" "$TMP"
chmod 755 "$TMP"
mkdir -m 777 "$TMP/theirs"
free_port port
shim_env
start none "$TMP/server.log" setpriv --reuid 31337 --regid 31337 --clear-groups \
	env "${SHIM_ENV[@]}" RDMASHIM_CONF="$TMP/theirs.conf" RDMASHIM_LOG_LEVEL=0 \
	RDMASHIM_STAT_DIR="$TMP/theirs/d" \
	python3 -S -E "$TMP/overtakes.py" server "$port" "$TMP/go"
server=$PID
wait_port "$port"
run_with shim timeout 40 python3 -S -E "$TMP/overtakes.py" client "$port" "$server" "$TMP/go" \
	>"$TMP/client.log" 2>&1 || fail "the client: $(cat "$TMP/client.log")"
within 10 gone "$server" || fail "the server waits: $(cat "$TMP/server.log")"
collect
((FAST > 100000)) || fail "hardly a byte on a fast path"
grep -qE '^(reset|in order)$' "$TMP/server.log" || fail "$(cat "$TMP/server.log")"
say "the child starts after $(cat "$TMP/client.log"), $(cat "$TMP/server.log")"
