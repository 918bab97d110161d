#!/bin/bash
# What a peek and FIONREAD have shown they go on showing, also in the middle of a rewind: some
# bytes have come by TCP and are unread, more lie in the ring; the reader's policy sends it back
# to TCP, and the sender, which must send the ring's bytes again, is stopped; and then goes on, or
# is killed.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"

answered() { [[ $(wc -l <"$1") -ge $2 ]]; }
# tell FD LOG COMMAND: and waits for its line
tell() {
	local n
	n=$(wc -l <"$2")
	echo "$3" >&"$1"
	within 60 answered "$2" $((n + 1)) || fail "no answer to '$3': $(tail -n 3 "$2")"
}
path_is() {
	python3 "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" 2 40 "$1" >"$TMP/live" ||
		fail "$(cat "$TMP/live")"
}
# All of its threads are.
stopped() { ! grep -qhv ') T ' "/proc/$1/task"/*/stat; }
# The reader's library knows that the sender is dead.
lost() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json | python3 -c 'import json, sys
sys.exit(not json.load(sys.stdin)["total"]["counters"]["links_lost"])'
}

begun() {
	free_port port
	policy 'earn_bytes 1000' 'earn_rounds 1000'
	echo 'earn_bytes 0' >"$TMP/reader.conf"
	rm -f "$TMP/r" "$TMP/s"
	mkfifo "$TMP/r" "$TMP/s"
	: >"$TMP/reader.$MODE.log"
	: >"$TMP/sender.$MODE.log"
	exec 7<>"$TMP/r" 8<>"$TMP/s"
	start server "$TMP/reader.$MODE.log" bash -c 'exec "$@" <"$0" 7>&- 8>&-' "$TMP/r" \
		env RDMASHIM_CONF="$TMP/reader.conf" python3 "$TOP/tests/apps/shown.py" reader \
		"$port"
	reader=$PID
	wait_port "$port" 60
	start client "$TMP/sender.$MODE.log" bash -c 'exec "$@" <"$0" 7>&- 8>&-' "$TMP/s" python3 \
		"$TOP/tests/apps/shown.py" sender "$port"
	sender=$PID
	tell 8 "$TMP/sender.$MODE.log" "send 4000"
	[[ $MODE != both ]] || path_is "c['tx_path'] == c['rx_path'] == 'shm'"
	tell 8 "$TMP/sender.$MODE.log" "send 12400"
	tell 7 "$TMP/reader.$MODE.log" "wait 16400"
	tell 7 "$TMP/reader.$MODE.log" peek
	kill -STOP "$sender"
	within 20 stopped "$sender" || fail "the sender does not stop"
	echo 'mode off' >"$TMP/reader.conf"
	[[ $MODE != both ]] || path_is "c['pid'] != $reader or c['rx_path'] == 'tcp'"
	tell 7 "$TMP/reader.$MODE.log" count
	tell 7 "$TMP/reader.$MODE.log" peek
}

job() {
	local port reader sender
	begun
	kill -CONT "$sender"
	tell 7 "$TMP/reader.$MODE.log" count
	tell 7 "$TMP/reader.$MODE.log" "read 10000"
	tell 7 "$TMP/reader.$MODE.log" count
	tell 8 "$TMP/sender.$MODE.log" "send 10"
	tell 7 "$TMP/reader.$MODE.log" "read 6410"
	exec 7>&- 8>&-
	finish "$sender" 10 || fail "sender: status $?"
	finish "$reader" 10 || fail "reader: status $?"
	cat "$TMP/reader.$MODE.log" "$TMP/sender.$MODE.log" >"$OUT"
}

job_killed() {
	local port reader sender
	begun
	kill -KILL "$sender"
	wait "$sender" 2>/dev/null
	[[ $MODE != both ]] || within 40 lost || fail "nobody misses the sender"
	tell 7 "$TMP/reader.$MODE.log" count
	tell 7 "$TMP/reader.$MODE.log" peek
	tell 7 "$TMP/reader.$MODE.log" "read 10000"
	tell 7 "$TMP/reader.$MODE.log" count
	tell 7 "$TMP/reader.$MODE.log" peek
	tell 7 "$TMP/reader.$MODE.log" "read 6401"
	exec 7>&- 8>&-
	finish "$reader" 10 || fail "reader: status $?"
	cat "$TMP/reader.$MODE.log" >"$OUT"
}
MODES=${MODES/client server/}	# with one end preloaded there is no ring
# path_is has seen them on the path; of their bytes each goes by TCP in the end, but those of the
# dead.
for_modes job 0
for_modes job_killed 1
