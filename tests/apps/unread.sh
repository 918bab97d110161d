#!/bin/bash
# A writer fills the connection, which nobody reads, and is killed. A second later its peer reads:
# all that was taken must be there, and then the end, also where the kernel's FIN could not come
# before there was room for what lies before it.
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"

round() {
	local log=$TMP/server.log taken got
	free_port port
	rm -f "$TMP"/taken "$TMP"/taken.killed
	server python3 "$TOP/tests/apps/unread.py" reader "$port" "$TMP/taken" 0.6
	wait_port "$port" 60
	start client "$TMP/client.log" python3 "$TOP/tests/apps/unread.py" writer "$port" \
		"$TMP/taken" 0
	within 60 test -s "$TMP/taken" || fail "the writer does not write"
	sleep "0.$((RANDOM % 5 + 2))"
	kill -KILL "$PID"
	wait "$PID" 2>/dev/null
	touch "$TMP/taken.killed"
	finish "$SRV" 60 || fail "reader: $(cat "$log")"
	taken=$(od -An -tu8 "$TMP/taken" | tr -d ' ')
	got=$(awk '{ print $1 }' "$log")
	say "taken $taken, read $(cat "$log")"
	grep -q 'then the end$' "$log" || fail "after $taken bytes were taken: $(cat "$log")"
	((got >= taken)) || fail "$((taken - got)) bytes are missing"
	((taken > 300000)) || fail "hardly anything was written"
}
job() {
	local rounds=1
	[[ $MODE == both ]] && rounds=${ROUNDS:-4}
	while ((rounds--)); do round; done
	echo "all that was taken, then the end" >"$OUT"
}
policy 'earn_bytes 0' 'earn_rounds 0'
for_modes job 1
