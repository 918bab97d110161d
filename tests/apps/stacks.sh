#!/bin/bash
# rdmastat stacks: what each thread of a process waits for, and that looking does no harm to it.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}	# there is only one process
[[ $MODES == *both* && -z ${SAN-} ]] ||
	skip "the library's own frames are looked at, without a sanitizer's"
MODES=both

# All four sleep: the kernel says so.
asleep() {
	local t
	for t in "${tids[@]}"; do
		[[ $(sed 's/.*) //; s/ .*//' "/proc/$SRV/task/$t/stat") == S ]] || return 1
	done
}

fast() {
	[[ $(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn "pid = $SRV tx shm rx shm" -o fd |
		grep -cE '^ *[0-9]+$') == 6 ]]
}

expect() {	# WHAT THREAD PATTERN: among the lines of that thread
	awk -v t="thread $2," 'index($0, "thread ") == 1 { on = index($0, t) == 1 } on' \
		"$TMP/stacks" >"$TMP/one"
	grep -qE -- "$3" "$TMP/one" || fail "$1: no line like '$3' in: $(cat "$TMP/one")"
}

job() {
	local i word tids
	policy 'earn_bytes 0' 'earn_rounds 0'
	mkfifo "$TMP/in"
	: >"$TMP/server.log"
	shim_env "$B/apps/stacks"
	env "${SHIM_ENV[@]}" "$B/apps/stacks" <"$TMP/in" >"$TMP/server.log" 2>&1 3>&- &
	SRV=$!
	PIDS+=("$SRV")
	exec 4>"$TMP/in"
	within 20 fast || fail "it stays on TCP: $(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn)"
	echo >&4
	within 20 grep -q ready "$TMP/server.log" || fail "it does not begin"
	read -r word r w p word tids < <(grep ready "$TMP/server.log")
	p=${p%,}
	read -ra tids <<<"$tids"
	within 10 asleep || fail "a thread does not wait"
	# who waits for room wakes up each millisecond, and is asleep at most looks
	for i in {1..20}; do
		RDMASHIM_STAT_DIR=$STAT timeout 30 "$TMP/rdmastat" stacks "$SRV" >"$TMP/stacks" \
			2>"$TMP/stacks.err" ||
			fail "rdmastat stacks: $(cat "$TMP/stacks.err" "$TMP/stacks")"
		grep -q 'librdmashim: sends, sleeps' "$TMP/stacks" && ((i > 2)) && break
	done
	expect "recv" "${tids[0]}" \
		"librdmashim: receives, sleeps until the other end of descriptor $r \
\(127.*receives by shm\) wakes it .* stream_recv "
	expect "recv's caller" "${tids[0]}" "waits_to_receive\+0x[0-9a-f]+ in .*/apps/stacks$"
	expect "send" "${tids[1]}" \
		"librdmashim: sends, sleeps until .*descriptor $w \(127.*sends by "
	expect "epoll_wait" "${tids[2]}" "librdmashim: waits for events \(epoll\), sleeps"
	expect "epoll_wait's caller" "${tids[2]}" "waits_for_events\+"
	expect "a lock of its own" "${tids[3]}" "waits_for_a_lock\+"
	grep -q 'librdmashim' "$TMP/one" &&
		fail "the library has no part in this: $(cat "$TMP/one")"
	grep -q 'librdmashim: its own thread, \(sleeps\|runs\)' "$TMP/stacks" ||
		fail "the background thread: $(cat "$TMP/stacks")"
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" stacks -j "$SRV" | python3 -c '
import json, sys
j = json.load(sys.stdin)
f = {t["tid"]: t["frames"] for t in j["threads"]}
words = [x["librdmashim"] for x in f[int(sys.argv[1])] if x["librdmashim"]]
assert len(words) == 1 and "receives" in words[0], words
assert "waits_to_receive" in [x["function"] for x in f[int(sys.argv[1])]]' "${tids[0]}" ||
	fail "JSON"
	echo >&4
	exec 4>&-
	wait "$SRV" || fail "looked at, it went wrong, status $?: $(cat "$TMP/server.log")"
	grep -q 'wrong 0' "$TMP/server.log" || fail "$(cat "$TMP/server.log")"
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" stacks "$SRV" 2>"$TMP/err" &&
		fail "a process that is gone has stacks"
	grep -q "no process $SRV" "$TMP/err" || fail "$(cat "$TMP/err")"
	[[ $UID == 0 ]] && another_user
	echo right >"$OUT"
}

# Root looks with the rights of the process's user.
another_user() {
	setpriv --reuid=1001 --regid=1001 --clear-groups sleep 60 &
	PIDS+=("$!")
	within 10 grep -q nanosleep "/proc/$!/wchan" || within 5 grep -q sleep "/proc/$!/comm" ||
		fail "no other user's process"
	sleep 0.2	# where the kernel does not say what it waits for
	timeout 30 "$TMP/rdmastat" stacks "$!" >"$TMP/stacks" 2>"$TMP/err" ||
		fail "another user's: $(cat "$TMP/err")"
	grep -q 'nanosleep.* in .*libc' "$TMP/stacks" || fail "another user's: $(cat "$TMP/stacks")"
	grep -q "process $! has no counters" "$TMP/err" || fail "$(cat "$TMP/err")"
	timeout 30 setpriv --reuid=1002 --regid=1002 --clear-groups "$TMP/rdmastat" stacks \
		"$!" >"$TMP/stacks" 2>"$TMP/err" &&
		fail "a third user may look"
	grep -q 'cannot be looked at' "$TMP/err" || fail "a third user: $(cat "$TMP/err")"
}
for_modes job none
