#!/bin/bash
# A hostile peer, not preloaded, against an echo server and against a client, both preloaded, with
# honest preloaded clients at work all the time, and one that is stopped. peer.c says what the
# scenarios are.
#	peer.sh [SCENARIO...]		SEED= for the fuzzers
# With SAN=address (make SAN=address) the library is the sanitized one, and any report of it fails
# the test.
# TIMEOUT: 150
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -x $B/hostile/peer ]] || fail "no $B/hostile/peer"
MODE=both
begin_mode both
# Half of the scenarios is about what one of another user does who is let in.
policy 'earn_bytes 0' 'earn_rounds 0' 'peer_users 31337'
# the library's share is 1280, and there are numbers for more: what attacks cost is to be seen
ulimit -n 10240
SEED=${SEED:-$((RANDOM % 10000))}
export SEED ASAN_OPTIONS=detect_leaks=0:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1

rc=0
reports() {
	local f
	for f in "$TMP"/*.log; do
		if grep -qE 'ERROR: AddressSanitizer|runtime error:' "$f"; then
			grep -E -A 12 'ERROR: AddressSanitizer|runtime error:' "$f" | head -n 30
			rc=1
		fi
	done
}

# ended PID WHAT LOG: it must still run, and end well when asked to.
ended() {
	kill -TERM "$1" 2>/dev/null || { say "the $2 is gone: $(tail -n 5 "$3")"; rc=1; return; }
	within 10 gone "$1" || { say "the $2 does not end"; rc=1; return; }
	wait "$1" || { say "the $2 failed, status $?: $(tail -n 5 "$3")"; rc=1; }
}

free_port port
free_port liar
start shim "$TMP/echo.log" "$B/hostile/victim" echo "$port"
echo_pid=$PID
wait_port "$port"
start shim "$TMP/ask.log" "$B/hostile/victim" ask "$port" "$TMP/asked"
ask_pid=$PID
# One stops for ever, with bytes of both on the way, and is there through all that follows.
start shim "$TMP/stopped.log" "$B/hostile/victim" lag "$port" "$TMP/stopped"
stopped_pid=$PID
under_way() { (($(od -An -tu8 -N8 "$TMP/stopped" 2>/dev/null || echo 0) > 200000)); }
within 15 under_way ||
	fail "the client that is to be stopped does not get on: $(cat "$TMP/stopped.log")"
kill -STOP "$stopped_pid"

"$B/hostile/peer" call "$port" "$echo_pid" "$@" 3>&-
called=$?
reports

# Who does not spin depends on bells.
policy 'earn_bytes 0' 'earn_rounds 0' 'peer_users 31337' 'spin 0'
start shim "$TMP/client.log" "$B/hostile/victim" client "$liar" "$port" "$TMP/progress"
client_pid=$PID
within 10 test -s "$TMP/progress" || fail "the client does not start: $(cat "$TMP/client.log")"
"$B/hostile/peer" serve "$liar" "$client_pid" "$TMP/progress" "$port" "$@" 3>&-
served=$?
((called == 3 && served == 3)) && rc=3
((called == 1 || served == 1)) && rc=1
held=$(ls "/proc/$echo_pid/fd" | wc -l)
kill -KILL "$stopped_pid"
wait "$stopped_pid" 2>/dev/null
fewer() { (($(ls "/proc/$echo_pid/fd" | wc -l) < held)); }
within 10 fewer || { say "what the server held for the stopped client is kept after its end:" \
	"$held descriptors"; rc=1; }
ended "$client_pid" client "$TMP/client.log"
ended "$ask_pid" "honest client" "$TMP/ask.log"
ended "$echo_pid" server "$TMP/echo.log"
reports
# All that is worth nothing if the honest ones were on TCP.
collect
counter() { python3 -S -E -c 'import json, sys
print(json.load(open(sys.argv[1]))["total"]["counters"][sys.argv[2]])' "$TMP/stat.$MODE.json" \
	"$1"; }
refused=$(counter refused) bad=$(counter bad_peer)
say "$FAST bytes on a fast path, $refused refused, $bad bad peers; honest: $(cat "$TMP/ask.log")"
((FAST > 1000000)) || { say "hardly a byte on a fast path"; rc=1; }
(($# > 0 || (refused > 20 && bad > 20))) || { say "too few lies were noticed"; rc=1; }
exit $rc
