#!/bin/bash
# A connection that has a place on a link, and has not left TCP, is none that was on a fast path.
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
mkfifo "$TMP/fifo"
exec 7<>"$TMP/fifo"
# shellcheck disable=SC2016
start shim "$TMP/ends.log" \
	bash -c 'exec python3 "$1" <"$0" 7>&-' "$TMP/fifo" "$TOP/tests/apps/bound.py"
within 20 test -s "$TMP/ends.log" || fail "no port"
port=$(<"$TMP/ends.log")
# Both have asked the other end to get ready, which they can do only on a link.
python3 "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" 2 20 "c['tx_state'] == 1" \
	>"$TMP/live" || fail "$(cat "$TMP/live")"
RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all >"$TMP/stat.json"
fast=$(python3 -c 'import json, sys
print(json.load(sys.stdin)["total"]["counters"]["conns_fast"])' <"$TMP/stat.json")
say "$fast connections that were on a fast path"
[[ $fast == 0 ]] || fail "nothing was cut over"
