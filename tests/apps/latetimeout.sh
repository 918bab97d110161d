#!/bin/bash
# A sender whose SO_SNDTIMEO is shorter than what it has learned to wait for a late reader sends
# what TCP takes all the same, in time.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}

job() {
	policy 'ring_max 0'
	two_ends /usr/bin/python3 "$TOP/tests/apps/latetimeout.py"
	[[ $MODE == bare ]] || expect_paths
}
for_modes job none
