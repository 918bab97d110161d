#!/bin/bash
# A ring allreduce as collectives libraries make it: blocks both ways at once, sends under a lock
# that the reader needs.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
policy "earn_bytes 0" "overflow 10s"

job() {
	local part
	for part in 65536 1048576; do
		client timeout 40 "$B/bench/allreduce" 16 4 $part >"$TMP/rate.$MODE" ||
			fail "status $? with blocks of $part"
		say "blocks of $part: $(<"$TMP/rate.$MODE")"
		echo "blocks of $part: right" >>"$OUT"
	done
}
MODES="bare both" for_modes job 100000000
