#!/bin/bash
# An answer that one send() gives to the kernel, to a reader that takes its time: TCP does not get
# all of it before the connection can be cut over, and the call does not stay in the kernel until
# it has given the last byte.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}

sends() {
	# A busy machine may take longer than 10 ms to find the other end.
	policy 'overflow 200ms'
	two_ends /usr/bin/python3 "$TOP/tests/apps/onesend.py"
	[[ $MODE == both ]] || return 0
	collect
	say "$TX_FAST of $TX_ALL bytes sent on a fast path"
	balanced "one send"
	((4 * TX_FAST >= 3 * TX_ALL)) || { say "more than a quarter went by TCP"; return 1; }
}
job() { best_of 4 sends; }
for_modes job none
