# shellcheck shell=bash
# lib.sh - sourced by the tests in tests/vm, which run on host a of the emulated guests. What the
# head of a test may say:
#	# HOSTS: 2		two guests; 1 (default): only this one; "1 2": the test runs twice
#	# DEVICE: rxe siw	once with each RDMA device, named NAME/rxe and NAME/siw; none: no
#				RDMA (default)
#	# EXCEPT: 2.siw		ways in which it does not run, hosts.device, unless asked for by
#				HOSTS= or DEVICE=
#	# TIMEOUT: 120		seconds
# Exit status 77 skips, the last line of output is the reason. Functions for both hosts are in
# host.sh. What is started on any host is killed at the end, the data network and the RDMA device
# are put right for the next test.
. "${TOP:?}/tests/vm/host.sh"
cd "$TOP" || exit 1
NAME=$(basename "$0" .sh)
# The other end: the same host if there is but one.
PEER=$( ((${HOSTS:-1} == 2)) && echo b || echo a)
P4=${data_addr[$PEER]} P6=${data_addr6[$PEER]}

say() { echo "$NAME: $*"; }
fail() {
	local f
	echo "$NAME: FAILED: $*"
	for f in "$LOG".*; do
		[[ -s $f && $f != *.log ]] && { echo "--- end of ${f##*/}:"; tail -n 15 "$f"; }
	done
	exit 1
}
skip() { echo "$*"; exit 77; }

# both CMD...: on each host of the test.
both() {
	on a "$@" || return
	[[ $PEER == a ]] || on b "$@"
}

NEXT_PORT=20000
# new_port VAR: nobody listens there, no test before had it.
new_port() { printf -v "$1" %s $((NEXT_PORT++)); }

# figures HOST NAME: what `pattern -p "$TMP/NAME.bytes"` has sent and got there so far.
figures() { on "$1" od -An -tu8 -N16 "$TMP/$2.bytes"; }

ended_or_moved() { on "$1" ended "$2" || [[ $(figures "$1" "$2") != "$3" ]]; }
# await HOST NAME: as finish, for a pattern: however slow the machine is, it ends, or goes on
# within a minute.
await() {
	while ! on "$1" ended "$2"; do
		within 60 ended_or_moved "$1" "$2" "$(figures "$1" "$2")" ||
			{ echo "$2 on host $1 stands still: $(figures "$1" "$2")"; return 124; }
		nap 0.1
	done
	on "$1" finish "$2" 1
}

# counter WORD LINE: the figure behind the word in what `counters` printed.
counter() { sed -n "s/.*\b$1 \([^ ]*\).*/\1/p" <<<"$2"; }
