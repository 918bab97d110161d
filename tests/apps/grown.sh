#!/bin/bash
# The memory of rings that grew is given back when their connections have ended, not only when
# their places are taken again.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"

# 24 of 2 MiB in two mappings would be 96 MiB; what they keep are small rings of 16 KiB, and
# cursors.
job() {
	policy 'earn_bytes 0' 'earn_rounds 0' 'ring_size 16K' 'ring_max 2M' 'ring_memory 4M' \
		'log_level 4'
	client "$B/apps/grown" 24 8192 >"$OUT"
	[ "$MODE" = bare ] || (($(grep -c 'large ring' "$TMP/shim.$MODE") >= 12)) ||
		fail "$(grep -c 'large ring' "$TMP/shim.$MODE") rings grew"
}
# ... and these after `ring_idle`: a small ring of 1 MiB for each direction would be 4 MiB.
kept() {
	policy 'earn_bytes 0' 'earn_rounds 0' 'ring_size 1M' 'ring_max 0' 'ring_idle 100ms'
	client "$B/apps/grown" 4 1024 >"$OUT"
}
MODES=bare${SHIM:+ both}
for_modes job 1
for_modes kept 1
