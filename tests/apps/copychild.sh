#!/bin/bash
# Children that _Fork() or clone() has made, in an event loop of their own, and at their exec
# while another thread held locks.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"

job() {
	policy 'earn_bytes 0' 'earn_rounds 0'
	for what in loop exec dup block; do client "$B/apps/copychild" "$what"; done >"$OUT"
}
MODES=bare${SHIM:+ both}
for_modes job none
