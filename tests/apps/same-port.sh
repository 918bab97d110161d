#!/bin/bash
# Two connections that a server accepted from the same address and port, at two ports of its own:
# each finds its own other end.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow, and what is tested is ports"
MODES=both
begin_mode both
policy 'earn_bytes 8K' 'earn_rounds 0'
cp "$TOP/tests/apps/same-port.py" "$TOP/tests/apps/echo.py" "$TMP"
found() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all | python3 -S -E -c 'import json, sys
t = json.load(sys.stdin)["total"]
sys.exit(t["connections_fast"] != 4 or t["connections"] != 4)'
}
free_port one
free_port two
start shim "$TMP/server.log" python3 -S "$TMP/same-port.py" server "$one" "$two"
SRV=$PID
wait_port "$one" 40
wait_port "$two" 40
mkfifo "$TMP/fifo"
exec 4<>"$TMP/fifo"
shim_env
env "${SHIM_ENV[@]}" python3 -S "$TMP/same-port.py" client "$one" "$two" \
	$((10000 + RANDOM % 9000)) <"$TMP/fifo" >"$TMP/client.log" 2>&1 3>&- 4>&- &
CLIENT=$!
PIDS+=("$CLIENT")
is_done() { grep -qs "done" "$TMP/client.log" || gone "$CLIENT"; }
within 40 is_done || fail "stands still: $(cat "$TMP/client.log")"
grep -q "done" "$TMP/client.log" || fail "$(cat "$TMP/client.log")"
within 10 found || fail "not both were found: $(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn)"
