#!/bin/bash
# check-model.sh [SIM] - checks the Promela models with spin, in a temporary directory: cut.pml (the cut/rewind machine, safety and
# liveness) and bell.pml (who publishes and who goes to sleep). SIM, the simulator's binary, is asked for the states, messages and
# transitions of the machine: those that the verifier has taken must be the same.
# Exit: 0 clean, 1 errors, 77 no spin on this machine.
set -euo pipefail
model="$(cd "$(dirname "$0")" && pwd)/cut.pml"
sim="${1:-}"

if ! command -v spin >/dev/null; then
	echo "check-model: spin is not installed; the Promela model was not checked" >&2
	exit 77
fi
[ -n "$sim" ] && sim="$(realpath "$sim")"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
cd "$dir"

if [ -n "$sim" ]; then
	grep -E '^mtype = ' "$model" | grep -oE '\b[A-Z_]+\b' | sort >model.states
	"$sim" --states | sort >code.states
	if ! diff model.states code.states; then
		echo "check-model: the model and the code have different states or messages" >&2
		exit 1
	fi
	echo "states and messages: model and code agree ($(wc -l <code.states))"
fi

# verify SPIN-FLAGS CC-FLAGS PAN-FLAGS: into pan.out.
verify() {
	rm -f ./*.trail
	# shellcheck disable=SC2086
	spin -a $1 "$model" >spin.out || { cat spin.out; exit 1; }
	# shellcheck disable=SC2086
	gcc -O2 -w -DVECTORSZ=2048 -DCOLLAPSE $2 -o pan pan.c
	# shellcheck disable=SC2086
	./pan -m1000000 $3 >pan.out 2>&1 || true
}

# Two at a time, each in a directory of its own: queue COMMAND...; drain shows what they said and fails if one did.
queued=0 told=0
queue() {
	queued=$((queued + 1))
	if ((queued > 2)); then wait -n || true; fi
	mkdir "$queued"
	(cd "$queued" && "$@" >said 2>&1 && touch well) &
}
drain() {
	local bad=0
	wait
	while ((told < queued)); do
		told=$((told + 1))
		cat "$told/said"
		[ -e "$told/well" ] || bad=1
	done
	((bad == 0)) || exit 1
}

# check NAME SPIN-FLAGS CC-FLAGS PAN-FLAGS
check() {
	local name="$1" spinflags="$2" ccflags="$3" panflags="$4"

	verify "-DTRACE $spinflags" "$ccflags" "$panflags"
	# pan.c says which numbers its states have.
	sed -n 's/^\tcase \([0-9]*\): Printf("\([TR]X_[A-Z]*\)"); return;/s, \1 , \2 ,;s, \1$, \2,/p' pan.c >names
	sed -n 's/^transition //p' pan.out | sed -f names >>transitions
	if ! grep -q 'errors: 0' pan.out || grep -qE 'max search depth too small|out of memory' pan.out; then
		echo "check-model: $name: FAILED"
		cat pan.out
		verify "$spinflags" "$ccflags" "$panflags"	# spin cannot replay what is written in C
		spin -k "$(echo ./*.trail)" -p -g $spinflags "$model" | tail -60
		exit 1
	fi
	echo "$name: errors: 0, $(grep -oE '[0-9.e+]+ states, stored' pan.out)"
}

S="-DSAFETY -DNOCLAIM"
CYCLES="-DCAP=1 -DM=4"		# unbounded: cycles are real
queue check "close"                  "-DBYTES=4 -DCUTS=3 -DCLOSES"                        "$S" ""
queue check "close, kill"            "-DBYTES=4 -DCUTS=2 -DCLOSES -DKILL"                 "$S" ""
queue check "close, kill, larger"    "-DBYTES=4 -DCUTS=2 -DCLOSES -DKILL -DRING=2 -DCAP=3" "$S" ""
queue check "unbounded"              "$CYCLES"                                           "$S" ""
queue check "bytes keep arriving"    "$CYCLES"                "-DNP -DNOCLAIM -DNFAIR=3" "-l -f"
queue check "a rewind ends"          "$CYCLES"                "-DNFAIR=3"                "-a -f -N home_ends"

# A check that cannot fail is none: without a rule the model must be found wrong.
broken() {
	verify "$2" "$3" "$4"
	grep -q 'errors: 1' pan.out || { echo "check-model: $1: not found"; exit 1; }
	echo "without $1: found"
}
queue broken "max(C,S)"              "-DBYTES=4 -DCUTS=2 -DNO_MAX_CS"                     "$S" ""
queue broken "the ring's tail"       "-DBYTES=4 -DCUTS=2 -DCLOSES -DKILL -DNO_TAIL"        "$S" ""
queue broken "FROZEN crossing CUT"   "$CYCLES -DNO_CROSSING"  "-DNFAIR=3"                "-a -f -N home_ends"

drain

# Transitions of the machine that the model has not, and why.
not_modelled='
.. . (PATH_DEAD|CTL_LOST|CTL_REMADE) .	one host, whose path does not die, and whose control socket lives as long as the process
TX A FROZEN T	only after ARMED was lost with a control socket that was made again
RX A ARM T	only after BACK was lost so
RX F ARM T	the same
RX A HOME T	only after the control socket was lost
RX A KERNEL_EOF K	only if the sender dies between the header of the ring and CUT, which are one step here
RX K CREDIT T	only a peer that says BACK before all is consumed
'
if [ -n "$sim" ]; then
	sed 's/[TR]X_//g' ./*/transitions | sort -u >model.transitions
	while IFS=$'\t' read -r what _; do
		[ -n "$what" ] && echo "^$what\$"
	done <<<"$not_modelled" >patterns
	"$sim" --transitions | sort >all.transitions
	grep -vEf patterns all.transitions >code.transitions
	while read -r what; do
		grep -qE "$what" all.transitions || { echo "check-model: the code has no transition $what" >&2; exit 1; }
	done <patterns
	if ! diff model.transitions code.transitions; then
		echo "check-model: the model and the code have different transitions" >&2
		exit 1
	fi
	echo "transitions: model and code agree ($(wc -l <code.transitions), and $(($(wc -l <all.transitions) - $(wc -l <code.transitions))) that the model does not have)"
fi

model="${model%cut.pml}bell.pml"
queue check "sleepers"               ""            "-DSAFETY" ""
queue check "sleepers, plain stores" "-DPLAIN_ARM" "-DSAFETY" ""
queue broken "the publisher's fence"        "-DNO_FENCE_TX"            "-DSAFETY" ""
queue broken "the sleeper's fence"          "-DPLAIN_ARM -DNO_FENCE_RX" "-DSAFETY" ""
queue broken "the look after arming"        "-DLOOK_FIRST"             "-DSAFETY" ""
queue broken "the slot before the summary"  "-DSUMMARY_FIRST"          "-DSAFETY" ""
queue broken "taking the bits at once"      "-DREAD_CLEAR"             "-DSAFETY" ""
queue broken "the ring for a marked slot"   "-DSKIP_MARKED"            "-DSAFETY" ""
drain
