#!/bin/bash
# While the other end of a sender is looked for TCP takes little of it, by an option that is the
# program's: it sees its own, has it again after a while, and so has another process that gets the
# socket.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}

job() {
	local what rc
	for what in own get set fork time poll told; do
		# Long enough to be seen; where it is waited for the end of it, not for long.
		policy "overflow $([[ $what =~ time|poll|told ]] && echo 300ms || echo 5s)" \
			"earn_bytes $([[ $what == told ]] && echo 400K || echo 64K)"
		client timeout 30 "$B/apps/lowat" "$what" >>"$OUT" 2>"$TMP/client.log"
		rc=$?
		[[ $MODE == bare && $rc == 3 ]] && rc=0
		((rc == 0)) ||
			fail "$what: status $rc (3: it was never held): $(cat "$TMP/client.log")"
	done
}
for_modes job none
