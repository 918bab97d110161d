#!/bin/bash
# Fds that are added to an epoll instance while another thread closes them, or sleeps in it.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}	# there is only one process

job() {
	policy 'earn_bytes 0' 'earn_rounds 0'
	client "$B/apps/lateadd" 40 >"$OUT" || fail "status $?"
}
for_modes job none
