#!/bin/bash
# While the other end of a sender is looked for TCP takes little of it, by two options that are the
# program's: it sees its own, has them again after a while, and so has another process that gets
# the socket.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}

job() {
	local what rc over earn
	for what in own get set past fork vfork thread paced rate pace passed time poll told \
		listener timeout; do
		# Long enough to be seen; where it is waited for the end of it, not for long.
		over=5s earn=64K
		[[ $what =~ ^(time|poll|told|listener)$ ]] && over=300ms
		[[ $what == told ]] && earn=400K
		policy "overflow $over" "earn_bytes $earn"
		client timeout 30 "$B/apps/lowat" "$what" >>"$OUT" 2>"$TMP/client.log"
		rc=$?
		[[ $MODE == bare && $rc == 3 ]] && rc=0
		((rc == 0)) ||
			fail "$what: status $rc (3: it was never held): $(cat "$TMP/client.log")"
	done
}
for_modes job none
