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

as_on_the_kernel 60 || exit 0	# those of `exclusive` hardly live

begin_mode both
STAT=$TMP/stat.exclusive
mkdir -p -m 700 "$STAT"
SCENES=(exclusive_conn)
policy 'earn_bytes 0' 'earn_rounds 0'
exclusive() {
	run_scenes
	most_were_cut "EPOLLEXCLUSIVE" 100
	local rc=$?
	[[ $REASONS != *foreign-wait* ]] || fail "EPOLLEXCLUSIVE sent a connection to TCP: $REASONS"
	return $rc
}
best_of 3 exclusive
((BAD == 0)) || fail "$BAD runs differ"
