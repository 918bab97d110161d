#!/bin/bash
# Two ends that both send first, and a circle of three, of whom one sends first: TCP's buffers
# take it. Nobody hangs, and nobody learns from ends that wait for each other to wait longer: a
# trial may hold the circle up once in a while.
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}
too_much=

# first WHAT BYTES [poll]
first() {
	local rc
	[[ $too_much == *" $1 $2 "* ]] && return
	client timeout 20 "$B/apps/sendfirst" "$1" "$2" 12 ${3:+"$3"} >"$TMP/client.log" 2>&1
	rc=$?
	if [[ $MODE == bare && $rc == 124 ]]; then
		say "the kernel's buffers don't take $2 bytes here: no test of $1"
		too_much+=" $1 $2 "
		return
	fi
	((rc == 0)) || fail "$*: status $rc: $(cat "$TMP/client.log")"
	cat "$TMP/client.log" >>"$OUT"
}

job() {
	local what how
	for how in "" poll; do
		policy ${how:+'earn_bytes 0'}
		for what in "two 100000" "two 300000" "two 1000000" "two 3000000" \
			"three 300000" "three 1000000" "three 3000000"; do
			# shellcheck disable=SC2086
			first $what $how
		done
	done
	[[ $MODE == both ]] || return 0
	collect
	say "$FAST bytes on a fast path, $OVERFLOWS overflows"
	((OVERFLOWS > 0)) || fail "no ring was ever full"
}
for_modes job none
