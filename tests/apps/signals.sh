#!/bin/bash
# Signal handlers that use, interrupt or jump out of calls on connections that have been cut over:
# as on the kernel alone. At ease, and with a cut and rewind every 3 ms.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
MODES=bare${SHIM:+ both}

# All scenes, each a process: one that hangs or dies leaves the others alone.
run() {
	local s rc
	for s in "${SCENES[@]}"; do
		client timeout -s KILL 30 "$B/apps/signals" "$s" >>"$OUT" 2>"$TMP/client.log"
		rc=$?
		((rc == 0)) && continue
		echo "$s: status $rc: $(cat "$TMP/client.log")" >>"$OUT"
		[[ $MODE == bare ]] && fail "on the kernel alone: $(tail -n 3 "$OUT")"
	done
}
compare() {
	if ! cmp -s "$TMP/out.bare" "$OUT"; then
		say "FAILED: $1: different from the kernel alone (<) is (>)"
		diff "$TMP/out.bare" "$OUT"
		BAD=$((BAD + 1))
	fi
	collect
	say "$1: $CONNS ends of connections, $FAST bytes on a fast path, $CUTS cuts, $REWINDS" \
		"rewinds, on TCP because: $REASONS"
	((FAST >= ${#SCENES[@]} * 5000)) || fail "only $FAST bytes on a fast path"
}
SCENES=("$@")
# ThreadSanitizer's runtime shows its own handlers' flags, delivers a signal later, and one that
# comes within fork() to both processes; with it alone, without the library, these differ already.
(($#)) ||
	mapfile -t SCENES < <("$B/apps/signals" list |
	if [[ ${SAN-} == thread ]]; then grep -vx -e installed -e queue_storm -e fork_storm; else \
	cat; fi)
BAD=0
begin_mode bare
run
if [[ $MODES == *both* ]]; then
	begin_mode both
	policy 'earn_bytes 0' 'earn_rounds 0'
	run
	compare "at ease"
	: >"$OUT"
	policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 3ms'
	run
	compare "cut and rewound"
	((REWINDS > 15 * ${#SCENES[@]})) || fail "only $REWINDS rewinds"
fi
((BAD == 0)) || fail "$BAD runs differ"
