#!/bin/bash
# A program starts one child after the other, each of which inherits the socket of a busy
# connection: that one is not cut and rewound for each of them. It stays on TCP for longer and
# longer, says why, and is on shared memory again when nobody starts children any more. It also says
# how often the background thread was woken meanwhile.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
[[ $MODES == *both* ]] || skip "it counts cuts: no library, or only at one end"
MODES=both
CHILDREN=300

conn() { RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn "$@"; }
figures() { conn "pid = $CLI" -o cuts,rewinds,reason | tail -n 1; }
fast() { [[ $(conn "tx shm rx shm" -o fd | grep -cE '^ *[0-9]+$') == 2 ]]; }
spawned() { grep -q "^spawned $CHILDREN" "$TMP/client.log"; }
# A pause may be over when the last child has ended: it is looked for meanwhile, too.
paused() { [[ $(figures) == *rewound-often* ]] && seen=rewound-often; }
# How often the background thread of the client has slept.
slept() {
	local t

	for t in /proc/"$CLI"/task/*; do
		[[ $(<"$t/comm") == rdmashim ]] &&
			sed -n 's/^voluntary_ctxt_switches:\t//p' "$t/status"
	done
}
spawned_and_paused() { paused || true; spawned; }

job() {
	local port before after seen=- slept
	free_port port
	server "$B/apps/lentoften" listen "$port"
	wait_port "$port"
	mkfifo "$TMP/in"
	shim_env "$B/apps/lentoften"
	env "${SHIM_ENV[@]}" "$B/apps/lentoften" connect "$port" \
		<"$TMP/in" >"$TMP/client.log" 2>&1 3>&- &
	CLI=$!
	PIDS+=("$CLI")
	exec 4>"$TMP/in"
	within 20 fast || fail "it stays on TCP: $(figures)"
	read -r _ before _ < <(figures)
	slept=$(slept)
	echo "spawn $CHILDREN" >&4
	within 60 spawned_and_paused || fail "no $CHILDREN children: $(cat "$TMP/client.log")"
	slept=$(($(slept) - slept))
	[[ $seen != - ]] || within 5 paused
	read -r _ after _ < <(figures)
	say "$(cat "$TMP/client.log") (rounds, ms), rewinds: $((after - before)); on TCP: $seen;" \
		"woken: $slept"
	# both directions, with pauses of 20 ms, 40 ms ... in what is a second or a few
	((after - before <= 40)) || fail "$((after - before)) rewinds for $CHILDREN children"
	[[ $seen == rewound-often ]] || fail "no reason was seen, or another: $(figures)"
	within 30 fast || fail "it does not leave TCP any more: $(figures)"
	exec 4>&-
	finish "$CLI" 10 || fail "the client: $(cat "$TMP/client.log")"
	finish "$SRV" 10 || fail "the server: $(cat "$TMP/server.log")"
	echo right >"$OUT"
}

for_modes job none
