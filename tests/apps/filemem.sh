#!/bin/bash
# sendfile() of a file that is memory (tmpfs), which cannot be read without waiting by the flag that
# says so: all the same it goes into the ring in large pieces, and the sender finds the ring full no
# more than twice for each 64 KiB.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
MODES=both
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ $(stat -f -c %T /dev/shm 2>/dev/null) == tmpfs ]] || skip "/dev/shm is no tmpfs"
begin_mode both
held=$(mktemp /dev/shm/filemem.XXXXXX) || skip "no file in /dev/shm"
exec {file}<>"$held"
rm "$held"
held=/proc/$$/fd/$file
make_file "$TMP/file" 20971520
cat "$TMP/file" >"$held"
free_port port
server "$B/bench/bulk" server "$port"
wait_port "$port"
client timeout 40 "$B/bench/bulk" client "$port" file 10 "$held" >"$TMP/client.log" 2>&1 ||
	fail "$(cat "$TMP/client.log" "$TMP/server.log")"
finish "$SRV" 15 || fail "the server: $(cat "$TMP/server.log")"
collect
full=$(python3 -S -E -c 'import json, sys
print(json.load(sys.stdin)["total"]["counters"].get("ring_full", 0))' <"$TMP/stat.$MODE.json")
say "$TX_FAST of $TX_ALL bytes on a fast path, the ring was full $full times"
((2 * TX_FAST >= TX_ALL)) || fail "more than half went by TCP"
((32768 * full <= TX_FAST)) || fail "the ring was full $full times"
