#!/bin/bash
# check-model.sh [SIM] - checks the Promela model with spin: safety and liveness, in a temporary
# directory. SIM, the simulator's binary, is asked for its state names, which must be the model's.
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
	gcc -O2 -w -DVECTORSZ=2048 $ccflags -o pan pan.c
	# shellcheck disable=SC2086
	./pan -m200000 $panflags >pan.out 2>&1 || true
	if ! grep -q 'errors: 0' pan.out || grep -qE 'max search depth too small|out of memory' pan.out; then
		echo "check-model: $name: FAILED"
		cat pan.out
		[ -f ./*.trail ] && spin -t -p -g $spinflags "$model" | tail -60
		exit 1
	fi
	echo "$name: errors: 0, $(grep -oE '[0-9.e+]+ states, stored' pan.out)"
}

check "safety, for ever"        ""               "-DSAFETY -DNOCLAIM -DCOLLAPSE" ""
check "safety, close"           "-DCLOSE"        "-DSAFETY -DNOCLAIM -DCOLLAPSE" ""
check "safety, close and kill"  "-DCLOSE -DKILL" "-DSAFETY -DNOCLAIM -DCOLLAPSE" ""
check "bytes keep arriving"     ""               "-DNP -DNOCLAIM -DCOLLAPSE"     "-l -f"
check "a rewind ends"           ""               "-DCOLLAPSE"                    "-a -f -N home_ends"
