#!/bin/bash
# Java: channels with a Selector, sockets with timeouts, sendfile, asynchronous channels, and
# sockets that are closed or interrupted while another thread reads. Part of `make check-suites`.
# TIMEOUT: 240
. "$(dirname "$0")/../apps/lib.sh"
command -v javac >/dev/null || skip "no JDK"
javac -d "$TMP" "$TOP/tests/suites/Pair.java" || fail "javac"
JAVA=(java -Xmx256m -Xshare:auto -cp "$TMP" Pair)

job() {
	begin_mode "$MODE"
	free_port port
	USED_PORTS="${USED_PORTS-} $((port + 1))"
	server "${JAVA[@]}" server "$port"
	wait_port "$port" 30
	wait_port $((port + 1)) 30
	client timeout -s QUIT -k 5 100 "${JAVA[@]}" client "$port" >"$OUT" 2>"$TMP/client.log" ||
		fail "client, status $?"
	kill -KILL "$SRV"
	wait "$SRV" 2>/dev/null
	expect_paths "$want"
	same_as_bare
}

for policy in ${FORCE-'' 'force_cut_every 5ms'}; do
	for MODE in $MODES; do
		[[ -n $policy && $MODE != both ]] && continue
		policy 'earn_bytes 0' 'earn_rounds 0' ${policy:+"$policy"}
		# of 71 million; cut and rewound all the time it is the scheduler's choice where
		# they are when
		want=$((${#policy} ? 10000000 : 40000000))
		job
	done
done
cat "$TMP/out.bare"
