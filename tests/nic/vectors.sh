#!/bin/bash
# TIMEOUT: 120
# Completion vectors of a device that take no more queues: a link takes one that does, whichever the
# process would have had, and is there at once.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0'
for free in 0 2 3; do
	device profile=mlx5 vectors=4 "vectors_full=$((15 & ~(1 << free)))"
	: >"$TMP/log"
	echoes
	back_on_rdma
	(($(paths_up) >= 2)) || fail "$(paths_up) ends of paths: $(cat "$TMP/log")"
	! grep -q 'not connected' "$TMP/log" || fail "an attempt failed: $(cat "$TMP/log")"
	say "only vector $free has room: $(by_rdma) bytes by RDMA"
	end_echoes
	no_device
done
exit 0
