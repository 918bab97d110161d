#!/bin/bash
# A reader that shares its processor with a program that computes, and has the least claim to it:
# it is away for some hundred milliseconds at a time, and yet it is reading, so the sender's ring
# is full for no reason to go back to TCP.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
MODES=${MODES/ client server/}
CPU=$(taskset -cp $$ | sed 's/.*[^0-9]//')
[[ -n $CPU ]] || skip "no processor is known"

# One round; what became of it goes to ROUNDS.
round() {
	local port py=(/usr/bin/python3 "$TOP/tests/apps/starved.py")
	free_port port
	server "${py[@]}" server "$port"
	wait_port "$port"
	env -i taskset -c "$CPU" bash -c 'while :; do :; done' 3>&- &
	PIDS+=("$!")
	client timeout 30 "${py[@]}" client "$port" "$CPU" >>"$OUT" || fail "client: status $?"
	kill "${PIDS[-1]}"
	finish "$SRV" 15 || fail "server"
	[[ $MODE == both ]] || return 0
	collect
	say "$TX_FAST of $TX_ALL bytes sent on a fast path, $OVERFLOWS overflows"
	((OVERFLOWS == 0 && 2 * TX_FAST > TX_ALL)) && WELL=$((WELL + 1))
	true
}

# The reader may once be asleep for another reason just when it is looked at.
job() {
	WELL=0
	policy 'overflow_max 20s' 'discovery 10s'
	for _ in 1 2 3; do round; done
	[[ $MODE != both ]] || ((WELL >= 2)) ||
		fail "a reader without a processor is taken for one that does not read"
}
for_modes job none
