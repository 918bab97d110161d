#!/bin/bash
# copy_threads: blocks of a megabyte both ways at once, each end with a thread of the library that
# shares the copies, while the connection is cut and rewound. The sums are checked by the program
# (bench/allreduce), the bytes of the blocking sender by apps/pattern. The threads are there, and
# none where they are switched off.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
MODE=both
begin_mode both

# How many threads of ours were seen at once while PID and what it started were at work.
helpers() {
	local n most=0
	while kill -0 "$1" 2>/dev/null; do
		# shellcheck disable=SC2002,SC2046  # names of files, one that is not there is
		# nothing
		n=$(cat $(tree "$1" | sed 's|.*|/proc/&/task/[0-9]*/comm|') 2>/dev/null |
			grep -c '^rdmashim-copy$')
		((n > most)) && most=$n
		sleep 0.05
	done
	echo "$most"
}

job() {
	local want=$1 got
	start shim "$TMP/sums" "$B/bench/allreduce" 16 60
	got=$(helpers "$PID")
	wait "$PID" || fail "allreduce: status $?: $(cat "$TMP/sums")"
	((got == want)) || fail "$got threads that copy, not $want: $(nproc) processors"
	free_port port
	server "$B/apps/pattern" listen -w block -k 2 -n 100000000 "$port"
	wait_port "$port"
	client timeout 30 "$B/apps/pattern" connect -w block -k 2 -n 100000000 127.0.0.1 \
		"$port" >"$TMP/client.log" 2>&1 || fail "pattern: $(cat "$TMP/client.log")"
	finish "$SRV" 20 || fail "pattern: $(cat "$TMP/server.log")"
}

most=$(($(nproc) / 2 < 2 ? $(nproc) / 2 : 2))
policy 'force_cut_every 5ms' 'copy_threads 0'
job 0
policy 'force_cut_every 5ms' 'copy_threads 2' 'earn_bytes 0'
job $((2 * most))
collect
((FAST > 100000000 && CUTS > 20 && REWINDS > 20)) ||
	fail "$FAST bytes on a fast path, $CUTS cuts, $REWINDS rewinds"
say "$((2 * most)) threads, $FAST bytes on a fast path, $CUTS cuts, $REWINDS rewinds"
