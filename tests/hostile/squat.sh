#!/bin/bash
# Another user takes the name at which a connection's ends would meet, before they are there.
# They meet all the same.
#	squat.sh [HOW...]
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no shim library"
((EUID == 0)) || skip "only root can become another user"
MODE=both
ulimit -n 8192
cp "$TOP"/tests/apps/{meeting,echo}.py "$TOP/tests/hostile/squat.py" "$TMP"

meet() {
	local source squat=
	begin_mode both
	OUT=$TMP/out.$1 STAT=$TMP/stat.$1
	mkdir -p -m 700 "$STAT"
	rm -f "$TMP/stop"
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	free_port source
	if [[ $1 != none ]]; then
		start none "$TMP/squat.log" python3 -S -E "$TMP/squat.py" "$1" "$port" "$source" "$source"
		squat=$PID
		within 20 grep -q taken "$TMP/squat.log" || fail "$1: $(cat "$TMP/squat.log")"
	fi
	MARK=1 start shim "$TMP/server.log" python3 -S -E "$TMP/meeting.py" server "$port"
	SRV=$PID
	wait_port "$port"
	MARK=1 start shim "$TMP/client.log" python3 -S -E "$TMP/meeting.py" client "$port" "$source" \
		"$TMP/stop"
	local client=$PID
	on_path() { collect && ((FAST > 100000)); }
	within 10 on_path || fail "$1: $FAST bytes on a fast path, on TCP because: $REASONS"
	touch "$TMP/stop"
	finish "$client" 10 || fail "$1: $(cat "$TMP/client.log")"
	stop "$SRV"
	[[ -n $squat ]] && stop "$squat"
	say "$1: they met"
}
for how in ${*:-none deaf full silent crowd}; do
	meet "$how"
done
exit 0
