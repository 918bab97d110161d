#!/bin/bash
# A peer offers a block in memory that is never there (userfaultfd): the thread that receives it
# waits. All others of the victim go on, forks, its background thread and other connections among
# them, and SIGKILL ends it.
# TIMEOUT: 150
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -x $B/hostile/peer ]] || fail "no $B/hostile/peer"
((EUID == 0)) || skip "not root: the kernel lets no one else wait for its own touches"
"$B/hostile/peer" uffd || skip "no userfaultfd here"
MODE=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0' 'peer_users 31337'
export ASAN_OPTIONS=detect_leaks=0

free_port port
begin() {
	rm -f "$TMP/forks"
	start shim "$TMP/echo.log" "$B/hostile/victim" threads "$port" "$TMP/forks"
	echo_pid=$PID
	wait_port "$port"
}

begin
start shim "$TMP/ask.log" "$B/hostile/victim" ask "$port" "$TMP/asked"
ask_pid=$PID
export FORKS=$TMP/forks
never_comes=(timeout 30 "$B/hostile/peer" call "$port")
"${never_comes[@]}" "$echo_pid" never-comes 3>&- || fail "others wait for that block"
"${never_comes[@]}" "$echo_pid" locked-bind 3>&- ||
	fail "others wait for a socket whose lock is taken"
"${never_comes[@]}" "$echo_pid" locked-own 3>&- || fail "others wait for a socket of the victim's"
free_port liar
start shim "$TMP/client.log" "$B/hostile/victim" client "$liar" "$port" "$TMP/progress"
client_pid=$PID
within 10 test -s "$TMP/progress" || fail "the client does not start: $(cat "$TMP/client.log")"
timeout 30 "$B/hostile/peer" serve "$liar" "$client_pid" "$TMP/progress" "$port" locked-asked \
	3>&- ||
	fail "a socket is asked whose lock is taken"
timeout 30 "$B/hostile/peer" serve "$liar" "$client_pid" "$TMP/progress" "$port" \
	locked-segment 3>&- || fail "memory is given back to a file whose lock is taken"
kill -TERM "$client_pid"
wait "$client_pid" || fail "the client: $(tail -n 5 "$TMP/client.log")"
kill -TERM "$ask_pid"
wait "$ask_pid" || fail "the honest client: $(tail -n 5 "$TMP/ask.log")"
kill -TERM "$echo_pid"
within 10 gone "$echo_pid" || fail "the victim does not end"
wait "$echo_pid" || fail "the victim: $(tail -n 5 "$TMP/echo.log")"

begin
: >"$TMP/held.log"
HOLD=1 "${never_comes[@]}" "$echo_pid" never-comes >"$TMP/held.log" 2>&1 3>&- &
peer=$!
within 10 grep -q "held up" "$TMP/held.log" ||
	fail "the copy does not begin: $(cat "$TMP/held.log")"
kill -KILL "$echo_pid"
within 2 gone "$echo_pid" || fail "SIGKILL does not end the victim"
kill -TERM "$peer"

# An honest program's block in such memory holds up its own call, as with TCP, and no event loop.
free_port loop
start shim "$TMP/loop.log" "$B/hostile/victim" echo "$loop"
loop_pid=$PID
wait_port "$loop"
run_with shim timeout 60 "$B/hostile/victim" slow "$loop" >"$TMP/slow.log" 2>&1 ||
	fail "an event loop waits for the memory of its peer: $(cat "$TMP/slow.log")"
kill -TERM "$loop_pid"
wait "$loop_pid" || fail "the event loop: $(tail -n 5 "$TMP/loop.log")"
collect
((FAST > 100000)) || fail "hardly a byte on a fast path"
say "honest: $(cat "$TMP/ask.log")"
