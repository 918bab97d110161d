#!/bin/bash
# A reader that is slower than its sender, and reads: what TCP holds when the connection is cut
# over comes first, and takes longer than `overflow`. That is no reader that has stopped: nothing
# falls back.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}

reads() {
	policy 'overflow 60ms'	# a pause of a busy machine is seldom as long, and may come once
	two_ends /usr/bin/python3 "$TOP/tests/apps/slowreader.py"
	[[ $MODE == both ]] || return 0
	collect
	say "$TX_FAST of $TX_ALL bytes sent on a fast path, $OVERFLOWS overflows"
	balanced "a slow reader"
	((2 * TX_FAST > TX_ALL)) || { say "most went by TCP"; return 1; }
}
job() { best_of 4 reads; }
for_modes job none
