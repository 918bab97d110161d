# shellcheck shell=bash
# lib.sh - sourced by the tests in tests/zoo: tests/apps/lib.sh with other modes.
#	bare	no library anywhere: what is right
#	both	both ends preloaded, by the default policy: the same output
#	cuts	both ends preloaded, every connection is upgraded at once, and rewound and cut over
#		again each millisecond: the same output
# `zoo JOB VERSION WHAT` runs them, and leaves in $B/zoo/NAME what table.sh makes a row of.

. "$(dirname "${BASH_SOURCE[0]}")/../apps/lib.sh"
[[ ${SHIM-} ]] && MODES=${ZOO_MODES:-bare both cuts} || MODES=bare
OWN_POLICY=()	# lines that a program needs in every mode
BALANCED=	# set: all that was sent by a fast path is read before the ends close
STAYS=		# the reason for which its connections have to stay on TCP, if they have

preloaded() {
	case $1 in
	shim) [[ $MODE != bare ]] ;;
	none) false ;;
	*) [[ $MODE == both || $MODE == cuts ]] ;;
	esac
}

zoo_policy() {
	local lines=("${OWN_POLICY[@]}")
	[[ $MODE == cuts ]] && lines+=('force_cut_every 1ms' 'earn_bytes 0' 'earn_rounds 0')
	policy "${lines[@]}"
}

# expect_upgraded: the counters of this mode, and in the row what share of the bytes was on a fast
# path. Both ends count.
expect_upgraded() {
	collect
	say "$CONNS ends of connections, $FAST of $((TX_ALL + RX_ALL)) bytes on a fast path," \
		"$CUTS cuts," \
		"$REWINDS rewinds, on TCP because: $REASONS"
	((CONNS > 0)) || fail "the library saw no connection"
	[[ -z $BALANCED ]] || ((TX_FAST == RX_FAST)) ||
		fail "sent $TX_FAST bytes on a fast path, and received $RX_FAST there"
	if [[ $STAYS ]]; then
		[[ " $REASONS" == *" $STAYS:"* ]] || fail "no connection stayed on TCP by $STAYS"
	else
		# One that is cut each millisecond may never have a byte to send while it is there.
		((FAST > 0)) || [[ $MODE == cuts && $CUTS != 0 ]] || fail "no byte on a fast path"
	fi
	echo "$MODE $FAST $((TX_ALL + RX_ALL)) $CUTS" >>"$ROW"
}

# zoo JOB VERSION WHAT
zoo() {
	local t
	mkdir -p "$B/zoo"
	ROW=$B/zoo/$NAME
	[[ -z $SHIM ]] || printf 'what %s, %s: %s\n' "$NAME" "$2" "$3" >"$ROW"
	[[ -z $SHIM || -z $STAYS ]] || echo "stays $STAYS" >>"$ROW"
	for m in $MODES; do
		begin_mode "$m"
		zoo_policy
		t=$EPOCHREALTIME
		"$1"
		same_as_bare
		[[ $MODE == bare ]] || expect_upgraded
		say "done in" \
			"$(awk -v a="$t" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }') s"
	done
}

# stop PID: as in apps/lib.sh, and a program that has ended before, or by a signal of its own, has
# crashed.
stop() {
	local rc
	gone "$1" && { wait "$1"; fail "process $1 has ended before, status $?"; }
	kill -TERM "$1"
	within 15 gone "$1" || fail "process $1 ($(ps -o args= -p "$1")) ignores SIGTERM"
	wait "$1"
	rc=$?
	((rc < 128 || rc == 143)) || fail "process $1 ended with status $rc"
}

# web URL FILE UP GOT: what a web server gives of a range, for many small files, for none and for
# many at once; and FILE is put as UP, which is GOT then. get() is the test's.
web() {
	get -r 1000000-30000000 "$1/32m" | sha256sum
	get "$1/1k?[1-300]" | sha256sum
	get -o /dev/null -w '%{http_code}\n' "$1/missing"
	get -T "$2" -o /dev/null -w '%{http_code}\n' "$1/$3"
	sum "$4"
	get -s -Z --no-progress-meter "$1/1k?[1-50]" -o /dev/null \
		-w '%{http_code} %{size_download}\n' | sort | uniq -c
}
