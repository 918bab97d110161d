#!/bin/bash
# A server whose descriptors are used up: the socket that proves another connection's end cannot
# be handed to it. That connection stays on TCP; those that are on the fast path stay there.
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
cp "$TOP/tests/apps/full-table.py" "$TOP/tests/apps/echo.py" "$TMP"
MODES=both
begin_mode both
free_port port
# no number is taken for a moment while the server takes all
policy 'earn_bytes 0' 'earn_rounds 0' 'watch_after 60s'
server prlimit --nofile=64 python3 -S "$TMP/full-table.py" server "$port"
wait_port "$port" 40
start client "$TMP/client.log" python3 -S "$TMP/full-table.py" client "$port" "$TMP/go"
CLIENT=$PID
took=$(python3 -S -E "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" 2 20 \
	"c['tx_path'] == c['rx_path'] == 'shm'") || fail "$took"
: >"$TMP/go"
finish "$CLIENT" 30 || fail "client: $(cat "$TMP/client.log")"
finish "$SRV" 30 || fail "server: $(cat "$TMP/server.log")"
RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all >"$TMP/json" 2>/dev/null ||
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json >"$TMP/json"
python3 -S -c 'import json, sys
j = json.load(open(sys.argv[1]))["processes"]
bad = [(p["program"], p["counters"]) for p in j if p["counters"]["bad_peer"]
    or p["counters"]["links_lost"] > 1]
fds = sum(r["connections"] for p in j for r in p["reasons"] if r["reason"] == "no-fds")
sys.exit(f"{bad or j}" if bad or not fds else 0)' "$TMP/json" ||
	fail "the link was given up, or nothing was short of descriptors"
