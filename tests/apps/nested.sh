#!/bin/bash
# Epoll instances that are waited for through their descriptors, by poll, select and other instances
# in all modes, at two and three depths, by one thread and several: the same as on the kernel alone,
# at ease and with a cut and rewind every 5 ms, and upgraded.
#	nested.sh [SCENARIO...]
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/scenes.bash"
PROG=$B/apps/epollmodes
scenes_named "$@"
(($#)) || mapfile -t SCENES < <(printf '%s\n' "${SCENES[@]}" | grep '^nest_')

begin_mode bare
run_scenes
mv "$OUT" "$TMP/out.strict"
run_scenes -l
[[ -n $SHIM ]] || exit 0
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
run_scenes
differs "at ease" "$TMP/out.strict"
most_were_cut "at ease" 90
[[ $REASONS != *foreign-wait* ]] || fail "connections stayed on TCP: $REASONS"
((FAST * 10 >= (TX_ALL + RX_ALL) * 7)) || fail "only $FAST of $((TX_ALL + RX_ALL)) bytes"
: >"$OUT"
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 5ms'
run_scenes -l
differs "cut and rewound every 5 ms" "$TMP/out.bare"
most_were_cut "cut and rewound every 5 ms" 60
((REWINDS > 2 * CONNS)) || fail "only $REWINDS rewinds"
((BAD == 0)) || fail "$BAD runs differ"
