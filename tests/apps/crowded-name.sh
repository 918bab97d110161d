#!/bin/bash
# Hundreds of connections to one place, and whoever is called there does not answer: those who
# wait for that answer use no CPU time.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a sanitizer's CPU time"
MODES=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
cp "$TOP/tests/apps/crowded-name.py" "$TMP"
# A machine that is too busy to look within the two seconds of silence shows nothing: another
# call, then.
for try in 1 2 3 4 5; do
	free_port port
	rm -f "$TMP/fifo"
	mkfifo "$TMP/fifo"
	start none "$TMP/server.log" python3 -S -E "$TMP/crowded-name.py" "$port" 400 "$TMP/pid"
	SRV=$PID
	wait_port "$port"
	start shim "$TMP/client.log" "$B/apps/idle" client poll "$port" 400 "$TMP/fifo"
	CLIENT=$PID
	echo "$CLIENT" >"$TMP/pid"
	exec 4>"$TMP/fifo"
	within 40 gone "$SRV" || fail "the server waits: $(cat "$TMP/client.log")"
	wait "$SRV" || fail "$(cat "$TMP/server.log")"
	kill -KILL "$CLIENT"
	exec 4>&-
	wait "$CLIENT" 2>/dev/null
	used=$(cat "$TMP/server.log")
	[[ $used == late ]] || break
done
[[ $used == late ]] && skip "too busy a machine"
say "$used ms of CPU time in a second"
((used < 50)) || fail "they look all the time"
