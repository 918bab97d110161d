#!/bin/bash
# Both ends in one process: one thread that sends 4 MB each way before it reads, and threads that
# talk to each other.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}	# there is only one process
too_much=

job() {
	local port n rc how
	for n in 1000000 4000000; do
		[[ $too_much == *" $n "* ]] && continue
		free_port port
		client timeout 20 "$B/apps/bigfirst" self -n $n "$port" >"$TMP/client.log" 2>&1
		rc=$?
		if [[ $MODE == bare && $rc == 124 ]]; then
			say "the kernel's buffers don't take $n bytes each way here: no test"
			too_much+=" $n "
			continue
		fi
		((rc == 0)) || fail "to itself, $n bytes, status $rc: $(cat "$TMP/client.log")"
		cat "$TMP/client.log" >>"$OUT"
	done
	for how in block poll edge; do
		free_port port
		client timeout 30 "$B/apps/pattern" both -w $how -k 4 127.0.0.1 \
			"$port" >"$TMP/client.log" 2>&1 ||
			fail "threads, $how: $(cat "$TMP/client.log")"
		sort "$TMP/client.log" >>"$OUT"
	done
}
for_modes job 10000000
