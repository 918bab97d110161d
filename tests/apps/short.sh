#!/bin/bash
# Many short connections, closed in every way at every moment while they are cut: each byte, each
# EOF, each reset must be there, and nothing may hang. Both ends in one process, then in two.
#	tests/apps/short.sh [CONNECTIONS]	so many in each mode, and how much longer they take
#						than bare ones
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
N=${1:-${N:-10000}}
MODES=${MODES/ client server/}
# The watch of the program says which step takes too long; that is known in a minute, or in as
# many as the machine is loaded.
PATIENCE=${PATIENCE:-20}

stacks() {
	local p
	for p in "$@"; do
		timeout 20 gdb -q -nx -batch -ex 'set debuginfod enabled off' -p "$p" \
			-ex 'thread apply all bt' 2>/dev/null | grep -E '^(Thread|#)'
	done
}
hung() { grep -qs '^hang:' "$TMP"/*.log; }
over() { hung || { gone "$1" && gone "$2"; }; }

# all_of PID PID: they end by themselves and well.
all_of() {
	within 1000 over "$1" "$2" || fail "neither finished nor stuck"
	if hung; then
		cat "$TMP"/*.log
		stacks "$1" "$2"
		fail "a connection hangs"
	fi
	wait "$1" || fail "$(cat "$TMP"/*.log)"
	wait "$2" || fail "$(cat "$TMP"/*.log)"
}

# timed NAME: since $t, in seconds; under the library with the ratio to bare.
timed() {
	took[$1.$MODE]=$(awk -v a="$t" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')
	say "$N connections, $1: ${took[$1.$MODE]} s" \
		"$(awk -v a="${took[$1.bare]-0}" -v b="${took[$1.$MODE]}" -v m="$MODE" \
		'BEGIN { if (m != "bare" && a > 0) printf "(%.2f times bare)", b / a }')"
}
declare -A took

job() {
	local port t c
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	t=$EPOCHREALTIME
	start client "$TMP/self.log" "$B/apps/short" self -n "$N" -t 8 -T "$PATIENCE" "$port"
	all_of "$PID" "$PID"
	timed "in one process"
	free_port port
	server "$B/apps/short" server -n "$N" -t 6 -T "$PATIENCE" -s 2 "$port"
	wait_port "$port"
	t=$EPOCHREALTIME
	start client "$TMP/client.log" "$B/apps/short" client -n "$N" -t 6 -T "$PATIENCE" -s 2 \
		"$port"
	c=$PID
	all_of "$SRV" "$c"
	timed "in two"
	cat "$TMP/self.log" "$TMP/server.log" "$TMP/client.log" >>"$OUT"
}
for_modes job 1000
