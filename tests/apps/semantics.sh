#!/bin/bash
# What a program sees in the corners of the socket calls, on connections that have been cut over: the same as on the kernel
# alone. Once at ease, once with a cut and rewind every 3 ms; at the accepting and at the connecting end.
# TIMEOUT: 180
. "$(dirname "$0")/lib.sh"
MODES=bare${SHIM:+ both}

# All scenarios; one that hangs or sees a wrong byte ends the program, which is then started for those after it.
run() {
	local end left rc
	for end in accept connect; do
		echo "== $end" >>"$OUT"
		left=("${SCENES[@]}")
		while ((${#left[@]})); do
			client timeout 100 "$B/apps/semantics" $end "${left[@]}" >"$TMP/part" 2>"$TMP/client.log"
			rc=$?
			cat "$TMP/part" >>"$OUT"
			((rc == 0)) && break
			echo "status $rc: $(cat "$TMP/client.log")" >>"$OUT"
			[[ $MODE == bare ]] && fail "on the kernel alone, status $rc: $(cat "$TMP/client.log")"
			left=("${left[@]:$(grep -c '^- ' "$TMP/part")}")
		done
	done
}
# Every connection that lived long enough was upgraded: all but those of `refused`.
most_were_cut() {
	[[ $MODE == bare ]] && return
	collect
	FASTC=$(python3 -S -E -c 'import json, sys; t = json.load(sys.stdin)["total"]; print(t["connections_fast"])' <"$TMP/stat.$MODE.json")
	say "$1: $FASTC of $CONNS ends of connections were on a fast path, $FAST bytes, $CUTS cuts, $REWINDS rewinds; $REASONS"
	((FASTC >= CONNS * 9 / 10)) || fail "only $FASTC of $CONNS ends of connections were upgraded"
}
SCENES=("$@")
(($#)) || mapfile -t SCENES < <("$B/apps/semantics" list)
BAD=0
for m in $MODES; do
	begin_mode "$m"
	policy 'earn_bytes 0' 'earn_rounds 0'
	run
	same_as_bare_or_note() {
		cmp -s "$TMP/out.bare" "$OUT" && return
		say "FAILED: $1: different from the kernel alone (<) is (>)"
		diff "$TMP/out.bare" "$OUT"
		BAD=$((BAD + 1))
	}
	same_as_bare_or_note "at ease"
	most_were_cut "at ease"
	[[ $m == bare ]] && continue
	: >"$OUT"
	policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 3ms'
	run
	same_as_bare_or_note "cut and rewound"
	most_were_cut "cut and rewound every 3 ms"
	((REWINDS > 500)) || fail "only $REWINDS rewinds"
done
((BAD == 0)) || fail "$BAD runs differ"
