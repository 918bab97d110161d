#!/bin/bash
# Answers of 20 MiB, a connection for each: from when the sender has earned until it is cut over
# TCP carries no more of them than it does at a bounded rate, whether the reader takes all at once
# or not. One send() at a place where connections are upgraded at once does not stay in the
# kernel, either.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}
make_file "$TMP/file" 20971520

job() {
	local port kind
	# A busy machine may take longer than 10 ms to find the other end.
	policy 'overflow 200ms'
	for kind in once poll file; do
		free_port port
		server "$B/bench/bulk" server "$port"
		wait_port "$port"
		client timeout 40 "$B/bench/bulk" client "$port" $kind 10 "$TMP/file" \
			>"$TMP/client.log" 2>&1 || fail "$kind: $(cat "$TMP/client.log")"
		finish "$SRV" 15 || fail "$kind: $(cat "$TMP/server.log")"
		echo "$kind: well" >>"$OUT"
		[[ $MODE == both ]] || continue
		collect
		say "$kind: $TX_FAST of $TX_ALL bytes sent on a fast path"
		((3 * TX_FAST >= 2 * TX_ALL)) || fail "$kind: more than a third went by TCP"
		begin_mode both.$kind
		MODE=both
		OUT=$TMP/out.both
	done
}
for_modes job none
