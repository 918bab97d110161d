#!/bin/bash
# TIMEOUT: 120
# Callers at a discovery port without the key, and such as have it and lie (tests/vm/rdma-caller.py,
# which vm/rdma-fallback runs on a kernel's device): none gets a link, the connection goes on by
# TCP.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0'
printf '0123456789abcdef\n' >"$TMP/key"
chmod 600 "$TMP/key"
sed -i "s,^rdma_networks .*,key_file $TMP/key,; s/^discovery .*/discovery 60s/" "$RDMASHIM_CONF"
DISCOVERY=$PORT
device profile=mlx5
free_port PORT
preloaded a "$B/apps/pattern" listen -n 1000000000000 -d down "$PORT" >"$TMP/server" 2>&1 &
SERVER=$!
PIDS+=("$SERVER")
within 20 listening "$PORT" || fail "no server: $(cat "$TMP/server")"
cd "$TOP" || exit 1
timeout 100 python3 -S -E tests/vm/rdma-caller.py 127.0.0.1 "$PORT" "$DISCOVERY" \
	0123456789abcdef 127.0.0.2 >"$TMP/caller" 2>&1 || fail "$(cat "$TMP/caller" "$TMP/log")"
cat "$TMP/caller"
wait "$SERVER"
rc=$?
((rc == 0 || rc == 3)) || fail "server: status $rc: $(cat "$TMP/server")"
grep -q "did not prove" "$TMP/log" || fail "no proof was refused: $(cat "$TMP/log")"
(($(paths_up) == 0)) || fail "a path for a stranger"
exit 0
