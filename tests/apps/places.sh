#!/bin/bash
# What is known of a place is shared: clients that are new processes each time, and whose
# connections live on, are upgraded at once from the fifth on; those of another port, and where
# the policy does not want it, are not. A file that is spoilt harms nobody, and who may write no
# files does not end by what he would write, nor who has a small stack.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
MODES=both
[[ -n $SHIM ]] || skip "no library (SHIM=)"
begin_mode both
py=(/usr/bin/python3 "$TOP/tests/apps/places.py")

serve() {
	free_port "$1"
	server "${py[@]}" server "${!1}"
	wait_port "${!1}"
}

long() { client timeout 20 "${py[@]}" client "$1" 1000 || fail "a client of port $1"; }

# Of a connection that is there still.
why_of() {
	local in
	mkfifo "$TMP/in"
	: >"$TMP/out"
	shim_env python3
	env "${SHIM_ENV[@]}" "${py[@]}" client "$1" 1000 stay <"$TMP/in" >"$TMP/out" 3>&- &
	PID=$!
	PIDS+=("$PID")
	exec {in}>"$TMP/in"
	within 15 grep -q answered "$TMP/out" || fail "no answer at port $1"
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" why "$PID:3" >"$TMP/why" || fail "rdmastat why"
	exec {in}>&-
	finish "$PID" 15 || fail "the client that stayed"
	rm "$TMP/in"
}
at_once() { why_of "$1"; grep -q 'at that place lived on' "$TMP/why"; }

serve one
for _ in 1 2 3; do long "$one"; done
! at_once "$one" || fail "three are no rule"
for _ in 1 2 3 4; do long "$one"; done
at_once "$one" || fail "not upgraded at once: $(cat "$TMP/why")"
serve two
! at_once "$two" || fail "another port"
policy 'earn_share off'
! at_once "$one" || fail "where the policy does not want it"
policy
long "$one"
at_once "$one" || fail "forgotten: $(cat "$TMP/why")"
head -c "$(stat -c %s "$STAT/places.1")" /dev/urandom |
	dd of="$STAT/places.1" conv=notrunc status=none
for _ in 1 2 3 4 5; do long "$one"; done
! at_once "$two" || fail "random words are no place that is known"
# Its other end is none of ours, so it moves much by TCP.
free_port three
start none "$TMP/three.log" "${py[@]}" server "$three"
wait_port "$three"
# shellcheck disable=SC2016
client timeout 20 bash -c 'ulimit -f 0 && exec "$@"' - "${py[@]}" client "$three" 2000 ||
	fail "a client that may write no file: status $?"
client timeout 40 "$B/apps/altstack" "$three" "$STAT/places.1" ||
	fail "a handler with a small stack: status $?"
say "well"
