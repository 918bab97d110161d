#!/bin/bash
# A child that is forked while the library has a connection's socket for a moment, a peer's proof
# or a copy, keeps none.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"

job() {
	policy 'earn_bytes 0' 'earn_rounds 0'
	client "$B/apps/forkbeside" proofs 30 >"$OUT"
	client "$B/apps/forkbeside" copies 30 >>"$OUT"
}
MODES=bare${SHIM:+ both}
for_modes job none
