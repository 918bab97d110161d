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

at_ease() {
	[[ $REASONS != *foreign-wait* ]] || fail "connections stayed on TCP: $REASONS"
	((FAST * 10 >= (TX_ALL + RX_ALL) * 7)) ||
		{ say "only $FAST of $((TX_ALL + RX_ALL)) bytes"; return 1; }
}
as_on_the_kernel 90 || exit 0
((BAD == 0)) || fail "$BAD runs differ"
