#!/bin/bash
# What a program sees in the corners of the socket calls, on connections that have been cut over:
# the same as on the kernel alone. Once at ease, once with a cut and rewind every 3 ms; at the
# accepting and at the connecting end.
#	semantics.sh [SCENARIO...]
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/scenes.bash"
PROG=$B/apps/semantics
scenes_named "$@"

begin_mode bare
run_scenes
[[ -n $SHIM ]] || exit 0
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
best_of 3 scenes_at_ease "$TMP/out.bare" 90
((CUTS < 20 * CONNS)) || { say "FAILED: $CUTS cuts and $REWINDS rewinds though nothing forces" \
	"them"; BAD=$((BAD + 1)); }
: >"$OUT"
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 3ms'
best_of 3 scenes_cut 3 90
((BAD == 0)) || fail "$BAD runs differ"
