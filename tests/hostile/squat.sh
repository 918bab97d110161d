#!/bin/bash
# Another user takes the name at which a connection's ends would meet, before they are there. They
# meet all the same. Where a process of our own has it, they wait for it, and ask more and more
# seldom.
#	squat.sh [HOW...]		none, deaf, full, silent, crowd, own
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "only root can become another user"
MODE=both
ulimit -n 8192
cp "$TOP"/tests/apps/{discovery,echo}.py "$TOP/tests/hostile/squat.py" "$TMP"

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
		start none "$TMP/squat.log" python3 -S -E "$TMP/squat.py" "$1" "$port" "$source" \
			"$source"
		squat=$PID
		within 20 grep -q taken "$TMP/squat.log" || fail "$1: $(cat "$TMP/squat.log")"
	fi
	MARK=1 start shim "$TMP/server.log" python3 -S -E "$TMP/discovery.py" server "$port"
	SRV=$PID
	wait_port "$port"
	MARK=1 start shim "$TMP/client.log" python3 -S -E "$TMP/discovery.py" client "$port" \
		"$source" \
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

# The search, and another one later, take some seconds, so tries of 5 ms would be a thousand and
# more.
patient() {
	local source
	begin_mode both
	OUT=$TMP/out.own STAT=$TMP/stat.own
	mkdir -p -m 700 "$STAT"
	rm -f "$TMP/stop"
	policy 'earn_bytes 0' 'earn_rounds 0' 'discovery 1s'
	free_port port
	free_port source
	start none "$TMP/squat.log" python3 -S -E "$TMP/squat.py" own "$port" "$source" "$source"
	within 20 grep -q taken "$TMP/squat.log" || fail "own: $(cat "$TMP/squat.log")"
	MARK=1 start shim "$TMP/server.log" python3 -S -E "$TMP/discovery.py" server "$port"
	SRV=$PID
	wait_port "$port"
	start none "$TMP/strace.log" strace -f -qq -e trace=bind -o "$TMP/binds" -p "$SRV"
	local tracer=$PID
	traced() { grep -q '^TracerPid:[[:space:]]*[1-9]' "/proc/$SRV/status"; }
	within 5 traced || { say "own: strace may not trace here, not counted"; stop "$SRV"; \
		return; }
	MARK=1 start shim "$TMP/client.log" python3 -S -E "$TMP/discovery.py" client "$port" \
		"$source" "$TMP/stop"
	local client=$PID
	given_up() { collect && [[ $REASONS == *peer-no-shim* ]]; }
	within 20 given_up || fail "own: the search does not end: $REASONS"
	touch "$TMP/stop"
	finish "$client" 10 || fail "own: $(cat "$TMP/client.log")"
	kill -TERM "$tracer" "$SRV"
	within 5 gone "$tracer" || kill -KILL "$tracer"
	local n
	n=$(grep -c EADDRINUSE "$TMP/binds")
	((n > 0)) || fail "own: the name was not taken: $(head -n 3 "$TMP/binds")"
	((n < 300)) || fail "own: the server tried the name $n times"
	say "own: tried $n times"
}

# shellcheck disable=SC2048  # words
for how in ${*:-none deaf full silent crowd own}; do
	if [[ $how == own ]]; then
		patient
	else
		meet "$how"
	fi
done
exit 0
