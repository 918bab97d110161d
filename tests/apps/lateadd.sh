#!/bin/bash
# An fd that is added to an epoll instance while another thread closes it: the instance must not keep what nobody takes out.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}	# there is only one process

job() {
	policy 'earn_bytes 0' 'earn_rounds 0'
	client "$B/apps/lateadd" 40 >"$OUT" || fail "status $?"
}
for_modes job none
