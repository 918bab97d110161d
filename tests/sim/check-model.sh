#!/bin/bash
# check-model.sh [SIM] - checks the Promela models with spin, in a temporary directory: cut.pml (the cut/rewind machine, safety and
# liveness) and bell.pml (who publishes and who goes to sleep). SIM, the simulator's binary, is asked for its state names, which must be the model's.
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
	grep -E '^mtype = \{ (TX|RX)_' "$model" | grep -oE '(TX|RX)_[A-Z]+' | sort >model.states
	"$sim" --states | sort >code.states
	if ! diff model.states code.states; then
		echo "check-model: the model and the code have different states" >&2
		exit 1
	fi
	echo "states: model and code agree ($(wc -l <code.states))"
fi

# check NAME SPIN-FLAGS CC-FLAGS PAN-FLAGS
check() {
	local name="$1" spinflags="$2" ccflags="$3" panflags="$4"

	# shellcheck disable=SC2086
	spin -a $spinflags "$model" >spin.out || { cat spin.out; exit 1; }
	# shellcheck disable=SC2086
	gcc -O2 -w -DVECTORSZ=2048 -DCOLLAPSE $ccflags -o pan pan.c
	# shellcheck disable=SC2086
	./pan -m1000000 $panflags >pan.out 2>&1 || true
	if ! grep -q 'errors: 0' pan.out || grep -qE 'max search depth too small|out of memory' pan.out; then
		echo "check-model: $name: FAILED"
		cat pan.out
		spin -k "$(echo ./*.trail)" -p -g $spinflags "$model" | tail -60
		exit 1
	fi
	echo "$name: errors: 0, $(grep -oE '[0-9.e+]+ states, stored' pan.out)"
}

S="-DSAFETY -DNOCLAIM"
CYCLES="-DCAP=1 -DM=4"		# unbounded: cycles are real
check "close"                  "-DBYTES=4 -DCUTS=3 -DCLOSE"                        "$S" ""
check "close, kill"            "-DBYTES=4 -DCUTS=2 -DCLOSE -DKILL"                 "$S" ""
check "close, kill, larger"    "-DBYTES=4 -DCUTS=2 -DCLOSE -DKILL -DRING=2 -DCAP=3" "$S" ""
check "unbounded"              "$CYCLES"                                           "$S" ""
check "bytes keep arriving"    "$CYCLES"                "-DNP -DNOCLAIM -DNFAIR=3" "-l -f"
check "a rewind ends"          "$CYCLES"                "-DNFAIR=3"                "-a -f -N home_ends"

# A check that cannot fail is none: without a rule the model must be found wrong.
broken() {
	spin -a $2 "$model" >spin.out
	# shellcheck disable=SC2086
	gcc -O2 -w -DVECTORSZ=2048 -DCOLLAPSE $3 -o pan pan.c
	# shellcheck disable=SC2086
	./pan -m1000000 $4 >pan.out 2>&1 || true
	rm -f ./*.trail
	grep -q 'errors: 1' pan.out || { echo "check-model: $1: not found"; exit 1; }
	echo "without $1: found"
}
broken "max(C,S)"              "-DBYTES=4 -DCUTS=2 -DNO_MAX_CS"                     "$S" ""
broken "the ring's tail"       "-DBYTES=4 -DCUTS=2 -DCLOSE -DKILL -DNO_TAIL"        "$S" ""
broken "FROZEN crossing CUT"   "$CYCLES -DNO_CROSSING"  "-DNFAIR=3"                "-a -f -N home_ends"

model="${model%cut.pml}bell.pml"
check "sleepers"               ""            "-DSAFETY" ""
check "sleepers, plain stores" "-DPLAIN_ARM" "-DSAFETY" ""
broken "the publisher's fence"        "-DNO_FENCE_TX"            "-DSAFETY" ""
broken "the sleeper's fence"          "-DPLAIN_ARM -DNO_FENCE_RX" "-DSAFETY" ""
broken "the look after arming"        "-DLOOK_FIRST"             "-DSAFETY" ""
broken "the slot before the summary"  "-DSUMMARY_FIRST"          "-DSAFETY" ""
broken "taking the bits at once"      "-DREAD_CLEAR"             "-DSAFETY" ""
broken "the ring for a marked slot"   "-DSKIP_MARKED"            "-DSAFETY" ""
