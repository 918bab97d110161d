#!/bin/bash
# Answers of 20 MiB, a connection for each: from when the sender has earned until it is cut over
# TCP carries no more of them than it does at a bounded rate, whether the reader takes all at once
# or not. One send() at a place where connections are upgraded at once does not stay in the
# kernel, either.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}
make_file "$TMP/file" 20971520

# answers KIND
answers() {
	local port
	free_port port
	server "$B/bench/bulk" server "$port"
	wait_port "$port"
	client timeout 40 "$B/bench/bulk" client "$port" "$1" 10 "$TMP/file" \
		>"$TMP/client.log" 2>&1 || fail "$1: $(cat "$TMP/client.log")"
	finish "$SRV" 15 || fail "$1: $(cat "$TMP/server.log")"
	echo "$1: well" >>"$OUT"
	[[ $MODE == both ]] || return 0
	collect
	say "$1: $TX_FAST of $TX_ALL bytes sent on a fast path"
	begin_mode "both.$((++n))"
	MODE=both
	OUT=$TMP/out.both
	((3 * TX_FAST >= 2 * TX_ALL)) || { say "$1: more than a third went by TCP"; return 1; }
}

n=0
job() {
	local kind
	# A busy machine may take longer than 10 ms to find the other end.
	policy 'overflow 200ms'
	for kind in once poll file; do best_of 4 answers $kind; done
}
for_modes job none
