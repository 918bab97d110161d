# scenes.bash - sourced after lib.sh by the tests whose program prints what it sees in many
# scenarios, at the accepting and at the connecting end. PROG and SCENES are set by the test; the
# program says its scenarios with `list`.

scenes_named() { SCENES=("$@"); (($#)) || mapfile -t SCENES < <("$PROG" list); }

# run_scenes [OPTION]...: a scenario that hangs or sees a wrong byte ends the program; it is
# started again for those after it.
run_scenes() {
	local end left rc
	for end in accept connect; do
		echo "== $end" >>"$OUT"
		left=("${SCENES[@]}")
		while ((${#left[@]})); do
			client timeout 150 "$PROG" $end "$@" "${left[@]}" >"$TMP/part" \
				2>"$TMP/client.log"
			rc=$?
			cat "$TMP/part" >>"$OUT"
			((rc == 0)) && break
			echo "status $rc: $(cat "$TMP/client.log")" >>"$OUT"
			[[ $MODE == bare ]] &&
				fail "on the kernel alone, status $rc: $(cat "$TMP/client.log")"
			left=("${left[@]:$(grep -c '^- ' "$TMP/part")}")
			# a warm-up that hangs: the batch has not begun
			[[ $(tail -n 1 "$TMP/client.log") == *warm-up* ]] && left=("${left[@]:1}")
		done
	done
}

# most_were_cut WHAT PERCENT: so many of those that lived long enough were upgraded.
most_were_cut() {
	local n
	collect
	n=$(python3 -S -E -c \
		'import json, sys; print(json.load(sys.stdin)["total"]["connections_fast"])' \
		<"$TMP/stat.$MODE.json")
	say "$1: $n of $CONNS ends of connections were on a fast path, $FAST bytes, $CUTS cuts," \
		"$REWINDS rewinds; on TCP because: $REASONS"
	((n >= CONNS * $2 / 100)) ||
		{ say "only $n of $CONNS ends of connections were upgraded"; return 1; }
}

# differs WHAT BARE: notes how this run differs from the one on the kernel alone.
BAD=0
differs() {
	cmp -s "$2" "$OUT" && return
	say "FAILED: $1 (>) is not as on the kernel alone (<)"
	diff "$2" "$OUT"
	BAD=$((BAD + 1))
}

# as_on_the_kernel PERCENT: the scenes on the kernel alone, at ease, and with a cut and rewind every
# 5 ms, which may bring an edge without news. At ease so many of their connections are upgraded, and
# at_ease() looks at more, if there is one. 1: there is no library.
as_on_the_kernel() {
	begin_mode bare
	run_scenes
	mv "$OUT" "$TMP/out.strict"
	run_scenes -l
	[[ -n $SHIM ]] || return 1
	begin_mode both
	policy 'earn_bytes 0' 'earn_rounds 0'
	best_of 3 scenes_at_ease "$TMP/out.strict" "$1"
	: >"$OUT"
	policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 5ms'
	best_of 3 scenes_cut 5 60 -l
}
# scenes_at_ease BARE PERCENT: a try, for best_of.
scenes_at_ease() {
	run_scenes
	differs "at ease" "$1"
	most_were_cut "at ease" "$2" || return
	[[ $(type -t at_ease) != function ]] || at_ease
}
# scenes_cut MS PERCENT [OPTION]...: the same with cuts, which the policy forces.
scenes_cut() {
	run_scenes "${@:3}"
	differs "cut and rewound every $1 ms" "$TMP/out.bare"
	most_were_cut "cut and rewound every $1 ms" "$2" || return
	((REWINDS > 2 * CONNS)) || { say "only $REWINDS rewinds"; return 1; }
}
