#!/bin/bash
# Every way to wait with epoll, poll and select, with bytes that are checked, on connections that
# have been or are being cut over: the same as on the kernel alone. Once at ease, once with a cut
# and rewind every 5 ms (where an edge without news is allowed).
#	epoll-modes.sh [SCENARIO...]
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/scenes.bash"
PROG=$B/apps/epollmodes
scenes_named "$@"
(($#)) || mapfile -t SCENES < <(printf '%s\n' "${SCENES[@]}" | grep -v '^nest_')	# nested.sh
ulimit -n 4096 2>/dev/null
(($(ulimit -n) >= 3000)) || skip "only $(ulimit -n) file descriptors"

begin_mode bare
run_scenes
mv "$OUT" "$TMP/out.strict"
run_scenes -l
[[ -n $SHIM ]] || exit 0
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
run_scenes
differs "at ease" "$TMP/out.strict"
most_were_cut "at ease" 60	# those of `exclusive` hardly live
: >"$OUT"
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 5ms'
run_scenes -l
differs "cut and rewound every 5 ms" "$TMP/out.bare"
most_were_cut "cut and rewound every 5 ms" 60
((REWINDS > 2 * CONNS)) || fail "only $REWINDS rewinds"

begin_mode both
STAT=$TMP/stat.exclusive
mkdir -p -m 700 "$STAT"
SCENES=(exclusive_conn)
policy 'earn_bytes 0' 'earn_rounds 0'
run_scenes
most_were_cut "EPOLLEXCLUSIVE" 100
[[ $REASONS != *foreign-wait* ]] || fail "EPOLLEXCLUSIVE sent a connection to TCP: $REASONS"
((BAD == 0)) || fail "$BAD runs differ"
