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
semantics_at_ease() {
	run_scenes
	differs "at ease" "$TMP/out.bare"
	most_were_cut "at ease"
}
best_of 3 semantics_at_ease
((CUTS < 20 * CONNS)) || { say "FAILED: $CUTS cuts and $REWINDS rewinds though nothing forces" \
	"them"; BAD=$((BAD + 1)); }
: >"$OUT"
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 3ms'
semantics_cut() {
	run_scenes
	differs "cut and rewound every 3 ms" "$TMP/out.bare"
	most_were_cut "cut and rewound every 3 ms" || return
	((REWINDS > 2 * CONNS)) || { say "only $REWINDS rewinds"; return 1; }
}
best_of 3 semantics_cut
((BAD == 0)) || fail "$BAD runs differ"
